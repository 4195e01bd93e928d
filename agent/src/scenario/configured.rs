//! The thresholds of a scenario from an incident: those that the agent was configured with when it happened.

use brink_stream::model::data::{Configuration, ThresholdParts};
use brink_stream::model::field::Field;
use serde_json::{Map, Value, json};

use super::TO_WRITE;

/// What the steps of such a scenario have figures of.
const SEEN: [&str; 2] = ["memory.available", HEADROOM];
const HEADROOM: &str = "memory.headroom";
const ALLOCATABLE: &str = "allocatableMemory.available";
/// What the kubelet derives for containerfs no scenario is told.
const DERIVED: &str = "containerfs.";

/// The `config` of a scenario, and what it says of its thresholds.
pub(super) fn config(configured: &Field<Configuration>, notes: &mut Vec<String>) -> Value {
    let known = match configured {
        Field::Value(known) => known,
        Field::Missing(reason) => {
            notes.push(format!(
                "the thresholds that were configured are not in the record ({}), and none is set: {TO_WRITE}",
                reason.words()
            ));
            return empty();
        }
    };
    notes.push(sentence(known));
    let unseen = known.parts.iter().map(|part| part.signal.as_str());
    let mut unseen: Vec<&str> = unseen.filter(|signal| !SEEN.contains(signal)).collect();
    unseen.dedup();
    if !unseen.is_empty() {
        notes.push(format!(
            "the record has figures of memory.available and memory.headroom alone: thresholds of {} are never met",
            unseen.join(", ")
        ));
    }
    written(known)
}

/// No threshold at all, Brink's own default included.
fn empty() -> Value {
    json!({"evictionHard": {}, "headroomHard": "0%"})
}

fn sentence(known: &Configuration) -> String {
    let of_seen = |part: &&ThresholdParts| SEEN.contains(&part.signal.as_str());
    if known.parts.iter().any(|part| of_seen(&part)) {
        format!(
            "its thresholds are those that were configured ({}); change them in config to try others",
            known.thresholds.join(", ")
        )
    } else {
        format!("no threshold of memory was configured, and none is set: {TO_WRITE}")
    }
}

fn written(known: &Configuration) -> Value {
    let mut config = empty();
    let mut maps: [(&str, Map<String, Value>); 4] = [
        ("evictionHard", Map::new()),
        ("evictionSoft", Map::new()),
        ("evictionSoftGracePeriod", Map::new()),
        ("evictionMinimumReclaim", Map::new()),
    ];
    for part in &known.parts {
        let signal = part.signal.as_str();
        match (signal, &part.grace) {
            (HEADROOM, None) => config["headroomHard"] = json!(part.value),
            (HEADROOM, Some(grace)) => {
                config["headroomSoft"] = json!(part.value);
                config["headroomSoftGracePeriod"] = json!(grace);
            }
            (ALLOCATABLE, None) => {}
            _ if signal.starts_with(DERIVED) => {}
            (_, grace) => put(&mut maps, part, grace.as_ref()),
        }
    }
    for (key, map) in maps {
        if !map.is_empty() {
            config[key] = map.into();
        }
    }
    // A hard threshold of memory is copied to allocatable memory unless that is switched off.
    let has = |signal: &str| known.parts.iter().any(|part| part.signal == signal);
    if has(SEEN[0]) && !has(ALLOCATABLE) {
        config["enforceNodeAllocatable"] = json!(["none"]);
    }
    config["memoryPolicy"] = json!(known.memory_policy);
    if let Some(period) = &known.pressure_transition {
        config["evictionPressureTransitionPeriod"] = json!(period);
    }
    if let Some(grace) = known.max_pod_grace_seconds {
        config["evictionMaxPodGracePeriod"] = json!(grace);
    }
    config
}

/// Puts one of the kubelet's into the maps for hard ones, soft ones, their graces, and minimum reclaims.
fn put(
    [hard, soft, graces, reclaims]: &mut [(&str, Map<String, Value>); 4],
    part: &ThresholdParts,
    grace: Option<&String>,
) {
    let insert = |map: &mut Map<String, Value>, text: &str| {
        map.insert(part.signal.clone(), json!(text));
    };
    match grace {
        None => insert(&mut hard.1, &part.value),
        Some(grace) => {
            insert(&mut soft.1, &part.value);
            insert(&mut graces.1, grace);
        }
    }
    if let Some(more) = &part.min_reclaim {
        insert(&mut reclaims.1, more);
    }
}

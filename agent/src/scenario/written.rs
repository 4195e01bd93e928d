//! A scenario from a decision that was really taken: the same signals, usage and requests, so that another threshold can be tried.

use brink_stream::model::incident::Recording;
use serde_json::{Map, Value, json};

use super::{API_VERSION, KIND};
use crate::record::DecisionRecord;
use crate::record::wire::RankedWorkload;

/// Steps of the time before the decision lie so far apart, in milliseconds.
const PACE: u32 = 2000;

/// A scenario, and what it cannot say.
#[derive(Clone, Debug)]
pub struct Written {
    /// The file.
    pub file: Value,
    /// Sentences about what was left out.
    pub notes: Vec<String>,
}

/// The scenario of a decision; with a recording, the time before it too.
///
/// # Errors
/// When the decision was about something that no scenario is made of.
pub fn of_decision(
    decision: &DecisionRecord,
    recording: Option<&Recording>,
) -> Result<Written, String> {
    let signal = decision.threshold.signal.as_str();
    let is_memory = signal.starts_with("memory.") || signal.starts_with("allocatableMemory.");
    if !is_memory && signal != "pid.available" {
        return Err(format!(
            "the decision was about {signal}, and its record has not got what pods use of that"
        ));
    }
    let mut notes = Vec::new();
    let pods: Vec<&RankedWorkload> = pods(decision, &mut notes);
    let usage: Map<String, Value> = pods
        .iter()
        .filter_map(|pod| Some((pod.full_name(), used(pod.usage?, is_memory))))
        .collect();
    let steps = steps(decision, recording, &usage);
    if steps.len() > 1 && !usage.is_empty() {
        let note = "what each pod used is known as of the decision alone: every step has that";
        notes.push(note.to_owned());
    }
    Ok(Written {
        file: json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "notes": notes,
            "config": config(decision),
            "pods": pods.iter().map(|pod| manifest(pod, is_memory)).collect::<Vec<_>>(),
            "steps": steps,
        }),
        notes,
    })
}

/// Who was ranked.
fn pods<'a>(decision: &'a DecisionRecord, notes: &mut Vec<String>) -> Vec<&'a RankedWorkload> {
    let is_victim =
        |pod: &RankedWorkload| pod.uid == decision.victim.uid && pod.name == decision.victim.name;
    let beside = (!decision.ranking.iter().any(is_victim)).then_some(&decision.victim);
    let pods = sayable(decision.ranking.iter().chain(beside), notes);
    let ranked = u32::try_from(decision.ranking.len()).unwrap_or(u32::MAX);
    if decision.candidates > ranked {
        notes.push(format!(
            "the record has the first {ranked} of {} candidates; the others are left out",
            decision.candidates
        ));
    }
    pods
}

/// Those of them that a scenario has words for: whoever it cannot keep from being evicted is left out.
pub(super) fn sayable<'a>(
    ranked: impl Iterator<Item = &'a RankedWorkload>,
    notes: &mut Vec<String>,
) -> Vec<&'a RankedWorkload> {
    let mut pods: Vec<&RankedWorkload> = Vec::new();
    for pod in ranked {
        match pod.refusal.as_deref() {
            None | Some("critical" | "static" | "mirror") => pods.push(pod),
            Some(other) => notes.push(format!(
                "{} refused ({other}), which a scenario cannot say: it is left out",
                pod.full_name()
            )),
        }
        if pod.preference != "normal" {
            notes.push(format!(
                "{} had the preference {}, which the kubelet does not know",
                pod.full_name(),
                pod.preference_words()
            ));
        }
    }
    pods
}

/// A pod that is ranked like it.
pub(super) fn manifest(pod: &RankedWorkload, is_memory: bool) -> Value {
    let mut requests = Map::new();
    if is_memory && pod.request > 0 {
        requests.insert("memory".to_owned(), pod.request.to_string().into());
    }
    let annotations = match pod.refusal.as_deref() {
        Some("static") => json!({"kubernetes.io/config.source": "file"}),
        Some("mirror") => json!({"kubernetes.io/config.mirror": "mirror"}),
        _ => json!({}),
    };
    json!({
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "annotations": annotations},
        "spec": {"priority": pod.priority, "containers": [{"name": "all", "resources": {"requests": requests}}]},
    })
}

/// What it uses, in bytes of memory or in processes.
pub(super) fn used(usage: i64, is_memory: bool) -> Value {
    if is_memory {
        json!({"memory": usage.to_string()})
    } else {
        json!({"processes": usage})
    }
}

/// Only the threshold that was crossed.
fn config(decision: &DecisionRecord) -> Value {
    let crossed = &decision.threshold;
    let signal = match crossed.signal.as_str() {
        // The kubelet derives the one from the other.
        "allocatableMemory.available" => "memory.available",
        signal => signal,
    };
    let amount = crossed.quantity.to_string();
    let grace = format!("{}s", crossed.grace_seconds);
    let mut config = json!({
        "evictionHard": {},
        "headroomHard": "0%",
        "memoryPolicy": decision.memory_policy,
    });
    match (signal, crossed.hard) {
        ("memory.headroom", true) => config["headroomHard"] = amount.into(),
        ("memory.headroom", false) => {
            config["headroomSoft"] = amount.into();
            config["headroomSoftGracePeriod"] = grace.into();
        }
        (signal, true) => config["evictionHard"] = json!({signal: amount}),
        (signal, false) => {
            config["evictionSoft"] = json!({signal: amount});
            config["evictionSoftGracePeriod"] = json!({signal: grace});
        }
    }
    config
}

fn steps(
    decision: &DecisionRecord,
    recording: Option<&Recording>,
    usage: &Map<String, Value>,
) -> Vec<Value> {
    let signals: Map<String, Value> = decision
        .signals
        .iter()
        .map(|seen| (seen.signal.clone(), seen_as(seen.available, seen.capacity)))
        .collect();
    let memory = &decision.memory;
    let headroom = json!({
        "pods": memory.pods_headroom_bytes.map(|bytes| bytes.to_string()),
        "swap": memory.usable_swap_bytes,
        "reserve": memory.reserve_bytes,
    });
    let step = |at: String, signals: &Map<String, Value>| json!({"at": at, "signals": signals, "usage": usage, "headroom": headroom});
    if !decision.threshold.hard {
        let grace = decision.threshold.grace_seconds.saturating_add(1);
        return vec![
            step("0s".to_owned(), &signals),
            step(format!("{grace}s"), &signals),
        ];
    }
    let before = recording.map_or_else(Vec::new, |recording| before(decision, recording));
    let first = before.first().map_or(0, |(before_ms, _)| *before_ms);
    let at = |before_ms: u32| format!("{}ms", first - before_ms.min(first));
    let mut steps: Vec<Value> = before
        .iter()
        .map(|(before_ms, known)| {
            let mut all = signals.clone();
            all.extend(known.clone());
            step(at(*before_ms), &all)
        })
        .collect();
    steps.push(step(at(0), &signals));
    steps
}

/// What the node had left before the decision, oldest first; only while no threshold was crossed.
fn before(decision: &DecisionRecord, recording: &Recording) -> Vec<(u32, Map<String, Value>)> {
    let capacity = |name: &str| {
        decision
            .signals
            .iter()
            .find(|seen| seen.signal == name)
            .map(|seen| seen.capacity)
    };
    let swap = i64::try_from(decision.memory.usable_swap_bytes).unwrap_or(i64::MAX);
    let mut last = None;
    let mut taken = Vec::new();
    for point in &recording.node {
        let is_due = last.is_none_or(|last: u32| last.saturating_sub(point.before_ms) >= PACE);
        if point.before_ms == 0 || !is_due {
            continue;
        }
        last = Some(point.before_ms);
        let figures = [
            ("memory.available", point.available),
            ("memory.headroom", point.headroom.saturating_add(swap)),
        ];
        let known = figures.into_iter().filter_map(|(name, available)| {
            Some((name.to_owned(), seen_as(available, capacity(name)?)))
        });
        taken.push((point.before_ms, known.collect()));
    }
    taken
}

/// A signal as a scenario has it.
pub(super) fn seen_as(available: i64, capacity: i64) -> Value {
    json!({"available": available.to_string(), "capacity": capacity.to_string()})
}

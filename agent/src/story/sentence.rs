//! One sentence for an event, whatever its kind.

use brink_core::node::workload::full_name;
use brink_stream::model::data::{
    AgentStarted, Configuration, LimitImminent, Loss, NodeReclaim, OomScoreAdj, Pressure, Rung,
    ScoreResult, Threshold, Workload,
};
use brink_stream::model::event::Event;
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use serde::Deserialize;

use super::headline::{self, headline};
use crate::record::text::{amount, counted, hardness, mode_words, of_each, stretch, unsigned};

/// Characters of data that is not understood which are shown.
const LONGEST_RAW: usize = 200;

/// What an event tells, in a sentence. Nothing in it is escaped. Data of a form that is not known is shown as it is.
pub fn sentence(event: &Event) -> String {
    told(event).unwrap_or_else(|| {
        let raw = event.data.get();
        let cut: String = raw.chars().take(LONGEST_RAW).collect();
        let more = if cut.len() < raw.len() { "…" } else { "" };
        format!("{cut}{more}")
    })
}

/// The same, and whom it is about where the sentence does not name that.
pub fn sentence_of_whom(event: &Event) -> String {
    let sentence = sentence(event);
    match whom(event) {
        Some(whom) if !sentence.contains(&whom) => format!("{whom}: {sentence}"),
        _ => sentence,
    }
}

fn whom(event: &Event) -> Option<String> {
    let subject = event.subject.as_ref();
    let subject = subject.filter(|subject| !subject.name.is_empty())?;
    Some(match subject.namespace.as_str() {
        "" => subject.name.clone(),
        namespace => full_name(namespace, &subject.name),
    })
}

fn told(event: &Event) -> Option<String> {
    let text = match event.of {
        Kind::AgentStarted => started(&data(event)?),
        Kind::Pressure => pressure(&data(event)?),
        Kind::ThresholdCrossed => threshold("crossed", &data(event)?),
        Kind::ThresholdCleared => threshold("no longer met", &data(event)?),
        Kind::EvictionOrdered | Kind::OomKill | Kind::KillObserved => headline(&data(event)?),
        Kind::EvictionCompleted | Kind::IncidentClosed => closed(&data(event)?),
        Kind::WorkloadStarted => workload("appeared", &data(event)?),
        Kind::WorkloadEnded => workload("is gone", &data(event)?),
        Kind::LimitImminent => imminent(&data(event)?),
        Kind::OomScoreAdjDiffers => oom_score_adj(&data(event)?),
        Kind::NodeReclaim => reclaim(&data(event)?),
        Kind::Loss => loss(&data(event)?),
        Kind::RungChanged => rung(&data(event)?),
        Kind::ConfigurationChanged => configuration(&data(event)?),
    };
    Some(text)
}

fn data<'a, T: Deserialize<'a>>(event: &'a Event) -> Option<T> {
    serde_json::from_str(event.data.get()).ok()
}

fn started(data: &AgentStarted) -> String {
    format!(
        "brink {} started as process {}, mode {}",
        data.version, data.pid, data.mode
    )
}

fn pressure(data: &Pressure) -> String {
    match data.conditions.as_slice() {
        [] => "no condition holds any more".to_owned(),
        conditions => format!("{} holds", conditions.join(" and ")),
    }
}

fn threshold(what: &str, data: &Threshold) -> String {
    let of = |value: Option<i64>| {
        value.map_or_else(|| "unknown".to_owned(), |value| amount(&data.signal, value))
    };
    let grace = if data.hard {
        String::new()
    } else {
        format!(" for {}", stretch(data.grace_seconds.saturating_mul(1000)))
    };
    format!(
        "{} {}<{}{grace} {what}: {} available of {}",
        hardness(data.hard),
        data.signal,
        of(data.quantity),
        of(data.available),
        of(data.capacity)
    )
}

fn closed(incident: &Incident) -> String {
    let mut parts = vec![headline::subject(incident)];
    parts.extend(incident.course.end.clone());
    if let Some(freed) = incident.course.freed.value() {
        parts.push(format!("{} given back", unsigned(*freed)));
    }
    if let Some(millis) = headline::millis_to_exit(incident) {
        parts.push(format!("exited {millis:.1} ms after the kill"));
    }
    parts.join("; ")
}

fn workload(what: &str, data: &Workload) -> String {
    let qos = data
        .qos
        .as_deref()
        .map_or_else(String::new, |qos| format!("{qos}, "));
    let cgroups = match data.cgroups.as_slice() {
        [] => "no cgroup".to_owned(),
        cgroups => cgroups.join(", "),
    };
    format!("{what}: {qos}priority {}, {cgroups}", data.priority)
}

fn imminent(data: &LimitImminent) -> String {
    let millis = i64::try_from(data.time_to_limit_ms).unwrap_or(i64::MAX);
    format!(
        "{} of {} in use, {} more a second: at its limit in {} ({})",
        unsigned(data.usage),
        unsigned(data.limit),
        unsigned(data.growth),
        stretch(millis),
        data.cgroup
    )
}

fn oom_score_adj(data: &OomScoreAdj) -> String {
    let container = data.container.as_deref();
    let container = container.map_or_else(String::new, |name| format!("container {name}: "));
    let others = match data.others {
        0 => String::new(),
        others => format!(", {others} others have another value"),
    };
    let result = match (data.result, data.why.as_deref()) {
        (ScoreResult::Differs, _) => String::new(),
        (ScoreResult::Set, _) => format!("; set for {} of its processes", data.set),
        (ScoreResult::Refused, Some(why)) => format!("; refused: {why}"),
        (ScoreResult::Refused, None) => "; refused".to_owned(),
    };
    format!(
        "{container}oom_score_adj {} instead of {} ({}, pid {}{others}){result}",
        data.value, data.expected, data.process, data.pid
    )
}

fn reclaim(data: &NodeReclaim) -> String {
    let runtime = data.runtime.as_deref().unwrap_or("the container runtime");
    let Some(outcome) = &data.outcome else {
        let left = amount(&data.signal, data.available);
        return format!(
            "{} has {left} left: {runtime} is asked for what it can give back",
            data.signal
        );
    };
    let would = if data.dry_run { "would be " } else { "" };
    let removed = format!(
        "{} and {} {would}removed",
        counted(outcome.containers, "dead container"),
        counted(outcome.images, "unused image")
    );
    // Of what is gone that is no news.
    let kept = of_each(&outcome.kept).filter(|_| data.dry_run);
    let kept = kept.map_or_else(String::new, |kept| format!(", images that stay: {kept}"));
    let why = outcome
        .why
        .as_deref()
        .map_or_else(String::new, |why| format!(" ({why})"));
    let left = outcome.available.map_or_else(
        || "what is left is not known".to_owned(),
        |left| format!("{} left", amount(&data.signal, left)),
    );
    let enough = match outcome.short.as_slice() {
        [] => "which is enough".to_owned(),
        short => format!("still short of {}", short.join(", ")),
    };
    format!(
        "{}: {}{why}, {removed}{kept}; {left}, {enough}",
        data.signal, outcome.result
    )
}

fn loss(data: &Loss) -> String {
    let range = match (data.first, data.last) {
        (Some(first), Some(last)) => format!(", numbers {first} to {last}"),
        _ => String::new(),
    };
    let some = |count: u64| match (data.uncounted, count) {
        (true, 0) => "more than can be counted".to_owned(),
        (true, count) => format!("at least {count}"),
        (false, count) => count.to_string(),
    };
    // The total of one reader is that of its connection.
    let within = if data.place == Loss::READER {
        "on this connection"
    } else {
        "in this run"
    };
    let (count, place) = (some(data.count), &data.place);
    let total = match (data.uncounted, data.total) {
        (true, 0) => String::new(),
        (_, total) => format!(", {} {within}", some(total)),
    };
    format!("{count} lost at {place}{total}{range}")
}

fn rung(data: &Rung) -> String {
    let why = match data.reasons.as_slice() {
        [] => String::new(),
        reasons => format!("; no higher because {}", reasons.join("; ")),
    };
    format!(
        "the guard stands on {} ({}){why}",
        data.rung, data.scheduling
    )
}

fn configuration(data: &Configuration) -> String {
    let thresholds = match data.thresholds.as_slice() {
        [] => "no threshold".to_owned(),
        thresholds => thresholds.join(", "),
    };
    format!(
        "{}; memory policy {}; {thresholds}",
        mode_words(&data.mode),
        data.memory_policy
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_what_stays() {
        let check = |dry_run, expected: &str| {
            let data: NodeReclaim = serde_json::from_value(serde_json::json!({
                "phase": "finished", "signal": "nodefs.available", "quantity": 2, "available": 1, "dryRun": dry_run,
                "functions": [], "runtime": null,
                "outcome": {
                    "result": "done", "why": null, "containers": 1, "images": 0, "removed": ["a/b c (d)"], "refused": [],
                    "saidBytes": 0, "available": 3, "short": [], "tookMs": 1, "kept": {"inUse": 3, "young": 1},
                },
            }))
            .unwrap();
            let told = reclaim(&data);
            assert!(told.contains(expected), "{told}");
        };
        check(
            true,
            "would be removed, images that stay: 3 inUse, 1 young; 3B left",
        );
        check(false, " removed; 3B left, which is enough");
    }

    #[test]
    fn a_loss_says_no_number_that_nobody_knows() {
        let check = |(place, count, total, uncounted): (&str, u64, u64, bool), expected: &str| {
            let data = Loss {
                place: place.to_owned(),
                count,
                total,
                uncounted,
                first: None,
                last: None,
            };
            assert_eq!(loss(&data), expected);
        };
        check(("journal", 2, 9, false), "2 lost at journal, 9 in this run");
        check(
            ("reader", 2, 9, false),
            "2 lost at reader, 9 on this connection",
        );
        check(
            ("reader", 0, 0, true),
            "more than can be counted lost at reader",
        );
        check(
            ("reader", 0, 9, true),
            "more than can be counted lost at reader, at least 9 on this connection",
        );
    }
}

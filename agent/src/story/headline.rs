//! The headline of an incident: who was killed, by whom, why, and how sure that is.

use brink_core::node::workload::full_name;
use brink_stream::model::event::Time;
use brink_stream::model::incident::{
    Cause, Confidence, Identity, Incident, Limit, LimitMethod, Victim,
};

use crate::record::DecisionRecord;
use crate::record::text::{amount, counted, hardness, unsigned};

/// Who was killed, by whom and why, in a sentence. Nothing in it is escaped.
pub fn headline(incident: &Incident) -> String {
    let (who, why) = (whom(incident), why(incident));
    match incident.cause {
        Cause::MemcgOom => format!("the kernel killed {who}: {why}"),
        Cause::GroupOom => format!("the kernel killed {who} together: {why}"),
        Cause::GlobalOom => format!("the kernel killed {who}: the node was out of memory"),
        Cause::KernelOom => {
            format!("the kernel killed {who}: out of memory, and it is not known for whose limit")
        }
        Cause::Eviction => format!("Brink evicted {who}: {why}"),
        Cause::WouldEvict => format!("Brink would have evicted {who}: {why}"),
        Cause::ForeignKill => format!("{} killed {who} with SIGKILL", sender(incident)),
    }
}

/// The incident's workload or, where that is not known, its first victim.
pub fn subject(incident: &Incident) -> String {
    workload(incident)
        .or_else(|| incident.victims.first().map(process))
        .unwrap_or_else(|| "somebody".to_owned())
}

/// The same where there is little room.
pub fn short_subject(incident: &Incident) -> String {
    let process = |victim: &Victim| format!("{} ({})", victim.comm, victim.pid);
    workload(incident)
        .or_else(|| incident.victims.first().map(process))
        .unwrap_or_else(|| "somebody".to_owned())
}

/// A word for what killed, short enough for a table.
pub const fn cause_words(cause: Cause) -> &'static str {
    match cause {
        Cause::MemcgOom => "limit",
        Cause::GroupOom => "limit, group",
        Cause::GlobalOom => "node OOM",
        Cause::KernelOom => "kernel OOM",
        Cause::Eviction => "evicted",
        Cause::WouldEvict => "would evict",
        Cause::ForeignKill => "SIGKILL",
    }
}

/// How sure the limit is, and how it is known.
pub fn certainty(limit: &Limit) -> String {
    let confidence = match limit.confidence {
        Confidence::Exact => "exact",
        Confidence::High => "very likely",
        Confidence::Low => "likely",
    };
    let method = match limit.method {
        LimitMethod::OomControl => "read from the kernel as it decided",
        LimitMethod::EventDelta => "its count of OOMs rose",
        LimitMethod::UnderOom => "it stood under OOM",
        LimitMethod::AtLimit => "the nearest one at its limit",
        LimitMethod::OnlyLimit => "the only one with a limit",
        LimitMethod::LastReclaim => "the trigger had just reclaimed for it",
    };
    format!("{confidence}: {method}")
}

/// Milliseconds from the kill to the last victim's exit.
pub fn millis_to_exit(incident: &Incident) -> Option<f64> {
    let exited = incident.course.exited.value()?;
    Some(millis_after(exited, incident.course.killed.value()?))
}

/// Milliseconds by which one moment is later than another.
#[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
pub fn millis_after(one: &Time, other: &Time) -> f64 {
    one.monotonic_ns.saturating_sub(other.monotonic_ns) as f64 / 1e6
}

/// Everybody who was killed.
pub fn killed(incident: &Incident) -> usize {
    let more = usize::try_from(incident.more_victims).unwrap_or(usize::MAX);
    incident.victims.len().saturating_add(more)
}

fn whom(incident: &Incident) -> String {
    let others = killed(incident).saturating_sub(1);
    let first = incident.victims.first().map(process);
    let processes = match (first, killed(incident)) {
        (Some(first), 1) => Some(first),
        (Some(first), _) => Some(format!("{first} and {}", more(others))),
        (None, 0) => None,
        (None, all) => Some(counted(u64::try_from(all).unwrap_or(u64::MAX), "process")),
    };
    match (processes, workload(incident)) {
        (Some(processes), Some(workload)) => format!("{workload} ({processes})"),
        (Some(processes), None) => processes,
        (None, Some(workload)) => workload,
        (None, None) => "somebody".to_owned(),
    }
}

fn more(others: usize) -> String {
    match others {
        1 => "1 other".to_owned(),
        others => format!("{others} others"),
    }
}

fn process(victim: &Victim) -> String {
    format!("{}, pid {}", victim.comm, victim.pid)
}

fn workload(incident: &Incident) -> Option<String> {
    let identity = incident.workload.value()?;
    let container = container(identity);
    let container =
        container.map_or_else(String::new, |container| format!(", container {container}"));
    Some(match identity.namespace.as_str() {
        "" => format!("{}{container}", identity.name),
        namespace => format!("{}{container}", full_name(namespace, &identity.name)),
    })
}

/// A container by its name, else by as much of its id as runtimes' own tools show.
fn container(identity: &Identity) -> Option<&str> {
    let told = identity.container.as_deref()?;
    Some(if identity.is_container_unnamed() {
        short(told)
    } else {
        told
    })
}

/// The beginning of a container's id.
pub(super) fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

fn why(incident: &Incident) -> String {
    if let Some(decision) = decision(incident) {
        if let Some(limit) = &decision.limit {
            return limit.message.trim_end().trim_end_matches('.').to_owned();
        }
        let crossed = &decision.threshold;
        let of = |value| amount(&crossed.signal, value);
        let (left, wanted) = (of(crossed.available), of(crossed.quantity));
        let is_rounded = left.replace(".0", "") == wanted.replace(".0", "");
        let at = if is_rounded {
            let short = crossed.quantity.saturating_sub(crossed.available);
            format!("{} below {wanted}", of(short))
        } else {
            format!("at {left}, below {wanted}")
        };
        return format!("{} {} was {at}", hardness(crossed.hard), crossed.signal);
    }
    let Some(limit) = incident.limit.value() else {
        return "a limit was hit, and it is not known whose".to_owned();
    };
    let groups = incident.cgroups.value();
    let state = groups.and_then(|groups| groups.iter().find(|group| group.path == limit.cgroup));
    let max = state.and_then(|state| *state.max.value()?);
    let amount = max.map_or_else(String::new, |max| format!(" of {}", unsigned(max)));
    format!(
        "{} was at its limit{amount} ({})",
        limit.cgroup,
        certainty(limit)
    )
}

/// Our own decision, if the incident has one.
pub fn decision(incident: &Incident) -> Option<DecisionRecord> {
    serde_json::from_value(incident.decision.value()?.clone()).ok()
}

fn sender(incident: &Incident) -> String {
    incident.trigger.value().map_or_else(
        || "somebody".to_owned(),
        |trigger| format!("{} (pid {})", trigger.comm, trigger.pid),
    )
}

#[cfg(test)]
mod tests {
    use brink_stream::model::event::Event;

    use super::*;

    #[test]
    fn what_was_short_of_a_threshold_is_seen_however_little_it_was() {
        let sample = include_str!("../../../tests/events/v1alpha1/eviction-completed.json");
        let check = |available: i64, expected: &str| {
            let left = format!("\"quantity\":104857600,\"available\":{available},");
            let text = sample.replace("\"quantity\":104857600,\"available\":101711872,", &left);
            assert!(text.contains(&left));
            let event: Event = serde_json::from_str(&text).unwrap();
            let incident: Incident = serde_json::from_str(event.data.get()).unwrap();
            assert_eq!(why(&incident), expected);
        };
        check(
            101_711_872,
            "hard memory.available was at 97.0Mi, below 100Mi",
        );
        check(
            104_660_992,
            "hard memory.available was at 99.8Mi, below 100Mi",
        );
        check(104_845_312, "hard memory.available was 12.0Ki below 100Mi");
    }
}

//! What is said of an eviction, or of one that would have been: from the record of the decision to an entry of the outbox.

use std::collections::BTreeMap;

use brink_core::base::{Quantity, Span};
use brink_core::node::message::{Message, REASON, Victim, eviction_message};
use brink_core::node::observe::Observation;
use brink_core::node::policy::Policy;
use brink_core::node::signal::{Resource, Signal};
use brink_core::node::threshold::{Threshold, Value};
use brink_core::node::workload::{ContainerUsage, PodDetail, PodUsage, Workload};
use brink_kube::outbox::entry::VERSION;
use brink_kube::outbox::{Cause, Entry, EventWords, Eviction, Key, Part, PodRef};
use jiff::Timestamp;

use crate::record::DecisionRecord;

/// Reason of the event about a pod that would have been evicted.
const DRY_REASON: &str = "WouldEvict";
/// The annotation that marks such an event.
pub(super) const DRY_RUN: &str = "brink.dev/dry-run";
/// What such an event begins with.
const DRY: &str = "Brink only observes; it would have evicted this pod. ";

/// What is known of a decision beyond its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The victim.
    pub(super) victim: &'a Workload,
    /// The thresholds in force.
    pub(super) policy: &'a Policy,
    /// What its containers used.
    pub(super) containers: &'a [ContainerUsage],
}

/// What Kubernetes is told of an eviction that was carried out.
pub(super) fn evicted(record: &DecisionRecord, known: Known<'_>) -> Option<Entry> {
    let said = message(record, known)?;
    let at = seconds(&record.decided.wall)?;
    let generation = known.victim.generation;
    let status = Eviction {
        message: said.text.clone(),
        generation: (generation > 0).then_some(generation),
        at: at.clone(),
        for_limit: record.limit.is_some(),
    };
    let event = words(REASON, true, said, &at);
    Some(entry(record, known.victim, Some(status), event))
}

/// What it is told of one that would have been; an event, and nothing that changes anything.
pub(super) fn would_evict(record: &DecisionRecord, known: Known<'_>) -> Option<Entry> {
    let mut said = message(record, known)?;
    let at = seconds(&record.decided.wall)?;
    said.text.insert_str(0, DRY);
    let mut event = words(DRY_REASON, false, said, &at);
    event
        .annotations
        .insert(DRY_RUN.to_owned(), "true".to_owned());
    Some(entry(record, known.victim, None, event))
}

fn entry(
    record: &DecisionRecord,
    victim: &Workload,
    status: Option<Eviction>,
    event: EventWords,
) -> Entry {
    Entry {
        version: VERSION,
        key: Key {
            boot: record.boot_id.clone(),
            of: Cause::Order(record.order),
        },
        pod: pod(victim),
        status_part: status.as_ref().map_or(Part::None, |_| Part::Owed),
        status,
        event,
        event_part: Part::Owed,
    }
}

/// The pod that a workload is.
pub(super) fn pod(workload: &Workload) -> PodRef {
    PodRef {
        namespace: workload.namespace.clone(),
        name: workload.name.clone(),
        uid: workload.uid.clone(),
    }
}

fn words(reason: &str, warns: bool, said: Message, at: &str) -> EventWords {
    let annotations = said.annotations.as_ref().map_or_else(BTreeMap::new, |all| {
        all.iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    });
    EventWords {
        warns,
        reason: reason.to_owned(),
        message: said.text,
        annotations,
        count: 1,
        first: at.to_owned(),
        last: at.to_owned(),
    }
}

/// The kubelet's message about it; none if the record is of a signal that is not known here.
fn message(record: &DecisionRecord, known: Known<'_>) -> Option<Message> {
    if let Some(limit) = &record.limit {
        // Of these the kubelet says no more, and nothing in annotations.
        return Some(Message {
            text: limit.message.clone(),
            annotations: None,
        });
    }
    let crossed = &record.threshold;
    let signal = Signal::named(&crossed.signal)?;
    let seen = Observation {
        available: crossed.available,
        capacity: crossed.capacity,
        at: None,
    };
    let usage = record
        .victim
        .usage
        .map(|used| usage_of(signal, used.max(0).cast_unsigned()));
    let detail = PodDetail {
        containers: known.containers.to_vec(),
        ..PodDetail::default()
    };
    let victim = Victim {
        pod: known.victim,
        usage: usage.as_ref(),
        detail: &detail,
    };
    let threshold = threshold(record, signal, known.policy);
    Some(eviction_message(&threshold, Some(&seen), victim))
}

/// The threshold as it was written, which decides how its amount prints; the amount itself where the policy has another by now.
fn threshold(record: &DecisionRecord, signal: Signal, policy: &Policy) -> Threshold {
    let crossed = &record.threshold;
    let amount = |threshold: &Threshold| threshold.quantity(crossed.capacity).value();
    let written = policy.thresholds().iter().find(|threshold| {
        threshold.signal == signal
            && threshold.is_hard() == crossed.hard
            && amount(threshold) == crossed.quantity
    });
    written.copied().unwrap_or(Threshold {
        signal,
        grace: Span::from_secs(crossed.grace_seconds),
        value: Value::Quantity(Quantity::new(crossed.quantity, signal.format())),
        min_reclaim: None,
    })
}

fn usage_of(signal: Signal, used: u64) -> PodUsage {
    match signal.resource() {
        Resource::Memory => PodUsage {
            memory: Some(used),
            ..PodUsage::default()
        },
        Resource::Pids => PodUsage {
            processes: Some(used),
            ..PodUsage::default()
        },
        Resource::EphemeralStorage | Resource::Inodes => PodUsage::default(),
    }
}

/// A time of the record's, to the second, as the API has them.
pub(super) fn seconds(wall: &str) -> Option<String> {
    let at: Timestamp = wall.parse().ok()?;
    Some(Timestamp::from_second(at.as_second()).ok()?.to_string())
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;

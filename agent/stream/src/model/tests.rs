//! The committed samples of this version: every kind has one, and what once was told can be read for ever.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::data::{
    AgentStarted, Configuration, LimitImminent, Loss, NodeReclaim, OomScoreAdj, Pressure, Rung,
    Threshold, Workload,
};
use super::event::Event;
use super::incident::Incident;
use super::kind::Kind;

/// What is read of a sample's data, written again.
fn again<T: DeserializeOwned + Serialize>(data: &str) -> serde_json::Result<Value> {
    serde_json::to_value(serde_json::from_str::<T>(data)?)
}

fn read(kind: Kind, data: &str) -> serde_json::Result<Value> {
    match kind {
        Kind::AgentStarted => again::<AgentStarted>(data),
        Kind::Pressure => again::<Pressure>(data),
        Kind::ThresholdCrossed | Kind::ThresholdCleared => again::<Threshold>(data),
        Kind::WorkloadStarted | Kind::WorkloadEnded => again::<Workload>(data),
        Kind::LimitImminent => again::<LimitImminent>(data),
        Kind::OomScoreAdjDiffers => again::<OomScoreAdj>(data),
        Kind::NodeReclaim => again::<NodeReclaim>(data),
        Kind::Loss => again::<Loss>(data),
        Kind::RungChanged => again::<Rung>(data),
        Kind::ConfigurationChanged => again::<Configuration>(data),
        kind => {
            assert!(kind.is_incident());
            again::<Incident>(data)
        }
    }
}

/// Everything in `old` is in `new`, which may have more.
fn keeps(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old
            .iter()
            .all(|(key, value)| new.get(key).is_some_and(|new| keeps(value, new))),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| keeps(old, new))
        }
        (old, new) => old == new,
    }
}

#[test]
fn every_kind_has_a_sample_that_is_read_without_loss() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/events/v1alpha1");
    for kind in Kind::ALL {
        let text = fs::read_to_string(folder.join(format!("{}.json", kind.word()))).unwrap();
        assert_eq!(text.lines().count(), 1);
        let event: Event = serde_json::from_str(&text).unwrap();
        assert_eq!(event.of, kind);
        let old: Value = serde_json::from_str(&text).unwrap();
        assert!(
            keeps(&old, &serde_json::to_value(&event).unwrap()),
            "{}",
            kind.word()
        );
        let data =
            read(kind, event.data.get()).unwrap_or_else(|error| panic!("{}: {error}", kind.word()));
        assert!(keeps(&old["data"], &data), "{}: {data:#}", kind.word());
    }
}

//! What a journal keeps comes back as it was: policy, workloads, observations, gate.

use std::fmt::Debug;

use brink_core::node::gate::{GateState, evaluate};
use brink_core::node::workload::WorkloadTable;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Compared as printed, because equality of quantities ignores how they print.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    let back: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
    assert_eq!(format!("{back:?}"), format!("{value:?}"), "{text}");
}

#[test]
fn everything_comes_back() {
    for name in super::names() {
        let scenario = super::scenario(&name);
        let policy = scenario.draft.check().unwrap().on_layout(scenario.layout);
        check(&scenario.draft);
        check(&policy);
        check(&WorkloadTable::new(scenario.pods.clone(), 7));
        let mut state = GateState::default();
        for step in &scenario.steps {
            check(&step.seen);
            check(&evaluate(&policy, &mut state, step.now, &step.seen));
            check(&state);
            for pod in &scenario.pods {
                check(&step.usage_of(pod));
            }
        }
    }
}

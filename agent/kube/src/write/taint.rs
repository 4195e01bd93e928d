//! Our own taint for a node short of memory: put on and taken off beside everybody else's.

use brink_core::node::condition::{Condition, ConditionSet};
use serde_json::{Value, json};

/// Its key.
pub const KEY: &str = "brink.dev/memory-pressure";
/// Its effect.
const EFFECT: &str = "NoSchedule";

/// Whether the node is to have it.
pub fn is_wanted(held: ConditionSet) -> bool {
    held.contains(Condition::MemoryPressure)
}

/// The steps that put it on a node or take it off, made so that nobody else's change in between is lost; none where it is as it
/// should be.
pub fn steps(node: &Value, wanted: bool) -> Option<Value> {
    let taints = node["spec"]["taints"].as_array();
    let known = taints.map_or(&[][..], |taints| taints);
    let is_ours = |taint: &&Value| taint["key"] == KEY && taint["effect"] == EFFECT;
    if known.iter().any(|taint| is_ours(&taint)) == wanted {
        return None;
    }
    let mut others: Vec<Value> = known
        .iter()
        .filter(|taint| !is_ours(taint))
        .cloned()
        .collect();
    if wanted {
        others.push(json!({ "key": KEY, "effect": EFFECT }));
    }
    let unchanged = match taints {
        Some(taints) => json!({ "op": "test", "path": "/spec/taints", "value": taints }),
        // There is no list to compare with: then the whole node must be as it was.
        None => json!({
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": node["metadata"]["resourceVersion"],
        }),
    };
    let change = if others.is_empty() {
        json!({ "op": "remove", "path": "/spec/taints" })
    } else {
        json!({ "op": "add", "path": "/spec/taints", "value": others })
    };
    Some(json!([unchanged, change]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taints: Option<Value>) -> Value {
        let mut node = json!({ "metadata": { "resourceVersion": "7" }, "spec": {} });
        if let Some(taints) = taints {
            node["spec"]["taints"] = taints;
        }
        node
    }

    #[test]
    fn it_is_put_on_and_taken_off_beside_others() {
        let ours = json!({ "key": KEY, "effect": "NoSchedule" });
        let other = json!({ "key": "dedicated", "value": "db", "effect": "NoExecute" });
        // Of the same key, and another's: it keeps pods away in another manner.
        let like_ours = json!({ "key": KEY, "effect": "NoExecute" });
        let test =
            |taints: &Value| json!({ "op": "test", "path": "/spec/taints", "value": taints });
        let add = |taints: Value| json!({ "op": "add", "path": "/spec/taints", "value": taints });
        let unchanged = json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" });
        let before = json!([other, like_ours]);
        let both = json!([other, like_ours, ours]);
        for (taints, wanted, expected) in [
            (None, true, Some(json!([unchanged, add(json!([ours]))]))),
            (None, false, None),
            (Some(both.clone()), true, None),
            (Some(before.clone()), false, None),
            (
                Some(before.clone()),
                true,
                Some(json!([test(&before), add(both.clone())])),
            ),
            (
                Some(both.clone()),
                false,
                Some(json!([test(&both), add(before)])),
            ),
            (
                Some(json!([ours])),
                false,
                Some(json!([
                    test(&json!([ours])),
                    { "op": "remove", "path": "/spec/taints" }
                ])),
            ),
        ] {
            assert_eq!(steps(&node(taints.clone()), wanted), expected, "{taints:?}");
        }
    }

    #[test]
    fn only_memory_pressure_taints() {
        let set = |condition| [condition].into_iter().collect();
        assert!(is_wanted(set(Condition::MemoryPressure)));
        assert!(!is_wanted(set(Condition::PidPressure)));
    }
}

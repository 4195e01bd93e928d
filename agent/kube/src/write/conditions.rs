//! The node's conditions under our own names: the kubelet rewrites its own every few seconds.

use brink_core::node::condition::{Condition, ConditionSet};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What our names begin with.
pub const PREFIX: &str = "brink.dev/";

/// One condition as it was told, or is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// The condition.
    pub of: Condition,
    /// Whether it holds.
    pub holds: bool,
    /// Since when, RFC 3339 to the second.
    pub since: String,
    /// Whether the log has it; not after a restart.
    #[serde(skip)]
    pub is_logged: bool,
}

/// `type` of a condition.
pub fn type_of(condition: Condition) -> String {
    format!("{PREFIX}{condition}")
}

/// How the conditions that are `measured` stand now, when those of `before` were told last.
pub fn standings(
    measured: ConditionSet,
    held: ConditionSet,
    before: &[Standing],
    now: &str,
) -> Vec<Standing> {
    let standing = |of: Condition| {
        let holds = held.contains(of);
        let same = before
            .iter()
            .find(|known| known.of == of && known.holds == holds);
        Standing {
            of,
            holds,
            since: same.map_or(now, |known| &known.since).to_owned(),
            is_logged: same.is_some_and(|known| known.is_logged),
        }
    };
    measured.iter().map(standing).collect()
}

/// The patch of the node's status (strategic merge: conditions by their type).
pub fn patch(standings: &[Standing], now: &str) -> Value {
    let conditions = standings.iter().map(|standing| {
        let words = standing.of.words(standing.holds);
        json!({
            "type": type_of(standing.of),
            "status": if standing.holds { "True" } else { "False" },
            "reason": words.reason.replacen("Kubelet", "Brink", 1),
            "message": words.message.replacen("kubelet", "brink", 1),
            "lastHeartbeatTime": now,
            "lastTransitionTime": standing.since,
        })
    });
    json!({ "status": { "conditions": conditions.collect::<Vec<_>>() } })
}

/// The patch that takes conditions away again: nobody keeps them right any more.
pub fn removal(of: impl IntoIterator<Item = Condition>) -> Value {
    let conditions = of
        .into_iter()
        .map(|condition| json!({ "$patch": "delete", "type": type_of(condition) }));
    json!({ "status": { "conditions": conditions.collect::<Vec<_>>() } })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    const THEN: &str = "2026-11-22T10:00:00Z";
    const NOW: &str = "2026-11-22T11:00:00Z";

    fn set(conditions: &[Condition]) -> ConditionSet {
        conditions.iter().copied().collect()
    }

    #[test]
    fn since_when_stays_until_it_changes() {
        use Condition::{MemoryPressure, PidPressure};
        let measured = set(&[MemoryPressure, PidPressure]);
        let first = standings(measured, set(&[MemoryPressure]), &[], THEN);
        let found: Vec<(Condition, bool)> = first.iter().map(|s| (s.of, s.holds)).collect();
        assert_eq!(found, [(MemoryPressure, true), (PidPressure, false)]);
        let second = standings(measured, ConditionSet::EMPTY, &first, NOW);
        let since: Vec<&str> = second.iter().map(|s| s.since.as_str()).collect();
        assert_eq!(since, [NOW, THEN]);
    }

    #[test]
    fn the_words_are_the_kubelets_under_our_name() {
        let measured = set(&Condition::ALL);
        let held = set(&[Condition::MemoryPressure]);
        let patch = patch(&standings(measured, held, &[], NOW), NOW);
        let said: Vec<[&str; 4]> = patch["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| ["type", "status", "reason", "message"].map(|key| c[key].as_str().unwrap()))
            .collect();
        assert_eq!(
            said,
            [
                [
                    "brink.dev/MemoryPressure",
                    "True",
                    "BrinkHasInsufficientMemory",
                    "brink has insufficient memory available"
                ],
                [
                    "brink.dev/DiskPressure",
                    "False",
                    "BrinkHasNoDiskPressure",
                    "brink has no disk pressure"
                ],
                [
                    "brink.dev/PIDPressure",
                    "False",
                    "BrinkHasSufficientPID",
                    "brink has sufficient PID available"
                ],
            ]
        );
        let node: Node = serde_json::from_value(json!({
            "metadata": {}, "status": patch["status"]
        }))
        .unwrap();
        let again = serde_json::to_value(node).unwrap();
        assert_eq!(
            again["status"], patch["status"],
            "every field is one of the schema"
        );
    }

    #[test]
    fn what_is_taken_away_is_named_by_its_type() {
        assert_eq!(
            removal([Condition::PidPressure]),
            json!({ "status": { "conditions": [
                { "$patch": "delete", "type": "brink.dev/PIDPressure" }
            ] } })
        );
    }
}

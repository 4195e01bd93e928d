//! The node's condition that says whether the kubelet may evict for the same shortage as we.

use std::sync::Arc;

use brink_core::base::Quantity;
use brink_core::node::lead::{First, Lead};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::door::shortened;

/// `type` of the condition.
pub const TYPE: &str = "brink.dev/KubeletConflict";

/// Whether headroom is short as well nobody can tell beforehand.
const CONFIRMED: &str =
    " once headroom is short too (memoryPolicy: confirmed; amounts alone are compared)";

/// How it stands between us and the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// By the thresholds of both.
    By(Lead),
    /// The kubelet does not say what it goes by, for this reason, and what it said last may be over.
    Unknown(Arc<str>),
}

impl Conflict {
    /// The same while Brink carries no orders out.
    #[must_use]
    pub fn while_idle(self) -> Self {
        match self {
            Self::By(lead) => Self::By(lead.while_idle()),
            Self::Unknown(why) => Self::Unknown(why),
        }
    }

    /// Whether there is one; none where that is not known.
    const fn holds(&self) -> Option<bool> {
        match self {
            Self::By(lead) => Some(lead.first().is_conflict()),
            Self::Unknown(_) => None,
        }
    }
}

/// How it was told, or is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// Whether it holds; none where that is told as not known.
    pub holds: Option<bool>,
    /// Since when, RFC 3339 to the second.
    pub since: String,
    /// Whether the log of this run has it.
    #[serde(skip)]
    pub is_logged: bool,
}

impl Told {
    /// `status` of the condition.
    pub const fn status(&self) -> &'static str {
        match self.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

/// How it stands now, when it was told like `before` last.
pub fn told(conflict: &Conflict, before: Option<&Told>, now: &str) -> Told {
    let holds = conflict.holds();
    let same = before.filter(|before| before.holds == holds);
    same.cloned().unwrap_or_else(|| Told {
        holds,
        since: now.to_owned(),
        is_logged: false,
    })
}

/// The condition in a patch of the node's status.
pub fn condition(conflict: &Conflict, told: &Told, now: &str) -> Value {
    let (reason, message) = match conflict {
        Conflict::By(lead) => words(*lead),
        Conflict::Unknown(why) => (
            "KubeletDoesNotSay",
            shortened(format!("the kubelet does not say what it goes by: {why}")),
        ),
    };
    json!({
        "type": TYPE,
        "status": told.status(),
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": told.since,
    })
}

/// What takes it away in a patch of the node's status.
pub fn removal() -> Value {
    json!({ "$patch": "delete", "type": TYPE })
}

fn words(lead: Lead) -> (&'static str, String) {
    let amount = |bytes: Option<i64>| Quantity::from_bytes(bytes.unwrap_or(0)).to_string();
    let (ours, kubelets) = (amount(lead.ours), amount(lead.kubelets));
    let only = if lead.is_confirmed { CONFIRMED } else { "" };
    let signal = lead.signal;
    let both = format!("{signal}: brink acts below {ours}{only}, the kubelet below {kubelets}");
    match lead.first() {
        First::KubeletNever => (
            "KubeletHasNoThreshold",
            format!("the kubelet has no hard threshold on {signal}"),
        ),
        First::Brink => ("BrinkActsFirst", both),
        First::BrinkNarrowly => {
            let margin = amount(Some(lead.margin));
            let why = format!("less than the lead margin of {margin} between them: both may evict");
            ("LeadTooSmall", format!("{both}; {why}"))
        }
        First::Kubelet => (
            "KubeletActsFirst",
            format!("{both}: both may evict for one shortage"),
        ),
        First::BrinkNever => (
            "BrinkDoesNotAct",
            format!(
                "{signal}: the kubelet acts below {kubelets}; brink does not: it has no hard threshold there, or its orders \
                 are not carried out now"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use brink_core::node::signal::Signal;
    use k8s_openapi::api::core::v1::Node;

    use super::*;

    const THEN: &str = "2026-11-22T10:00:00Z";
    const NOW: &str = "2026-11-22T11:00:00Z";

    fn lead(ours: Option<i64>, kubelets: Option<i64>) -> Lead {
        let mebibytes = |amount: i64| amount << 20;
        Lead {
            signal: Signal::MemoryAvailable,
            ours: ours.map(mebibytes),
            kubelets: kubelets.map(mebibytes),
            margin: 64 << 20,
            is_confirmed: false,
        }
    }

    fn by(ours: i64, kubelets: i64) -> Conflict {
        Conflict::By(lead(Some(ours), Some(kubelets)))
    }

    fn unknown(why: &str) -> Conflict {
        Conflict::Unknown(why.into())
    }

    #[test]
    fn it_says_who_acts_first_and_by_which_thresholds() {
        let check = |ours, kubelets, expected: [&str; 3]| {
            let conflict = Conflict::By(lead(ours, kubelets));
            let condition = condition(&conflict, &told(&conflict, None, NOW), NOW);
            let said = ["status", "reason", "message"].map(|key| condition[key].as_str().unwrap());
            assert_eq!(said, expected);
        };
        let both = "memory.available: brink acts below 164Mi, the kubelet below 100Mi";
        check(Some(164), Some(100), ["False", "BrinkActsFirst", both]);
        check(
            Some(130),
            Some(100),
            [
                "True",
                "LeadTooSmall",
                "memory.available: brink acts below 130Mi, the kubelet below 100Mi; less than the lead margin of 64Mi between \
                 them: both may evict",
            ],
        );
        check(
            Some(50),
            Some(100),
            [
                "True",
                "KubeletActsFirst",
                "memory.available: brink acts below 50Mi, the kubelet below 100Mi: both may evict for one shortage",
            ],
        );
        let never = "memory.available: the kubelet acts below 100Mi; brink does not: it has no hard threshold there, or its orders \
                     are not carried out now";
        check(None, Some(100), ["True", "BrinkDoesNotAct", never]);
        let none = "the kubelet has no hard threshold on memory.available";
        check(Some(50), None, ["False", "KubeletHasNoThreshold", none]);
    }

    #[test]
    fn it_names_the_signal_that_it_is_about() {
        let conflict = Conflict::By(Lead {
            signal: Signal::AllocatableMemoryAvailable,
            ..lead(Some(130), Some(100))
        });
        let condition = condition(&conflict, &told(&conflict, None, NOW), NOW);
        let said = condition["message"].as_str().unwrap();
        let start = "allocatableMemory.available: brink acts below 130Mi";
        assert!(said.starts_with(start), "{said}");
    }

    #[test]
    fn where_headroom_has_to_be_short_too_it_says_so() {
        let conflict = Conflict::By(Lead {
            is_confirmed: true,
            ..lead(Some(164), Some(100))
        });
        let condition = condition(&conflict, &told(&conflict, None, NOW), NOW);
        let said = condition["message"].as_str().unwrap();
        assert!(
            said.contains("brink acts below 164Mi once headroom is short too"),
            "{said}"
        );
        assert!(said.ends_with("the kubelet below 100Mi"), "{said}");
    }

    #[test]
    fn what_the_log_has_is_logged_again_only_when_it_changes() {
        let first = told(&by(50, 100), None, THEN);
        assert!(!first.is_logged);
        let logged = Told {
            is_logged: true,
            ..first
        };
        assert!(told(&by(130, 100), Some(&logged), NOW).is_logged);
        assert!(!told(&by(164, 100), Some(&logged), NOW).is_logged);
        assert!(!told(&unknown("HTTP 403"), Some(&logged), NOW).is_logged);
    }

    #[test]
    fn since_when_stays_until_it_changes() {
        let first = told(&by(50, 100), None, THEN);
        assert_eq!((first.holds, first.since.as_str()), (Some(true), THEN));
        let narrow = told(&by(130, 100), Some(&first), NOW);
        assert_eq!(narrow, first);
        let well = told(&by(164, 100), Some(&narrow), NOW);
        assert_eq!((well.holds, well.since.as_str()), (Some(false), NOW));
        let silent = told(&unknown("HTTP 403"), Some(&first), NOW);
        assert_eq!((silent.holds, silent.since.as_str()), (None, NOW));
        // Another reason is the same status.
        let away = told(&unknown("no answer"), Some(&silent), THEN);
        assert_eq!(away, silent);
    }

    #[test]
    fn a_kubelet_that_does_not_say_what_it_goes_by_makes_it_unknown_with_what_failed() {
        let check = |why: &str, expected: &str| {
            let conflict = unknown(why).while_idle();
            let condition = condition(&conflict, &told(&conflict, None, NOW), NOW);
            let said = ["status", "reason"].map(|key| condition[key].as_str().unwrap());
            assert_eq!(said, ["Unknown", "KubeletDoesNotSay"]);
            let message = condition["message"].as_str().unwrap();
            assert!(message.starts_with(expected), "{message}");
            assert!(message.len() <= 512, "{}", message.len());
        };
        let said = "the kubelet does not say what it goes by: no answer within 10 s";
        check("no answer within 10 s", said);
        // What a program that fetches credentials says may be long.
        check(&"\u{20ac}".repeat(1000), "the kubelet does not say");
    }

    #[test]
    fn every_field_is_one_of_the_schema() {
        for conflict in [by(50, 100), unknown("HTTP 403")] {
            let sent = condition(&conflict, &told(&conflict, None, NOW), NOW);
            let node = json!({ "metadata": {}, "status": { "conditions": [sent] } });
            let node: Node = serde_json::from_value(node).unwrap();
            let again = serde_json::to_value(node).unwrap();
            assert_eq!(again["status"]["conditions"][0], sent);
        }
    }
}

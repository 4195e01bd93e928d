//! What Kubernetes was told of an eviction, and what it is still to be told.

use serde::{Deserialize, Serialize};

/// How far it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToldView {
    /// The pod's status: `none`, `waiting`, `told` or `ended`.
    pub status: String,
    /// The event: the same words.
    pub event: String,
    /// Why something waits, or will never be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl ToldView {
    /// One sentence for people.
    pub fn sentence(&self) -> String {
        let status = match self.status.as_str() {
            "told" => "the pod's status is written",
            "waiting" => "the pod's status waits",
            "ended" => "the pod's status will not be written",
            _ => "the pod's status is left alone",
        };
        let event = match self.event.as_str() {
            "told" => "its event is posted",
            "waiting" => "its event waits",
            _ => "there will be no event",
        };
        let why = self
            .why
            .as_ref()
            .map_or_else(String::new, |why| format!(": {why}"));
        format!("{status}, {event}{why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_how_far_it_has_come_and_why_no_further() {
        let view = |status: &str, event: &str, why: Option<&str>| ToldView {
            status: status.to_owned(),
            event: event.to_owned(),
            why: why.map(str::to_owned),
        };
        for (view, expected) in [
            (
                view("told", "told", None),
                "the pod's status is written, its event is posted",
            ),
            (
                view("waiting", "waiting", Some("no answer")),
                "the pod's status waits, its event waits: no answer",
            ),
            (
                view("ended", "told", Some("the pod is gone")),
                "the pod's status will not be written, its event is posted: the pod is gone",
            ),
            (
                view("none", "told", None),
                "the pod's status is left alone, its event is posted",
            ),
        ] {
            assert_eq!(view.sentence(), expected);
        }
    }
}

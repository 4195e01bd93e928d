//! What became of a test in a guest, on what day and of which commit, as one line of text.
use std::fmt;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use crate::when::When;

/// What became of a test when it ran last; that it was unsteady stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct Known {
    pub(super) outcome: Outcome,
    pub(super) when: When,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// It held only when it was run again, once at the least on this kernel.
    Unsteady,
    Failed,
    /// Why.
    Skipped(String),
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = &self.when;
        match &self.outcome {
            Outcome::Passed => write!(f, "passed {when}"),
            Outcome::Unsteady => write!(f, "unsteady {when}"),
            Outcome::Failed => write!(f, "failed {when}"),
            Outcome::Skipped(reason) => write!(f, "skipped {when} {reason}"),
        }
    }
}

impl From<Known> for String {
    fn from(known: Known) -> Self {
        known.to_string()
    }
}

impl TryFrom<String> for Known {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        let mut words = text.splitn(3, ' ');
        let parts = [words.next(), words.next(), words.next()];
        let (outcome, when) = match parts {
            [Some("passed"), Some(when), None] => (Outcome::Passed, when),
            [Some("unsteady"), Some(when), None] => (Outcome::Unsteady, when),
            [Some("failed"), Some(when), None] => (Outcome::Failed, when),
            [Some("skipped"), Some(when), Some(reason)] => {
                (Outcome::Skipped(reason.to_owned()), when)
            }
            _ => return Err(anyhow!("`{text}` is no outcome of a test")),
        };
        Ok(Self {
            outcome,
            when: When::from(when),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_and_nonsense_is_refused() {
        for outcome in [
            Outcome::Passed,
            Outcome::Unsteady,
            Outcome::Failed,
            Outcome::Skipped("needs two words".to_owned()),
        ] {
            for when in ["2026-01-01", "2026-01-01@3dc94a75", "2026-01-01@3dc94a75+"] {
                let (outcome, when) = (outcome.clone(), When::from(when));
                let known = Known { outcome, when };
                assert_eq!(Known::try_from(known.to_string()).unwrap(), known);
            }
        }
        for text in ["", "passed", "skipped 2026-01-01", "held 2026-01-01"] {
            assert!(Known::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}

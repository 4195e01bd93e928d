//! When something that is published was found, and of which commit.
use std::{fmt, process::Command};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::workspace;

/// A day and a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub(crate) struct When {
    /// The day, as `2026-01-31`.
    pub(crate) day: String,
    /// The commit that was checked out, with a `+` where something but the documents had been changed since. Not kept until
    /// 2026-11-27.
    pub(crate) commit: Option<String>,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.day)?;
        self.commit
            .iter()
            .try_for_each(|commit| write!(f, "@{commit}"))
    }
}

impl When {
    /// Today, and what is checked out.
    ///
    /// # Errors
    /// When `date` or git does not tell.
    pub(crate) fn now() -> anyhow::Result<Self> {
        let day = workspace::stdout_of(Command::new("date").args(["--utc", "+%F"]))?;
        let day = day.trim().to_owned();
        let commit = workspace::commit(workspace::root());
        let why = "git does not tell the commit, which is kept beside what is published";
        let commit = Some(commit.context(why)?);
        Ok(Self { day, commit })
    }
}

impl From<When> for String {
    fn from(when: When) -> Self {
        when.to_string()
    }
}

impl From<String> for When {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&str> for When {
    fn from(text: &str) -> Self {
        let (day, commit) = match text.split_once('@') {
            Some((day, commit)) => (day, Some(commit.to_owned())),
            None => (text, None),
        };
        let day = day.to_owned();
        Self { day, commit }
    }
}

//! One finding: where it is, what is wrong and what to do about it.
use std::fmt;

/// Whether a finding fails the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// The check fails.
    Fault,
    /// It is printed, and nothing more.
    Advice,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, from the workspace's directory.
    pub path: String,
    /// The line, from 1; 0 when it is about the whole file.
    pub line: usize,
    /// Whether it fails the check.
    pub weight: Weight,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    /// A finding that fails the check.
    pub fn fault(
        path: &str,
        line: usize,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (message, remedy) = (message.into(), remedy.into());
        Self {
            path: path.to_owned(),
            line,
            weight: Weight::Fault,
            message,
            remedy,
        }
    }

    /// A finding that is only printed.
    pub fn advice(
        path: &str,
        line: usize,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            weight: Weight::Advice,
            ..Self::fault(path, line, message, remedy)
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            weight,
            message,
            remedy,
        } = self;
        let mark = match weight {
            Weight::Fault => "",
            Weight::Advice => "advice: ",
        };
        write!(
            f,
            "{path}:{line}: {mark}{message}\n    {remedy}",
            line = line.max(&1)
        )
    }
}

//! How a command ends: exit codes, and errors that know theirs.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::config::finding::Faults;

/// The exit codes, the same for every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It worked; also when nobody read the rest of the output.
    Success = 0,
    /// It did not.
    Failure = 1,
    /// The command line or a file is wrong; everything that is wrong has been said.
    Usage = 2,
    /// It worked, and a threshold is crossed or a check has failed.
    Crossed = 3,
    /// No agent answers on the socket.
    NoAgent = 4,
    /// A permission or capability is missing; which one has been said.
    Denied = 5,
    /// Another agent runs here already.
    OtherAgent = 6,
}

impl Exit {
    /// Every code with what it means, for help and documentation.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Success, "success"),
        (Self::Failure, "failure"),
        (Self::Usage, "wrong command line or file"),
        (
            Self::Crossed,
            "a threshold is crossed, or a check has failed",
        ),
        (Self::NoAgent, "no agent answers"),
        (Self::Denied, "a permission or capability is missing"),
        (Self::OtherAgent, "another agent runs here already"),
    ];

    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command did not do what it was told.
#[derive(Debug)]
pub enum CliError {
    /// Something is wrong with what was written.
    Faults(Faults),
    /// Whoever read our output has gone. That is no error.
    ReaderGone,
    /// Anything else.
    Other {
        /// How to end.
        exit: Exit,
        /// What went wrong.
        error: anyhow::Error,
        /// What to do about it, if that is known.
        advice: Option<String>,
    },
}

impl CliError {
    /// An error that ends with the given code.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self::Other {
            exit,
            error: error.into(),
            advice: None,
        }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        match self {
            Self::Other { exit, error, .. } => Self::Other {
                exit,
                error,
                advice: Some(advice.into()),
            },
            other => other,
        }
    }

    /// How to end.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Faults(faults) if faults.is_denied() => Exit::Denied,
            Self::Faults(_) => Exit::Usage,
            Self::ReaderGone => Exit::Success,
            Self::Other { exit, .. } => *exit,
        }
    }
}

impl From<Faults> for CliError {
    fn from(faults: Faults) -> Self {
        Self::Faults(faults)
    }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failure, error)
    }
}

/// Of what is written out, and of files: a connection can end in a broken pipe too, and its errors are told by whoever asked.
impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::new(Exit::Failure, error)
        }
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_io() {
            Self::from(io::Error::from(error))
        } else {
            Self::new(Exit::Failure, error)
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Faults(faults) => faults.fmt(f),
            Self::ReaderGone => f.write_str("the reader of the output is gone"),
            Self::Other { error, .. } => f.write_str(&with_causes(error)),
        }
    }
}

/// The whole chain on one line; a cause that its error has named already is not named again.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

impl std::error::Error for CliError {}

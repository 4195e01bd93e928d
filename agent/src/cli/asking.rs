//! Asking the running agent, with errors that say what to do next.

use std::path::Path;

use super::exit::{CliError, Exit};
use crate::control::client::{AskError, ask};
use crate::control::protocol::{Answer, Question};

/// Asks, and turns whatever goes wrong into an error with its exit code.
///
/// # Errors
/// When no agent answers, or it says no.
pub(super) fn put(socket: &Path, question: &Question) -> Result<Answer, CliError> {
    ask(socket, question).map_err(|error| match error {
        AskError::NoAgent { .. } => CliError::new(Exit::NoAgent, error)
            .advise("start one with `brink run`, or name its socket with --socket"),
        AskError::NotAllowed { .. } => {
            CliError::new(Exit::Denied, error).advise("ask as root, or as the agent's own user")
        }
        AskError::Refused(ref refusal) => {
            let next = refusal.next.clone();
            CliError::new(Exit::Failure, error).advise(next)
        }
        AskError::Broken { .. } | AskError::Foreign { .. } => CliError::new(Exit::Failure, error),
    })
}

/// An answer to another question than was asked.
pub(super) fn unexpected() -> CliError {
    CliError::new(
        Exit::Failure,
        anyhow::anyhow!("the agent answered another question"),
    )
    .advise("use `brink` of the same version as the agent")
}

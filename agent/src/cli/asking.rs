//! Asking the running agent, with errors that say what to do next.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use brink_stream::serve::door::LONGEST_PATH;

use super::exit::{CliError, Exit};
use super::{explain, pause, rank, status_page};
use crate::config::access::missing;
use crate::control::client::{AskError, ask};
use crate::control::protocol::{Answer, Question, Refusal, RefusalReason};
use crate::record;
use crate::terminal::{Screen, Style, plain};

const UNWELL: &str = "`brink doctor` tells whether the agent is well; its log tells more";

/// Asks, and turns whatever goes wrong into an error with its exit code.
///
/// # Errors
/// When no agent answers, or it says no.
pub(super) fn put(socket: &Path, question: &Question) -> Result<Answer, CliError> {
    ask(socket, question).map_err(|error| failed(socket, error))
}

/// The same for an answer that somebody else has asked for.
pub(super) fn failed(socket: &Path, error: AskError) -> CliError {
    if let Some(error) = no_socket(socket) {
        return error;
    }
    match error {
        AskError::NoAgent { .. } => CliError::new(Exit::NoAgent, error)
            .advise("start one with `brink run`, or name its socket with --socket"),
        AskError::NotAllowed { .. } => {
            CliError::new(Exit::Denied, error).advise(missing("socket", socket))
        }
        AskError::Refused(refusal) => refused(&refusal),
        AskError::Broken { .. } => CliError::new(Exit::NoAgent, error).advise(UNWELL),
        AskError::OtherSocket { .. } => CliError::new(Exit::Usage, error)
            .advise("name that one with --socket; it is paths.socket in the configuration"),
        AskError::Foreign { .. } => CliError::new(Exit::Failure, error).advise(UNWELL),
    }
}

/// The page that an answer becomes, whichever question it was to.
pub fn page_of(answer: &Answer, style: Style) -> String {
    match answer {
        Answer::Status(status) => status_page::page(status, style),
        Answer::Ranking(ranking) => rank::page(ranking, ranking.workloads.len(), style),
        Answer::Explanation(why) => explain::place(why, style),
        Answer::Decision(record) => record::page(record, style),
        Answer::Decisions(decisions) => explain::list(decisions, style),
        Answer::Mode(view) => pause::page(view, style),
        Answer::Refused(refusal) => {
            let mut screen = Screen::new(style);
            screen.line("", &refusal.message);
            screen.line("", &refusal.next);
            screen.into_text()
        }
    }
}

/// What is wrong with a path that can be no socket. One where nothing is may become one.
pub(super) fn no_socket(path: &Path) -> Option<CliError> {
    let name = path.display();
    let problem = if path.as_os_str().len() > LONGEST_PATH {
        format!("{name} is no socket: the path of one has at most {LONGEST_PATH} bytes")
    } else if fs::metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        format!("{name} is no socket")
    } else {
        return None;
    };
    let error = anyhow::anyhow!(problem);
    Some(CliError::new(Exit::Usage, error).advise("name the agent's socket with --socket"))
}

/// What a file that cannot be read ends with: a missing right as such, anything else with `advice`.
pub(super) fn unreadable(what: &str, path: &Path, error: anyhow::Error, advice: &str) -> CliError {
    let is_denied = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::PermissionDenied);
    if is_denied {
        CliError::new(Exit::Denied, error).advise(missing(what, path))
    } else {
        CliError::new(Exit::Usage, error).advise(advice)
    }
}

/// Names come from outside: what the agent says is escaped.
pub(super) fn refused(refusal: &Refusal) -> CliError {
    let exit = match refusal.reason {
        RefusalReason::NotAllowed => Exit::Denied,
        _ => Exit::Failure,
    };
    CliError::new(exit, anyhow::anyhow!(plain(&refusal.message))).advise(plain(&refusal.next))
}

/// An answer to another question than was asked.
pub(super) fn unexpected() -> CliError {
    CliError::new(
        Exit::Failure,
        anyhow::anyhow!("the agent answered another question"),
    )
    .advise("use `brink` of the same version as the agent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_told_as_one_however_deep_it_lies() {
        let folder = tempfile::tempdir().unwrap();
        for (kind, exit, advises) in [
            (
                io::ErrorKind::PermissionDenied,
                Exit::Denied,
                "the folder is of uid ",
            ),
            (io::ErrorKind::NotFound, Exit::Usage, "name another"),
        ] {
            let error = anyhow::Error::new(io::Error::from(kind)).context("cannot read it");
            let error = unreadable("folder", folder.path(), error, "name another");
            assert_eq!(error.exit(), exit);
            let CliError::Other { advice, .. } = error else {
                panic!("{error}");
            };
            assert!(advice.unwrap().starts_with(advises));
        }
    }
}

//! Asking the event stream of the running agent, with errors that say what to do next.

use std::io;
use std::path::{Path, PathBuf};

use brink_stream::model::event::Event;
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Deserialize;

use super::asking::no_socket;
use super::exit::{CliError, Exit};
use crate::config::access::missing;
use crate::control::http::{self, Answer, Attentive, ControlSocket, ReaderGone};
use crate::terminal::plain;

/// `--socket` of the commands about events.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct StreamArgs {
    /// Socket of the agent's events
    #[arg(
        long,
        env = "BRINK_EVENTS_SOCKET",
        default_value = "/run/brink/events.sock",
        value_name = "PATH",
        hide_env_values = true
    )]
    pub socket: PathBuf,
}

/// A refusal of the server's.
#[derive(Deserialize)]
struct Refusal {
    error: String,
    next: String,
}

/// What everything that an agent tells begins with, whatever its version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
}

/// Events as they come.
pub(super) struct Events {
    answer: Answer<Attentive>,
    socket: PathBuf,
}

/// One event, and the line it came as.
pub(super) struct Told {
    pub(super) line: Vec<u8>,
    pub(super) event: Event,
}

/// Asks for events; `query` are keys and values.
///
/// # Errors
/// When no agent answers, or it says no.
pub(super) fn events(socket: &Path, query: &[(&str, String)]) -> Result<Events, CliError> {
    let pairs = query
        .iter()
        .map(|(key, value)| format!("{key}={}", http::escaped(value)));
    let pairs: Vec<String> = pairs.collect();
    let target = match pairs.as_slice() {
        [] => "/v1/events".to_owned(),
        pairs => format!("/v1/events?{}", pairs.join("&")),
    };
    let answer = http::get(socket, &target).map_err(|error| unanswered(socket, &error))?;
    if answer.status == 200 {
        let socket = socket.to_path_buf();
        return Ok(Events { answer, socket });
    }
    Err(refused(socket, answer))
}

/// Asks for one incident, as it was told last; none where the agent knows none of that id.
///
/// # Errors
/// When no agent answers, or it says no.
pub(super) fn incident(socket: &Path, id: &str) -> Result<Option<Incident>, CliError> {
    let target = format!("/v1/incidents/{}", http::escaped(id));
    let unanswered = |error| unanswered(socket, &error);
    let answer = http::get(socket, &target).map_err(unanswered)?;
    match answer.status {
        200 => {
            let text = answer.text().map_err(unanswered)?;
            let read = serde_json::from_str(&text);
            read.map(Some)
                .map_err(|error| unread(socket, text.as_bytes(), &error))
        }
        404 => Ok(None),
        _ => Err(refused(socket, answer)),
    }
}

impl Events {
    /// The next one; none at the end.
    ///
    /// # Errors
    /// When the stream breaks off, or what comes is no event.
    pub(super) fn next(&mut self) -> Result<Option<Told>, CliError> {
        let line = self
            .answer
            .next_line()
            .map_err(|error| unanswered(&self.socket, &error))?;
        let Some(line) = line else {
            return Ok(None);
        };
        match serde_json::from_slice(&line) {
            Ok(event) => Ok(Some(Told { line, event })),
            Err(error) => Err(unread(&self.socket, &line, &error)),
        }
    }
}

/// Takes the name of a kind; of any other, all of them are listed, and the one that is most like it is named.
pub(super) fn kinds() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.map(Kind::word))
        .try_map(|word: String| Kind::from_word(&word).ok_or("no such kind"))
}

const OTHER_VERSION: &str = "use `brink` of the same version as the agent";

const NAME_IT: &str = "name that one with --socket; it is events.socket in the configuration";

/// An answer that is not understood: of an agent of another version, or of somebody else's server.
fn unread(socket: &Path, answer: &[u8], error: &serde_json::Error) -> CliError {
    let path = socket.display();
    let is_ours = |head: Head| head.api_version.starts_with("brink.dev/");
    if serde_json::from_slice(answer).is_ok_and(is_ours) {
        let error = anyhow::anyhow!("what the agent on {path} tells is not understood: {error}");
        return CliError::new(Exit::Failure, error).advise(OTHER_VERSION);
    }
    let error = anyhow::anyhow!("{path} is not the agent's socket of events: no event ({error})");
    CliError::new(Exit::Usage, error).advise(NAME_IT)
}

fn unanswered(socket: &Path, error: &io::Error) -> CliError {
    use io::ErrorKind as Kind;
    // By its type: a broken pipe by its number may be the connection as well.
    if is_caused_by::<ReaderGone>(error) {
        return CliError::ReaderGone;
    }
    if let Some(error) = no_socket(socket) {
        return error;
    }
    let path = socket.display();
    let is_control = is_caused_by::<ControlSocket>(error);
    match error.kind() {
        Kind::PermissionDenied => CliError::new(
            Exit::Denied,
            anyhow::anyhow!("not allowed to hear the agent on {path}: {error}"),
        )
        .advise(missing("socket", socket)),
        Kind::NotFound | Kind::ConnectionRefused => CliError::new(
            Exit::NoAgent,
            anyhow::anyhow!("no agent tells events on {path}: {error}"),
        )
        .advise(
            "start one with `brink run` and `events: {enabled: true}`, or name its socket with --socket",
        ),
        Kind::InvalidData if is_control => CliError::new(
            Exit::Usage,
            anyhow::anyhow!("{path} is not the agent's socket of events: {error}"),
        )
        .advise(NAME_IT),
        Kind::InvalidData => CliError::new(Exit::Failure, anyhow::anyhow!("{path}: {error}"))
            .advise(OTHER_VERSION),
        Kind::WouldBlock | Kind::TimedOut => CliError::new(
            Exit::NoAgent,
            anyhow::anyhow!("the agent on {path} did not answer within 10 s"),
        )
        .advise("`brink doctor` tells whether the agent is well; its log tells more"),
        _ => CliError::new(
            Exit::NoAgent,
            anyhow::anyhow!("the agent on {path} has broken off: {error}"),
        )
        .advise("`brink status` tells whether it runs; --since with the last number goes on"),
    }
}

fn is_caused_by<T: std::error::Error + 'static>(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<T>)
}

/// What the server says is escaped: names in it come from outside.
fn refused(socket: &Path, answer: Answer<Attentive>) -> CliError {
    let status = answer.status;
    let exit = match status {
        401 | 403 => Exit::Denied,
        400 => Exit::Usage,
        503 => Exit::NoAgent,
        _ => Exit::Failure,
    };
    let text = answer.text_so_far();
    if let Ok(Refusal { error, next }) = serde_json::from_str(&text) {
        return CliError::new(exit, anyhow::anyhow!(plain(&error))).advise(plain(&next));
    }
    let path = socket.display();
    let error = anyhow::anyhow!(
        "{path} is not the agent's socket of events: it answers with status {status}"
    );
    CliError::new(Exit::Usage, error).advise(NAME_IT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_breaks_off_is_no_reader_that_has_left() {
        let socket = Path::new("/nonexistent/events.sock");
        let check = |error: io::Error, expected: Exit| {
            assert_eq!(unanswered(socket, &error).exit(), expected, "{error}");
        };
        check(io::ErrorKind::BrokenPipe.into(), Exit::NoAgent);
        check(io::ErrorKind::ConnectionReset.into(), Exit::NoAgent);
        check(io::ErrorKind::UnexpectedEof.into(), Exit::NoAgent);
        let gone = io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone);
        check(gone, Exit::Success);
    }
}

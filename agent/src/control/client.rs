//! The command line's end of the socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::protocol::{Answer, LONGEST_ANSWER, Question, Refusal};

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("no agent listens on {path}: {source}")]
    NoAgent {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The socket is not for us.
    #[error("not allowed to talk to the agent on {path}: {source}")]
    NotAllowed {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The talk broke off.
    #[error("the agent on {path} did not answer: {source}")]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The answer was none of ours.
    #[error("the agent on {path} speaks another language; is it of another version? ({source})")]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// What could not be understood.
        source: serde_json::Error,
    },
    /// What answered speaks HTTP: it is the socket of the agent's events, or somebody else's.
    #[error(
        "{path} is not the agent's control socket: it answers in HTTP, as its socket of events does"
    )]
    OtherSocket {
        /// The socket.
        path: PathBuf,
    },
    /// The agent said no.
    #[error("{}", .0.message)]
    Refused(Refusal),
}

/// Asks the agent behind a socket.
///
/// # Errors
/// [`AskError`]; a refusal is one too.
pub fn ask(socket: &Path, question: &Question) -> Result<Answer, AskError> {
    ask_within(PATIENCE, socket, question)
}

/// The same of an agent that may take so long to answer.
///
/// # Errors
/// As [`ask`].
pub fn ask_within(
    patience: Duration,
    socket: &Path,
    question: &Question,
) -> Result<Answer, AskError> {
    let path = || socket.to_path_buf();
    let stream = UnixStream::connect(socket).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => AskError::NotAllowed {
            path: path(),
            source,
        },
        _ => AskError::NoAgent {
            path: path(),
            source,
        },
    })?;
    let text = exchange(stream, question, patience).map_err(|source| AskError::Broken {
        path: path(),
        source,
    })?;
    if text.starts_with("HTTP/") {
        return Err(AskError::OtherSocket { path: path() });
    }
    let answer = serde_json::from_str(&text).map_err(|source| AskError::Foreign {
        path: path(),
        source,
    })?;
    match answer {
        Answer::Refused(refusal) => Err(AskError::Refused(refusal)),
        answer => Ok(answer),
    }
}

fn exchange(mut stream: UnixStream, question: &Question, patience: Duration) -> io::Result<String> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut line = serde_json::to_string(question)?;
    line.push('\n');
    // An agent that refuses does not listen to the end: its answer lies there all the same.
    let asked = stream.write_all(line.as_bytes());
    let mut text = String::new();
    let read = BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut text);
    if text.ends_with('\n') {
        return Ok(text);
    }
    asked?;
    read.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let seconds = patience.as_secs();
            io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {seconds} s"),
            )
        }
        _ => error,
    })?;
    Err(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the connection was closed",
    ))
}

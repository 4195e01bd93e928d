//! The socket: what an agent hears, and what a client is answered.

use std::future::pending;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use brink::cli;
use brink::control::client::{AskError, ask};
use brink::control::protocol::{Answer, LONGEST_QUESTION, Question};
use brink::control::server::{Heard, hear};
use brink::terminal::Style;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::Taken;

thread_local! {
    static RUNTIME: Option<Runtime> = Builder::new_current_thread().enable_time().build().ok();
    static AGENT: Agent = Agent::new();
}

/// All that a client says before it hangs up.
pub(crate) fn questions(bytes: &[u8]) -> Taken {
    let heard = RUNTIME.with(|runtime| {
        let mut stream = bytes;
        runtime
            .as_ref()
            .map(|runtime| runtime.block_on(hear(&mut stream, pending())))
    });
    match heard {
        Some(Ok(Heard::Question(question))) => {
            let written = serde_json::to_string(&question).unwrap_or_default();
            let again: Option<Question> = serde_json::from_str(&written).ok();
            assert_eq!(again, Some(question), "{written}");
            Taken::Accepted
        }
        Some(Ok(Heard::Nonsense(problem))) => {
            assert!(!problem.is_empty() && problem.len() <= 2 * LONGEST_QUESTION);
            Taken::Refused
        }
        Some(Ok(Heard::Nothing)) => {
            assert!(bytes.is_empty());
            Taken::Refused
        }
        // A slice does not fail to be read.
        other => {
            assert!(!matches!(other, Some(Err(_))));
            Taken::Refused
        }
    }
}

/// An agent that answers everything with the same bytes.
struct Agent {
    socket: PathBuf,
    says: Arc<Mutex<Vec<u8>>>,
    /// Kept for as long as the socket is used.
    _folder: TempDir,
}

impl Agent {
    #[expect(
        clippy::expect_used,
        reason = "without a socket nothing can be said about any input"
    )]
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("brink.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let says = Arc::new(Mutex::default());
        let answer = Arc::clone(&says);
        thread::spawn(move || answer_all(&listener, &answer));
        Self {
            socket,
            says,
            _folder: folder,
        }
    }
}

fn answer_all(listener: &UnixListener, says: &Mutex<Vec<u8>>) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut question = [0; 256];
        let _asked = stream.read(&mut question);
        let answer = says.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A client that has heard enough hangs up.
        let _heard = stream.write_all(&answer);
    }
}

/// An agent's answer, over a socket, and the page it becomes.
pub(crate) fn answers(bytes: &[u8]) -> Taken {
    let asked = AGENT.with(|agent| {
        *agent.says.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
        ask(&agent.socket, &Question::Status)
    });
    match asked {
        Ok(answer) => {
            check_answer(&answer);
            Taken::Accepted
        }
        Err(AskError::Refused(refusal)) => {
            check_answer(&Answer::Refused(refusal));
            Taken::Accepted
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Taken::Refused
        }
    }
}

/// It can be said again, and nothing of it steers a terminal.
fn check_answer(answer: &Answer) {
    let written = serde_json::to_string(answer).unwrap_or_default();
    let again: Result<Answer, _> = serde_json::from_str(&written);
    // Of numbers with a fraction, the last digit can be read as its neighbour.
    let is_whole = !written.contains("afterSeconds");
    assert!(
        again.is_ok_and(|again| !is_whole || again == *answer),
        "{written}"
    );
    for width in [None, Some(1), Some(100)] {
        let text = cli::page_of(
            answer,
            Style {
                width,
                colour: false,
            },
        );
        let steers = |letter: char| letter.is_control() && letter != '\n';
        assert!(!text.contains(steers), "{text:?}");
    }
}

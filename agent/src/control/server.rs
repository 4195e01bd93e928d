//! The agent's end of the socket: mode 0600, and only root and the agent's own user are answered.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brink_stream::serve::door::{PrivateSocket, stranger};
use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::protocol::{Answer, LONGEST_QUESTION, Question, Refusal, RefusalReason};
use super::views::Views;

/// Conversations at a time; one more waits.
const CONVERSATIONS: usize = 32;
/// A client that has not said a whole line by then is told so and let go.
const HEARING: Duration = Duration::from_secs(2);
/// The same while others wait for their turn: hundreds of silent ones must not take longer than those are patient for.
const HURRY: Duration = Duration::from_millis(100);
/// The longest that a conversation may take, the client's reading included.
const PATIENCE: Duration = Duration::from_secs(10);

/// The listening socket; its file goes with it.
#[derive(Debug)]
pub struct Server(PrivateSocket);

impl Server {
    /// Listens at a path. A socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// Those of [`PrivateSocket::bind`].
    pub fn bind(path: &Path) -> io::Result<Self> {
        PrivateSocket::bind(path).map(Self)
    }

    /// Answers until the future is dropped.
    pub async fn serve(&self, views: Arc<Views>) {
        let room = Arc::new(Semaphore::new(CONVERSATIONS));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            match self.0.accept().await {
                Ok(stream) => {
                    let views = Arc::clone(&views);
                    tokio::spawn(async move {
                        let is_crowded = || place.semaphore().available_permits() == 0;
                        let talk = converse(stream, &views, is_crowded);
                        let talked = tokio::time::timeout(PATIENCE, talk).await;
                        if let Ok(Err(error)) = talked {
                            debug!(%error, "a conversation broke off");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(%error, "the socket cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

async fn converse(
    mut stream: UnixStream,
    views: &Views,
    is_crowded: impl Fn() -> bool,
) -> io::Result<()> {
    let answer = if let Some(stranger) = stranger(&stream)? {
        refused(
            RefusalReason::NotAllowed,
            &stranger,
            "ask as root: put sudo in front of the command",
        )
    } else {
        match hear(&mut stream, is_crowded).await? {
            Heard::Question(_) if has_hung_up(&stream) => return Ok(()),
            Heard::Question(question) => views.answer(question).await,
            Heard::Nothing => return Ok(()),
            Heard::Late => refused(
                RefusalReason::NotPossible,
                "no whole line came, and others wait for their turn",
                "try again; close connections that ask nothing",
            ),
            Heard::Nonsense(problem) => refused(
                RefusalReason::NotUnderstood,
                &format!("not a question: {problem}"),
                "use `brink` of the same version as the agent",
            ),
        }
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.shutdown().await
}

/// Whether nobody is there to hear the answer. Who has waited for too long was told that it failed: a pause or its end is not to
/// come of that later. To have said everything, and to listen still, is not to have hung up.
fn has_hung_up(stream: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let found = poll(&mut polled, Some(&Timespec::default()));
    found.is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

/// What a client said.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// A question.
    Question(Question),
    /// It hung up before it said anything.
    Nothing,
    /// No whole line yet, while others wait.
    Late,
    /// Anything else, and what is wrong with it.
    Nonsense(String),
}

/// Hears one line, or all there is before the client hangs up. Whoever says nothing for a moment is let go when others wait.
///
/// # Errors
/// When the stream cannot be read.
pub async fn hear(
    stream: &mut (impl AsyncRead + Unpin),
    is_crowded: impl Fn() -> bool,
) -> io::Result<Heard> {
    let mut text = BytesMut::with_capacity(1024);
    let end = tokio::time::Instant::now() + HEARING;
    loop {
        if let Some(end) = text.iter().position(|&byte| byte == b'\n') {
            return Ok(parsed(&text[..end]));
        }
        if text.len() > LONGEST_QUESTION {
            let problem = format!("it is longer than {LONGEST_QUESTION} bytes");
            return Ok(Heard::Nonsense(problem));
        }
        let look = end.min(tokio::time::Instant::now() + HURRY);
        match tokio::time::timeout_at(look, stream.read_buf(&mut text)).await {
            Ok(read) => match read? {
                0 if text.is_empty() => return Ok(Heard::Nothing),
                0 => return Ok(parsed(&text)),
                _ => {}
            },
            Err(_) if look == end => {
                let seconds = HEARING.as_secs();
                let problem = format!("no whole line came within {seconds} s");
                return Ok(Heard::Nonsense(problem));
            }
            Err(_) if is_crowded() => return Ok(Heard::Late),
            Err(_) => {}
        }
    }
}

fn parsed(line: &[u8]) -> Heard {
    match serde_json::from_slice(line) {
        Ok(question) => Heard::Question(question),
        Err(error) => Heard::Nonsense(error.to_string()),
    }
}

/// An answer that is none.
pub fn refused(reason: RefusalReason, message: &str, next: &str) -> Answer {
    Answer::Refused(Refusal {
        reason,
        message: message.to_owned(),
        next: next.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_says_nothing_is_let_go_where_others_wait() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        runtime.block_on(async {
            assert_eq!(hear(&mut ours, || true).await.unwrap(), Heard::Late);
            // What is there already is heard in any crowd.
            theirs.write_all(b"{\"ask\":\"status\"}\n").await.unwrap();
            let heard = hear(&mut ours, || true).await.unwrap();
            assert_eq!(heard, Heard::Question(Question::Status));
        });
    }

    #[test]
    fn who_has_said_everything_has_not_hung_up() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"{}\n").unwrap();
        assert!(!has_hung_up(&ours));
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(!has_hung_up(&ours));
        drop(theirs);
        assert!(has_hung_up(&ours));
    }
}

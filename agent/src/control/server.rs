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
use tokio::sync::{Semaphore, watch};
use tracing::{debug, warn};

use super::protocol::{Answer, LONGEST_QUESTION, Question, Refusal, RefusalReason};
use super::views::Views;

/// Conversations at a time; one more waits.
const CONVERSATIONS: usize = 32;
/// A client that has not said a whole line by then is told so and let go.
const HEARING: Duration = Duration::from_secs(2);
/// The same once others have waited for their turn meanwhile: hundreds of silent ones must not delay a pause. Who has waited for a turn
/// has said its line by then.
const HURRY: Duration = Duration::from_millis(10);
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
        let answer = move |question| {
            let views = Arc::clone(&views);
            async move { views.answer(question).await }
        };
        self.serve_with(answer).await;
    }

    async fn serve_with<A>(&self, answer: impl Fn(Question) -> A + Clone + Send + 'static)
    where
        A: Future<Output = Answer> + Send + 'static,
    {
        let room = Arc::new(Semaphore::new(CONVERSATIONS));
        // Who listens to it learns whether anybody has waited for a turn since.
        let crowd = watch::Sender::new(());
        loop {
            let stream = match self.0.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    warn!(%error, "the socket cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            if room.available_permits() == 0 {
                crowd.send_replace(());
            }
            let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            let (answer, mut crowd) = (answer.clone(), crowd.subscribe());
            tokio::spawn(async move {
                let talk = converse(stream, answer, async move {
                    // Its end is the server's, and of everybody here.
                    let _ended = crowd.changed().await;
                });
                let talked = tokio::time::timeout(PATIENCE, talk).await;
                if let Ok(Err(error)) = talked {
                    debug!(%error, "a conversation broke off");
                }
                drop(place);
            });
        }
    }
}

async fn converse<A: Future<Output = Answer>>(
    mut stream: UnixStream,
    answer: impl Fn(Question) -> A,
    crowd: impl Future<Output = ()>,
) -> io::Result<()> {
    let answer = if let Some(stranger) = stranger(&stream)? {
        refused(
            RefusalReason::NotAllowed,
            &stranger,
            "ask as root: put sudo in front of the command",
        )
    } else {
        match hear(&mut stream, crowd).await? {
            Heard::Question(_) if has_hung_up(&stream) => return Ok(()),
            Heard::Question(question) => answer(question).await,
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

/// Hears one line, or all there is before the client hangs up. Whoever says nothing for a moment is let go once others have waited,
/// which `crowd` tells, even if none does any more: the first ones to leave make room, and the others' time has gone by as well.
///
/// # Errors
/// When the stream cannot be read.
pub async fn hear(
    stream: &mut (impl AsyncRead + Unpin),
    crowd: impl Future<Output = ()>,
) -> io::Result<Heard> {
    tokio::pin!(crowd);
    let mut text = BytesMut::with_capacity(1024);
    let began = tokio::time::Instant::now();
    let (mut end, mut is_crowded) = (began + HEARING, false);
    loop {
        if let Some(end) = text.iter().position(|&byte| byte == b'\n') {
            return Ok(parsed(&text[..end]));
        }
        if text.len() > LONGEST_QUESTION {
            let problem = format!("it is longer than {LONGEST_QUESTION} bytes");
            return Ok(Heard::Nonsense(problem));
        }
        tokio::select! {
            biased;
            read = stream.read_buf(&mut text) => match read? {
                0 if text.is_empty() => return Ok(Heard::Nothing),
                0 => return Ok(parsed(&text)),
                _ => {}
            },
            () = &mut crowd, if !is_crowded => {
                (end, is_crowded) = (began + HURRY, true);
            }
            () = tokio::time::sleep_until(end) => {
                if is_crowded {
                    return Ok(Heard::Late);
                }
                let seconds = HEARING.as_secs();
                let problem = format!("no whole line came within {seconds} s");
                return Ok(Heard::Nonsense(problem));
            }
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
    use std::future::{pending, ready};
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn who_says_nothing_is_let_go_once_others_have_waited() {
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        runtime().block_on(async {
            assert_eq!(hear(&mut ours, ready(())).await.unwrap(), Heard::Late);
            // What is there already is heard in any crowd.
            theirs.write_all(b"{\"ask\":\"status\"}\n").await.unwrap();
            let heard = hear(&mut ours, ready(())).await.unwrap();
            assert_eq!(heard, Heard::Question(Question::Status));
            // Nobody has waited since: it may take its time.
            let late = async {
                tokio::time::sleep(3 * HURRY).await;
                theirs.write_all(b"{\"ask\":\"status\"}\n").await
            };
            let (heard, said) = tokio::join!(hear(&mut ours, pending()), late);
            assert_eq!(heard.unwrap(), Heard::Question(Question::Status));
            said.unwrap();
        });
    }

    #[test]
    fn hundreds_that_say_nothing_keep_a_question_waiting_for_a_moment() {
        const SILENT: usize = 300;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("brink.sock");
        let runtime = runtime();
        let server = runtime.block_on(async { Server::bind(&path).unwrap() });
        let asking = std::thread::spawn(move || {
            let connect = || UnixStream::connect(&path).unwrap();
            let silent: Vec<_> = (0..SILENT).map(|_| connect()).collect();
            let began = Instant::now();
            let mut asks = connect();
            asks.write_all(b"{\"ask\":\"decisions\"}\n").unwrap();
            let mut answer = String::new();
            BufReader::new(asks).read_line(&mut answer).unwrap();
            drop(silent);
            (answer, began.elapsed())
        });
        let answer = |_| async { Answer::Decisions(Vec::new()) };
        let asked = async {
            while !asking.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        runtime.block_on(async {
            tokio::select! {
                () = server.serve_with(answer) => panic!("it ended"),
                () = asked => {}
            }
        });
        let (answer, took) = asking.join().unwrap();
        assert_eq!(answer, "{\"answer\":\"decisions\",\"body\":[]}\n");
        // Ten turns of 10 ms; it was 30 ms for each silent one.
        assert!(took < Duration::from_secs(2), "{took:?}");
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

//! The agent's end of the socket: mode 0600, and only root and the agent's own user are answered.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::protocol::{Answer, LONGEST_QUESTION, Question, Refusal, RefusalReason};
use super::views::Views;

/// Conversations at a time; one more waits.
const CONVERSATIONS: usize = 32;
/// A client that has not said a whole line by then is told so and let go.
const HEARING: Duration = Duration::from_secs(2);
/// The longest that a conversation may take, the client's reading included.
const PATIENCE: Duration = Duration::from_secs(10);

/// The listening socket; its file goes with it.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Listens at a path. A socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// `AddrInUse` when another agent listens there, `AlreadyExists` when what is there is no socket; when the file cannot be
    /// made.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        make_way(path)?;
        // Nobody can connect between bind and chmod: the umask of the process allows nothing to others.
        let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(umask);
        let listener = bound?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self {
            listener,
            path: path.to_path_buf(),
        })
    }

    /// Answers until the future is dropped.
    pub async fn serve(&self, views: Arc<Views>) {
        let room = Arc::new(Semaphore::new(CONVERSATIONS));
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let views = Arc::clone(&views);
                    tokio::spawn(async move {
                        let talk = tokio::time::timeout(PATIENCE, converse(stream, &views)).await;
                        if let Ok(Err(error)) = talk {
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

/// Removes a socket that nobody listens on any more, and nothing else.
fn make_way(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => {
            let problem = format!("{} is there already and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let problem = format!("another agent listens on {}", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.path);
    }
}

async fn converse(mut stream: UnixStream, views: &Views) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    let own = rustix::process::geteuid().as_raw();
    let answer = if peer != 0 && peer != own {
        refused(
            RefusalReason::NotAllowed,
            &format!(
                "uid {peer} asked, and only root and the agent's own user (uid {own}) are answered"
            ),
            "ask as root: put sudo in front of the command",
        )
    } else {
        match hear(&mut stream).await? {
            Heard::Question(question) => views.answer(question).await,
            Heard::Nothing => return Ok(()),
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

/// What a client said.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// A question.
    Question(Question),
    /// It hung up before it said anything.
    Nothing,
    /// Anything else, and what is wrong with it.
    Nonsense(String),
}

/// Hears one line, or all there is before the client hangs up.
///
/// # Errors
/// When the stream cannot be read.
pub async fn hear(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Heard> {
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
        let Ok(read) = tokio::time::timeout_at(end, stream.read_buf(&mut text)).await else {
            let seconds = HEARING.as_secs();
            let problem = format!("no whole line came within {seconds} s");
            return Ok(Heard::Nonsense(problem));
        };
        match read? {
            0 if text.is_empty() => return Ok(Heard::Nothing),
            0 => return Ok(parsed(&text)),
            _ => {}
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
    use std::fs;

    use super::*;

    #[track_caller]
    fn check(path: &Path, expected: Option<io::ErrorKind>) {
        let found = make_way(path).err().map(|error| error.kind());
        assert_eq!(found, expected, "{}", path.display());
    }

    #[test]
    fn only_a_socket_that_nobody_listens_on_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        check(&path("nothing"), None);

        let (file, link) = (path("file"), path("link"));
        fs::write(&file, "precious").unwrap();
        check(&file, Some(io::ErrorKind::AlreadyExists));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        check(&link, Some(io::ErrorKind::AlreadyExists));
        check(folder.path(), Some(io::ErrorKind::AlreadyExists));
        assert_eq!(fs::read_to_string(&link).unwrap(), "precious");

        let socket = path("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        check(&socket, Some(io::ErrorKind::AddrInUse));
        drop(listener);
        check(&socket, None);
        assert!(!socket.exists());
    }
}

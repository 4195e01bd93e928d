//! The command line's end of the event stream: one request over the agent's socket, and its answer line by line.
//!
//! It knows as much of HTTP/1.1 as such an answer may be made of: a status, a length or chunks, or everything up to the end.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// How long an agent may take to begin its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest line of a head, and how many of them.
const LONGEST_HEADER: u64 = 16 << 10;
const MOST_HEADERS: usize = 100;
/// The longest line of an answer: an incident with its recording.
const LONGEST_LINE: u64 = 64 << 20;

/// What answers is no server of HTTP: it is a line of JSON, as the control socket gives it.
#[derive(Debug, thiserror::Error)]
#[error("it answers as the agent's control socket does")]
pub struct ControlSocket;

/// Whoever read our own output has left, which ends the reading too; the connection is well.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output is gone")]
pub struct ReaderGone;

/// An answer whose head has been read.
pub struct Answer<R> {
    /// The status: 200 and so on.
    pub status: u16,
    body: BufReader<Body<R>>,
}

/// Asks for `target`, which is a path and a query.
///
/// # Errors
/// When nobody listens, or what comes is no HTTP.
pub fn get(socket: &Path, target: &str) -> io::Result<Answer<Attentive>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: brink\r\nAccept: application/x-ndjson, application/json\r\nConnection: close\r\n\r\n"
    );
    // An agent that refuses does not listen to the end: its answer lies there all the same.
    let asked = stream.write_all(request.as_bytes());
    let answer = Answer::read(BufReader::new(Attentive { stream }));
    match (asked, answer) {
        (_, Ok(answer)) => {
            // An event may be long in coming; a refusal is not.
            if answer.status == 200 {
                answer.stream().set_read_timeout(None)?;
            }
            Ok(answer)
        }
        // What came instead of an answer says more than that the question did not get through.
        (Err(_), Err(error)) if error.kind() == io::ErrorKind::InvalidData => Err(error),
        (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(error),
    }
}

/// A text as part of a query.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' | b',' => {
                escaped.push(char::from(byte));
            }
            byte => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}

/// A stream that also ends when nobody reads our output any more, however long nothing comes.
pub struct Attentive {
    stream: UnixStream,
}

impl Read for Attentive {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Before the first byte the time is limited, and nobody has been promised any output.
        if self.stream.read_timeout()?.is_none() {
            let output = io::stdout();
            let mut polled = [
                PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN),
                // Only its end is told.
                PollFd::from_borrowed_fd(output.as_fd(), PollFlags::empty()),
            ];
            poll(&mut polled, None)?;
            if polled[1]
                .revents()
                .intersects(PollFlags::ERR | PollFlags::HUP)
            {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone));
            }
        }
        self.stream.read(into)
    }
}

impl Answer<Attentive> {
    fn stream(&self) -> &UnixStream {
        &self.body.get_ref().from.get_ref().stream
    }
}

impl<R: Read> Answer<R> {
    /// Reads the head of an answer.
    ///
    /// # Errors
    /// When it is none, or breaks off.
    pub fn read(mut from: BufReader<R>) -> io::Result<Self> {
        let status = status(&header(&mut from)?)?;
        let mut rest = Rest::ToTheEnd;
        for _ in 0..MOST_HEADERS {
            let line = header(&mut from)?;
            if line.is_empty() {
                let body = BufReader::new(Body { from, rest });
                return Ok(Self { status, body });
            }
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| foreign("a header without a colon"))?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("transfer-encoding")
                && value.eq_ignore_ascii_case("chunked")
            {
                rest = Rest::Chunks {
                    left: 0,
                    is_first: true,
                };
            } else if name.eq_ignore_ascii_case("content-length") {
                let length = value
                    .parse()
                    .map_err(|_| foreign("a length that is no number"))?;
                rest = Rest::Length(length);
            }
        }
        Err(foreign("too many headers"))
    }

    /// The next line of the body without its end; none at the end of the body.
    ///
    /// # Errors
    /// When it breaks off, or is longer than any line of ours.
    pub fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.body
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.pop_if(|last| *last == b'\n').is_none() && line.len() as u64 == LONGEST_LINE {
            return Err(foreign("a line without an end"));
        }
        Ok(Some(line))
    }

    /// The whole body.
    ///
    /// # Errors
    /// When it breaks off, or is longer than any line of ours.
    pub fn text(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.body
            .by_ref()
            .take(LONGEST_LINE)
            .read_to_string(&mut text)?;
        Ok(text)
    }

    /// As much of the body as comes before it ends or breaks off.
    pub fn text_so_far(mut self) -> String {
        let mut text = Vec::new();
        // Whoever refuses without listening to the end breaks the connection off behind his answer.
        let _broken_off = self.body.by_ref().take(LONGEST_LINE).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// What of the body is still to come.
#[derive(Clone, Copy, Debug)]
enum Rest {
    ToTheEnd,
    Length(u64),
    Chunks { left: u64, is_first: bool },
}

/// A body without what HTTP puts around its parts.
struct Body<R> {
    from: BufReader<R>,
    rest: Rest,
}

impl<R: Read> Read for Body<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.rest {
            Rest::ToTheEnd => self.from.read(into),
            Rest::Length(left) => {
                let read = self.part(into, left)?;
                self.rest = Rest::Length(left - read);
                Ok(usize::try_from(read).unwrap_or(0))
            }
            Rest::Chunks { left, is_first } => {
                let left = if left == 0 {
                    self.next_chunk(is_first)?
                } else {
                    left
                };
                let read = self.part(into, left)?;
                self.rest = if left == 0 {
                    Rest::Length(0)
                } else {
                    Rest::Chunks {
                        left: left - read,
                        is_first: false,
                    }
                };
                Ok(usize::try_from(read).unwrap_or(0))
            }
        }
    }
}

impl<R: Read> Body<R> {
    /// At most `left` bytes; an end before them is an error.
    fn part(&mut self, into: &mut [u8], left: u64) -> io::Result<u64> {
        if left == 0 || into.is_empty() {
            return Ok(0);
        }
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        match self.from.read(&mut into[..room])? {
            0 => Err(in_the_middle(io::ErrorKind::UnexpectedEof.into())),
            read => Ok(read as u64),
        }
    }

    /// The length of the next chunk; 0 for the last.
    fn next_chunk(&mut self, is_first: bool) -> io::Result<u64> {
        if !is_first && !header(&mut self.from)?.is_empty() {
            return Err(foreign("a chunk longer than it says"));
        }
        let line = header(&mut self.from).map_err(in_the_middle)?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        u64::from_str_radix(digits, 16).map_err(|_| foreign("a chunk without a length"))
    }
}

/// The same, of an answer that had begun to come.
fn in_the_middle(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let said = "the connection was closed in the middle of its answer";
            io::Error::new(io::ErrorKind::UnexpectedEof, said)
        }
        _ => error,
    }
}

/// `HTTP/1.1 200 OK`.
fn status(line: &str) -> io::Result<u16> {
    if line.starts_with('{') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, ControlSocket));
    }
    let mut words = line.split(' ');
    let is_ours = words
        .next()
        .is_some_and(|version| version.starts_with("HTTP/1."));
    let status = words.next().and_then(|status| status.parse().ok());
    status
        .filter(|_| is_ours)
        .ok_or_else(|| foreign("no status"))
}

/// One line of a head, without its end.
fn header(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(LONGEST_HEADER).read_until(b'\n', &mut line)?;
    if line.pop_if(|last| *last == b'\n').is_none() {
        let kind = io::ErrorKind::UnexpectedEof;
        return Err(io::Error::new(
            kind,
            "the connection was closed before its answer",
        ));
    }
    line.pop_if(|last| *last == b'\r');
    String::from_utf8(line).map_err(|_| foreign("a header that is no text"))
}

fn foreign(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not an answer of ours: {what}"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Status and lines of an answer that comes in parts of this size.
    fn read(text: &[u8], size: usize) -> io::Result<(u16, Vec<String>)> {
        let mut answer = Answer::read(BufReader::with_capacity(size, text))?;
        let mut lines = Vec::new();
        while let Some(line) = answer.next_line()? {
            lines.push(String::from_utf8_lossy(&line).into_owned());
        }
        Ok((answer.status, lines))
    }

    #[track_caller]
    fn check(text: &str, expected: Result<(u16, &[&str]), io::ErrorKind>) {
        for size in [1, 7, 4096] {
            let found = read(text.as_bytes(), size);
            match (&found, expected) {
                (Ok((status, lines)), Ok((wanted, expected))) => {
                    assert_eq!(
                        (status, lines.as_slice()),
                        (
                            &wanted,
                            &*expected.iter().map(ToString::to_string).collect::<Vec<_>>()
                        )
                    );
                }
                (Err(error), Err(kind)) => assert_eq!(error.kind(), kind, "{error}"),
                _ => panic!("{text:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_body_has_a_length_or_chunks_or_goes_to_the_end() {
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na\nb\nc\nd\n",
            Ok((200, &["a", "b", "c"])),
        );
        check(
            "HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\na\nb",
            Ok((404, &["a", "b"])),
        );
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(
            &format!("{head}3\r\na\nb\r\n2;x=y\r\n\nc\r\n0\r\n\r\n"),
            Ok((200, &["a", "b", "c"])),
        );
        check(&format!("{head}0\r\n\r\n"), Ok((200, &[])));
    }

    #[test]
    fn what_breaks_off_or_is_no_answer_is_an_error() {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        check("", Err(UnexpectedEof));
        check("HTTP/1.1 200 OK\r\nContent-Le", Err(UnexpectedEof));
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na\n",
            Err(UnexpectedEof),
        );
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(&format!("{head}5\r\na\n"), Err(UnexpectedEof));
        check(&format!("{head}1\r\nabc\r\n"), Err(InvalidData));
        check(&format!("{head}-1\r\nabc\r\n"), Err(InvalidData));
        check("{\"answer\":\"refused\"}\n", Err(InvalidData));
        check("HTTP/1.1 200 OK\r\nnothing\r\n\r\n", Err(InvalidData));
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            Err(InvalidData),
        );
    }

    #[test]
    fn what_came_of_a_body_counts_where_the_rest_does_not_come() {
        let said = |text: &str| {
            let answer = Answer::read(BufReader::new(text.as_bytes())).unwrap();
            answer.text_so_far()
        };
        for (head, expected) in [
            ("\r\nit is full", "it is full"),
            ("Content-Length: 10\r\n\r\nit is full", "it is full"),
            ("Content-Length: 99\r\n\r\nit is", "it is"),
        ] {
            assert_eq!(said(&format!("HTTP/1.1 503 x\r\n{head}")), expected);
        }
    }

    #[test]
    fn a_query_says_what_was_meant() {
        assert_eq!(escaped("3f2a-00:17,now"), "3f2a-00:17,now");
        assert_eq!(escaped("a b&c=d/é"), "a%20b%26c%3Dd%2F%C3%A9");
    }

    proptest! {
        #[test]
        fn nothing_that_comes_does_harm(head in "(HTTP/1.1 200 OK\r\n)?(Transfer-Encoding: chunked\r\n)?(\r\n)?", body in any::<Vec<u8>>()) {
            let text = [head.as_bytes(), &body].concat();
            let _any_answer_or_error = read(&text, 5);
        }
    }
}

//! Events of an agent as their reader gets them: over HTTP from the socket, each line with the moment it could be read.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use brink_host::clock::monotonic_ns;

/// What is read at a time.
const PIECE: usize = 64 << 10;
/// Longer than any head of an answer.
const LONGEST_HEAD: usize = 16 << 10;

/// The answer to one request for events, line by line.
pub struct Lines {
    stream: UnixStream,
    /// What was read and is not taken, from `begin` to `end`.
    buffer: Box<[u8]>,
    begin: usize,
    end: usize,
    /// When the newest of it was read.
    at: u64,
    /// What is left of the chunk.
    left: usize,
    is_over: bool,
    line: Vec<u8>,
}

impl Lines {
    /// Asks at a socket for events, as with `follow=1`; `patience` is how long nothing may come.
    ///
    /// # Errors
    /// When nobody answers, or with something else than lines.
    pub fn ask(socket: &Path, query: &str, patience: Duration) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        write!(
            stream,
            "GET /v1/events?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )?;
        let mut lines = Self {
            stream,
            buffer: vec![0; PIECE].into(),
            begin: 0,
            end: 0,
            at: 0,
            left: 0,
            is_over: false,
            line: Vec::new(),
        };
        let head = lines.head()?;
        if head.starts_with("HTTP/1.1 200") && head.contains("chunked") {
            Ok(lines)
        } else {
            Err(io::Error::other(head))
        }
    }

    /// The next line without its end, and when it could be read (`CLOCK_MONOTONIC` in nanoseconds); none at the end.
    ///
    /// # Errors
    /// When the connection breaks, or nothing comes for too long.
    pub fn take(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        self.line.clear();
        loop {
            if self.left == 0 && !self.next_chunk()? {
                return Ok(None);
            }
            self.fill()?;
            let there = self.left.min(self.end - self.begin);
            let part = &self.buffer[self.begin..self.begin + there];
            let found = part.iter().position(|byte| *byte == b'\n');
            let taken = found.map_or(there, |place| place + 1);
            self.line.extend_from_slice(&part[..found.unwrap_or(there)]);
            self.begin += taken;
            self.left -= taken;
            if self.left == 0 {
                self.expect(b"\r\n")?;
            }
            if found.is_some() {
                return Ok(Some((self.at, &self.line)));
            }
        }
    }

    fn head(&mut self) -> io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.byte()?);
            if head.len() > LONGEST_HEAD {
                return Err(io::Error::other("a head without an end"));
            }
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    /// Whether there is another chunk.
    fn next_chunk(&mut self) -> io::Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        let mut size = String::new();
        while !size.ends_with("\r\n") {
            size.push(char::from(self.byte()?));
            if size.len() > 20 {
                return Err(io::Error::other("a chunk without a length"));
            }
        }
        self.left = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
        if self.left == 0 {
            self.is_over = true;
            self.expect(b"\r\n")?;
        }
        Ok(!self.is_over)
    }

    fn expect(&mut self, bytes: &[u8]) -> io::Result<()> {
        for expected in bytes {
            let found = self.byte()?;
            if found != *expected {
                return Err(io::Error::other(format!("{found} for {expected}")));
            }
        }
        Ok(())
    }

    fn byte(&mut self) -> io::Result<u8> {
        self.fill()?;
        let byte = self.buffer[self.begin];
        self.begin += 1;
        Ok(byte)
    }

    /// Something is there afterwards.
    fn fill(&mut self) -> io::Result<()> {
        while self.begin == self.end {
            let read = match self.stream.read(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                // A child has ended while another thread was starting one, with all signals held back there.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.at = monotonic_ns();
            (self.begin, self.end) = (0, read);
        }
        Ok(())
    }
}

/// The number of an event, by its line.
pub fn number_of(line: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"\"seq\":";
    let place = line.windows(KEY.len()).position(|part| part == KEY)?;
    let digits = &line[place + KEY.len()..];
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let length = length.count();
    std::str::from_utf8(&digits[..length]).ok()?.parse().ok()
}

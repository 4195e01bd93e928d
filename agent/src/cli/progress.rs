//! How far an export is, on stderr: only on a terminal, only while the data goes into a file, and only if it takes a while.

use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::fs::{FileType, fstat};

use crate::record::text::{counted, unsigned};

/// What takes less than this is not spoken of.
const PATIENCE: Duration = Duration::from_millis(500);
/// From one line to the next.
const PACE: Duration = Duration::from_millis(200);

/// What was read so far.
#[derive(Debug, Default)]
struct Seen {
    events: AtomicU64,
    bytes: AtomicU64,
}

/// Tells how far it is until it is dropped. A thread of its own does, so that it also tells of waiting.
#[derive(Debug, Default)]
pub(super) struct Progress {
    seen: Arc<Seen>,
    teller: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// That of an export to stdout; a silent one where nobody would read it, or where it would be among the data.
    pub(super) fn of_export() -> Self {
        if io::stderr().is_terminal() && is_file(&io::stdout()) {
            Self::to(io::stderr())
        } else {
            Self::default()
        }
    }

    fn to(mut out: impl Write + Send + 'static) -> Self {
        let seen = Arc::new(Seen::default());
        let (end, ended) = sync_channel(1);
        let told = Arc::clone(&seen);
        let tell = move || tell(&told, &ended, &mut out, PATIENCE);
        let thread = thread::Builder::new().name("progress".to_owned());
        // An export without a word is better than none.
        let teller = thread.spawn(tell).ok().map(|thread| (end, thread));
        Self { seen, teller }
    }

    /// One more event of so many bytes.
    pub(super) fn step(&self, bytes: usize) {
        self.seen.events.fetch_add(1, Ordering::Relaxed);
        self.seen.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.teller.take() {
            drop(end);
            let _told = thread.join();
        }
    }
}

/// Writes line over line until the other end is gone, and then wipes it away. That it cannot be written is no error.
fn tell(seen: &Seen, ended: &Receiver<()>, out: &mut impl Write, patience: Duration) {
    let (mut wait, mut width) = (patience, 0);
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let line = line(seen);
        width = width.max(line.chars().count());
        let _written = write!(out, "\r{line:<width$}").and_then(|()| out.flush());
        wait = PACE;
    }
    if width > 0 {
        let _wiped = write!(out, "\r{:width$}\r", "").and_then(|()| out.flush());
    }
}

fn line(seen: &Seen) -> String {
    let bytes = unsigned(seen.bytes.load(Ordering::Relaxed));
    match seen.events.load(Ordering::Relaxed) {
        // A single incident comes whole, or the first of many lets us wait.
        0 => "reading: nothing yet".to_owned(),
        events => format!("reading: {}, {bytes}", counted(events, "event")),
    }
}

fn is_file(stream: &impl AsFd) -> bool {
    fstat(stream).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what is written, and ends it all after so many lines.
    struct Paper {
        text: String,
        lines: usize,
        end: Option<SyncSender<()>>,
    }

    impl Write for Paper {
        fn write(&mut self, some: &[u8]) -> io::Result<usize> {
            self.text.push_str(&String::from_utf8_lossy(some));
            Ok(some.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            self.lines = self.lines.saturating_sub(1);
            if self.lines == 0 {
                self.end = None;
            }
            Ok(())
        }
    }

    fn told(lines: usize, patience: Duration) -> String {
        told_of(1234, lines, patience)
    }

    fn told_of(events: u64, lines: usize, patience: Duration) -> String {
        let (end, ended) = sync_channel(1);
        let end = (lines > 0).then_some(end);
        let text = String::new();
        let mut paper = Paper { text, lines, end };
        let seen = Seen::default();
        seen.events.store(events, Ordering::Relaxed);
        seen.bytes.store(5 << 20, Ordering::Relaxed);
        tell(&seen, &ended, &mut paper, patience);
        paper.text
    }

    #[test]
    fn what_is_soon_done_is_not_spoken_of() {
        assert_eq!(told(0, Duration::MAX), "");
    }

    #[test]
    fn a_line_stands_over_the_last_one_and_goes_at_the_end() {
        let line = "\rreading: 1234 events, 5.0Mi";
        let wiped = format!("\r{}\r", " ".repeat(line.len() - 1));
        assert_eq!(told(1, Duration::ZERO), format!("{line}{wiped}"));
        assert_eq!(told(2, Duration::ZERO), format!("{line}{line}{wiped}"));
    }

    #[test]
    fn waiting_for_the_first_is_told_as_that() {
        let told = told_of(0, 1, Duration::ZERO);
        assert!(told.starts_with("\rreading: nothing yet\r "), "{told:?}");
    }

    #[test]
    fn only_a_file_is_one() {
        assert!(is_file(&tempfile::tempfile().unwrap()));
        assert!(!is_file(&std::fs::File::open("/dev/null").unwrap()));
    }
}

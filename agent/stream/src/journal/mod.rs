//! The event journal on disk: kinds that outlive the agent, bounded by size and age.
//!
//! It is a log of segments and not a database. Everything it needs is to add at one end and to remove at the other, to lose
//! nothing that was flushed, and to read on behind any damage: `record` has the bytes, `store` the files, `read` what is read
//! of them, `writer` what the one thread that writes does, `thread` its beginning and end, and `past` what those see who resume.

mod crc;
pub mod disk;
#[cfg(test)]
mod ending_tests;
pub mod past;
mod queue;
pub mod read;
pub mod record;
pub mod recover;
mod scan;
#[cfg(test)]
mod simulated;
pub mod store;
#[cfg(test)]
mod taken_tests;
#[cfg(test)]
mod tests;
mod thread;
mod unwritten;
mod writer;
#[cfg(test)]
mod writer_tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use self::disk::Folder;
use self::past::{JournalPast, Run};
use self::queue::{JournalSink, Queue};
pub use self::queue::{JournalState, JournalStatus};
use self::read::Reader;
pub use self::recover::Recovery;
use self::store::{Store, number};
use self::thread::Writing;
use self::unwritten::Unwritten;
use self::writer::Writer;
pub use self::writer::{OnLoss, WallClock};
use crate::hub::{Hub, Sink};

/// The thread writes out of one buffer on the heap; the memory of a whole ordinary stack would be locked.
const STACK: usize = 128 << 10;

/// How much a journal keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all its files together.
    pub size: u64,
    /// How long an event is kept: at least so long if there is room, and a sixteenth longer at most.
    pub age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            size: 64 << 20,
            age: Duration::from_hours(7 * 24),
        }
    }
}

impl Limits {
    fn age_micros(self) -> i64 {
        i64::try_from(self.age.as_micros()).unwrap_or(i64::MAX)
    }
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is no such folder.
    #[error("there is no event journal at {path}: no such folder")]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// There is a folder, and nothing of a journal in it.
    #[error("there is no event journal in {path}: none of its files is named events-NUMBER.log")]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
    /// Its folder or files cannot be opened.
    #[error("the event journal at {path} cannot be opened: {source}")]
    Open {
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another agent writes it.
    #[error(
        "the event journal at {path} belongs to another agent that runs; give this one another events.journal.path"
    )]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// Where its folder should be there is a file, which may be anybody's.
    #[error(
        "{path} is a file, and the event journal is a folder: set events.journal.path to another place, or move the file away"
    )]
    File {
        /// The file.
        path: PathBuf,
    },
    /// Its thread cannot be started.
    #[error("the thread of the event journal cannot be started: {0}")]
    Thread(io::Error),
}

impl JournalError {
    fn open(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            _ => Self::Open { path, source },
        }
    }
}

/// Whether a journal in the folder `path` may have events of a boot, by its newest segment. One that cannot be read, or says
/// nothing for so long, may; where there is none, there are none.
pub fn may_have(path: &Path, boot_id: &str, at_most: Duration) -> bool {
    let (path, boot_id) = (path.to_path_buf(), boot_id.to_owned());
    answer(at_most, move || {
        let folder = Folder::of(&path);
        folder
            .and_then(|folder| Reader::new(folder).may_end_in(&boot_id))
            .unwrap_or_else(|error| error.kind() != io::ErrorKind::NotFound)
    })
}

/// What a thread of its own answers in time; yes, where it does not. It may hang on a disk for as long as that likes.
fn answer(at_most: Duration, ask: impl FnOnce() -> bool + Send + 'static) -> bool {
    let (told, answer) = mpsc::sync_channel(1);
    let asking = std::thread::Builder::new()
        .name("brink-asks".to_owned())
        .stack_size(STACK)
        .spawn(move || {
            // Nobody may wait for it any more.
            let _too_late = told.send(ask());
        });
    asking.is_err() || answer.recv_timeout(at_most).unwrap_or(true)
}

/// What surrounds a journal.
pub struct Surroundings<'a> {
    /// The boot that this run's numbers belong to.
    pub boot_id: &'a str,
    /// The wall clock.
    pub clock: WallClock,
    /// Told of losses, by the journal's thread.
    pub on_loss: OnLoss,
}

/// The journal of a run: its thread, and the ways to it. It ends with it, when all that was told is written, or its disk does not
/// answer.
#[derive(Debug)]
pub struct Journal {
    queue: Arc<Queue>,
    past: Arc<JournalPast>,
    _writing: Writing,
}

impl Journal {
    /// Takes up the journal in the folder `path`, or begins one there, for its owner alone. What is no part of a journal and
    /// has the name of one is given another name.
    ///
    /// # Errors
    /// When the folder cannot be used, or another agent uses it.
    pub fn open(
        path: &Path,
        limits: Limits,
        around: Surroundings<'_>,
    ) -> Result<(Self, Recovery), JournalError> {
        let fail = |error| JournalError::open(path, error);
        if fs::metadata(path).is_ok_and(|found| found.is_file()) {
            let path = path.to_path_buf();
            return Err(JournalError::File { path });
        }
        let folder = Folder::make(path).map_err(fail)?;
        if !folder.lock().map_err(fail)? {
            let path = path.to_path_buf();
            return Err(JournalError::Busy { path });
        }
        let (unwritten, left) = Unwritten::open(&folder);
        let opened = Store::open(folder, limits, around.boot_id, (around.clock)());
        let (store, mut recovery) = opened.map_err(fail)?;
        recovery.unwritten = left;
        let queue = Arc::new(Queue::default());
        queue.written(store.size(), 0);
        let files = Reader::new(Folder::of(path).map_err(fail)?);
        let told = recovery.damaged.iter();
        let run = Run {
            boot: around.boot_id.into(),
            queue: Arc::clone(&queue),
            first: store.begins_at(),
            told: told.filter_map(|damage| number(&damage.file)).collect(),
        };
        let writer = Writer {
            store,
            unwritten,
            queue: Arc::clone(&queue),
            clock: around.clock,
            on_loss: around.on_loss,
        };
        let journal = Self {
            queue,
            past: Arc::new(JournalPast::of(files, Some(run))),
            _writing: Writing::start(writer).map_err(JournalError::Thread)?,
        };
        Ok((journal, recovery))
    }

    /// What to attach to the hub.
    pub fn sink(&self) -> Box<dyn Sink> {
        Box::new(JournalSink(Arc::clone(&self.queue)))
    }

    /// Keeps what a hub has told and still has in memory, and what it tells from now on. What has left the memory is a loss.
    pub fn attach(&self, hub: &Hub) {
        let gone = hub.attach_from_start(self.sink());
        self.queue.lose(gone);
    }

    /// For those who resume.
    pub fn past(&self) -> Arc<JournalPast> {
        Arc::clone(&self.past)
    }

    /// How it stands.
    pub fn status(&self) -> JournalStatus {
        self.queue.status_at(Instant::now())
    }
}

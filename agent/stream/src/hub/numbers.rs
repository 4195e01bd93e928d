//! Numbers that go on over restarts of the agent within a boot: a small file with the highest one that may have been given.
//!
//! Numbers are reserved in blocks before they are given, so a process that is killed leaves a gap and never a repetition. Over
//! a boot nothing goes on: the boot's id is part of every event's place. So nothing is synced to a disk either.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::lock;

/// How many numbers are reserved at a time.
const BLOCK: u64 = 4096;
/// Longer than any file of ours.
const LONGEST: u64 = 256;
/// A pipe in the place of a file is opened without its other end.
const WITHOUT_WAITING: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
/// What the file begins with: what it is, and its version.
const MARK: &str = "brink-events 1";

/// JSON numbers are exact up to here in every reader.
const HIGHEST: u64 = 1 << 53;

/// The numbers of one run.
#[derive(Debug)]
pub struct Numbers {
    store: Arc<Store>,
    last: u64,
    reserved: u64,
    /// False while another agent has the file: nothing is reserved then, and looked for again and again.
    is_kept: bool,
    /// Why nothing could be reserved at the start.
    failed: Option<String>,
}

/// The file, written by one at a time and only ever upwards.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    boot: String,
    written: Mutex<u64>,
    /// Held as long as numbers are given; none where another agent holds it.
    lock: Mutex<Option<File>>,
}

/// What was found where the numbers are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: the first run of this boot.
    Nothing,
    /// Nothing of this boot, although a run of it was before. Numbers begin beyond any that it can have given.
    Lost,
    /// The file of an earlier boot: the first run of this one.
    OtherBoot,
    /// The run before this one; numbers go on after the highest that it may have given.
    Continued,
    /// Another agent that runs now numbers its events here. Numbers begin beyond any that it can reach, and are kept when it is
    /// gone.
    Elsewhere,
    /// The file cannot be had, or there is no room for it. Numbers begin beyond any of this boot, and are kept when they can be.
    NotKept(String),
    /// Something else, or a damaged file; it was put aside.
    PutAside {
        /// Where it is now.
        aside: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Why numbers cannot be reserved.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {what}: {source}", path.display())]
pub struct NumbersError {
    /// The file.
    pub path: PathBuf,
    /// What was tried.
    pub what: &'static str,
    /// Why it failed.
    pub source: io::Error,
}

impl Numbers {
    /// Numbers after those of the run before, reserved in the file at `path`. Of a damaged file nothing can be gone on from:
    /// then they begin at `uptime` in microseconds, which no earlier run of this boot can have reached. The same where another
    /// agent, which runs beside this one, numbers its events in that file, where nothing can be reserved in it, and where it has no number of
    /// this boot although `was_before` says that a run of it was before this one.
    pub fn open(
        path: &Path,
        boot_id: &str,
        uptime: Duration,
        was_before: impl FnOnce() -> bool,
    ) -> (Self, Found) {
        let beyond = u64::try_from(uptime.as_micros()).unwrap_or(HIGHEST);
        let store = Store {
            path: path.to_path_buf(),
            boot: boot_id.to_owned(),
            written: Mutex::new(0),
            lock: Mutex::new(None),
        };
        let begun = store.begin(beyond, was_before);
        let (last, reserved, found) = begun.unwrap_or_else(|(last, error)| {
            let last = last.max(beyond);
            (last, last, Found::NotKept(error.to_string()))
        });
        let numbers = Self {
            store: Arc::new(store),
            last,
            reserved,
            is_kept: found != Found::Elsewhere,
            failed: match &found {
                Found::NotKept(why) => Some(why.clone()),
                _ => None,
            },
        };
        (numbers, found)
    }

    /// The highest number that an earlier run may have given; 0 for none.
    pub const fn last(&self) -> u64 {
        self.last
    }

    pub(super) const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Whether it is time to reserve more.
    pub(super) const fn is_low(&self, last: u64) -> bool {
        !self.is_kept || self.reserved.saturating_sub(last) < BLOCK / 2
    }

    /// Whether the file is this run's.
    pub(super) const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Why nothing could be reserved at the start; asked for once.
    pub(super) const fn take_failed(&mut self) -> Option<String> {
        self.failed.take()
    }

    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// Takes note of what was reserved, if the file is this run's; another thread may have been faster.
    pub(super) fn take_over(&mut self, reserved: Option<u64>) {
        self.is_kept = reserved.is_some();
        self.reserved = self.reserved.max(reserved.unwrap_or(0));
    }

    /// Leaves the exact last number behind. The file stays this run's: another number is reserved before it is given.
    pub(super) fn settle(&mut self, last: u64) -> Result<(), NumbersError> {
        let mut written = lock(&self.store.written);
        if lock(&self.store.lock).is_none() {
            return Ok(());
        }
        self.store.write(last)?;
        *written = last;
        self.reserved = last;
        Ok(())
    }

    /// Leaves the file to other agents: no number is given any more.
    pub(super) fn let_go(&self) {
        drop(lock(&self.store.lock).take());
    }
}

impl Store {
    /// The last number given before this run, up to where numbers are reserved, and what was found; an error comes with the
    /// last number that is known of.
    fn begin(
        &self,
        beyond: u64,
        was_before: impl FnOnce() -> bool,
    ) -> Result<(u64, u64, Found), (u64, NumbersError)> {
        let taken = take_lock(&self.path).map_err(|error| (0, error))?;
        if taken.is_none() {
            return Ok((beyond, beyond, Found::Elsewhere));
        }
        *lock(&self.lock) = taken;
        let (mut last, mut found) =
            found_at(&self.path, &self.boot, beyond).map_err(|error| (0, error))?;
        // Before anything is reserved: a run that is killed in between leaves the next one to ask again.
        if matches!(found, Found::Nothing | Found::OtherBoot) && was_before() {
            (last, found) = (beyond, Found::Lost);
        }
        *lock(&self.written) = last;
        let reserved = self.reserve_after(last).map_err(|error| (last, error))?;
        Ok((last, reserved.unwrap_or(last), found))
    }

    /// Reserves a block after `last`, and returns up to where numbers are reserved now; none while the file is another
    /// agent's.
    pub(super) fn reserve_after(&self, last: u64) -> Result<Option<u64>, NumbersError> {
        let until = last.saturating_add(BLOCK);
        let mut written = lock(&self.written);
        let mut held = lock(&self.lock);
        if held.is_none() {
            *held = take_lock(&self.path)?;
        }
        if held.is_none() {
            return Ok(None);
        }
        if *written < until {
            self.write(until)?;
            *written = until;
        }
        Ok(Some(*written))
    }

    /// Writes it beside the file, and moves it there whole. On a full disk it is written over: it is as long as ever.
    fn write(&self, until: u64) -> Result<(), NumbersError> {
        let fresh = beside(&self.path, ".new");
        let text = text_of(&self.boot, until);
        let written = File::create(&fresh).and_then(|mut file| file.write_all(text.as_bytes()));
        let moved = written.and_then(|()| fs::rename(&fresh, &self.path));
        let Err(error) = moved else {
            return Ok(());
        };
        // What there is of it only takes room.
        let _was_never_there = fs::remove_file(&fresh);
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        let written_over = is_full && write_over(&self.path, text.as_bytes()).is_ok();
        if written_over {
            return Ok(());
        }
        Err(self::error(&self.path, "write")(error))
    }
}

/// Writes a text over another one of the same length, for which no room is needed.
fn write_over(path: &Path, text: &[u8]) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    if file.metadata()?.len() != text.len() as u64 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    file.write_all_at(text, 0)
}

fn error(path: &Path, what: &'static str) -> impl Fn(io::Error) -> NumbersError {
    let path = path.to_path_buf();
    move |source| NumbersError {
        path: path.clone(),
        what,
        source,
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, NumbersError> {
    let mut options = File::options();
    let options = options.read(true).custom_flags(WITHOUT_WAITING);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(error(path, "open")(source)),
    };
    if !file.metadata().map_err(error(path, "read"))?.is_file() {
        let why = io::Error::other("it is no regular file");
        return Err(error(path, "read")(why));
    }
    let mut text = Vec::new();
    let read = file.take(LONGEST + 1).read_to_end(&mut text);
    read.map_err(error(path, "read"))?;
    Ok(Some(text))
}

/// Whoever could open the lock could hold it: it is for the agent alone.
fn take_lock(path: &Path) -> Result<Option<File>, NumbersError> {
    let mut options = File::options();
    let options = options.create(true).truncate(false).write(true).mode(0o600);
    let options = options.custom_flags(WITHOUT_WAITING);
    let file = options.open(beside(path, ".lock"));
    let file = file.map_err(error(path, "lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(error(path, "lock")(source)),
    }
}

fn found_at(path: &Path, boot_id: &str, beyond: u64) -> Result<(u64, Found), NumbersError> {
    let Some(text) = read(path)? else {
        return Ok((0, Found::Nothing));
    };
    Ok(match parse(&text) {
        Ok((boot, last)) if boot == boot_id => (last, Found::Continued),
        Ok(_) => (0, Found::OtherBoot),
        Err(why) => (beyond, put_aside(path, why)?),
    })
}

fn put_aside(path: &Path, why: &'static str) -> Result<Found, NumbersError> {
    let aside = beside(path, ".aside");
    fs::rename(path, &aside).map_err(error(path, "put aside"))?;
    Ok(Found::PutAside { aside, why })
}

fn text_of(boot: &str, last: u64) -> String {
    let body = format!("{MARK} {boot} {last:020}");
    format!("{body} {:016x}\n", checksum(body.as_bytes()))
}

/// The boot's id and the number in a file's text.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse(text: &[u8]) -> Result<(&str, u64), &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "it is no text")?;
    let line = text.strip_suffix('\n').ok_or("its end is missing")?;
    let (body, sum) = line.rsplit_once(' ').ok_or("it is no list of numbers")?;
    let fields = body.strip_prefix(MARK).ok_or("it is not one of ours")?;
    if sum != format!("{:016x}", checksum(body.as_bytes())) {
        return Err("its checksum does not fit");
    }
    let fields = fields
        .strip_prefix(' ')
        .and_then(|rest| rest.split_once(' '));
    let (boot, last) = fields.ok_or("it lacks a field")?;
    match last.parse() {
        Ok(last) if last < HIGHEST => Ok((boot, last)),
        _ => Err("its number is none"),
    }
}

/// FNV-1a, 64 bits: tells a torn or edited file, and is no protection against malice.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

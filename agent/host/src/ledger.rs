//! The ledger: fixed slots in a mapped file under /run, filled before an act and completed after it.
//!
//! A slot is written by ordinary stores, so recording a decision takes no system call, and what was recorded is in the
//! file even if we are killed the next moment. Each slot has two sequence numbers and some marks in front of its two parts:
//!
//! ```text
//! | sequence | completed | marks (set during the act) | record (filled before the act) | completion (filled after it) |
//! ```
//!
//! `sequence` is cleared before the record is written and set after it; `completed` is set to the same number after the
//! completion is written. A mark is a number of its own, 0 until it is set. So a reader after a crash sees a whole record or
//! none, a whole completion or none, and how far the act had come; a torn completion never damages what was there before.
//! What the parts and marks hold is the caller's business; a change of it is a new `format`, and a file of another format,
//! shape or boot is set aside, never reinterpreted.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::clock::BootId;
use crate::error::HostError;
use crate::ledger_map::MappedFile;

const MAGIC: u64 = u64::from_be_bytes(*b"BRINKLGR");
/// The version of the layout described above.
const LAYOUT: u32 = 2;
/// The header takes a page of its own.
const HEADER: usize = 4096;
/// Marks in a slot.
pub const MARKS: usize = 4;
/// Where the first of them is.
const FIRST_MARK: usize = 16;
const SLOT_HEADER: usize = FIRST_MARK + 8 * MARKS;
/// A decision a microsecond for nine years.
const LAST_SEQUENCE: u64 = 1 << 48;
/// A file is not gone on with when fewer numbers than this are left: only damage leads there, and what would be written
/// beyond the last one would not be read again.
const LEAST_LEFT: u64 = 1 << 32;
/// More than this is a mistake: 64 MiB.
const LARGEST: usize = 64 << 20;

/// What the slots look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerShape {
    /// How many slots; the oldest is used again when all are full.
    pub slots: u32,
    /// Bytes of the part filled before the act.
    pub record: u32,
    /// Bytes of the part filled after it.
    pub completion: u32,
    /// Version of what the parts hold.
    pub format: u32,
}

/// How the file was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// There was none.
    Created,
    /// It was ours and of this boot, with so many records.
    Resumed {
        /// Slots that hold a whole record.
        records: usize,
    },
    /// Something else was there, and was renamed.
    Replaced {
        /// Its name now. One is kept; an older one was replaced.
        aside: PathBuf,
        /// What was wrong with it.
        why: String,
    },
}

/// What is there before anybody opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No file.
    Nothing,
    /// A ledger of this boot, to go on with.
    Ours,
    /// Something else, and what is wrong with it; opening the ledger would rename it.
    Other(String),
}

/// Names a slot and which use of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotId {
    index: u32,
    /// Counts up from 1 over the life of the file.
    pub sequence: u64,
}

/// A record as it is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where it is.
    pub slot: SlotId,
    /// What was marked during the act; 0 where nothing was.
    pub marks: [u64; MARKS],
    /// The part filled before the act.
    pub record: &'a [u8],
    /// The part filled after it, if that came to its end.
    pub completion: Option<&'a [u8]>,
}

/// The open ledger. Only one process may have it: take the enforcer's lock first.
#[derive(Debug)]
pub struct Ledger {
    map: MappedFile,
    shape: LedgerShape,
    next: u64,
}

impl Ledger {
    /// Opens or makes the file.
    ///
    /// # Errors
    /// [`HostError`] with the path; [`HostError::Unsupported`] for a shape beyond 64 MiB or without slots.
    pub fn open(
        path: &Path,
        shape: LedgerShape,
        boot: BootId,
    ) -> Result<(Self, Opening), HostError> {
        let length = shape.checked_length()?;
        let mut opening = Opening::Created;
        if let Some(found) = inspect(path, shape, length, boot)? {
            match found {
                Ok(()) => opening = Opening::Resumed { records: 0 },
                Err(why) => {
                    opening = Opening::Replaced {
                        aside: set_aside(path)?,
                        why,
                    }
                }
            }
        }
        let file = open_file(path)?;
        let mut ledger = Self {
            map: MappedFile::map(&file, path, length)?,
            shape,
            next: 1,
        };
        if let Opening::Resumed { records } = &mut opening {
            *records = ledger.entries().count();
            ledger.next = ledger
                .entries()
                .map(|entry| entry.slot.sequence)
                .max()
                .unwrap_or(0)
                + 1;
        } else {
            ledger.write_header(boot);
        }
        Ok((ledger, opening))
    }

    /// Says what opening would find. Changes nothing.
    ///
    /// # Errors
    /// [`HostError`] with the path; [`HostError::Unsupported`] for an impossible shape.
    pub fn look(path: &Path, shape: LedgerShape, boot: BootId) -> Result<Found, HostError> {
        let found = inspect(path, shape, shape.checked_length()?, boot)?;
        Ok(match found {
            None => Found::Nothing,
            Some(Ok(())) => Found::Ours,
            Some(Err(why)) => Found::Other(why),
        })
    }

    /// Takes the next slot and lets the record be written into it. Allocates nothing, makes no system call.
    pub fn record(&mut self, write: impl FnOnce(&mut [u8])) -> SlotId {
        let index = self.next_index();
        let slot = SlotId {
            index,
            sequence: self.next,
        };
        let at = self.shape.slot(index);
        self.map.store(at, 0);
        self.map.store(at + 8, 0);
        for mark in 0..MARKS {
            self.map.store(at + FIRST_MARK + 8 * mark, 0);
        }
        write(self.map.bytes_mut(self.shape.record_at(index)));
        self.map.store(at, slot.sequence);
        self.next += 1;
        slot
    }

    /// Which slot the next record goes to.
    fn next_index(&self) -> u32 {
        u32::try_from((self.next - 1) % u64::from(self.shape.slots)).unwrap_or(0)
    }

    /// Reads the slot that the next record goes to, so that its memory is at hand.
    pub fn touch_next(&self) {
        let index = self.next_index();
        for range in [self.shape.record_at(index), self.shape.completion_at(index)] {
            for byte in self.map.bytes(range).iter().step_by(64) {
                std::hint::black_box(*byte);
            }
        }
    }

    /// Sets a mark of a record at one stroke; false when there is no such mark, or the slot has been used again since.
    /// Allocates nothing, makes no system call.
    pub fn mark(&mut self, slot: SlotId, mark: usize, value: u64) -> bool {
        let is_there = mark < MARKS && self.holds(slot);
        if is_there {
            let at = self.shape.slot(slot.index) + FIRST_MARK + 8 * mark;
            self.map.store(at, value);
        }
        is_there
    }

    /// Whether a slot has not been used again since.
    fn holds(&self, slot: SlotId) -> bool {
        slot.index < self.shape.slots && self.map.load(self.shape.slot(slot.index)) == slot.sequence
    }

    /// Lets the completion of a record be written; false when the slot has been used again since.
    pub fn complete(&mut self, slot: SlotId, write: impl FnOnce(&mut [u8])) -> bool {
        let at = self.shape.slot(slot.index);
        if !self.holds(slot) {
            return false;
        }
        self.map.store(at + 8, 0);
        write(self.map.bytes_mut(self.shape.completion_at(slot.index)));
        self.map.store(at + 8, slot.sequence);
        true
    }

    /// The whole records, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.shape.slots).filter_map(|index| {
            let at = self.shape.slot(index);
            let sequence = self.map.load(at);
            let completed = self.map.load(at + 8) == sequence;
            self.shape.may_hold(index, sequence).then(|| Entry {
                slot: SlotId { index, sequence },
                marks: std::array::from_fn(|mark| self.map.load(at + FIRST_MARK + 8 * mark)),
                record: self.map.bytes(self.shape.record_at(index)),
                completion: completed.then(|| self.map.bytes(self.shape.completion_at(index))),
            })
        })
    }

    /// Whether the kernel promised to keep it in memory.
    pub fn is_locked(&self) -> bool {
        self.map.is_locked()
    }

    /// The magic number comes last: a header without it was never finished.
    fn write_header(&mut self, boot: BootId) {
        let header = self.shape.header(boot);
        self.map
            .bytes_mut(8..8 + header.len())
            .copy_from_slice(&header);
        self.map.store(0, MAGIC);
    }
}

impl LedgerShape {
    fn slot_size(self) -> Option<usize> {
        let parts = (self.record as usize).checked_next_multiple_of(8)?;
        let parts = parts.checked_add((self.completion as usize).checked_next_multiple_of(8)?)?;
        parts.checked_add(SLOT_HEADER)
    }

    fn length(self) -> Option<usize> {
        let slots = (self.slots as usize).checked_mul(self.slot_size()?)?;
        let length = slots.checked_add(HEADER)?;
        (self.slots > 0 && length <= LARGEST).then_some(length)
    }

    fn checked_length(self) -> Result<usize, HostError> {
        self.length().ok_or_else(|| HostError::Unsupported {
            what: "a ledger of this shape",
            why: format!("{self:?} has no slots or is larger than {LARGEST} bytes"),
        })
    }

    fn slot(self, index: u32) -> usize {
        HEADER + index as usize * self.slot_size().unwrap_or(0)
    }

    fn record_at(self, index: u32) -> Range<usize> {
        let start = self.slot(index) + SLOT_HEADER;
        start..start + self.record as usize
    }

    fn completion_at(self, index: u32) -> Range<usize> {
        let start = self.record_at(index).start + (self.record as usize).next_multiple_of(8);
        start..start + self.completion as usize
    }

    /// Whether a slot can have been given this number: a damaged one must not send the count astray.
    fn may_hold(self, index: u32, sequence: u64) -> bool {
        (1..LAST_SEQUENCE).contains(&sequence)
            && (sequence - 1) % u64::from(self.slots) == u64::from(index)
    }

    /// What follows the magic number.
    fn header(self, boot: BootId) -> Vec<u8> {
        let numbers = [
            LAYOUT,
            self.format,
            self.slots,
            self.record,
            self.completion,
            0,
        ];
        let numbers = numbers.iter().flat_map(|number| number.to_ne_bytes());
        numbers.chain(boot.0).collect()
    }
}

/// Looks at what is there: nothing, a ledger to go on with, or something else and why.
fn inspect(
    path: &Path,
    shape: LedgerShape,
    length: usize,
    boot: BootId,
) -> Result<Option<Result<(), String>>, HostError> {
    let failed = |source| HostError::Open {
        path: path.to_path_buf(),
        source,
    };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !found.is_file() || found.nlink() != 1 {
        return Ok(Some(Err("it is not a plain file".to_owned())));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(Some(Err(format!("it belongs to user {}", found.uid()))));
    }
    if found.len() != length as u64 {
        return Ok(Some(Err(format!(
            "it has {} bytes and not {length}",
            found.len()
        ))));
    }
    let bytes = fs::read(path).map_err(failed)?;
    let checked = check_header(&bytes, &shape.header(boot), boot);
    Ok(Some(checked.and_then(|()| check_numbers(&bytes, shape))))
}

/// Whether there are numbers left for the records of a boot.
fn check_numbers(bytes: &[u8], shape: LedgerShape) -> Result<(), String> {
    let number = |index: u32| {
        let at = shape.slot(index);
        let word = bytes.get(at..)?.first_chunk()?;
        let sequence = u64::from_ne_bytes(*word);
        shape.may_hold(index, sequence).then_some(sequence)
    };
    let newest = (0..shape.slots).filter_map(number).max();
    match newest {
        Some(newest) if newest > LAST_SEQUENCE - LEAST_LEFT => {
            Err(format!("record {newest} is beyond what a boot can have"))
        }
        _ => Ok(()),
    }
}

/// What is wrong with the beginning of a file, if anything.
fn check_header(bytes: &[u8], header: &[u8], boot: BootId) -> Result<(), String> {
    let (magic, rest) = bytes.split_at_checked(8).unwrap_or((&[], bytes));
    let shape = header.len() - boot.0.len();
    if magic != MAGIC.to_ne_bytes() {
        Err("it does not begin as a ledger does".to_owned())
    } else if rest.get(..shape) != header.get(..shape) {
        Err("its layout or format is another".to_owned())
    } else if rest.get(shape..header.len()) != Some(&boot.0[..]) {
        Err("it was written before the last boot".to_owned())
    } else {
        Ok(())
    }
}

fn set_aside(path: &Path) -> Result<PathBuf, HostError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".aside");
    let aside = path.with_file_name(name);
    fs::rename(path, &aside).map_err(|source| HostError::Remove {
        path: path.to_path_buf(),
        source,
    })?;
    Ok(aside)
}

fn open_file(path: &Path) -> Result<File, HostError> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW);
    options.open(path).map_err(|source| HostError::Create {
        path: path.to_path_buf(),
        source,
    })
}

#[cfg(test)]
mod tests;

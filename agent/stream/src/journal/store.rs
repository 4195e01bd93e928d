//! The journal as files: segments that are written in order and removed whole, oldest first.
//!
//! A segment is never changed behind its end. It is left for a new one when it is large enough, when its first event is
//! old enough, when it is of another boot, and when a run before us left something unreadable in it. So no damage and no
//! power cut can reach what is safe already, and the disk is given back at once by what goes.

use std::collections::VecDeque;
use std::io;

use super::Limits;
use super::disk::{Disk, DiskFile};
use super::record::{HEAD, Head, LONGEST_TEXT, Record, What};
use super::recover::{self, Recovery};

/// A journal has about so many segments: with one of them, so much of its age and size goes.
const PARTS: u64 = 16;
/// Bytes of the largest segment.
const LARGEST_SEGMENT: u64 = 4 << 20;
/// Segments of a journal whose runs all ended soon.
const MOST_SEGMENTS: usize = 512;

/// A segment that is no longer written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) size: u64,
    pub(super) begun: i64,
}

/// The segment that is written.
#[derive(Debug)]
pub(super) struct Current<F> {
    pub(super) number: u64,
    pub(super) file: F,
    pub(super) begun: i64,
    /// Behind its last whole record.
    pub(super) length: u64,
}

/// The files, and what waits to be written to them.
#[derive(Debug)]
pub struct Store<D: Disk> {
    disk: D,
    limits: Limits,
    boot_id: String,
    old: VecDeque<Segment>,
    current: Option<Current<D::File>>,
    next_number: u64,
    /// Records that wait, as bytes.
    waiting: Vec<u8>,
    /// Events among them.
    waiting_events: u64,
    /// Events that were written and may not be safe yet.
    unsafe_events: u64,
    /// Events that were written and could not be made safe.
    doubtful: u64,
}

/// The name of a segment.
pub(super) fn name(number: u64) -> String {
    format!("events-{number:012}.log")
}

/// The number in a segment's name.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("events-")?.strip_suffix(".log")?;
    let number = digits.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

/// What the name of a file that was put aside has behind the one that it had.
pub(super) const ASIDE: &str = ".damaged";

/// The number of a segment that was put aside, in the name that it has now.
pub(super) fn aside_number(name: &str) -> Option<u64> {
    number(name.split_once(ASIDE)?.0)
}

impl<D: Disk> Store<D> {
    /// Takes up the files in a folder. `now` is in microseconds since 1970.
    ///
    /// # Errors
    /// When the folder cannot be read, or a foreign file not be put aside. That there is no room is none.
    pub fn open(disk: D, limits: Limits, boot_id: &str, now: i64) -> io::Result<(Self, Recovery)> {
        let head = Head {
            boot_id: boot_id.to_owned(),
            begun: now,
        };
        if head.encode().is_none() {
            return Err(io::Error::other("the boot id is too long"));
        }
        let (found, recovery) = recover::recover(&disk, boot_id)?;
        let mut store = Self {
            disk,
            limits,
            boot_id: head.boot_id,
            old: found.old,
            current: found.current,
            next_number: found.next_number,
            waiting: Vec::new(),
            waiting_events: 0,
            unsafe_events: 0,
            doubtful: 0,
        };
        store.trim(now, 0)?;
        Ok((store, recovery))
    }

    /// Has an event written by the next [`Store::write`]. `false` where it is too long for this journal: it is left out.
    pub fn push(&mut self, seq: u64, text: &[u8], now: i64) -> bool {
        let longest = usize::try_from(self.limits.size / 4).unwrap_or(LONGEST_TEXT);
        if text.len() > longest {
            return false;
        }
        let record = Record {
            what: What::Line,
            seq,
            written: now,
            text,
        };
        let is_taken = record.encode(&mut self.waiting);
        self.waiting_events += u64::from(is_taken);
        is_taken
    }

    /// Where its files are.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The first segment that is written from now on: those before it stay as they are.
    pub fn begins_at(&self) -> u64 {
        let current = self.current.as_ref();
        current.map_or(self.next_number, |current| current.number)
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Events that wait to be written.
    pub fn waiting_events(&self) -> u64 {
        self.waiting_events
    }

    /// Events that were written and may not be safe yet.
    pub fn unsafe_events(&self) -> u64 {
        self.unsafe_events
    }

    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        let old: u64 = self.old.iter().map(|segment| segment.size).sum();
        old + self.current.as_ref().map_or(0, |current| current.length)
    }

    /// Writes what waits, after it has removed what must go for it, and left what somebody else has taken away. After an error it waits
    /// on.
    ///
    /// # Errors
    /// The system's: the disk is full, most of all.
    pub fn write(&mut self, now: i64) -> io::Result<()> {
        self.leave_what_is_gone()?;
        let length = self.waiting.len() as u64;
        let is_over = self.current.as_ref().is_some_and(|current| {
            let is_full = current.length + length > self.segment_size();
            let age = now.saturating_sub(current.begun);
            let is_old = age > self.limits.age_micros() / PARTS.cast_signed();
            current.length > HEAD as u64 && (is_full || is_old)
        });
        if is_over {
            self.sync()?;
            self.retire();
        }
        self.trim(now, length)?;
        // One that is over has a successor though nothing is to be written to it: by its beginning the age of the other is
        // known, and once that is gone, by its number, that there was one.
        let is_wanted = length > 0 || !self.old.is_empty();
        if self.current.is_none() && is_wanted {
            self.begin(now)?;
        }
        if length == 0 {
            return Ok(());
        }
        self.put()
    }

    /// What somebody else has taken away is written no longer: whatever came would be gone with it. Another folder in the place of
    /// this one is taken up with what it has.
    fn leave_what_is_gone(&mut self) -> io::Result<()> {
        let mut current = self.current.iter();
        let is_there = current.all(|current| self.disk.has(&name(current.number), &current.file));
        if !is_there {
            tracing::warn!(
                "somebody has removed files of the event journal, and what they had; new ones are begun"
            );
            self.current = None;
            self.doubtful += std::mem::take(&mut self.unsafe_events);
        }
        if self.disk.renew()? {
            let (found, _) = recover::recover(&self.disk, &self.boot_id)?;
            self.next_number = self.next_number.max(found.next_number);
            (self.old, self.current) = (found.old, found.current);
        } else if !is_there {
            let names = self.disk.list()?;
            self.old
                .retain(|segment| names.contains(&name(segment.number)));
        }
        Ok(())
    }

    fn put(&mut self) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Err(io::Error::other("there is no segment to write to"));
        };
        if let Err(error) = current.file.write_at(&self.waiting, current.length) {
            // What was written of it would be passed over; it only takes room.
            let _ = current.file.cut(current.length);
            return Err(error);
        }
        current.length += self.waiting.len() as u64;
        self.unsafe_events += self.waiting_events;
        self.waiting_events = 0;
        self.waiting.clear();
        self.waiting.shrink_to(LONGEST_TEXT / 16);
        Ok(())
    }

    /// Waits until what was written is safe.
    ///
    /// # Errors
    /// The system's. It may then have dropped what was not safe, and says so once only: a new segment is begun.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(current) = &self.current
            && let Err(error) = current.file.sync()
        {
            self.retire();
            self.doubtful += std::mem::take(&mut self.unsafe_events);
            return Err(error);
        }
        self.unsafe_events = 0;
        Ok(())
    }

    /// Events that may be lost since a [`Store::sync`] failed, this one or that of a segment that was over; asked for once.
    pub fn take_doubtful(&mut self) -> u64 {
        std::mem::take(&mut self.doubtful)
    }

    fn segment_size(&self) -> u64 {
        (self.limits.size / PARTS).min(LARGEST_SEGMENT)
    }

    fn retire(&mut self) {
        if let Some(current) = self.current.take() {
            self.old.push_back(Segment {
                number: current.number,
                size: current.length,
                begun: current.begun,
            });
        }
    }

    /// Makes a segment whose head and name are safe before anything is written behind it.
    fn begin(&mut self, now: i64) -> io::Result<()> {
        let head = Head {
            boot_id: self.boot_id.clone(),
            begun: now,
        };
        let Some(head) = head.encode() else {
            return Err(io::Error::other("the boot id is too long"));
        };
        let number = self.next_number;
        let name = name(number);
        let file = match self.disk.create(&name) {
            Ok(file) => file,
            Err(error) => {
                let is_taken = error.kind() == io::ErrorKind::AlreadyExists;
                self.next_number += u64::from(is_taken);
                return Err(error);
            }
        };
        let made = file
            .write_at(&head, 0)
            .and_then(|()| file.sync())
            .and_then(|()| self.disk.sync_names());
        if let Err(error) = made {
            // Without its head it would be taken for nobody's by the next run.
            let _ = self.disk.remove(&name);
            return Err(error);
        }
        self.next_number += 1;
        self.current = Some(Current {
            number,
            file,
            begun: now,
            length: HEAD as u64,
        });
        Ok(())
    }

    /// Removes the oldest segments: what is too old, and what must make room for `more` bytes.
    fn trim(&mut self, now: i64, more: u64) -> io::Result<()> {
        let more = more + HEAD as u64;
        while let Some(oldest) = self.old.front().copied() {
            // What was written last in it was written before the next one was begun.
            let next = self.old.get(1).map(|next| next.begun);
            let next = next.or(self.current.as_ref().map(|current| current.begun));
            // A machine without a clock of its own begins the next one long ago.
            let next = next.map(|begun| begun.max(oldest.begun));
            let age = next.map_or(0, |begun| now.saturating_sub(begun));
            let is_too_much =
                self.size() + more > self.limits.size || self.old.len() >= MOST_SEGMENTS;
            if !is_too_much && age <= self.limits.age_micros() {
                return Ok(());
            }
            match self.disk.remove(&name(oldest.number)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            self.old.pop_front();
        }
        Ok(())
    }
}

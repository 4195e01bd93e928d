//! One segment from somewhere on, a window at a time.

use std::io;
use std::ops::Range;

use super::disk::{DiskFile, is_damage};
use super::record::{Piece, What, first};

/// Bytes that are read at once.
const WINDOW: usize = 64 << 10;

/// A reading of one segment.
#[derive(Debug)]
pub(super) struct Scan<F> {
    file: F,
    /// Where the window ends in the file.
    read_to: u64,
    window: Vec<u8>,
    /// How much of the window is passed.
    passed: usize,
    is_at_end: bool,
    /// Behind the last record that was found; where the reading began, before there is one.
    pub(super) good: u64,
    /// Bytes between records that could not be read, so far.
    pub(super) unreadable: u64,
}

/// A record that was found; its text is [`Scan::text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) what: What,
    pub(super) seq: u64,
    pub(super) written: i64,
    text: Range<usize>,
}

enum Passed {
    Record(Found, usize),
    Unreadable(usize),
    Short(usize),
    End,
}

impl<F: DiskFile> Scan<F> {
    pub(super) fn new(file: F, offset: u64) -> Self {
        Self {
            file,
            read_to: offset,
            window: Vec::new(),
            passed: 0,
            is_at_end: false,
            good: offset,
            unreadable: 0,
        }
    }

    /// The next record; none at the end of the file, as it is now.
    pub(super) fn next(&mut self) -> io::Result<Option<Found>> {
        loop {
            match self.step() {
                Passed::Record(found, size) => {
                    let begins = self.position();
                    self.unreadable += begins.saturating_sub(self.good);
                    self.passed += size;
                    self.good = self.position();
                    return Ok(Some(found));
                }
                Passed::Unreadable(length) => self.passed += length,
                Passed::Short(needed) if !self.is_at_end => self.fill(needed)?,
                Passed::End if !self.is_at_end => self.fill(1)?,
                // It claims to be longer than the file: perhaps that alone is wrong, and there are others in it.
                Passed::Short(_) if self.position() < self.read_to => self.passed += 1,
                Passed::Short(_) | Passed::End => return Ok(None),
            }
        }
    }

    /// The text of the record that was found last.
    pub(super) fn text(&self, found: &Found) -> &[u8] {
        self.window.get(found.text.clone()).unwrap_or_default()
    }

    /// Bytes behind the last record. Known once there is no next one.
    pub(super) fn tail(&self) -> u64 {
        self.read_to.saturating_sub(self.good)
    }

    fn position(&self) -> u64 {
        self.read_to - (self.window.len() - self.passed) as u64
    }

    fn step(&self) -> Passed {
        let rest = &self.window[self.passed..];
        match first(rest) {
            Piece::Record(record) => {
                let end = self.passed + record.size();
                let text = end - record.text.len()..end;
                let found = Found {
                    what: record.what,
                    seq: record.seq,
                    written: record.written,
                    text,
                };
                Passed::Record(found, record.size())
            }
            Piece::Unreadable(length) => Passed::Unreadable(length),
            Piece::Short(needed) => Passed::Short(needed),
            Piece::End => Passed::End,
        }
    }

    fn fill(&mut self, needed: usize) -> io::Result<()> {
        self.window.drain(..self.passed);
        self.passed = 0;
        let kept = self.window.len();
        let left = self.file.length()?.saturating_sub(self.read_to);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let wanted = needed.max(WINDOW).min(kept.saturating_add(left));
        self.window.resize(wanted, 0);
        let length = match self.file.read_at(&mut self.window[kept..], self.read_to) {
            Ok(length) => length,
            // The rest of the file is given up: a disk that fails takes long for each part that it cannot read.
            Err(error) if is_damage(&error) => {
                self.unreadable += left as u64;
                0
            }
            Err(error) => {
                self.window.truncate(kept);
                return Err(error);
            }
        };
        self.window.truncate(kept + length);
        self.read_to += length as u64;
        // What ends before the file does ends at something that cannot be read, which the next look is told of.
        let is_all = length == 0 || length >= left;
        self.is_at_end = is_all && kept + length < needed;
        Ok(())
    }
}

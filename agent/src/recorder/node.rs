//! The node from files: how long its tasks wait for memory, and its memory where the kernel's sampler records none.

use std::sync::Mutex;

use brink_core::base::Moment;
use brink_host::psi::PressureReader;

use super::book::{Book, lock};
use super::point::{FilePoint, Stamp, units};
use crate::guard::files::NodeFiles;
use brink_host::probe::abi::flight::FlightPoint;

/// What the zones keep is read again after so many readings: it hardly ever changes.
const REFRESH: u32 = 300;

/// Readers of the node's files.
#[derive(Debug, Default)]
pub struct NodeSource {
    files: Option<NodeFiles>,
    pressure: Option<PressureReader>,
    read: u32,
}

impl NodeSource {
    /// What could be opened; what could not is missing from the recordings.
    pub const fn new(files: Option<NodeFiles>, pressure: Option<PressureReader>) -> Self {
        Self {
            files,
            pressure,
            read: 0,
        }
    }

    /// Reads the node into the book; its memory only where nobody else records it. Says whether tasks have waited since the last time.
    pub fn read(&mut self, at: Stamp, is_recorded: bool, book: &Mutex<Book>) -> bool {
        let pressure = self.pressure.as_ref().and_then(|file| file.read().ok());
        let stall_us = pressure.map(|pressure| pressure.some.total_us);
        let memory = if is_recorded { None } else { self.memory(at) };
        let mut book = lock(book);
        let before = book.stall_us();
        if let Some(stall_us) = stall_us {
            book.note_stall(at, stall_us);
        }
        if let Some(point) = memory {
            book.note_node(point);
        }
        before
            .zip(stall_us)
            .is_some_and(|(before, now)| now > before)
    }

    fn memory(&mut self, at: Stamp) -> Option<FilePoint> {
        let files = self.files.as_mut()?;
        if self.read.is_multiple_of(REFRESH) {
            // What could not be read again stays as it was.
            let _stays = files.refresh();
        }
        self.read = self.read.wrapping_add(1);
        let found = files.consumption(Moment::START).ok()?;
        let available = found.figures.memory?.available;
        Some(FilePoint {
            at,
            available: FlightPoint::amount(available),
            headroom: FlightPoint::amount(found.figures.headroom.unwrap_or(available)),
            anon: units(found.anon),
            file: units(found.file),
        })
    }
}

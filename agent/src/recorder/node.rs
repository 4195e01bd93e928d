//! The node from files: how long its tasks wait for memory, and its memory where the kernel's sampler records none.

use std::sync::Mutex;

use brink_core::base::Moment;
use brink_host::psi::PressureReader;
use brink_stream::model::field::Missing;

use super::book::{Book, lock};
use super::point::{FilePoint, Stamp, units};
use crate::forensics::gather::why_hot;
use crate::guard::files::NodeFiles;
use brink_host::probe::abi::flight::FlightPoint;

/// What the zones keep is read again after so many readings: it hardly ever changes.
const REFRESH: u32 = 300;

/// Readers of the node's files, or why there are none.
#[derive(Debug)]
pub struct NodeSource {
    files: Result<NodeFiles, Missing>,
    pressure: Result<PressureReader, Missing>,
    read: u32,
}

impl NodeSource {
    /// What could be opened; what could not is missing from the recordings.
    pub const fn new(
        files: Result<NodeFiles, Missing>,
        pressure: Result<PressureReader, Missing>,
    ) -> Self {
        Self {
            files,
            pressure,
            read: 0,
        }
    }

    /// Reads the node into the book; its memory only where nobody else records it. Says whether tasks have waited since the last time.
    pub fn read(&mut self, at: Stamp, is_recorded: bool, book: &Mutex<Book>) -> bool {
        let stall_us = self.waited();
        let memory = (!is_recorded).then(|| self.memory(at));
        let mut book = lock(book);
        let before = book.stall_us();
        book.stalls_missing = stall_us.err();
        if let Ok(stall_us) = stall_us {
            book.note_stall(at, stall_us);
        }
        if let Some(memory) = memory {
            book.node_missing = memory.err();
            if let Ok(point) = memory {
                book.note_node(point);
            }
        }
        before
            .zip(stall_us.ok())
            .is_some_and(|(before, now)| now > before)
    }

    /// How long its tasks have waited, in microseconds.
    fn waited(&self) -> Result<u64, Missing> {
        let file = self.pressure.as_ref().map_err(|reason| *reason)?;
        Ok(file.read().map_err(why_hot)?.some.total_us)
    }

    fn memory(&mut self, at: Stamp) -> Result<FilePoint, Missing> {
        let files = self.files.as_mut().map_err(|reason| *reason)?;
        if self.read.is_multiple_of(REFRESH) {
            // What could not be read again stays as it was.
            let _stays = files.refresh();
        }
        self.read = self.read.wrapping_add(1);
        let found = files.consumption(Moment::START).map_err(why_hot)?;
        let memory = found.figures.memory.ok_or(Missing::Lost)?;
        let headroom = found.figures.headroom.unwrap_or(memory.available);
        Ok(FilePoint {
            at,
            available: FlightPoint::amount(memory.available),
            headroom: FlightPoint::amount(headroom),
            anon: units(found.anon),
            file: units(found.file),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_nothing_is_read_stands_in_the_book_until_something_is() {
        let book = Mutex::new(Book::default());
        let at = Stamp::of(1);
        let mut blind = NodeSource::new(Err(Missing::NotPermitted), Err(Missing::KernelLacksIt));
        blind.read(at, true, &book);
        let told = |book: &Mutex<Book>| {
            let book = lock(book);
            (book.node_missing, book.stalls_missing)
        };
        // Its memory was not asked for: the sampler has it.
        assert_eq!(told(&book), (None, Some(Missing::KernelLacksIt)));
        blind.read(at, false, &book);
        let reasons = (Some(Missing::NotPermitted), Some(Missing::KernelLacksIt));
        assert_eq!(told(&book), reasons);
        let root = std::path::Path::new("/");
        let layout = brink_host::cgroup::Layout::detect(root).expect("this machine");
        let files = NodeFiles::open(root, &layout, &crate::guard::files::NodePlan::default());
        let mut seeing = NodeSource::new(files.map_err(|_| Missing::Lost), Err(Missing::Lost));
        seeing.read(at, false, &book);
        assert_eq!(told(&book), (None, Some(Missing::Lost)));
        assert_eq!(lock(&book).node_points().count(), 1);
    }
}

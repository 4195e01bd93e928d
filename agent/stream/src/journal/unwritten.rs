//! How many events wait for a disk that takes none, for the next run to tell of.
//!
//! It is kept where that disk has room already, so that it can be written when there is none.

use std::io;

use super::disk::{Disk, DiskFile};

/// Beside the segments. Eight bytes, the number as a little-endian integer; written over in place, which takes no room.
const NAME: &str = "unwritten";

/// The file; none where it cannot be had, and then nothing is kept.
#[derive(Debug)]
pub(super) struct Unwritten<F> {
    file: Option<F>,
    /// What is in it.
    kept: u64,
    /// What an earlier run left, until that is told by an event that is written.
    earlier: u64,
}

impl<F: DiskFile> Unwritten<F> {
    /// Takes up the file or makes it, and tells what an earlier run has left in it.
    pub(super) fn open<D: Disk<File = F>>(disk: &D) -> (Self, u64) {
        let opened = open(disk).inspect_err(|error| {
            tracing::warn!(%error, "what the event journal cannot write is not told by the next run");
        });
        let (file, earlier) = opened.ok().unzip();
        let earlier = earlier.unwrap_or(0);
        let this = Self {
            file,
            kept: earlier,
            earlier,
        };
        (this, earlier)
    }

    /// So many events of this run wait.
    pub(super) fn wait(&mut self, count: u64) {
        self.keep(self.earlier.saturating_add(count));
    }

    /// All that was told is written, with what the earlier run left.
    pub(super) fn settle(&mut self) {
        self.earlier = 0;
        self.keep(0);
    }

    fn keep(&mut self, count: u64) {
        if self.kept == count {
            return;
        }
        if let Some(file) = &self.file
            && let Err(error) = file.write_at(&count.to_le_bytes(), 0)
        {
            tracing::warn!(%error, count, "how many events wait for the event journal's disk cannot be kept for the next run");
        }
        // After an error too: whatever is there, the same would be said again.
        self.kept = count;
    }
}

fn open<D: Disk>(disk: &D) -> io::Result<(D::File, u64)> {
    let file = match disk.open_for_writing(NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(NAME)?,
        Err(error) => return Err(error),
    };
    let mut bytes = [0; 8];
    if file.read_at(&mut bytes, 0)? == bytes.len() {
        return Ok((file, u64::from_le_bytes(bytes)));
    }
    // Its room is taken now, while there may be some.
    file.write_at(&[0; 8], 0)?;
    Ok((file, 0))
}

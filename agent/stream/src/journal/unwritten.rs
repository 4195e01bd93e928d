//! How many events wait for a disk that takes none, for the next run to tell of.
//!
//! It is kept where that disk has room already, so that it can be written when there is none.

use std::io;

use super::crc::crc32;
use super::disk::{Disk, DiskFile};
use super::recover::set_aside;

/// Beside the segments. It is written over in place, which takes no room.
const NAME: &str = "unwritten";
/// What it begins with.
const MARK: [u8; 8] = *b"BRINKUNW";
/// Its bytes: the mark, the number (8) and the CRC-32 of both (4), little-endian.
const LENGTH: usize = MARK.len() + 8 + 4;

/// The file; none where it cannot be had, and then nothing is kept.
#[derive(Debug)]
pub(super) struct Unwritten<F> {
    file: Option<F>,
    /// What is in it.
    kept: u64,
    /// What an earlier run left, until that is told by an event that is written.
    earlier: u64,
    /// Whether it was told that it cannot be had.
    has_warned: bool,
}

fn cannot_be_had(error: &io::Error) {
    tracing::warn!(%error, file = NAME, "this file of the event journal cannot be had: what it cannot write is not told by the next run");
}

impl<F: DiskFile> Unwritten<F> {
    /// Takes up the file or makes it, and tells what an earlier run has left in it.
    pub(super) fn open<D: Disk<File = F>>(disk: &D) -> (Self, u64) {
        let opened = open(disk).inspect_err(cannot_be_had);
        let has_warned = opened.is_err();
        let (file, earlier) = opened.ok().unzip();
        let earlier = earlier.unwrap_or(0);
        let this = Self {
            file,
            kept: earlier,
            earlier,
            has_warned,
        };
        (this, earlier)
    }

    /// Makes it again where somebody else has taken it away, or where it could not be had; with the room that it has on a full disk, while
    /// there is some.
    pub(super) fn follow<D: Disk<File = F>>(&mut self, disk: &D) {
        let is_there = |file: &F| disk.has(NAME, file);
        if !disk.is_there() || self.file.as_ref().is_some_and(is_there) {
            return;
        }
        match open(disk) {
            Ok((file, found)) => {
                if found > 0 {
                    tracing::warn!(
                        found,
                        "events of another run were never written to the event journal that is there now"
                    );
                }
                self.file = Some(file);
                let kept = std::mem::replace(&mut self.kept, found);
                self.keep(kept);
                self.has_warned = false;
            }
            Err(error) => {
                if !self.has_warned {
                    cannot_be_had(&error);
                }
                self.file = None;
                self.has_warned = true;
            }
        }
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
            && let Err(error) = file.write_at(&encode(count), 0)
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
        Err(error) if is_no_file(&error) => {
            let aside = set_aside(disk, NAME)?;
            tracing::warn!(
                file = NAME,
                aside,
                "this is no file of the event journal's; it is put aside"
            );
            disk.create(NAME)?
        }
        Err(error) => return Err(error),
    };
    // One more than it has: what is longer is something else.
    let mut bytes = [0; LENGTH + 1];
    let length = file.read_at(&mut bytes, 0)?;
    if let Some(count) = decode(&bytes[..length]) {
        return Ok((file, count));
    }
    if length > 0 {
        tracing::warn!(
            file = NAME,
            "this file of the event journal is damaged, or none of ours: how many events an earlier run could not write is not known"
        );
    }
    if length > LENGTH {
        file.cut(LENGTH as u64)?;
    }
    // Its room is taken now, while there may be some.
    file.write_at(&encode(0), 0)?;
    Ok((file, 0))
}

/// A folder is there, or what else is no plain file.
fn is_no_file(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory};
    matches!(error.kind(), InvalidInput | IsADirectory)
}

fn encode(count: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&MARK);
    bytes[8..16].copy_from_slice(&count.to_le_bytes());
    let sum = crc32(&bytes[..16]);
    bytes[16..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The number in the bytes of the file; none where they are something else.
fn decode(bytes: &[u8]) -> Option<u64> {
    let count = bytes.get(8..16)?.try_into().ok().map(u64::from_le_bytes)?;
    (*bytes == encode(count)).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::super::disk::Folder;
    use super::super::simulated::Simulated;
    use super::*;

    fn left(disk: &Simulated) -> u64 {
        Unwritten::open(disk).1
    }

    #[test]
    fn what_was_kept_is_read_again_and_nothing_else_is() {
        let disk = Simulated::default();
        let (mut unwritten, earlier) = Unwritten::open(&disk);
        assert_eq!(earlier, 0);
        unwritten.wait(905);
        assert_eq!((left(&disk), left(&disk)), (905, 905));
        let good = encode(905);
        let flipped = (0..good.len()).map(|at| {
            let mut bytes = good.to_vec();
            bytes[at] ^= 4;
            bytes
        });
        let torn = (0..good.len()).map(|end| good[..end].to_vec());
        // Foreign bytes, among them as many as an earlier version had written, and ours with more behind them.
        let foreign = [vec![b'2'; 8], vec![b'x'; 9999], [&good[..], &[0]].concat()];
        for bytes in flipped.chain(torn).chain(foreign) {
            disk.edit(NAME, |file| file.clone_from(&bytes));
            let (mut unwritten, earlier) = Unwritten::open(&disk);
            assert_eq!(earlier, 0, "{bytes:?}");
            assert_eq!(left(&disk), 0);
            unwritten.wait(7);
            assert_eq!(left(&disk), 7, "and it is kept again behind {bytes:?}");
        }
    }

    #[test]
    fn a_foreign_file_on_a_full_disk_is_written_over() {
        let disk = Simulated::default();
        let (_, earlier) = Unwritten::open(&disk);
        assert_eq!(earlier, 0);
        disk.edit(NAME, |file| *file = vec![b'x'; 9999]);
        disk.set_capacity(Some(LENGTH));
        let (mut unwritten, _) = Unwritten::open(&disk);
        unwritten.wait(3);
        assert_eq!(left(&disk), 3);
    }

    #[test]
    fn what_was_taken_away_is_made_again_and_what_is_no_file_put_aside() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(NAME);
        std::fs::create_dir(&path).unwrap();
        let folder = Folder::of(root.path()).unwrap();
        let (mut unwritten, left) = Unwritten::open(&folder);
        assert!(left == 0 && root.path().join("unwritten.damaged").is_dir());
        unwritten.wait(7);
        for _ in 0..2 {
            unwritten.follow(&folder);
            assert_eq!(decode(&std::fs::read(&path).unwrap()), Some(7));
            std::fs::remove_file(&path).unwrap();
        }
        unwritten.follow(&folder);
        assert_eq!(Unwritten::open(&folder).1, 7);
    }
}

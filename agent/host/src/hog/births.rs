//! When the processes of a load were born, in a file that all of them write to and that can be read after they were killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::error::HostError;

/// Of each birth when its parent began to fork, in nanoseconds of `CLOCK_MONOTONIC`. Whoever was noted was born after that; a parent
/// that is killed right after the fork leaves no note.
#[derive(Debug)]
pub struct Births {
    file: File,
}

impl Births {
    /// Opens the file, which other loads may have begun.
    pub(super) fn open(path: &Path) -> Result<Self, HostError> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(path);
        let file = file.map_err(|source| HostError::Create {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Self { file })
    }

    /// Notes one. At the end of a file the notes of several processes follow each other, each of them whole. A full disk is no reason
    /// to stop the load.
    pub(super) fn note(&self, began_ns: u64) {
        let _ = (&self.file).write_all(&began_ns.to_ne_bytes());
    }

    /// All that were noted, in the order in which they were.
    ///
    /// # Errors
    /// [`HostError::Read`].
    pub fn read(path: &Path) -> Result<Vec<u64>, HostError> {
        let bytes = fs::read(path).map_err(|source| HostError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        let (notes, _) = bytes.as_chunks::<8>();
        Ok(notes.iter().map(|note| u64::from_ne_bytes(*note)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_note_is_read_as_long_as_there_is_a_file() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("births");
        assert!(Births::read(&path).is_err());
        let one = Births::open(&path).expect("made");
        assert!(Births::read(&path).expect("read").is_empty());
        one.note(7);
        let other = Births::open(&path).expect("opened");
        other.note(u64::MAX);
        one.note(9);
        drop((one, other));
        assert_eq!(Births::read(&path).expect("read"), [7, u64::MAX, 9]);
    }
}

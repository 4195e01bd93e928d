//! How far a hog has come, in a file that can be read while it runs and after it was killed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::error::HostError;

/// How far a hog has come. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes taken (of `ForkChurn`: processes forked).
    pub touched: u64,
    /// When it began to take; 0 before.
    pub started_ns: u64,
    /// When it last took.
    pub latest_ns: u64,
    /// When it had taken all it was to take, or stopped; 0 before.
    pub finished_ns: u64,
}

const LENGTH: usize = 32;

impl Progress {
    /// Reads the file. One that is not there yet, or not written yet, is a hog that has not begun.
    ///
    /// # Errors
    /// [`HostError::Open`] or [`HostError::Read`].
    pub fn read(path: &Path) -> Result<Self, HostError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(source) => {
                return Err(HostError::Open {
                    path: path.to_path_buf(),
                    source,
                });
            }
        };
        let mut bytes = [0; LENGTH];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(Self::from_bytes(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(Self::default()),
            Err(source) => Err(HostError::Read {
                path: path.to_path_buf(),
                source,
            }),
        }
    }

    fn from_bytes(bytes: &[u8; LENGTH]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_ne_bytes(*word));
        Self {
            touched: word(0),
            started_ns: word(1),
            latest_ns: word(2),
            finished_ns: word(3),
        }
    }

    fn to_bytes(self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let words = [
            self.touched,
            self.started_ns,
            self.latest_ns,
            self.finished_ns,
        ];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        bytes
    }
}

/// The hog's end of the file.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
}

impl Writer {
    pub(super) fn create(path: &Path) -> Result<Self, HostError> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path).map_err(|source| HostError::Create {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Self { file })
    }

    /// Half a microsecond on tmpfs. A full disk is no reason to stop the load.
    pub(super) fn write(&self, progress: Progress) {
        let _ = self.file.write_all_at(&progress.to_bytes(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("progress");
        assert_eq!(
            Progress::read(&path).expect("not begun"),
            Progress::default()
        );
        let writer = Writer::create(&path).expect("create");
        assert_eq!(
            Progress::read(&path).expect("not begun"),
            Progress::default()
        );
        let progress = Progress {
            touched: 1 << 40,
            started_ns: 2,
            latest_ns: 3,
            finished_ns: u64::MAX,
        };
        writer.write(progress);
        assert_eq!(Progress::read(&path).expect("written"), progress);
    }
}

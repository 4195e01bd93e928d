//! A folder for one thread's fake files; what an input has put there is gone before the next one.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The folder, and what lies in it.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    written: RefCell<Vec<PathBuf>>,
}

impl Scratch {
    /// An empty folder among the temporary ones, removed with this value.
    #[expect(
        clippy::expect_used,
        reason = "without a folder nothing can be said about any input"
    )]
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            written: RefCell::default(),
        }
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A path in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file, with the folders above it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.join(name);
        let folder = path.parent().unwrap_or(self.path());
        let made = fs::create_dir_all(folder);
        let written = made.and_then(|()| fs::write(&path, bytes));
        // A name that is a folder already, say; the reader finds what there is.
        if written.is_ok() {
            self.written.borrow_mut().push(path.clone());
        }
        path
    }

    /// Removes every file that was written.
    pub(crate) fn clear(&self) {
        for path in self.written.take() {
            // Gone already, if what was tested removes or renames it.
            let _gone = fs::remove_file(path);
        }
    }
}

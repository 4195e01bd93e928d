//! The few things the journal asks of a disk, so that a test can be one whose power fails.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A folder of files.
pub trait Disk: Debug {
    /// An open file of it.
    type File: DiskFile;

    /// The names of all files, in any order.
    ///
    /// # Errors
    /// The system's.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file to be read.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file to be written on.
    ///
    /// # Errors
    /// The system's.
    fn open_for_writing(&self, name: &str) -> io::Result<Self::File>;

    /// Makes a file that was not there, for its owner alone.
    ///
    /// # Errors
    /// The system's.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Waits until names that were made, changed or removed are safe.
    ///
    /// # Errors
    /// The system's.
    fn sync_names(&self) -> io::Result<()>;

    /// Whether a file still has that name: somebody else may have taken it away, or the folder.
    fn has(&self, name: &str, file: &Self::File) -> bool;

    /// Whether its path still leads to this folder.
    fn is_there(&self) -> bool;

    /// Goes on in the folder that the path leads to, a new one if need be, where somebody else has taken this one away; whether that
    /// was so.
    ///
    /// # Errors
    /// The system's, or that another agent has the other one.
    fn renew(&mut self) -> io::Result<bool>;
}

/// An open file.
pub trait DiskFile: Debug {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn length(&self) -> io::Result<u64>;

    /// Fills the front of `bytes` from there on; less only where the file ends, or a part comes that cannot be read.
    ///
    /// # Errors
    /// The system's, where nothing can be read.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` there. After an error some of it may be there.
    ///
    /// # Errors
    /// The system's.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts it off there.
    ///
    /// # Errors
    /// The system's.
    fn cut(&self, length: u64) -> io::Result<()>;

    /// Waits until what was written is safe.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of the machine.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The folder itself, opened.
    handle: File,
}

impl Folder {
    /// The folder at `path`, made for its owner alone if it is not there. What is made is safe before this returns.
    ///
    /// # Errors
    /// The system's.
    pub fn make(path: &Path) -> io::Result<Self> {
        make_safely(path, |parent| File::open(parent)?.sync_all())?;
        Self::of(path)
    }

    /// The folder at `path`, which is there.
    ///
    /// # Errors
    /// The system's.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(DIRECTORY);
        Ok(Self {
            path: path.to_path_buf(),
            handle: options.open(path)?,
        })
    }

    /// Keeps every other process that asks the same from the folder, as long as this lives. `false` where one has it.
    ///
    /// # Errors
    /// The system's.
    pub fn lock(&self) -> io::Result<bool> {
        match self.handle.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => Ok(false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Opens a file that is a plain one; anything else is [`io::ErrorKind::InvalidInput`].
    fn plain(&self, options: &OpenOptions, name: &str) -> io::Result<File> {
        let other = || io::Error::new(io::ErrorKind::InvalidInput, "not a plain file");
        let file = match options.open(self.path.join(name)) {
            Ok(file) => file,
            // A link, and a socket.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::LOOP | Errno::NXIO)
                ) =>
            {
                return Err(other());
            }
            Err(error) => return Err(error),
        };
        let is_plain = file.metadata()?.is_file();
        is_plain.then_some(file).ok_or_else(other)
    }
}

/// Makes a folder and those above it that are missing, and then calls `flush` with each folder that has a new one in it. With the one
/// that has a folder which was there too, for whoever made that may not have come so far; but that is none of our making.
fn make_safely(path: &Path, mut flush: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let missing = path.ancestors().take_while(|folder| !folder.exists());
    let parents: Vec<&Path> = missing.filter_map(Path::parent).map(or_here).collect();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    if let Some(parent) = path.parent().filter(|_| parents.is_empty())
        && let Err(error) = flush(or_here(parent))
    {
        tracing::debug!(%error, folder = %parent.display(), "what is in it may not be safe");
    }
    parents.into_iter().try_for_each(flush)
}

/// What a path of one name alone is in.
fn or_here(parent: &Path) -> &Path {
    if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    }
}

/// Not a folder: an error, and no waiting for the other end of a pipe.
const DIRECTORY: i32 = rustix::fs::OFlags::DIRECTORY
    .union(rustix::fs::OFlags::NONBLOCK)
    .bits()
    .cast_signed();
/// A link is not followed, and a pipe not waited for.
const PLAIN: i32 = rustix::fs::OFlags::NOFOLLOW
    .union(rustix::fs::OFlags::NONBLOCK)
    .bits()
    .cast_signed();

/// The bytes at the front of a file, at most so many; none where the disk cannot give them back.
pub(super) fn front<const BYTES: usize>(file: &impl DiskFile) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; BYTES];
    match file.read_at(&mut bytes, 0) {
        Ok(length) => bytes.truncate(length),
        Err(error) if is_damage(&error) => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(bytes))
}

/// Whether the disk cannot give back what was written there.
pub(super) fn is_damage(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::IO)
}

impl Disk for Folder {
    type File = File;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // A name that is no text is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(PLAIN);
        self.plain(&options, name)
    }

    fn open_for_writing(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(PLAIN);
        self.plain(&options, name)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(self.path.join(name))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn has(&self, name: &str, file: &File) -> bool {
        is_at(&self.path.join(name), file)
    }

    fn is_there(&self) -> bool {
        is_at(&self.path, &self.handle)
    }

    fn renew(&mut self) -> io::Result<bool> {
        if self.is_there() {
            return Ok(false);
        }
        let renewed = Self::make(&self.path)?;
        if !renewed.lock()? {
            let problem = "the folder that is there now belongs to another agent";
            return Err(io::Error::other(problem));
        }
        *self = renewed;
        Ok(true)
    }
}

/// Whether nothing is there, or something else in the place of a folder above it.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// Whether what was opened is what the path leads to. A path that cannot be looked at counts as unchanged.
fn is_at(path: &Path, opened: &File) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (fs::metadata(path), opened.metadata()) {
        (Ok(named), Ok(opened)) => identity(named) == identity(opened),
        (Err(error), _) => !is_absent(&error),
        (_, Err(_)) => true,
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(filled as u64);
            match std::os::unix::fs::FileExt::read_at(self, rest, at) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_that_has_a_new_one_in_it_is_flushed() {
        let root = tempfile::tempdir().unwrap();
        let (root, path) = (root.path(), root.path().join("var/events"));
        let flushed = || {
            let mut flushed = Vec::new();
            let flush = |parent: &Path| {
                assert!(path.is_dir(), "all are made before");
                flushed.push(parent.to_path_buf());
                Ok(())
            };
            make_safely(&path, flush).unwrap();
            flushed
        };
        assert_eq!(flushed(), [root.join("var"), root.to_path_buf()]);
        assert_eq!(flushed(), [root.join("var")], "it was there");
        let fails = |_: &Path| Err(io::Error::other("a disk"));
        assert!(make_safely(&root.join("other"), fails).is_err());
        assert!(make_safely(&path, fails).is_ok(), "it was there");
        assert!(Folder::make(&root.join("one/two")).is_ok());
    }
}

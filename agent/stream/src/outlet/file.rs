//! Events as lines of a file that is rotated: `PATH` is written, `PATH.1` is the one before it, and so on.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Failure, Format, Outlet};
use crate::hub::Line;

/// What of a file is looked at before it is written: more than what events begin with.
const HEAD: u64 = 128;
/// No link is followed, and nobody waits for a pipe.
const PLAIN: i32 = rustix::fs::OFlags::NOFOLLOW
    .union(rustix::fs::OFlags::NONBLOCK)
    .bits()
    .cast_signed();

/// When a file is left for a new one, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of one file. A line that is longer has a file of its own.
    pub size: u64,
    /// Files besides the one that is written.
    pub count: u32,
}

/// The file.
#[derive(Debug)]
pub struct RotatedFile {
    path: PathBuf,
    rotation: Rotation,
    format: Format,
    open: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    file: File,
    /// Behind the last whole line.
    length: u64,
}

impl RotatedFile {
    /// That file. It is opened with the first event, and whenever it is gone: a disk may be full now, or mounted later.
    pub fn new(path: &Path, rotation: Rotation, format: Format) -> Self {
        Self {
            path: path.to_path_buf(),
            rotation,
            format,
            open: None,
        }
    }

    /// Opens the file, or makes it for its owner alone, with the folders above it. One that does not begin with an event is
    /// somebody's, and left alone.
    fn take_up(&self) -> io::Result<Opened> {
        if let Some(folder) = self.path.parent() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o700).create(folder)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.mode(0o600).custom_flags(PLAIN).open(&self.path)?;
        if !file.metadata()?.is_file() {
            let kind = io::ErrorKind::InvalidInput;
            return Err(io::Error::new(kind, "it is no plain file"));
        }
        if !begins_with_event(&head_of(&mut file)?) {
            let problem = "it is there and has other things than events; it is left alone";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let mut length = file.seek(SeekFrom::End(0))?;
        // A run before us was stopped within a line: it is left, and closed.
        let mut last = [b'\n'];
        if length > 0 {
            file.seek(SeekFrom::Start(length - 1))?;
            file.read_exact(&mut last)?;
        }
        if last != [b'\n'] {
            file.write_all_at(b"\n", length)?;
            length += 1;
        }
        Ok(Opened { file, length })
    }

    fn numbered(&self, number: u32) -> PathBuf {
        if number == 0 {
            return self.path.clone();
        }
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        PathBuf::from(name)
    }

    /// Moves every file on by one; the oldest goes. What has a name of theirs and is somebody else's is left alone, and nothing
    /// is moved then.
    fn rotate(&self) -> io::Result<()> {
        if self.rotation.count == 0 {
            return fs::remove_file(&self.path);
        }
        for number in 1..=self.rotation.count {
            let path = self.numbered(number);
            if !is_ours(&path)? {
                let problem = format!(
                    "{} has other things than events and is left alone; the file in use is full",
                    path.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
            }
        }
        for number in (0..self.rotation.count).rev() {
            let moved = fs::rename(self.numbered(number), self.numbered(number + 1));
            match moved {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
        }
        Ok(())
    }

    /// Whether somebody has moved or removed the file under our hands.
    fn is_gone(&self, open: &Opened) -> bool {
        let (Ok(ours), Ok(there)) = (open.file.metadata(), fs::symlink_metadata(&self.path)) else {
            return true;
        };
        (ours.dev(), ours.ino()) != (there.dev(), there.ino())
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let bytes = text.len() as u64;
        let is_full = self
            .open
            .as_ref()
            .is_some_and(|open| open.length > 0 && open.length + bytes > self.rotation.size);
        if is_full {
            self.rotate()?;
            self.open = None;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.take_up()?,
        };
        if let Err(error) = open.file.write_all_at(text, open.length) {
            // Half a line would be read as a broken one.
            let _ = open.file.set_len(open.length);
            return Err(error);
        }
        open.length += bytes;
        self.open = Some(open);
        Ok(())
    }
}

/// Whether a file may be moved: there is none, or it begins with an event.
fn is_ours(path: &Path) -> io::Result<bool> {
    let mut options = OpenOptions::new();
    let mut file = match options.read(true).custom_flags(PLAIN).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    Ok(file.metadata()?.is_file() && begins_with_event(&head_of(&mut file)?))
}

/// The first bytes of a file.
fn head_of(file: &mut File) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}

/// Whether these are the first bytes of an event in either format, or would have been: a run before us may have been stopped within.
fn begins_with_event(head: &[u8]) -> bool {
    let goes_on_with = |head: &[u8], start: &[u8]| {
        let length = head.len().min(start.len());
        head[..length] == start[..length]
    };
    if goes_on_with(head, b"{\"apiVersion\":\"brink.dev/") {
        return true;
    }
    let start = b"{\"specversion\":\"1.0\",\"id\":\"";
    let Some(id) = head.strip_prefix(start) else {
        return goes_on_with(head, start);
    };
    let digits = id.iter().take_while(|byte| byte.is_ascii_digit()).count();
    goes_on_with(&id[digits..], b"\",\"source\":\"/brink/")
}

impl Outlet for RotatedFile {
    fn name(&self) -> &'static str {
        "file"
    }

    fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure> {
        if self.open.as_ref().is_some_and(|open| self.is_gone(open)) {
            self.open = None;
        }
        let mut text = Vec::new();
        for (done, line) in lines.iter().enumerate() {
            text.clear();
            self.format.write(line, &mut text);
            self.append(&text).map_err(|error| Failure {
                why: format!("{}: {error}", self.path.display()),
                ..Failure::io(done, &error)
            })?;
        }
        Ok(())
    }
}

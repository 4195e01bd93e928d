//! A kernel file opened in advance and read again and again with `pread` into the caller's buffer, without allocation.

use std::ffi::CStr;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{HostError, HotError};

/// The longest kernel file a cold reader takes in, bytes.
pub(crate) const LARGEST_FILE: usize = 4 << 20;

/// Room for a kernel file that is read whole, bytes: most of them fit in.
const ROOM: usize = 4096;

/// A kernel file (procfs, sysfs, cgroup) held open. The kernel makes the text anew for each read from offset 0.
#[derive(Debug)]
pub struct HotFile {
    fd: OwnedFd,
}

impl HotFile {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// [`HostError::Open`] with the path.
    pub fn open(path: &Path) -> Result<Self, HostError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(|fd| Self { fd })
            .map_err(|errno| HostError::Open {
                path: path.to_path_buf(),
                source: errno.into(),
            })
    }

    /// Opens a file of a directory that is open already. Allocates nothing.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn open_at(dir: BorrowedFd<'_>, name: &CStr) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(dir, name, flags, Mode::empty()).map(|fd| Self { fd })
    }

    /// Reads a file that the kernel writes as one record (meminfo, memory.stat, every single-value file): one `pread`.
    ///
    /// # Errors
    /// [`HotError::Truncated`] when the buffer is filled to its end, so that a cut answer is never taken for a whole one.
    pub fn read_record<'buffer>(
        &self,
        buffer: &'buffer mut [u8],
    ) -> Result<&'buffer [u8], HotError> {
        let length = retry(|| rustix::io::pread(self.fd.as_fd(), &mut *buffer, 0))?;
        if length == buffer.len() {
            return Err(HotError::Truncated);
        }
        Ok(&buffer[..length])
    }

    /// Reads a file of many records (zoneinfo, swaps, cgroup.procs) to its end.
    ///
    /// # Errors
    /// [`HotError::Truncated`] when the buffer is too small for the whole file.
    pub fn read_all<'buffer>(&self, buffer: &'buffer mut [u8]) -> Result<&'buffer [u8], HotError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let offset = filled as u64;
            match retry(|| rustix::io::pread(self.fd.as_fd(), &mut buffer[filled..], offset))? {
                0 => return Ok(&buffer[..filled]),
                length => filled += length,
            }
        }
        Err(HotError::Truncated)
    }

    /// Reads a file of any length to its end, a buffer at a time, and tells each line of it. Allocates nothing.
    ///
    /// # Errors
    /// [`HotError::Truncated`] when a line does not fit into the buffer, and whatever `tell` fails with.
    pub fn for_each_line(
        &self,
        buffer: &mut [u8],
        mut tell: impl FnMut(&[u8]) -> Result<(), HotError>,
    ) -> Result<(), HotError> {
        let (mut offset, mut kept) = (0, 0);
        loop {
            if kept == buffer.len() {
                return Err(HotError::Truncated);
            }
            let length = retry(|| rustix::io::pread(self.fd.as_fd(), &mut buffer[kept..], offset))?;
            if length == 0 {
                return tell(&buffer[..kept]);
            }
            offset += length as u64;
            let filled = kept + length;
            let whole = buffer[..filled].iter().rposition(|byte| *byte == b'\n');
            let whole = whole.map_or(0, |end| end + 1);
            for line in crate::scan::lines(&buffer[..whole]) {
                tell(line)?;
            }
            buffer.copy_within(whole..filled, 0);
            kept = filled - whole;
        }
    }
}

impl AsFd for HotFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

/// The whole text of a kernel file, for the paths where allocation is fine.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, HostError> {
    // Such a file has no length to go by: asked for it, and without room, the standard library reads it in many parts.
    let mut text = Vec::with_capacity(ROOM);
    // One byte more than allowed is enough to see that it is too much.
    let most = LARGEST_FILE as u64 + 1;
    fs::File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut text))
        .map_err(|source| HostError::Open {
            path: path.to_path_buf(),
            source,
        })?;
    if text.len() > LARGEST_FILE {
        return Err(HostError::TooMany {
            path: path.to_path_buf(),
            what: "bytes",
            limit: LARGEST_FILE,
        });
    }
    Ok(text)
}

/// Writes a short value to a kernel file in one call, for the paths where allocation is fine.
pub(crate) fn write_value(path: &Path, value: &str) -> Result<(), HostError> {
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(path)?;
        file.write_all(value.as_bytes())
    };
    write().map_err(|source| HostError::Write {
        path: path.to_path_buf(),
        value: value.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_answer_is_an_error_and_never_a_value() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        fs::write(file.path(), b"123456").expect("write");
        let hot = HotFile::open(file.path()).expect("open");
        assert_eq!(hot.read_record(&mut [0; 7]), Ok(&b"123456"[..]));
        assert_eq!(hot.read_all(&mut [0; 7]), Ok(&b"123456"[..]));
        assert_eq!(hot.read_record(&mut [0; 6]), Err(HotError::Truncated));
        assert_eq!(hot.read_all(&mut [0; 6]), Err(HotError::Truncated));
    }

    #[test]
    fn a_missing_file_names_its_path() {
        let error = HotFile::open(Path::new("/nonexistent/meminfo")).expect_err("no such file");
        assert_eq!(
            error.to_string(),
            "cannot open /nonexistent/meminfo: No such file or directory (os error 2)"
        );
        assert_eq!(error.errno(), Some(2));
    }
}

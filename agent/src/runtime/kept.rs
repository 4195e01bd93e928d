//! Small files in the state directory that outlive the agent.
//!
//! They are written aside and renamed, so that a reader never meets half of one.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What anybody may read, and what nobody else may.
const OPEN: u32 = 0o644;
const PRIVATE: u32 = 0o600;

/// More than any of these files comes to, in bytes.
pub(super) const LARGEST: u64 = 64 << 20;

/// Writes a file in the place of the one before.
///
/// # Errors
/// As [`write_bytes`].
#[cfg(feature = "kubernetes")]
pub(super) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_bytes(path, &serde_json::to_vec(value)?)
}

/// Writes a file that nobody else is to read.
///
/// # Errors
/// As [`write_bytes`].
pub(super) fn write_private(path: &Path, value: &impl Serialize) -> io::Result<()> {
    replace(path, &serde_json::to_vec(value)?, PRIVATE)
}

/// Puts these bytes into the place of what was in a file before.
///
/// # Errors
/// When it cannot be written; the one before is still there then.
pub(super) fn write_bytes(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes, OPEN)
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let aside = path.with_extension("new");
    let written = make(&aside, bytes, mode).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // On a full disk half of it would take room that others need.
        let _was_never_there = fs::remove_file(&aside);
    }
    written
}

/// A new file: what somebody who was killed has left in its place would keep its own mode.
fn make(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    options.open(path)?.write_all(bytes)
}

/// What a file says; none if there is none.
///
/// # Errors
/// When it is there and cannot be read, is no regular file, or larger than `most` bytes.
pub(super) fn read_bytes(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut options = OpenOptions::new();
    // Whoever opens a pipe waits for its writer otherwise.
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if found.len() > most {
        return Err(io::Error::other(format!("it is larger than {most} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Reads a file; none if there is none.
///
/// # Errors
/// When it is there and cannot be read or understood.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let text = read_bytes(path, LARGEST)?;
    Ok(text.map(|text| serde_json::from_slice(&text)).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_of_ours_is_refused_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.json");
        assert!(read::<u8>(&path).unwrap().is_none());
        write_bytes(&path, b"7").unwrap();
        assert_eq!(read::<u8>(&path).unwrap(), Some(7));
        fs::File::create(&path)
            .unwrap()
            .set_len(LARGEST + 1)
            .unwrap();
        let why = |path: &Path| read::<u8>(path).unwrap_err().to_string();
        assert_eq!(why(&path), "it is larger than 67108864 bytes");
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        assert_eq!(why(&pipe), "it is no regular file");
        let zero = folder.path().join("zero");
        std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
        assert_eq!(why(&zero), "it is no regular file");
    }
}

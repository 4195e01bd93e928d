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

/// What a file says, as far as it may have been written; none if there is none.
///
/// # Errors
/// When it is there and cannot be read.
pub(super) fn read_bytes(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match fs::File::open(path) {
        Ok(file) => file.take(most).read_to_end(&mut bytes).map(|_| Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a file; none if there is none.
///
/// # Errors
/// When it is there and cannot be read or understood.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let text = read_bytes(path, u64::MAX)?;
    Ok(text.map(|text| serde_json::from_slice(&text)).transpose()?)
}

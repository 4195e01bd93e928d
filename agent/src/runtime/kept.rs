//! Small files in the state directory that outlive the agent.
//!
//! They are written aside and renamed, so that a reader never meets half of one.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a file in the place of the one before.
///
/// # Errors
/// When it cannot be written; the one before is still there then.
pub(super) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_bytes(path, &serde_json::to_vec(value)?)
}

/// The same with what is to be in it.
///
/// # Errors
/// As [`write`].
pub(super) fn write_bytes(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let written = fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // On a full disk half of it would take room that others need.
        let _was_never_there = fs::remove_file(&aside);
    }
    written
}

/// What a file says, as far as it may have been written; none if there is none.
///
/// # Errors
/// When it is there and cannot be read.
#[cfg(feature = "kubernetes")]
pub(super) fn read_bytes(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read as _;

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
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

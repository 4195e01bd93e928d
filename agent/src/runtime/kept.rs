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
    let aside = path.with_extension("new");
    fs::write(&aside, serde_json::to_vec(value)?)?;
    fs::rename(&aside, path)
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

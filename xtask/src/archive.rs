//! Archives that are the same bytes for the same files, whenever and by whomever they are made.
use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::workspace::succeeds;

/// Writes everything in a folder into an archive of tar, as root's and without a time.
///
/// # Errors
/// When the folder cannot be read, or the archive not be written.
pub(crate) fn pack(folder: &Path, archive: &Path) -> anyhow::Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--sort=name",
        "--mtime=@0",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    tar.args(["--mode=a+rX,u+w,go-w", "--format=ustar", "--file"])
        .arg(archive);
    let entries = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    if !succeeds(tar.arg("--directory").arg(folder).arg("--").args(names))? {
        bail!("tar cannot write {}", archive.display());
    }
    Ok(())
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let bytes: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.concat()
}

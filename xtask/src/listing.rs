//! The list of a folder's files with their sizes, by which a folder that is not whole is known.
use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Ends a list, so that one that was cut off is known as such.
const END: &str = "end";

/// Every file below `root` with its size, a line each.
///
/// # Errors
/// When a folder cannot be listed.
pub(crate) fn list(root: &Path) -> anyhow::Result<String> {
    let mut lines = String::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let folder = root.join(&below);
        for entry in
            fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))?
        {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                let size = entry.metadata()?.size();
                // Writing to a `String` cannot fail.
                let _written = writeln!(lines, "{size} {}", path.display());
            }
        }
    }
    Ok(lines + END)
}

/// Whether every file of the list is there in its full size.
pub(crate) fn is_whole(list: &Path, root: &Path) -> bool {
    let files = fs::read_to_string(list).unwrap_or_default();
    let is_there = |line: &str| {
        let Some((size, path)) = line.split_once(' ') else {
            return false;
        };
        let found = fs::symlink_metadata(root.join(path));
        found.is_ok_and(|found| size.parse() == Ok(found.size()))
    };
    let listed = files.strip_suffix(END);
    listed.is_some_and(|listed| listed.lines().all(is_there))
}

//! What makes filesystems that busybox cannot make, and gives folders their projects; with its libraries.
use std::path::{Path, PathBuf};

use anyhow::bail;

/// Where all of it is from.
pub(super) const SUITE: &str = "trixie";
/// The packages with all of it. What they depend on besides is for other programs of theirs, and brings Python along.
pub(super) const PACKAGES: [&str; 9] = [
    "e2fsprogs",
    "libblkid1",
    "libc6",
    "libcom-err2",
    "libext2fs2t64",
    "libinih1",
    "liburcu8t64",
    "libuuid1",
    "xfsprogs",
];

/// Where a guest has the programs, with the one that loads them, and where their packages do.
const PROGRAMS: [(&str, &str); 4] = [
    ("bin/mkfs.ext4", "usr/sbin/mke2fs"),
    ("bin/mkfs.xfs", "usr/sbin/mkfs.xfs"),
    ("bin/chattr", "usr/bin/chattr"),
    (
        "lib64/ld-linux-x86-64.so.2",
        "usr/lib64/ld-linux-x86-64.so.2",
    ),
];
/// Where libraries are, in packages and guests.
const FOLDER: &str = "usr/lib/x86_64-linux-gnu";
/// Those that the programs are linked with. Others stay away: what looks names up would be taken by our static programs too.
const LIBRARIES: [&str; 8] = [
    "libblkid.so.1",
    "libc.so.6",
    "libcom_err.so.2",
    "libe2p.so.2",
    "libext2fs.so.2",
    "libinih.so.1",
    "liburcu.so.8",
    "libuuid.so.1",
];

/// Every file of it: where a guest has it, and where it is below `root`, in which the packages are unpacked.
///
/// # Errors
/// When one of them is not there.
pub(super) fn files(root: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let programs = PROGRAMS.iter();
    let programs = programs.map(|(place, from)| ((*place).to_owned(), root.join(from)));
    let libraries = LIBRARIES.iter().map(|name| {
        let path = format!("{FOLDER}/{name}");
        let file = root.join(&path);
        (path, file)
    });
    let files: Vec<(String, PathBuf)> = programs.chain(libraries).collect();
    if let Some((_, missing)) = files.iter().find(|(_, file)| !file.is_file()) {
        bail!("{} is in none of the packages", missing.display());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn all_of_it_is_there_or_it_is_said_what_is_not() {
        let root = tempfile::tempdir().unwrap();
        let programs = PROGRAMS.iter().map(|(_, from)| (*from).to_owned());
        let libraries = LIBRARIES.iter().map(|name| format!("{FOLDER}/{name}"));
        for path in programs.chain(libraries) {
            let refused = files(root.path()).unwrap_err().to_string();
            assert!(refused.contains(&path), "{refused}, expected {path}");
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let found = files(root.path()).unwrap();
        assert_eq!(found.len(), PROGRAMS.len() + LIBRARIES.len());
        let place = found.first().map(|(place, _)| &**place);
        assert_eq!(place, Some("bin/mkfs.ext4"));
    }
}

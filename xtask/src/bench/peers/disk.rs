//! The disk of a guest: the tools as their packages have them, and ours beside them, so that all are read from a disk.
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use crate::{
    vm::errand::{Depot, Peers},
    workspace::succeeds,
};

/// Room for the tools and for what they write; the file takes no more than what is in it.
const SIZE: &str = "768M";
/// Where a system without it in its path has it.
const MKE2FS: [&str; 3] = ["mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"];

/// The program that makes the filesystem; it is looked for before anything is built or measured, too.
///
/// # Errors
/// When it is missing.
pub(super) fn mke2fs() -> anyhow::Result<&'static str> {
    for program in MKE2FS {
        let mut version = Command::new(program);
        version.arg("-V").stdin(Stdio::null());
        version.stdout(Stdio::null()).stderr(Stdio::null());
        match version.status() {
            // Whatever it answers, it is there.
            Ok(_) => return Ok(program),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("starting {program}")),
        }
    }
    bail!("mke2fs is missing, which makes the guests' disk: apt-get install e2fsprogs")
}

/// Writes the image, without mounting anything.
///
/// # Errors
/// When a file cannot be copied, or mke2fs is missing.
pub(super) fn write(depot: &Depot, peers: &Peers) -> anyhow::Result<PathBuf> {
    let root = depot.folder().join("root");
    let image = depot.folder().join("disk.ext4");
    for old in [&root, &image] {
        let removed = if old.is_dir() {
            fs::remove_dir_all(old)
        } else if old.exists() {
            fs::remove_file(old)
        } else {
            Ok(())
        };
        removed.with_context(|| format!("removing {}", old.display()))?;
    }
    fs::create_dir_all(depot.folder())?;
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--reflink=auto"])
        .arg(&peers.root)
        .arg(&root);
    if !succeeds(&mut copy)? {
        bail!("{} cannot be copied", peers.root.display());
    }
    // What Debian's package of basic files would bring.
    for name in ["bin", "sbin", "lib", "lib64"] {
        merge(&root, name)?;
    }
    let programs = depot.programs();
    for (from, name) in [(&programs.agent, "brink"), (&programs.guest, "xtask")] {
        let to = root.join("usr/bin").join(name);
        fs::copy(from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    make(&root, &image)?;
    Ok(image)
}

/// `/bin` is a link to `/usr/bin`, and so on; a package that still has its files beside it brings them there.
fn merge(root: &Path, name: &str) -> anyhow::Result<()> {
    let (old, new) = (root.join(name), root.join("usr").join(name));
    fs::create_dir_all(&new)?;
    if old.is_symlink() {
        return Ok(());
    }
    if old.is_dir() {
        let mut copy = Command::new("cp");
        copy.arg("--archive").arg(old.join(".")).arg(&new);
        if !succeeds(&mut copy)? {
            bail!("{} cannot be copied", old.display());
        }
        fs::remove_dir_all(&old)?;
    }
    symlink(format!("usr/{name}"), &old).with_context(|| format!("linking {}", old.display()))
}

fn make(root: &Path, image: &Path) -> anyhow::Result<()> {
    let program = mke2fs()?;
    let mut command = Command::new(program);
    command.args(["-q", "-F", "-t", "ext4", "-m", "0"]);
    command.args(["-E", "root_owner=0:0,lazy_itable_init=0,nodiscard", "-d"]);
    command.arg(root).arg(image).arg(SIZE);
    let status = command.status();
    let status = status.with_context(|| format!("starting {program}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

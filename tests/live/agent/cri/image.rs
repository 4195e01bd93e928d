//! Images made by hand: a busybox and a word that makes each of them another one.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// Writes the archive of an image of this name, as `ctr images import` takes it.
pub(crate) fn write(busybox: &Path, name: &str, into: &Path) -> io::Result<()> {
    let work = tempfile::tempdir()?;
    let root = work.path().join("root");
    fs::create_dir(&root)?;
    fs::copy(busybox, root.join("busybox"))?;
    fs::write(root.join("name"), name)?;
    let whole = work.path().join("whole");
    fs::create_dir(&whole)?;
    let layer = whole.join("layer.tar");
    pack(&root, &layer)?;
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": { "Entrypoint": ["/busybox", "sleep", "3600"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer)?)] },
    });
    let path = whole.join("config.json");
    fs::write(&path, config.to_string())?;
    let named = format!("{}.json", digest(&path)?);
    fs::rename(&path, whole.join(&named))?;
    let manifest = json!([{ "Config": named, "RepoTags": [name], "Layers": ["layer.tar"] }]);
    fs::write(whole.join("manifest.json"), manifest.to_string())?;
    pack(&whole, into)
}

fn pack(folder: &Path, into: &Path) -> io::Result<()> {
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--numeric-owner",
        "--owner=0",
        "--group=0",
        "--file",
    ]);
    tar.arg(into).arg("--directory").arg(folder).arg(".");
    let status = tar.status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("tar: {status}")))
    }
}

fn digest(path: &Path) -> io::Result<String> {
    let digest = Sha256::digest(fs::read(path)?);
    let mut hex = String::new();
    for byte in digest {
        // A string takes whatever is written to it.
        let _written = write!(hex, "{byte:02x}");
    }
    Ok(hex)
}

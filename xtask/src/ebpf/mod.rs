//! `cargo xtask ebpf`: the kernel objects, built so that every machine gets the same bytes, and checked in.
mod build;
mod strip;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

pub(crate) use self::build::target_folder;
use crate::{
    Verdict, toolchain,
    workspace::{self, stdout_of},
};

/// The one compiler that makes these bytes.
const RUSTC: &str = "1.95.0";
/// Where the objects are checked in, from the workspace's directory.
const FOLDER: &str = "ebpf/prebuilt";
/// What lists their digests, as `sha256sum --check` reads it.
const DIGESTS: &str = "SHA256SUMS";

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Options of `cargo xtask ebpf`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Write nothing; fail if what is checked in is not what the sources make
    #[arg(long)]
    pub check: bool,
    /// Build the programs with their text for developers, and write that object to this file only
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    pub log: Option<PathBuf>,
}

/// Builds the objects and writes them, or compares them with those that are checked in.
///
/// # Errors
/// When the compiler is another one, a tool is missing and cannot be had, or the build fails.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let compiler = stdout_of(Command::new("rustc").arg("--version"))?;
    if compiler.split_whitespace().nth(1) != Some(RUSTC) {
        bail!(
            "the kernel objects are made by rustc {RUSTC} and this is {}: rustup toolchain install {RUSTC}",
            compiler.trim()
        );
    }
    toolchain::ensure_rust_src()?;
    if let Some(file) = &args.log {
        let object = build::with_log()?;
        fs::write(file, object).with_context(|| format!("writing {}", file.display()))?;
        return Ok(Verdict::Passed);
    }
    let mut files = Vec::new();
    let mut digests = String::new();
    for (name, bytes) in build::objects()? {
        let object = strip::debug_sections(&bytes).with_context(|| format!("stripping {name}"))?;
        let name = format!("{name}.bpf.o");
        writeln!(digests, "{}  {name}", digest(&object))?;
        files.push((name, object));
    }
    files.push((DIGESTS.to_owned(), digests.into_bytes()));
    if args.check {
        compare(&files)
    } else {
        write(&files)
    }
}

/// The objects that are checked in, told by the first eight digits of their list's own digest.
///
/// # Errors
/// When the list cannot be read.
pub(crate) fn checked_in(root: &Path) -> anyhow::Result<String> {
    let list = root.join(FOLDER).join(DIGESTS);
    let bytes = fs::read(&list).with_context(|| format!("reading {}", list.display()))?;
    Ok(digest(&bytes).chars().take(8).collect())
}

fn digest(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

fn place(name: &str) -> PathBuf {
    workspace::root().join(FOLDER).join(name)
}

fn write(files: &[(String, Vec<u8>)]) -> anyhow::Result<Verdict> {
    fs::create_dir_all(place("")).with_context(|| format!("making {FOLDER}"))?;
    for (name, bytes) in files {
        fs::write(place(name), bytes).with_context(|| format!("writing {FOLDER}/{name}"))?;
        println!("{FOLDER}/{name}: {} bytes, {}", bytes.len(), digest(bytes));
    }
    Ok(Verdict::Passed)
}

fn compare(files: &[(String, Vec<u8>)]) -> anyhow::Result<Verdict> {
    let mut same = true;
    for (name, bytes) in files {
        let found = fs::read(place(name)).with_context(|| format!("reading {FOLDER}/{name}"))?;
        if found == *bytes {
            println!("{FOLDER}/{name}: as built");
        } else {
            same = false;
            println!(
                "{FOLDER}/{name}: {} where the sources make {}",
                digest(&found),
                digest(bytes)
            );
        }
    }
    if !same {
        println!("run `cargo xtask ebpf` and commit the objects with the change");
    }
    Ok(Verdict::from_holds(same))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_digests_is_that_of_the_objects() {
        let list = fs::read_to_string(place(DIGESTS)).unwrap();
        assert!(list.lines().count() > 0);
        for line in list.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            assert_eq!(digest(&fs::read(place(name)).unwrap()), sum, "{name}");
        }
    }
}

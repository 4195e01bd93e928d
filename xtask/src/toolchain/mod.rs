//! The source of the standard library: `core` is compiled anew for the kernel programs.
mod debian;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::{process, workspace::stdout_of};

/// Longest time for rustup to fetch one component.
const RUSTUP_DEADLINE: Duration = Duration::from_mins(1);

/// Sees to it that the compiler in use has the source of its own standard library: rustup's component, or
/// where its server cannot be reached, the same version from Debian's archive.
///
/// # Errors
/// When neither has it.
pub fn ensure_rust_src() -> anyhow::Result<()> {
    let sysroot = stdout_of(Command::new("rustc").args(["--print", "sysroot"]))?;
    let folder = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    if is_present(&folder) {
        return Ok(());
    }
    eprintln!(
        "fetching the source of the standard library into {}",
        folder.display()
    );
    // A server that never answers must not keep us from asking Debian.
    let mut rustup = Command::new("rustup");
    let ended = process::run(
        rustup.args(["component", "add", "rust-src"]),
        RUSTUP_DEADLINE,
    );
    if ended.is_ok_and(|ended| ended.fault().is_none()) && is_present(&folder) {
        return Ok(());
    }
    let version = version_of(&stdout_of(Command::new("rustc").arg("--version"))?)?;
    debian::fetch(&version, &folder).context("rustup has no rust-src, and neither has Debian")?;
    if !is_present(&folder) {
        bail!(
            "what was fetched is no standard library: {}",
            folder.display()
        );
    }
    Ok(())
}

fn is_present(folder: &Path) -> bool {
    // Cargo's own `build-std` begins with this file.
    PathBuf::from_iter([folder, Path::new("library/Cargo.lock")]).is_file()
}

/// `rustc 1.95.0 (59807616e 2026-04-14)` → `1.95.0`.
fn version_of(answer: &str) -> anyhow::Result<String> {
    let version = answer.split_whitespace().nth(1);
    Ok(version
        .with_context(|| format!("rustc says `{}`", answer.trim()))?
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_second_word() {
        assert_eq!(
            version_of("rustc 1.95.0 (59807616e 2026-04-14)\n").unwrap(),
            "1.95.0"
        );
        assert!(version_of("rustc\n").is_err());
    }
}

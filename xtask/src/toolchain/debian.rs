//! The standard library's source out of Debian's archive, without a change to the system's own apt.
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use crate::{
    apt::{Apt, Suites},
    workspace::stdout_of,
};

/// The suites that may carry a compiler newer than the stable release's, in the order they are asked.
const SUITES: [&str; 4] = ["trixie-backports", "trixie", "forky", "sid"];
/// Packages that hold `/usr/src/rustc…/library`.
const PACKAGES: [&str; 2] = ["rust-src", "rust-web-src"];

/// Puts the `library` folder of exactly that version into `folder`.
pub(super) fn fetch(version: &str, folder: &Path) -> anyhow::Result<()> {
    let lists = tempfile::tempdir().context("a folder for apt")?;
    let apt = Apt::new(lists.path())?;
    for name in SUITES {
        let suite = apt.suites(&[name])?;
        // A mirror need not carry every suite.
        if suite.update().is_ok()
            && let Some(package) = find(&suite, version)?
        {
            eprintln!("{package} from {name}");
            return extract(&suite, &package, folder);
        }
    }
    let mirror = apt.mirror();
    bail!("{mirror}: no rust-src {version} in {}", SUITES.join(", "))
}

fn find(suite: &Suites, version: &str) -> anyhow::Result<Option<String>> {
    let mut madison = suite.command("apt-cache");
    let list = stdout_of(madison.arg("madison").args(PACKAGES))?;
    Ok(package_of(version, &list))
}

fn extract(suite: &Suites, package: &str, folder: &Path) -> anyhow::Result<()> {
    let fetched = tempfile::tempdir().context("a folder for the package")?;
    suite.download(&[package.to_owned()], fetched.path())?;
    let files = fs::read_dir(fetched.path()).context("listing what apt fetched")?;
    let mut files = files.flatten().map(|entry| entry.path());
    let file = files.next().context("apt fetched no package")?;
    unpack(&file, folder).with_context(|| format!("unpacking {package}"))
}

/// The first of the packages in `madison`'s list (`name | version | source`) with that upstream version.
fn package_of(version: &str, madison: &str) -> Option<String> {
    madison.lines().find_map(|line| {
        let mut fields = line.split('|').map(str::trim);
        let (name, full) = (fields.next()?, fields.next()?);
        let upstream = full.split(['+', '~', '-']).next()?;
        (upstream == version).then(|| format!("{name}={full}"))
    })
}

/// Takes `library` out of the package, next to its place and then into it, so that no half is ever seen.
fn unpack(package: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let beside = tempfile::tempdir_in(folder)?;
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()?;
    let pipe = archive.stdout.take().context("dpkg-deb without output")?;
    let mut tar = Command::new("tar");
    // The folder comes first: tar applies it to what follows.
    tar.arg("--directory")
        .arg(beside.path())
        .args(["--extract", "--strip-components=4"]);
    // The package has other folders of that name deeper down.
    tar.args([
        "--wildcards",
        "--no-wildcards-match-slash",
        "./usr/src/rustc*/library",
    ]);
    let unpacked = tar.stdin(pipe).status()?;
    let read = archive.wait()?;
    if !(unpacked.success() && read.success()) {
        bail!("dpkg-deb: {read}, tar: {unpacked}");
    }
    Ok(fs::rename(
        beside.path().join("library"),
        folder.join("library"),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_upstream_version_serves() {
        let list = "  rust-src | 1.94.1+dfsg1-1 | http://a sid/main\n  \
                    rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://a sid/main\n";
        let found = package_of("1.95.0", list);
        assert_eq!(found.as_deref(), Some("rust-src=1.95.0+dfsg1-2~bpo13+1"));
        assert_eq!(package_of("1.95", list), None);
        assert_eq!(package_of("1.96.0", list), None);
    }

    #[test]
    #[ignore = "slow: fetches a package from Debian's archive"]
    fn the_archive_has_the_source_of_this_compiler() {
        let answer = stdout_of(Command::new("rustc").arg("--version")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fetch(&super::super::version_of(&answer).unwrap(), folder.path()).unwrap();
        assert!(super::super::is_present(folder.path()));
        assert!(folder.path().join("library/core/src/lib.rs").is_file());
    }
}

//! `promtool`: the one of the system, else the one in the cache, else taken out of Debian's package into the cache.
use std::{
    ffi::OsString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use crate::{
    apt::Apt,
    workspace::{self, succeeds},
};

/// The suite that the package is from. Its programs run on later ones too.
const SUITE: &str = "bookworm";
/// The package, and where in it the program lies.
const PACKAGE: &str = "prometheus";
const INSIDE: &str = "usr/bin/promtool";

/// The path of the program for tests that ask it themselves, or why it cannot be had.
pub(crate) fn for_tests() -> OsString {
    match Promtool::find() {
        Ok(Promtool(path)) => path.into(),
        Err(error) => format!("promtool cannot be had: {error:#}").into(),
    }
}

/// A `promtool` that runs.
#[derive(Debug)]
pub(super) struct Promtool(PathBuf);

impl Promtool {
    /// Finds it, or fetches it.
    ///
    /// # Errors
    /// When it is not there and cannot be had.
    pub(super) fn find() -> anyhow::Result<Self> {
        let installed = PathBuf::from("promtool");
        if runs(&installed) {
            return Ok(Self(installed));
        }
        let folder = workspace::cache()?
            .join("tools")
            .join(format!("promtool-{SUITE}"));
        let cached = folder.join(INSIDE);
        if !runs(&cached) {
            fetch(&folder).with_context(|| format!("the package {PACKAGE} cannot be had"))?;
        }
        if !runs(&cached) {
            bail!("{} does not run here", cached.display());
        }
        Ok(Self(cached))
    }

    /// Runs it with words and files, and `input` at its stdin: nothing if it is content, else what it said.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn asked(
        &self,
        words: &[&str],
        files: &[&Path],
        input: &str,
    ) -> anyhow::Result<Option<String>> {
        let Self(path) = self;
        let mut command = Command::new(path);
        command.args(words).args(files).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting promtool")?;
        if let Some(mut pipe) = child.stdin.take() {
            // One that does not read to the end has said why.
            let _told_below = pipe.write_all(input.as_bytes());
        }
        let answer = child.wait_with_output().context("waiting for promtool")?;
        let said = [answer.stdout, answer.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let words = words.join(" ");
        Ok((!answer.status.success())
            .then(|| format!("promtool {words}: {}\n{said}", answer.status)))
    }
}

fn runs(program: &Path) -> bool {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Takes the program out of the package, next to its place and then into it, so that no half is ever seen.
fn fetch(folder: &Path) -> anyhow::Result<()> {
    let above = folder.parent().unwrap_or(folder);
    fs::create_dir_all(above).with_context(|| format!("making {}", above.display()))?;
    let beside = tempfile::tempdir_in(above).context("making a folder to fetch into")?;
    let suites = Apt::new(&beside.path().join("apt"))?.suites(&[SUITE])?;
    eprintln!("fetching promtool from {SUITE} into {}", folder.display());
    suites.update()?;
    suites.download(&[PACKAGE.to_owned()], beside.path())?;
    let package = package_in(beside.path())?;
    let root = beside.path().join("root");
    let mut unpack = Command::new("dpkg-deb");
    if !succeeds(unpack.arg("--extract").arg(&package).arg(&root))? {
        bail!("{} cannot be unpacked", package.display());
    }
    let place = || -> std::io::Result<()> {
        let whole = beside.path().join("whole");
        let inside = whole.join(INSIDE);
        fs::create_dir_all(inside.parent().unwrap_or(&whole))?;
        fs::rename(root.join(INSIDE), inside)?;
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::rename(whole, folder)
    };
    place().with_context(|| format!("placing {}", folder.display()))
}

fn package_in(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).context("listing what was fetched")?;
    let mut files = entries.flatten().map(|entry| entry.path());
    let found = files.find(|path| path.extension().is_some_and(|end| end == "deb"));
    found.context("apt-get download left no package")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_kept_when_it_is_not_content() {
        let shell = Promtool(PathBuf::from("sh"));
        let said = shell
            .asked(&["-c", "cat; exit 3"], &[], "a fault\n")
            .unwrap();
        assert!(said.is_some_and(|said| said.contains("a fault")));
        assert_eq!(shell.asked(&["-c", "exit 0"], &[], "much").unwrap(), None);
    }
}

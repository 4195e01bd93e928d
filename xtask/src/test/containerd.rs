//! A real container runtime for the tests that need one: containerd and what it runs, out of Debian's packages, in the cache.
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use super::live::Listed;
use crate::{
    apt::Apt,
    lock,
    workspace::{self, succeeds},
};

/// The suite of tests that want it.
const TESTS: &str = "brink-tests cri";
/// The suite that the packages are from. Their programs run on later ones too.
const SUITE: &str = "bookworm";
const PACKAGES: [&str; 3] = ["containerd", "runc", "busybox-static"];
/// What is taken out of them.
const TAKEN: [&str; 5] = [
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/sbin/runc",
    "bin/busybox",
];

/// The folder of the programs, or why they cannot be had; or that nobody asks for them.
pub(super) fn for_tests(suites: &[Listed]) -> OsString {
    let wants = |suite: &Listed| suite.binary.suite == TESTS && !suite.names.is_empty();
    if !suites.iter().any(wants) {
        return "no test was to run that asks for containerd".into();
    }
    match found_or_fetched() {
        Ok(folder) => folder.into(),
        Err(error) => format!("containerd cannot be had: {error:#}").into(),
    }
}

fn found_or_fetched() -> anyhow::Result<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the packages that are known are for x86_64");
    }
    let tools = workspace::cache()?.join("tools");
    let folder = tools.join(format!("containerd-{SUITE}"));
    let _lock = lock::folder(&tools, "fetches programs for tests")?;
    if !run(&folder) {
        fetch(&tools, &folder).with_context(|| format!("the packages {}", PACKAGES.join(", ")))?;
    }
    if !run(&folder) {
        bail!("what is in {} does not run here", folder.display());
    }
    Ok(folder)
}

fn run(folder: &Path) -> bool {
    let runs = |inside: &str| {
        let mut program = Command::new(folder.join(name(inside)));
        // What a busybox says to this is an error, and that it says it is enough.
        let asked = program.arg("--version").stdin(Stdio::null());
        asked
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    TAKEN.iter().all(|inside| runs(inside))
}

fn name(inside: &str) -> &str {
    inside.rsplit('/').next().unwrap_or(inside)
}

/// Takes the programs out of the packages, next to their place and then into it, so that no half is ever seen.
fn fetch(tools: &Path, folder: &Path) -> anyhow::Result<()> {
    let beside = tempfile::tempdir_in(tools).context("making a folder to fetch into")?;
    let suites = Apt::new(&beside.path().join("apt"))?.suites(&[SUITE])?;
    eprintln!("fetching containerd from {SUITE} into {}", folder.display());
    suites.update()?;
    let fetched = beside.path().join("fetched");
    fs::create_dir(&fetched)?;
    suites.download(&PACKAGES.map(str::to_owned), &fetched)?;
    let root = beside.path().join("root");
    for package in fs::read_dir(&fetched).context("listing what was fetched")? {
        let package = package?.path();
        let mut unpack = Command::new("dpkg-deb");
        if !succeeds(unpack.arg("--extract").arg(&package).arg(&root))? {
            bail!("{} cannot be unpacked", package.display());
        }
    }
    let whole = beside.path().join("whole");
    fs::create_dir(&whole)?;
    for inside in TAKEN {
        let program = root.join(inside);
        fs::rename(&program, whole.join(name(inside)))
            .with_context(|| format!("the packages have no {inside} any more"))?;
    }
    let place = || -> std::io::Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::rename(&whole, folder)
    };
    place().with_context(|| format!("placing {}", folder.display()))
}

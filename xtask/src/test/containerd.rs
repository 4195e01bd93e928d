//! A real container runtime for the tests that need one: containerd and what it runs, out of Debian's packages, in the cache.
use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;

use super::{debian::Programs, live::Listed};

/// How the names of the tests begin that want it.
const TESTS: &str = "cri::";
const PROGRAMS: Programs<'_> = Programs {
    name: "containerd",
    packages: &["containerd", "runc", "busybox-static"],
    keep,
    runs: run,
};
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
    let wants = |suite: &Listed| suite.names.iter().any(|name| name.starts_with(TESTS));
    if !suites.iter().any(wants) {
        return "no test was to run that asks for containerd".into();
    }
    match PROGRAMS.found_or_fetched() {
        Ok(folder) => folder.into(),
        Err(error) => format!("containerd cannot be had: {error:#}").into(),
    }
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

fn keep(root: &Path, whole: &Path) -> anyhow::Result<()> {
    fs::create_dir(whole)?;
    for inside in TAKEN {
        let program = root.join(inside);
        fs::rename(&program, whole.join(name(inside)))
            .with_context(|| format!("the packages have no {inside} any more"))?;
    }
    Ok(())
}

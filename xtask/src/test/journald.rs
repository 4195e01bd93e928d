//! A real journald for the test that asks it: systemd's own and `journalctl`, out of Debian's packages, in the cache.
use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;

use super::{debian::Programs, live::Listed};

/// The variable that tells the test where they are, or why there are none.
pub(super) const VARIABLE: &str = "BRINK_JOURNALD";
/// Part of the names of the tests that want it.
const TESTS: &str = "journald";
/// With every library that the two programs are linked to, but for libc, which every system has its own of.
const PROGRAMS: Programs<'_> = Programs {
    name: "journald",
    packages: &[
        "systemd",
        "libsystemd-shared",
        "libacl1",
        "libaudit1",
        "libblkid1",
        "libcap-ng0",
        "libcap2",
        "libcrypt1",
        "libgcrypt20",
        "libgpg-error0",
        "libip4tc2",
        "libkmod2",
        "liblz4-1",
        "liblzma5",
        "libmount1",
        "libpam0g",
        "libpcre2-8-0",
        "libseccomp2",
        "libselinux1",
        "libssl3",
        "libzstd1",
    ],
    keep,
    runs,
};
/// What a test starts, by the name that it has in the folder, and where it is in the packages.
const TAKEN: [(&str, &str); 2] = [
    ("systemd-journald", "lib/systemd/systemd-journald"),
    ("journalctl", "bin/journalctl"),
];
/// Where libraries are in the packages.
const LIBRARIES: [&str; 3] = [
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/systemd",
];

/// The folder of the programs, or why they cannot be had; or that nobody asks for them.
pub(super) fn for_tests(suites: &[Listed]) -> OsString {
    let wants = |suite: &Listed| suite.names.iter().any(|name| name.contains(TESTS));
    if !suites.iter().any(wants) {
        return "no test was to run that asks for journald".into();
    }
    match PROGRAMS.found_or_fetched() {
        Ok(folder) => folder.into(),
        Err(error) => format!("journald cannot be had: {error:#}").into(),
    }
}

/// Programs and libraries each under their names, so that whoever starts one needs to know but one folder.
fn keep(root: &Path, whole: &Path) -> anyhow::Result<()> {
    let libraries = whole.join("lib");
    fs::create_dir_all(&libraries)?;
    for (name, inside) in TAKEN {
        fs::rename(root.join(inside), whole.join(name))
            .with_context(|| format!("the packages have no {inside} any more"))?;
    }
    for folder in LIBRARIES {
        let listed = fs::read_dir(root.join(folder));
        for library in listed.with_context(|| format!("the packages have no {folder} any more"))? {
            let library = library?;
            // What a name points to is beside it, and comes along.
            if !library.file_type()?.is_dir() {
                fs::rename(library.path(), libraries.join(library.file_name()))?;
            }
        }
    }
    Ok(())
}

fn runs(folder: &Path) -> bool {
    // The other one is linked to the same libraries, and cannot be asked for its version.
    let mut program = Command::new(folder.join("journalctl"));
    program.arg("--version").stdin(Stdio::null());
    program.env("LD_LIBRARY_PATH", folder.join("lib"));
    let told = program.stdout(Stdio::null()).stderr(Stdio::null());
    let answers = told.status().is_ok_and(|status| status.success());
    answers && TAKEN.iter().all(|(name, _)| folder.join(name).is_file())
}

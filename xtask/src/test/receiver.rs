//! A real receiver of OpenTelemetry for the test of the export: the program of Rotel, as `PyPI` has it, unpacked into the cache.
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use crate::workspace;

/// The suite with the test that wants it.
pub(super) const SUITE: &str = "brink-stream unit";
/// The variable that tells that test where it is, or why there is none.
pub(super) const VARIABLE: &str = "BRINK_OTLP_RECEIVER";

/// The package, held to one version and one file.
const NAME: &str = "rotel";
const VERSION: &str = "0.0.1a15";
const DIGEST: &str = "2f4117e58410c933e0dc042a268ef738dab2e3a5d63b5831209acdac2a6ddcb7";
/// What that file was built for.
const BUILD: [&str; 8] = [
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    "--abi=cp311",
    "--platform=manylinux_2_34_x86_64",
    "--no-deps",
    "--require-hashes",
    "--disable-pip-version-check",
];
/// Where in it the program lies.
const INSIDE: &str = "rotel/rotel-agent";

/// The path of the program, or why it cannot be had.
pub(super) fn find() -> OsString {
    match found_or_fetched() {
        Ok(path) => path.into(),
        Err(error) => format!("{NAME} cannot be had: {error:#}").into(),
    }
}

fn found_or_fetched() -> anyhow::Result<PathBuf> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the one that is known is for x86_64");
    }
    let tools = workspace::cache()?.join("tools");
    let folder = tools.join(format!("{NAME}-{VERSION}"));
    let program = folder.join(INSIDE);
    if !program.is_file() {
        fetch(&tools, &folder)?;
    }
    let mut asked = Command::new(&program);
    asked
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match asked.status() {
        Ok(status) if status.success() => Ok(program),
        // It needs a library of Python's.
        Ok(status) => bail!("it does not run here ({status}): libpython3.11 may be missing"),
        Err(error) => bail!("it does not run here: {error}"),
    }
}

/// Has `pip` unpack it beside its place, and moves it there, so that no half is ever seen.
fn fetch(tools: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(tools).with_context(|| format!("making {}", tools.display()))?;
    let beside = tempfile::tempdir_in(tools).context("making a folder to fetch into")?;
    let wanted = beside.path().join("requirements.txt");
    fs::write(
        &wanted,
        format!("{NAME}=={VERSION} --hash=sha256:{DIGEST}\n"),
    )?;
    let whole = beside.path().join("whole");
    eprintln!(
        "fetching {NAME} {VERSION} from PyPI into {}",
        folder.display()
    );
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet"]).args(BUILD);
    pip.arg("--target").arg(&whole).arg("-r").arg(&wanted);
    let answer = pip.output().context("starting python3")?;
    if !answer.status.success() {
        let said = String::from_utf8_lossy(&answer.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        bail!("pip: {}", last.unwrap_or("no word"));
    }
    let program = whole.join(INSIDE);
    if !program.is_file() {
        bail!("the package has no {INSIDE}");
    }
    make_executable(&program)?;
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::rename(&whole, folder).with_context(|| format!("placing {}", folder.display()))
}

fn make_executable(program: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(program, mode).with_context(|| format!("{}", program.display()))
}

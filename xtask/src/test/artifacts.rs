//! Builds every test binary in one go and says where each one is.
use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use rustix::process::{Pid, setpriority_process};
use serde::{Deserialize, Serialize};

use crate::workspace::{self, Package};

/// A test binary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binary {
    /// Package and target, as the table shows them.
    pub(crate) suite: String,
    pub(crate) executable: PathBuf,
    /// The package's folder, which is a test's working directory.
    pub(crate) folder: PathBuf,
    /// Needs the real kernel, and root.
    pub(crate) live: bool,
}

/// What one call of Cargo has built.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// Test binaries, by suite.
    pub(crate) tests: Vec<Binary>,
    /// Other programs, by name.
    pub(crate) programs: BTreeMap<String, PathBuf>,
}

impl Built {
    /// The program of a name.
    ///
    /// # Errors
    /// When cargo did not build it.
    pub(crate) fn program(&self, name: &str) -> anyhow::Result<PathBuf> {
        let found = self.programs.get(name).cloned();
        found.with_context(|| format!("cargo built no binary `{name}`"))
    }
}

/// Cargo's messages, as far as they matter here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Everything that is left out by default: what nobody compiles nobody tests.
pub(crate) const FEATURES: &str = "brink-tests/live,xtask/bench,xtask/fleet,brink/otlp";

/// Builds the tests of all default members, the live ones included, in one feature set.
///
/// # Errors
/// When the build fails.
pub(crate) fn build(packages: &[Package]) -> anyhow::Result<Vec<Binary>> {
    Ok(build_with(&mut of_tests(), packages)
        .context("building the tests")?
        .tests)
}

fn of_tests() -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--no-run", "--locked", "--features", FEATURES]);
    cargo
}

/// The same build beside something else, which goes first wherever both want a processor. What it says is left to the build that
/// follows, which does what this one could not.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn build_ahead() -> anyhow::Result<Ahead> {
    let mut cargo = of_tests();
    cargo.arg("--quiet").stdin(Stdio::null());
    cargo.stdout(Stdio::null()).stderr(Stdio::null());
    let ahead = Ahead(cargo.spawn().context("building the tests ahead")?);
    // Before it has started a compiler, which inherits it.
    let own = i32::try_from(ahead.0.id()).ok().and_then(Pid::from_raw);
    setpriority_process(own, LAST).context("putting the build behind all else")?;
    Ok(ahead)
}

/// The nice value of what has no claim on a processor.
const LAST: i32 = 19;

/// A build that is under way, and is waited for when this is dropped.
#[derive(Debug)]
pub(crate) struct Ahead(Child);

impl Drop for Ahead {
    fn drop(&mut self) {
        let _the_next_build_tells = self.0.wait();
    }
}

/// Builds what `cargo` was told to, and says where each binary is.
///
/// # Errors
/// When the build fails.
pub(crate) fn build_with(cargo: &mut Command, packages: &[Package]) -> anyhow::Result<Built> {
    let mut built = Built::default();
    for message in artifacts(cargo)? {
        let is_test = message.profile.as_ref().is_some_and(|profile| profile.test);
        if is_test {
            built.tests.extend(binary(packages, message));
        } else if let (Some(target), Some(executable)) = (message.target, message.executable) {
            built.programs.insert(target.name, executable);
        }
    }
    built.tests.sort_by(|a, b| a.suite.cmp(&b.suite));
    Ok(built)
}

/// Builds the agent, with all that is left out by default, for whoever starts it: as the tests that start it have it, since with other
/// features of what it depends on everything would be compiled once more.
///
/// # Errors
/// When the build fails.
pub(crate) fn build_agent() -> anyhow::Result<PathBuf> {
    let built = build_with(of_tests().args(["--test", OF_AGENT]), &[]);
    built.context("building the agent")?.program("brink")
}

/// A target with tests that start it.
const OF_AGENT: &str = "cli";

/// Builds the agent's own unit tests, and with them those of all other libraries.
///
/// # Errors
/// When the build fails.
pub(crate) fn build_agents_tests() -> anyhow::Result<PathBuf> {
    let packages = workspace::metadata()?.packages;
    let built = build_with(of_tests().arg("--lib"), &packages);
    let tests = built.context("building the unit tests")?.tests;
    let mut tests = tests.into_iter();
    let found = tests.find(|test| test.suite == "brink unit");
    Ok(found
        .context("cargo built no tests of the agent")?
        .executable)
}

fn artifacts(cargo: &mut Command) -> anyhow::Result<Vec<Message>> {
    let output = workspace::stdout_of(cargo.arg("--message-format=json-render-diagnostics"))?;
    let mut messages = Vec::new();
    for line in output.lines() {
        let message: Message = serde_json::from_str(line).context("a message of cargo")?;
        if message.reason == "compiler-artifact" {
            messages.push(message);
        }
    }
    Ok(messages)
}

fn binary(packages: &[Package], message: Message) -> Option<Binary> {
    let (executable, target) = (message.executable?, message.target?);
    let package = packages
        .iter()
        .find(|package| package.manifest_path == message.manifest_path)?;
    let is_test = target.kind.iter().any(|kind| kind == "test");
    let part = if is_test {
        target.name.as_str()
    } else {
        "unit"
    };
    let own = package
        .targets
        .iter()
        .find(|own| is_test && own.name == target.name);
    Some(Binary {
        suite: format!("{} {part}", package.name),
        executable,
        folder: package.folder().to_owned(),
        live: own.is_some_and(workspace::Target::is_live),
    })
}

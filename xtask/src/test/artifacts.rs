//! Builds every test binary in one go and says where each one is.
#[cfg(not(feature = "bench"))]
use std::collections::BTreeMap;
use std::{path::PathBuf, process::Command};

use anyhow::Context as _;
use serde::Deserialize;

use crate::workspace::{self, Package};

/// The feature without which live tests are not built.
const LIVE: &str = "live";

/// A test binary.
#[derive(Debug)]
pub(super) struct Binary {
    /// Package and target, as the table shows them.
    pub(super) suite: String,
    pub(super) executable: PathBuf,
    /// The package's folder, which is a test's working directory.
    pub(super) folder: PathBuf,
    /// Needs the real kernel, and root.
    pub(super) live: bool,
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

/// Builds the tests of all default members, the live ones included, in one feature set.
pub(super) fn build(packages: &[Package]) -> anyhow::Result<Vec<Binary>> {
    let mut cargo = workspace::cargo();
    cargo.args([
        "test",
        "--no-run",
        "--locked",
        "--features",
        "brink-tests/live",
    ]);
    let messages = artifacts(&mut cargo).context("building the tests")?;
    let mut binaries: Vec<Binary> = messages
        .into_iter()
        .filter(|message| message.profile.as_ref().is_some_and(|profile| profile.test))
        .filter_map(|message| binary(packages, message))
        .collect();
    binaries.sort_by(|a, b| a.suite.cmp(&b.suite));
    Ok(binaries)
}

/// Builds the agent, for the live tests that start it.
pub(super) fn build_agent() -> anyhow::Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--locked", "--package", "brink", "--bin", "brink"]);
    let messages = artifacts(&mut cargo).context("building the agent")?;
    let agent = messages
        .into_iter()
        .rev()
        .find_map(|message| message.executable);
    agent.context("cargo built no binary `brink`")
}

/// Builds, and tells where each binary is, by name.
///
/// # Errors
/// When the build fails.
#[cfg(not(feature = "bench"))]
pub(crate) fn executables(cargo: &mut Command) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let built = artifacts(cargo)?.into_iter();
    let named = built.filter_map(|message| Some((message.target?.name, message.executable?)));
    Ok(named.collect())
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
        live: own.is_some_and(|own| own.required_features.iter().any(|feature| feature == LIVE)),
    })
}

//! Where the workspace is, what is in it, and where slow work is cached.
use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// The feature without which live tests are not built.
const LIVE: &str = "live";

/// The workspace's directory.
pub fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// Every file in a folder and the folders below it, in order.
///
/// # Errors
/// When a folder cannot be listed.
pub(crate) fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let context = || format!("listing {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The directory for what is slow to make and does not belong to one checkout.
///
/// # Errors
/// When neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache() -> anyhow::Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let base = match (set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache"),
        (None, None) => bail!("neither XDG_CACHE_HOME nor HOME is set: no place for the cache"),
    };
    Ok(base.join("brink"))
}

/// The cargo that started us, in the workspace's directory.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What it has told us of our own package is no setting of the next one. A build script that reads such variables (ring's) would
    // run again, and all that stands on it be compiled anew, each time somebody builds without us in between.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_package(name)) {
        command.env_remove(name);
    }
    command
}

/// Whether cargo sets a variable for the package whose program it runs.
fn is_of_package(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// Runs a command to its end with our own stdout and stderr.
///
/// # Errors
/// When it cannot be started; a failure of the command itself is `Ok(false)`.
pub fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    Ok(status.success())
}

/// git in a checkout. One that another user owns is read all the same: nothing of it is executed.
pub fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(root).args(["-c", "safe.directory=*"]);
    git
}

/// The commit that is checked out, in eight digits, with a `+` behind it where something but the documents has been changed since.
/// None where there is none, or no git.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let told = git(root)
        .args(["rev-parse", "--short=8", "HEAD"])
        .output()
        .ok()?;
    let commit = String::from_utf8(told.stdout).ok()?.trim().to_owned();
    let mut changes = git(root);
    changes.args(["status", "--porcelain", "--", ".", ":!docs", ":!*.md"]);
    let is_changed = !changes.output().ok()?.stdout.is_empty();
    let mark = if is_changed { "+" } else { "" };
    (!commit.is_empty()).then(|| commit + mark)
}

/// A command's stdout; its stderr goes to ours.
///
/// # Errors
/// When it cannot be started, fails, or prints something that is not UTF-8.
pub fn stdout_of(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {command:?}"))
}

/// What Cargo knows of the workspace's own packages.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Metadata {
    /// The members, without their dependencies.
    pub packages: Vec<Package>,
    /// Where everything is built.
    #[serde(default)]
    pub target_directory: PathBuf,
}

/// One member of the workspace.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Package {
    /// Name in the manifest.
    pub name: String,
    /// Absolute path of its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// Every dependency of every kind.
    pub dependencies: Vec<Dependency>,
    /// Libraries, binaries and tests.
    pub targets: Vec<Target>,
}

impl Package {
    /// The folder of the manifest.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(root())
    }
}

/// One dependency as the manifest has it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Dependency {
    /// The package's own name, whatever it is renamed to.
    pub name: String,
    /// `dev`, `build`, or nothing for a normal one.
    pub kind: Option<String>,
    /// Whether a feature switches it on.
    pub optional: bool,
    /// Whether its default features are on.
    pub uses_default_features: bool,
    /// The features asked for.
    pub features: Vec<String>,
}

/// A library, binary or test of a package.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Target {
    /// Name of the target.
    pub name: String,
    /// Features without which it is not built.
    #[serde(rename = "required-features", default)]
    pub required_features: Vec<String>,
}

impl Target {
    /// Whether it is a test that needs the real kernel, and root.
    pub fn is_live(&self) -> bool {
        self.required_features.iter().any(|feature| feature == LIVE)
    }
}

/// Asks Cargo for the workspace's packages.
///
/// # Errors
/// When Cargo fails or its answer is not what this reader knows.
pub fn metadata() -> anyhow::Result<Metadata> {
    let arguments = ["metadata", "--no-deps", "--format-version=1", "--locked"];
    let answer = stdout_of(cargo().args(arguments))?;
    serde_json::from_str(&answer).context("answer of cargo metadata")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_folders_below() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        fs::create_dir_all(&folder).unwrap();
        let files = [root.path().join("a/b/c"), root.path().join("d")];
        for file in &files {
            fs::write(file, "").unwrap();
        }
        assert_eq!(files_below(root.path()).unwrap(), files);
    }

    #[test]
    fn our_own_package_is_no_setting_of_the_next_cargo() {
        let check = |name: &str, expected: bool| {
            assert_eq!(is_of_package(name.as_ref()), expected, "{name}");
            let command = cargo();
            let mut changed = command.get_envs();
            let is_removed = changed.any(|(own, value)| own == name && value.is_none());
            assert_eq!(
                is_removed,
                expected && env::var_os(name).is_some(),
                "{name}"
            );
        };
        check("CARGO_PKG_NAME", true);
        check("CARGO_MANIFEST_DIR", true);
        check("CARGO_HOME", false);
        check("CARGO_TARGET_DIR", false);
        check("PATH", false);
    }
}

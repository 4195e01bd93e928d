//! Programs for tests out of Debian's packages: fetched once, unpacked into the cache, installed nowhere.
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    apt::Apt,
    lock,
    workspace::{self, succeeds},
};

/// The suite that the packages are from. Their programs run on later ones too.
const SUITE: &str = "bookworm";

/// Some packages, and what is made of them.
pub(super) struct Programs<'a> {
    /// What they are called together.
    pub(super) name: &'a str,
    pub(super) packages: &'a [&'a str],
    /// Makes the folder that is kept from the one that all packages are unpacked into.
    pub(super) keep: fn(&Path, &Path) -> anyhow::Result<()>,
    /// Whether what is in that folder runs here.
    pub(super) runs: fn(&Path) -> bool,
}

impl Programs<'_> {
    /// The folder, fetched where it is missing.
    ///
    /// # Errors
    /// When the packages cannot be had, or do not run here.
    pub(super) fn found_or_fetched(&self) -> anyhow::Result<PathBuf> {
        if !cfg!(target_arch = "x86_64") {
            bail!("the packages that are known are for x86_64");
        }
        let tools = workspace::cache()?.join("tools");
        let folder = tools.join(format!("{}-{SUITE}", self.name));
        let _lock = lock::folder(&tools, "fetches programs for tests")?;
        if !(self.runs)(&folder) {
            self.fetch(&tools, &folder)
                .with_context(|| format!("the packages {}", self.packages.join(", ")))?;
        }
        if !(self.runs)(&folder) {
            bail!("what is in {} does not run here", folder.display());
        }
        Ok(folder)
    }

    /// Takes them out of the packages, next to their place and then into it, so that no half is ever seen.
    fn fetch(&self, tools: &Path, folder: &Path) -> anyhow::Result<()> {
        let beside = tempfile::tempdir_in(tools).context("making a folder to fetch into")?;
        let suites = Apt::new(&beside.path().join("apt"))?.suites(&[SUITE])?;
        eprintln!(
            "fetching {} from {SUITE} into {}",
            self.name,
            folder.display()
        );
        suites.update()?;
        let fetched = beside.path().join("fetched");
        fs::create_dir(&fetched)?;
        let packages: Vec<String> = self
            .packages
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        suites.download(&packages, &fetched)?;
        let root = beside.path().join("root");
        for package in fs::read_dir(&fetched).context("listing what was fetched")? {
            let package = package?.path();
            let mut unpack = Command::new("dpkg-deb");
            if !succeeds(unpack.arg("--extract").arg(&package).arg(&root))? {
                bail!("{} cannot be unpacked", package.display());
            }
        }
        let whole = beside.path().join("whole");
        (self.keep)(&root, &whole)?;
        let place = || -> std::io::Result<()> {
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
            fs::rename(&whole, folder)
        };
        place().with_context(|| format!("placing {}", folder.display()))
    }
}

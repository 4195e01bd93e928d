//! What the last benchmarks came to, for whoever reports on them after much else was printed.
use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

#[cfg(feature = "bench")]
use super::{registry::Measured, table};
use crate::workspace;

/// What benchmarks came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// How many ran.
    pub ran: usize,
    /// Those that cannot run here, each with its reason.
    pub skipped: Vec<String>,
    /// The figures that were missed, each as one line.
    pub missed: Vec<String>,
}

#[cfg(feature = "bench")]
impl Told {
    /// Of these benchmarks, by name.
    pub(super) fn of(measured: &[(&str, Measured)]) -> Self {
        let mut told = Self::default();
        for (name, measured) in measured {
            match measured {
                Measured::Ran(_) => told.ran += 1,
                Measured::Skipped { reason } => told.skipped.push(format!("{name}: {reason}")),
            }
            told.missed.extend(measured.missed().map(table::of_limit));
        }
        told
    }

    /// Keeps it in the folder of the raw values.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let file = file(folder);
        let context = || format!("writing {}", file.display());
        fs::create_dir_all(workspace::root().join(folder)).with_context(context)?;
        fs::write(&file, serde_json::to_vec(self)?).with_context(context)
    }
}

/// The file, in the folder of the raw values.
fn file(folder: &Path) -> PathBuf {
    workspace::root().join(folder).join("told")
}

/// Forgets what an earlier run came to.
pub(super) fn forget(folder: &Path) -> anyhow::Result<()> {
    let file = file(folder);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// What the last run came to.
///
/// # Errors
/// When it did not come to its end, or what it left cannot be read.
pub(super) fn read(folder: &Path) -> anyhow::Result<Told> {
    let file = file(folder);
    let text = match fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("a benchmark could not be run; what it said is above")
        }
        text => text.with_context(|| format!("reading {}", file.display()))?,
    };
    serde_json::from_slice(&text).with_context(|| format!("reading {}", file.display()))
}

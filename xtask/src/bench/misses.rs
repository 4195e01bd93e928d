//! The figures that the last benchmarks missed, for whoever reports on them after much else was printed.
use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use crate::workspace;

/// The file, in the folder of the raw values.
fn file(folder: &Path) -> PathBuf {
    workspace::root().join(folder).join("missed")
}

/// Writes them, a line each, into the folder of the raw values.
#[cfg_attr(
    not(feature = "bench"),
    expect(dead_code, reason = "only benchmarks miss figures")
)]
pub(super) fn write(folder: &Path, missed: &[String]) -> anyhow::Result<()> {
    let file = file(folder);
    let context = || format!("writing {}", file.display());
    fs::create_dir_all(workspace::root().join(folder)).with_context(context)?;
    fs::write(&file, missed.join("\n")).with_context(context)
}

/// Forgets those of an earlier run.
pub(super) fn forget(folder: &Path) -> anyhow::Result<()> {
    let file = file(folder);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// What the last run missed; without its file it did not come to its end.
pub(super) fn read(folder: &Path) -> String {
    fs::read_to_string(file(folder)).map_or_else(
        |_| "a benchmark could not be run; what it said is above".to_owned(),
        |text| text.replace('\n', "; "),
    )
}

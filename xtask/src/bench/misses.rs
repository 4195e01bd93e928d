//! The figures that the last benchmarks missed, for whoever reports on them after much else was printed.
use std::{fs, path::Path};

use anyhow::Context as _;

use crate::workspace;

const FILE: &str = "missed";

/// Writes them, a line each, into the folder of the raw values.
#[cfg_attr(
    not(feature = "bench"),
    expect(dead_code, reason = "only benchmarks miss figures")
)]
pub(super) fn write(folder: &Path, missed: &[String]) -> anyhow::Result<()> {
    let folder = workspace::root().join(folder);
    let context = || format!("writing {}", folder.join(FILE).display());
    fs::create_dir_all(&folder).with_context(context)?;
    fs::write(folder.join(FILE), missed.join("\n")).with_context(context)
}

/// Forgets those of an earlier run.
pub(super) fn forget(folder: &Path) -> anyhow::Result<()> {
    let file = workspace::root().join(folder).join(FILE);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// What the last run missed; without its file it did not come to its end.
pub(super) fn read(folder: &Path) -> String {
    let file = workspace::root().join(folder).join(FILE);
    fs::read_to_string(file).map_or_else(
        |_| "a benchmark could not be run; what it said is above".to_owned(),
        |text| text.replace('\n', "; "),
    )
}

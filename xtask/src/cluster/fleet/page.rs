//! The tables of docs/api-requests.md, made from the raw values that are kept in the repository.
use std::{fs, path::Path};

use anyhow::Context as _;

use super::{
    report::{Report, SCHEMA},
    tables,
};
use crate::marks;

/// The page, from the workspace's directory.
const PAGE: &str = "docs/api-requests.md";
/// The raw values, likewise.
pub const RAW: &str = "docs/benchmarks/fleet/raw.json";
/// What makes a part of the page.
const BY: &str = "cargo xtask cluster fleet --publish";

/// Reads raw values.
///
/// # Errors
/// When they cannot be read, or are of another form.
pub fn read(file: &Path) -> anyhow::Result<Report> {
    let context = || format!("reading {}", file.display());
    let text = fs::read_to_string(file).with_context(context)?;
    let report: Report = serde_json::from_str(&text).with_context(context)?;
    anyhow::ensure!(
        report.schema == SCHEMA,
        "{} has schema {}, and {SCHEMA} is known",
        file.display(),
        report.schema
    );
    Ok(report)
}

/// Page as it should be: its own text with the tables of the raw values, or that there are none yet.
///
/// # Errors
/// When a file cannot be read, or the page has no place for the tables.
pub fn fresh(root: &Path) -> anyhow::Result<String> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let raw = root.join(RAW);
    let tables = if raw.exists() {
        tables::of(&read(&raw)?)
    } else {
        "Not measured for this page yet.\n".to_owned()
    };
    marks::put((PAGE, &page), BY, &tables)
}

/// Writes the tables into the page.
///
/// # Errors
/// When a file cannot be read or written, or the page has no place for the tables.
pub fn publish(root: &Path) -> anyhow::Result<()> {
    let file = root.join(PAGE);
    fs::write(&file, fresh(root)?).with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    /// With `BRINK_BLESS=1` the page is written anew, to be read before it is committed.
    #[test]
    fn the_page_shows_the_committed_values() {
        let root = workspace::root();
        if std::env::var_os("BRINK_BLESS").is_some() {
            publish(root).unwrap();
        }
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let again = "write it anew: BRINK_BLESS=1 cargo test -p xtask the_page_shows_the_committed";
        assert_eq!(fresh(root).unwrap(), page, "{again}");
    }
}

//! What packages install beside the binary, made by the binary itself: manual pages and completions.

use std::{fs, process::Command};

use anyhow::Context as _;

use super::Files;
use crate::{test::artifacts, workspace};

/// Shells and the names they look for.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "brink.bash"),
    ("zsh", "_brink"),
    ("fish", "brink.fish"),
];

/// The manual page of every command.
pub(super) fn man() -> anyhow::Result<Files> {
    let folder = tempfile::tempdir().context("making a folder for the pages")?;
    let path = folder
        .path()
        .to_str()
        .context("the folder's name is not text")?;
    brink(&["man", "--dir", path])?;
    let mut files = Files::new();
    for entry in fs::read_dir(folder.path()).context("listing the pages")? {
        let entry = entry.context("listing the pages")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path()).context("reading a page")?;
        files.insert(name, tidied(&text));
    }
    Ok(files)
}

/// The completions of the shells that packages care for.
pub(super) fn completions() -> anyhow::Result<Files> {
    SHELLS
        .iter()
        .map(|(shell, name)| {
            let text = brink(&["completion", shell])?;
            Ok(((*name).to_owned(), tidied(&text)))
        })
        .collect()
}

/// Without blanks at the ends of lines, which mean nothing in either form.
fn tidied(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|line| format!("{}\n", line.trim_end()));
    lines.collect::<String>().into_bytes()
}

fn brink(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(artifacts::build_agent()?);
    workspace::stdout_of(command.args(arguments))
}

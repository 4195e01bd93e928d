//! `brink completion` and `brink man`: what packages install beside the binary.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use clap_complete::Shell;
use clap_mangen::Man;

use super::command;
use super::exit::{CliError, Exit};
use super::output::Data;
use crate::config::access::missing;

/// Options of `brink completion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink completion bash > /usr/share/bash-completion/completions/brink
  brink completion zsh > /usr/local/share/zsh/site-functions/_brink")]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Options of `brink man`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink man | man -l -
  brink man --dir /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Write the page of every command into this folder instead
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// A generated file: its name and its bytes.
pub type Generated = (String, Vec<u8>);

/// Prints the completions of a shell.
///
/// # Errors
/// When it cannot be written.
pub(super) fn run_completion(args: CompletionArgs) -> Result<Exit, CliError> {
    let mut data = Data::new();
    data.print(&String::from_utf8_lossy(&completion(args.shell)))?;
    data.flush()?;
    Ok(Exit::Success)
}

/// Prints the main page, or writes all of them.
///
/// # Errors
/// When it cannot be written.
pub(super) fn run_man(args: &ManArgs) -> Result<Exit, CliError> {
    let pages = man_pages()?;
    let Some(folder) = &args.dir else {
        let mut data = Data::new();
        for (_, page) in pages.iter().take(1) {
            data.print(&String::from_utf8_lossy(page))?;
        }
        data.flush()?;
        return Ok(Exit::Success);
    };
    for (name, page) in &pages {
        let path = folder.join(name);
        fs::write(&path, page).map_err(|error| unwritten(folder, &path, error))?;
    }
    Ok(Exit::Success)
}

fn unwritten(folder: &Path, page: &Path, error: io::Error) -> CliError {
    let (exit, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied => (Exit::Denied, missing("folder", folder)),
        _ => (Exit::Failure, "name a folder that is there".to_owned()),
    };
    let error = anyhow::Error::new(error).context(format!("cannot write {}", page.display()));
    CliError::new(exit, error).advise(advice)
}

fn completion(shell: Shell) -> Vec<u8> {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut command(), "brink", &mut bytes);
    bytes
}

/// The completions of every shell, under the names their shells look for.
pub fn completions() -> Vec<Generated> {
    let name = |shell: Shell| match shell {
        Shell::Zsh => "_brink".to_string(),
        Shell::Fish => "brink.fish".to_string(),
        other => format!("brink.{other}"),
    };
    Shell::value_variants()
        .iter()
        .map(|&shell| (name(shell), completion(shell)))
        .collect()
}

/// The manual page of every command, the main one first.
///
/// # Errors
/// When a page cannot be rendered.
pub fn man_pages() -> io::Result<Vec<Generated>> {
    let mut pages = Vec::new();
    let mut root = command();
    root.build();
    render(&root, &mut pages)?;
    Ok(pages)
}

fn render(command: &clap::Command, pages: &mut Vec<Generated>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut bytes = Vec::new();
    // The page has room for what `-h` leaves out, but leaves it out too where it is marked so.
    let whole = command.clone().mut_args(|arg| arg.hide_short_help(false));
    Man::new(whole)
        .source(format!("brink {}", env!("CARGO_PKG_VERSION")))
        .manual("Brink")
        .render(&mut bytes)?;
    pages.push((format!("{name}.1"), bytes));
    let mut subcommands = command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help" && !sub.is_hide_set());
    subcommands.try_for_each(|sub| render(sub, pages))
}

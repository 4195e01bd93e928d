//! `cargo xtask deny`: what the dependencies may be, by the rules in `deny.toml`.
use std::{
    net::{TcpStream, ToSocketAddrs as _},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::{
    Verdict,
    tools::Tool,
    workspace::{self, succeeds},
};

const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
};
/// Where the database of advisories is.
const ADVISORIES: (&str, u16) = ("github.com", 443);

/// Options of `cargo xtask deny`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {}

/// Checks bans, licences and sources, and advisories where their database can be reached.
///
/// # Errors
/// When cargo-deny cannot be had or the crates cannot be fetched.
pub fn run(_args: &Args) -> anyhow::Result<Verdict> {
    let mut holds = check_rules()?.holds();
    match unreachable() {
        Some(reason) => println!("advisories skipped: {reason}"),
        None => holds &= check_advisories()?.holds(),
    }
    Ok(Verdict::from_holds(holds))
}

/// Checks what needs no database: bans, licences and sources.
///
/// # Errors
/// When cargo-deny cannot be had or the crates cannot be fetched.
pub fn check_rules() -> anyhow::Result<Verdict> {
    // cargo-deny reads the licences in the crates themselves, those of other platforms too.
    if !succeeds(workspace::cargo().args(["fetch", "--locked", "--quiet"]))? {
        bail!("the crates of Cargo.lock cannot be fetched");
    }
    deny(&[
        "--offline",
        "--locked",
        "check",
        "bans",
        "licenses",
        "sources",
    ])
}

/// Checks the dependencies against the database of advisories, fetching it first.
///
/// # Errors
/// When cargo-deny cannot be had.
pub fn check_advisories() -> anyhow::Result<Verdict> {
    deny(&["--locked", "check", "advisories"])
}

/// Why the database of advisories cannot be reached; nothing if it can.
pub fn unreachable() -> Option<String> {
    let (host, _) = ADVISORIES;
    connect(ADVISORIES)
        .err()
        .map(|error| format!("{host}: {error}"))
}

fn deny(arguments: &[&str]) -> anyhow::Result<Verdict> {
    let mut command = Command::new(CARGO_DENY.path()?);
    command.current_dir(workspace::root()).args(arguments);
    Ok(Verdict::from_holds(
        succeeds(&mut command).context("cargo deny")?,
    ))
}

/// Connects to the first of the host's addresses that answers.
fn connect(host: (&str, u16)) -> std::io::Result<()> {
    let mut failure = std::io::Error::other("has no address");
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(3)) {
            Ok(_) => return Ok(()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

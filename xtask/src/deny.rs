//! `cargo xtask deny`: what the dependencies may be, by the rules in `deny.toml`.
use std::{
    net::{TcpStream, ToSocketAddrs as _},
    path::Path,
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
    let tool = CARGO_DENY.path()?;
    // cargo-deny reads the licences in the crates themselves, those of other platforms too.
    if !succeeds(workspace::cargo().args(["fetch", "--locked", "--quiet"]))? {
        bail!("the crates of Cargo.lock cannot be fetched");
    }
    let offline = [
        "--offline",
        "--locked",
        "check",
        "bans",
        "licenses",
        "sources",
    ];
    let mut holds = succeeds(deny(&tool).args(offline)).context("cargo deny")?;
    match reachable(ADVISORIES) {
        Ok(()) => {
            let advisories = ["--locked", "check", "advisories"];
            holds &= succeeds(deny(&tool).args(advisories)).context("cargo deny")?;
        }
        Err(reason) => println!("advisories skipped: {}: {reason}", ADVISORIES.0),
    }
    Ok(Verdict::from_holds(holds))
}

fn deny(tool: &Path) -> Command {
    let mut command = Command::new(tool);
    command.current_dir(workspace::root());
    command
}

/// Whether a connection to one of the host's addresses comes about.
fn reachable(host: (&str, u16)) -> std::io::Result<()> {
    let mut failure = std::io::Error::other("has no address");
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(3)) {
            Ok(_) => return Ok(()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

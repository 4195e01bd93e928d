//! The release builds of the agent and of the load.
use std::{env, path::PathBuf};

use anyhow::Context as _;

/// The agent.
pub(in crate::bench) fn agent() -> anyhow::Result<PathBuf> {
    program("BRINK_BIN")
}

/// The load.
pub(in crate::bench) fn hog() -> anyhow::Result<PathBuf> {
    program("BRINK_HOG")
}

fn program(variable: &str) -> anyhow::Result<PathBuf> {
    env::var_os(variable)
        .map(PathBuf::from)
        .with_context(|| format!("{variable} is not set; start with `cargo xtask bench`"))
}

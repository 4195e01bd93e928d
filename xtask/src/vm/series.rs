//! The kernels that are tested: series that people run, and where Debian has them.
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A series of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Series {
    /// Debian 12
    #[value(name = "6.1")]
    #[serde(rename = "6.1")]
    V6_1,
    /// Debian 13
    #[value(name = "6.12")]
    #[serde(rename = "6.12")]
    V6_12,
    /// the newest that Debian has packaged for its stable release
    #[serde(rename = "newest")]
    Newest,
}

impl Series {
    /// The suite of Debian's archive that follows it.
    pub(super) fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
            Self::Newest => "trixie-backports",
        }
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Newest => "newest",
        })
    }
}

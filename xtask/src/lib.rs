//! The project's automation: checks, tests, generated files and measurements.

pub mod apt;
mod archive;
pub mod bench;
pub mod ci;
pub mod cli;
pub mod cluster;
pub mod deb;
pub mod deny;
pub mod ebpf;
pub mod fuzz;
pub mod generate;
pub mod image;
pub(crate) mod listing;
mod lock;
pub mod marks;
pub mod monitoring;
pub mod process;
#[cfg(not(all(feature = "bench", feature = "fleet")))]
mod release_build;
mod static_program;
pub mod test;
pub mod tidy;
pub mod toolchain;
pub mod tools;
pub mod vm;
mod when;
pub mod workspace;

/// What a command found out, as against a fault that kept it from finding out (an `Err`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that was checked holds.
    Passed,
    /// Something does not hold; the command has said what.
    Failed,
}

impl Verdict {
    /// `Passed` if `holds`.
    pub fn from_holds(holds: bool) -> Self {
        if holds { Self::Passed } else { Self::Failed }
    }

    /// Whether everything holds.
    pub fn holds(self) -> bool {
        self == Self::Passed
    }
}

//! What can go wrong between the agent and its kernel programs.

use std::io;

use aya::maps::MapError;
use aya::programs::ProgramError;
use brink_abi::command;
use thiserror::Error;

/// A failed load or a failed command.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// the object could not be taken apart, or its maps could not be made
    #[error("kernel object: {0}")]
    Object(String),
    /// the object lacks a map this agent needs: they are of different versions
    #[error("kernel object: no map {0}")]
    NoMap(&'static str),
    /// a map could not be opened or read
    #[error("map {name}: {error}")]
    Map {
        /// which
        name: &'static str,
        /// why
        error: MapError,
    },
    /// a program that is not loaded was asked to run
    #[error("program {0} is not loaded")]
    NotLoaded(&'static str),
    /// the kernel would not run a program
    #[error("program {name}: {error}")]
    Program {
        /// which
        name: &'static str,
        /// why
        error: ProgramError,
    },
    /// the kernel program refused a command
    #[error("{what}: {why}")]
    Refused {
        /// what was asked
        what: &'static str,
        /// the reason it gave
        why: Refusal,
    },
    /// a descriptor could not be copied, or an iterator not be read
    #[error("{what}: {error}")]
    Io {
        /// what was tried
        what: &'static str,
        /// why it failed
        error: io::Error,
    },
    /// the machine is larger than the maps
    #[error("more NUMA nodes with memory ({0}) than the sampler sums over")]
    TooManyNodes(usize),
}

/// Why the command program refused. The variant's name is the metric label.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// a tick held the engine at every try
    #[error("the sampler was busy")]
    Busy,
    /// a number out of range
    #[error("a number is out of range")]
    Invalid,
    /// the descriptor is not an open cgroup directory
    #[error("the descriptor is not an open cgroup directory")]
    NotACgroup,
    /// the cgroup has no memory controller, or is being removed
    #[error("the cgroup has no memory controller, or is being removed")]
    NoMemoryController,
    /// the node's counters were not found where this kernel should keep them
    #[error("the node's counters were not found")]
    NotANode,
    /// the kernel lacks a member this needs
    #[error("this kernel lacks a structure member")]
    Unsupported,
    /// the kernel refused the timer
    #[error("the kernel refused the timer")]
    TimerRefused,
    /// a map is full
    #[error("more than the maps hold")]
    TooMany,
    /// the root cgroup, whose own usage the kernel does not count
    #[error("the root cgroup's own usage is not counted")]
    RootCgroup,
    /// the cgroup has no pids controller, or is being removed
    #[error("the cgroup has no pids controller, or is being removed")]
    NoPidsController,
    /// a result this agent does not know
    #[error("result {0}")]
    Other(u32),
}

impl Refusal {
    /// The meaning of a program's result; `None` when it is done.
    pub(super) fn from_result(result: u32) -> Option<Self> {
        Some(match result {
            command::OK => return None,
            command::BUSY => Self::Busy,
            command::INVALID => Self::Invalid,
            command::NOT_A_CGROUP => Self::NotACgroup,
            command::NO_MEMORY_CONTROLLER => Self::NoMemoryController,
            command::NOT_A_NODE => Self::NotANode,
            command::UNSUPPORTED => Self::Unsupported,
            command::TIMER_REFUSED => Self::TimerRefused,
            command::TOO_MANY => Self::TooMany,
            command::ROOT_CGROUP => Self::RootCgroup,
            command::NO_PIDS_CONTROLLER => Self::NoPidsController,
            other => Self::Other(other),
        })
    }
}

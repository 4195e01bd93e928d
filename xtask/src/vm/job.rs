//! What the host asks of a guest, and what the guest answers; both are JSON in an archive.
use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::boot::ByBoot;
use crate::test::{Report, live::Listed};

/// Where the guest finds its job.
pub(super) const JOB: &str = "job.json";
/// The name of the answer among the files that come back; it is the last of them.
pub(super) const ANSWER: &str = "answer.json";

/// What a guest is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Job {
    /// Of this run and no other: an answer without it is none.
    pub(super) nonce: String,
    /// Which hierarchy the controllers are on.
    pub(super) cgroup: Cgroup,
    /// The live tests.
    pub(super) tests: ByBoot<Vec<Listed>>,
    /// The agent.
    pub(super) agent: PathBuf,
    /// The program that tells which kernel programs run.
    pub(super) programs: PathBuf,
    /// Slow tests too.
    pub(super) full: bool,
    /// Longest time for one test, in seconds.
    pub(super) deadline: u64,
}

/// What a guest has found out.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The job's.
    pub(super) nonce: String,
    /// Release of the kernel.
    pub(super) kernel: String,
    /// Why the job cannot be done on this kernel; then nothing else is in here.
    pub(super) skipped: Option<String>,
    /// The tests and their outcomes.
    pub(super) report: Report,
    /// Every kernel program of the probe.
    pub(super) programs: Vec<Program>,
}

/// A kernel program, and whether it runs there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Program {
    pub(super) family: String,
    pub(super) name: String,
    /// Where it attaches.
    pub(super) hook: String,
    /// Why it does not run; nothing if it was loaded and attached.
    pub(super) absent: Option<String>,
}

impl Program {
    /// What makes it one program, in the order of the table.
    pub(super) fn place(&self) -> (&str, &str, &str) {
        (&self.family, &self.hook, &self.name)
    }
}

/// A version of control groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cgroup {
    /// one tree for all controllers
    #[default]
    V2,
    /// a tree for each controller, where the kernel still has them
    V1,
}

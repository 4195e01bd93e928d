//! The report: all checks in order of importance, and the verdict over them.
//!
//! This is what `-o json` prints; fields are only ever added.

use brink_host::clock::ClockPair;
use serde::Serialize;

use super::check::{Check, State};
use super::facts::Facts;
use super::verdict::Verdict;
use crate::config::RunMode;
use crate::record::wire::{API_VERSION, Time, wall_clock};
use crate::record::words::mode_word;

/// Everything that is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `brink.dev/v1alpha1`.
    pub api_version: &'static str,
    /// Always `Doctor`.
    pub kind: &'static str,
    /// Version of this program.
    pub version: &'static str,
    /// When it looked.
    pub now: Time,
    /// Where.
    pub machine: Machine,
    /// What would carry the signals: `kernel-sampler`, `realtime-poll` or `poll`.
    pub rung: &'static str,
    /// How the guard thread would be scheduled.
    pub scheduling: Option<String>,
    /// Why it would stand no higher, one sentence each.
    pub rung_reasons: Vec<String>,
    /// `enforcing`, or why orders would only be observed.
    pub mode: &'static str,
    /// What the configuration asks for: `observe` or `enforce`.
    pub configured_mode: &'static str,
    /// How many checks ended in each state.
    pub counts: Counts,
    /// Each check, the most important first.
    pub checks: Vec<Check>,
}

/// The machine, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Its name.
    pub host: Option<String>,
    /// The release of its kernel.
    pub kernel: Option<String>,
    /// Its architecture.
    pub architecture: &'static str,
    /// CPUs that are online.
    pub cpus: Option<u32>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
}

/// How many checks ended in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Something that is needed does not work.
    pub failed: usize,
    /// Something works less well than it looks.
    pub warning: usize,
    /// Something could not be looked at.
    pub unknown: usize,
    /// Worth knowing.
    pub note: usize,
    /// All is well.
    pub ok: usize,
}

impl Report {
    /// The report of some checks on some facts.
    pub fn new(facts: &Facts, mut checks: Vec<Check>) -> Self {
        // Within a state they stay in the order in which one would look.
        checks.sort_by_key(|check| check.state);
        let verdict = Verdict::of(facts);
        let clocks = ClockPair::now();
        Self {
            api_version: API_VERSION,
            kind: "Doctor",
            version: env!("CARGO_PKG_VERSION"),
            now: Time {
                wall: wall_clock(clocks.realtime_ns),
                monotonic_ns: i64::try_from(clocks.monotonic_ns).unwrap_or(i64::MAX),
            },
            machine: Machine {
                host: facts.kernel.host.clone().ok(),
                kernel: facts.kernel.probe.release.as_ref().ok().cloned(),
                architecture: facts.kernel.architecture,
                cpus: facts.kernel.cpus.as_ref().ok().copied(),
                memory_bytes: facts.memory.meminfo.as_ref().ok().map(|info| info.total),
            },
            rung: verdict.rung.word(),
            scheduling: verdict.scheduling,
            rung_reasons: verdict.reasons,
            mode: mode_word(verdict.mode),
            configured_mode: match facts.config.mode {
                RunMode::Observe => "observe",
                RunMode::Enforce => "enforce",
            },
            counts: Counts::of(&checks),
            checks,
        }
    }

    /// Whether a check has failed.
    pub const fn has_failed(&self) -> bool {
        self.counts.failed > 0
    }
}

impl Counts {
    fn of(checks: &[Check]) -> Self {
        let mut counts = Self::default();
        for check in checks {
            *counts.slot(check.state) += 1;
        }
        counts
    }

    const fn slot(&mut self, state: State) -> &mut usize {
        match state {
            State::Failed => &mut self.failed,
            State::Warning => &mut self.warning,
            State::Unknown => &mut self.unknown,
            State::Note => &mut self.note,
            State::Ok => &mut self.ok,
        }
    }
}

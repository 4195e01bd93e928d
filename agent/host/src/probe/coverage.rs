//! From facts to a decision about each program, and from the decision to the settings of the load.

use std::fmt;

use brink_abi::COMM;
use brink_abi::command::Knobs;
use brink_abi::layout::{Formats, Layout};

use super::facts::{Facts, Lockdown, MemoryController};
use super::pace::Growth;
use super::programs::{Family, Hook, PROGRAMS, Program};
use crate::process::essential;

/// Why a program does not run. The variant's name is the metric label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// switched off in the settings
    NotWanted,
    /// the kernel forbids reading its memory
    Lockdown,
    /// `CAP_BPF` or `CAP_PERFMON` is missing
    Capability(&'static str),
    /// the kernel's type description cannot be read
    NoTypes(String),
    /// the kernel has no such structure member
    NoMember(String),
    /// the kernel has no such tracepoint, or its arguments are not the expected ones
    NoTracepoint(String),
    /// tracefs or the tracepoint's description cannot be read
    NoFormat(String),
    /// the memory controller is off or cannot be found
    NoMemoryController(String),
    /// the verifier refused it
    Refused(String),
    /// it loaded, and could not be attached
    NotAttached(String),
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => f.write_str("switched off"),
            Self::Lockdown => f.write_str("lockdown=confidentiality forbids reading kernel memory"),
            Self::Capability(name) => write!(f, "{name} is missing"),
            Self::NoTypes(why) => write!(f, "no type description of the kernel: {why}"),
            Self::NoMember(what) => write!(f, "this kernel has no {what}"),
            Self::NoTracepoint(why) => f.write_str(why),
            Self::NoFormat(why) => write!(f, "no description of the tracepoint: {why}"),
            Self::NoMemoryController(why) => write!(f, "no memory controller: {why}"),
            Self::Refused(why) => write!(f, "the kernel refused the program: {why}"),
            Self::NotAttached(why) => write!(f, "not attached: {why}"),
        }
    }
}

/// The decision for every program of [`PROGRAMS`], in their order. After the load it says what truly runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    programs: Vec<(Program, Result<(), Absence>)>,
}

impl Coverage {
    /// Each program with its state.
    pub fn programs(&self) -> impl Iterator<Item = (&Program, &Result<(), Absence>)> {
        self.programs
            .iter()
            .map(|(program, state)| (program, state))
    }

    /// The program runs, or should.
    pub fn has(&self, name: &str) -> bool {
        self.programs
            .iter()
            .any(|(program, state)| program.name == name && state.is_ok())
    }

    /// Every program of the family runs, or should.
    pub fn whole(&self, family: Family) -> bool {
        self.programs
            .iter()
            .filter(|(program, _)| program.family == family)
            .all(|(_, s)| s.is_ok())
    }

    /// What is absent, and why.
    pub fn absences(&self) -> impl Iterator<Item = (&Program, &Absence)> {
        self.programs
            .iter()
            .filter_map(|(program, state)| Some((program, state.as_ref().err()?)))
    }

    pub(super) fn lose(&mut self, name: &str, absence: &Absence) {
        for (program, state) in &mut self.programs {
            if program.name == name && state.is_ok() {
                *state = Err(absence.clone());
            }
        }
    }
}

/// What the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// families to leave out
    pub without: Vec<Family>,
    /// the sampler's pace
    pub knobs: Knobs,
    /// bytes of the ring of signals; a power of two of at least a page
    pub signal_ring: u32,
    /// bytes of the ring of evidence
    pub evidence_ring: u32,
    /// processes the table holds
    pub processes: u32,
    /// memory cgroups that are counted
    pub cgroups: u32,
    /// names of programs whose start is told whoever starts them, at most [`MAX_NAMES`]
    pub names: Vec<[u8; COMM]>,
    /// load the programs on kills ([`Family::Forensics`])
    pub forensics: bool,
    /// bytes of the ring of kills
    pub forensics_ring: u32,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            without: Vec::new(),
            knobs: knobs(Growth::of_this_machine()),
            signal_ring: 64 << 10,
            evidence_ring: 256 << 10,
            processes: 8192,
            cgroups: 2048,
            names: essential::names().collect(),
            forensics: false,
            forensics_ring: 256 << 10,
        }
    }
}

impl Wishes {
    /// The same, with the node recorded: a point every so many nanoseconds.
    #[must_use]
    pub const fn recording(mut self, every_ns: u64) -> Self {
        self.knobs.flight_ns = every_ns;
        self
    }
}

/// The pace that follows from the fastest growth there can be.
pub const fn knobs(growth: Growth) -> Knobs {
    Knobs {
        min_period_ns: 200_000,
        max_period_ns: 200_000_000,
        slack_per_ns: growth.slack_per_ns(),
        boost_ns: 50_000_000,
        heartbeat_ns: 5_000_000_000,
        band_gap_ns: 2_000_000,
        band_floor: 8 << 20,
        reserves_ns: 250_000_000,
        stall_ns: 1_000_000,
        flight_ns: 0,
    }
}

/// Everything the loader is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// offsets of the running kernel
    pub layout: Layout,
    /// fields of its OOM tracepoints
    pub formats: Formats,
    /// NUMA nodes with memory
    pub nodes: Vec<u32>,
    /// what was asked
    pub wishes: Wishes,
}

/// Decides for each program whether it can run here.
pub fn decide(facts: &Facts, wishes: &Wishes) -> Coverage {
    let everywhere = forbidden(facts);
    let one = |(position, program): (usize, &Program)| {
        let is_wanted = match program.family {
            Family::Forensics => wishes.forensics,
            Family::Recorder => wishes.knobs.flight_ns != 0,
            _ => true,
        };
        let state = if wishes.without.contains(&program.family) || !is_wanted {
            Err(Absence::NotWanted)
        } else if let Some(absence) = &everywhere {
            Err(absence.clone())
        } else {
            possible(facts, position, program)
        };
        (*program, state)
    };
    Coverage {
        programs: PROGRAMS.iter().enumerate().map(one).collect(),
    }
}

/// What stops every program alike. A lockdown mode that cannot be read stops none: the load will tell.
fn forbidden(facts: &Facts) -> Option<Absence> {
    if matches!(facts.lockdown, Ok(Lockdown::Confidentiality)) {
        return Some(Absence::Lockdown);
    }
    match &facts.capabilities {
        Ok(held) if !held.sys_admin && !held.bpf => Some(Absence::Capability("CAP_BPF")),
        Ok(held) if !held.sys_admin && !held.perfmon => Some(Absence::Capability("CAP_PERFMON")),
        _ => None,
    }
}

fn possible(facts: &Facts, position: usize, program: &Program) -> Result<(), Absence> {
    let types = facts
        .types
        .as_ref()
        .map_err(|error| Absence::NoTypes(error.to_string()))?;
    if let Some(Err(why)) = types.targets.get(position) {
        return Err(Absence::NoTracepoint(why.clone()));
    }
    let missing = &types.resolved.missing;
    if let Some((_, what)) = missing
        .iter()
        .find(|(need, _)| program.needs.contains(need))
    {
        return Err(Absence::NoMember(what.clone()));
    }
    if matches!(program.hook, Hook::Classic(..))
        && let Err(error) = &facts.formats
    {
        return Err(Absence::NoFormat(error.to_string()));
    }
    match &facts.memory {
        Ok(MemoryController::Disabled) => Err(Absence::NoMemoryController("switched off".into())),
        Ok(_) => Ok(()),
        Err(error) => Err(Absence::NoMemoryController(error.to_string())),
    }
}

/// The settings that follow from facts and decision.
pub fn settings(facts: &Facts, wishes: Wishes) -> Settings {
    let mut layout = match &facts.types {
        Ok(types) => types.resolved.layout,
        Err(_) => Layout::UNKNOWN,
    };
    layout.page_shift = facts.page_size.trailing_zeros();
    layout.memory_hierarchy = match facts.memory {
        Ok(MemoryController::V1 { hierarchy }) => hierarchy,
        _ => 0,
    };
    Settings {
        layout,
        formats: *facts.formats.as_ref().unwrap_or(&Formats::UNKNOWN),
        nodes: facts.nodes.as_ref().map_or_else(|_| vec![0], Clone::clone),
        wishes,
    }
}

#[cfg(test)]
#[path = "coverage_tests.rs"]
mod tests;

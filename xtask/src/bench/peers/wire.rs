//! What the host asks of a guest, and what the guest says: a line of JSON each, behind a mark.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    contender::{Contender, Signal},
    workload::Workload,
};
use crate::bench::machine::Machine;

/// Begins each line that is meant for the host.
pub const MARK: &str = "@compare ";
/// Where the guest finds its job.
pub const JOB: &str = "compare.json";
/// The serial number of the disk with the tools.
pub const DISK: &str = "peers";

/// What a guest is to do, until it is ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// The runs that are left, in their order.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its place in the plan.
    pub number: usize,
    /// Who is to act.
    pub contender: Contender,
    /// What is run.
    pub workload: Workload,
    /// Seed of what is random in it.
    pub seed: u64,
}

/// What a guest says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// It is ready, and this fast at the most: bytes a second, by load.
    Ready {
        /// Its own facts.
        machine: Box<Machine>,
        /// By name of the load.
        rates: BTreeMap<String, u64>,
    },
    /// It lives: told every few seconds of its own time, whatever it does.
    Alive,
    /// A run begins.
    Begin(Run),
    /// It is over.
    Done(Box<Found>),
    /// It could not be judged, and why.
    Failed {
        /// Its place in the plan.
        number: usize,
        /// Why.
        why: String,
    },
    /// Everything that there was time for has been done.
    End,
}

/// What was seen of one run. Times are nanoseconds, amounts bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// Its place in the plan.
    pub number: usize,
    /// Who acted, as the tables name it, and on what.
    pub contender: String,
    /// The load, as the tables name it.
    pub workload: String,
    /// The signal that the crossing was taken on.
    pub signal: String,
    /// Whether a kill was wrong, whoever was killed.
    pub quiet: bool,
    /// Rate of the load, bytes a second; none if it goes as it can.
    pub rate: Option<u64>,
    /// Of a quiet load: bytes that it was to take, and those it took, however often; none if it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<[u64; 2]>,
    /// Whether the limit was crossed.
    pub crossed: bool,
    /// From the crossing to the first SIGTERM or SIGKILL of the contender.
    pub signalled: Option<i64>,
    /// From the crossing to its first SIGKILL.
    pub killed: Option<i64>,
    /// From the crossing to the kernel's first victim.
    pub oom: Option<i64>,
    /// From the contender's first signal to the limit kept again.
    pub freed: Option<i64>,
    /// Below the limit at the worst.
    pub overshoot: Option<i64>,
    /// Signals of the contender to processes of the right pods.
    pub right: usize,
    /// Its signals to anybody else.
    pub wrong: usize,
    /// Victims of the kernel.
    pub oom_victims: usize,
    /// Of those, processes of other pods.
    pub oom_bystanders: usize,
    /// The first process it signalled was one of the right pods.
    pub right_first: Option<bool>,
    /// The longest time in which an ordinary thread that sleeps for 50 ms did not run.
    pub stall: i64,
    /// Nobody has answered in all the time there was, or the guest died.
    pub lock_up: Option<String>,
    /// Processor time of the contender while the load ran, and the time that was.
    pub cpu: Option<[i64; 2]>,
    /// Memory of the contender before that: its group's charge, and its processes' proportional share.
    pub memory: Option<[i64; 2]>,
    /// The least that each signal fell to, and when it was crossed, after the load's start.
    pub signals: BTreeMap<String, Seen>,
    /// Of Brink: when each stage of its first decision was reached, after the load's start.
    pub stages: Vec<(String, i64)>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
    /// The same run before, each time it showed nothing and was made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discarded: Vec<Self>,
}

/// What was seen of one signal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Nanoseconds after the load's start; none if it was not crossed.
    pub crossed: Option<i64>,
    /// Bytes.
    pub overshoot: i64,
}

impl Found {
    /// Whether a pod that should have stayed away came below the limit of the tool's own signal, so that nothing was quiet.
    /// Where the kernel had to kill, or nobody answers any more, the run shows that.
    pub fn shows_nothing(&self) -> bool {
        let is_fatal = self.oom_victims > 0 || self.lock_up.is_some();
        self.quiet && self.crossed && self.is_near() && !is_fatal
    }

    /// Whether its load is a pod that comes near the limit and stays away from it.
    fn is_near(&self) -> bool {
        [Workload::Near.word(), Workload::Spikes.word()].contains(&self.workload)
    }

    /// Whether a quiet load did what it is there for: a pod came as near as it was to come, and of a cache there is so much
    /// at least that it makes a difference.
    pub fn has_worked(&self) -> bool {
        let least = |told: u64| if self.is_near() { told } else { told / 4 };
        let is_enough = |[told, took]: [u64; 2]| told > 0 && took >= least(told);
        self.taken.is_none_or(is_enough)
    }

    /// Whether nobody has looked what a quiet load did that was to do something, and nothing else shows it.
    pub fn is_unproven(&self) -> bool {
        let is_unseen = self.quiet && self.taken.is_none();
        let is_busy = self.workload != Workload::Idle.word();
        is_unseen && is_busy && !self.is_disturbed() && !self.shows_nothing()
    }

    /// Whether somebody was killed, by the tool or by the kernel.
    pub fn has_kill(&self) -> bool {
        self.right + self.wrong + self.oom_victims > 0
    }

    /// Whether what should have been quiet was not: somebody was killed, or nobody answers any more.
    pub fn is_disturbed(&self) -> bool {
        self.has_kill() || self.lock_up.is_some()
    }

    /// A run that ended with its guest.
    pub fn died(run: &Run, why: String) -> Self {
        Self {
            lock_up: Some(why),
            ..Self::of(run)
        }
    }

    /// A run of which nothing is known yet.
    pub fn of(run: &Run) -> Self {
        Self {
            number: run.number,
            contender: run.contender.word().to_owned(),
            workload: run.workload.word(),
            signal: Signal::word(run.contender.signal()).to_owned(),
            quiet: run.workload.is_quiet(),
            ..Self::default()
        }
    }

    /// Whether the kernel came first, or nobody came at all.
    pub fn is_lost(&self) -> bool {
        match (self.signalled, self.oom) {
            _ if self.lock_up.is_some() => true,
            (None, _) => true,
            (Some(signalled), Some(oom)) => oom <= signalled,
            (Some(_), None) => false,
        }
    }

    /// Whether it was answered though the truth saw no crossing of the tool's own signal before: from when it took is not
    /// known.
    pub fn is_unseen(&self) -> bool {
        let is_early = |at| !self.crossed || at < 0;
        self.signalled.is_some_and(is_early) && !self.is_lost()
    }

    /// Whether there was no reason for the first signal by anybody's figure: the tool's own crossed much later, or
    /// neither it nor what is left of the machine's memory crossed at all.
    pub fn is_premature(&self) -> bool {
        /// Between two ticks of the truth a tool may be earlier; this is several.
        const LEAD_NS: i64 = 1_000_000;
        match self.signalled {
            None => false,
            Some(at) if self.crossed => at < -LEAD_NS,
            Some(_) => !self.is_short(),
        }
    }

    /// Whether the machine's memory came below the limit, by headroom or by the kernel's estimate.
    pub fn is_short(&self) -> bool {
        let figures = [Signal::Headroom, Signal::Estimate].map(Signal::word);
        let mut seen = figures
            .into_iter()
            .filter_map(|word| self.signals.get(word));
        seen.any(|seen| seen.crossed.is_some())
    }
}

/// The line of something.
///
/// # Errors
/// When it has no JSON.
pub fn line(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("{MARK}{}", serde_json::to_string(value)?))
}

/// What a line says; nothing if it is none of ours.
pub fn parse<T: DeserializeOwned>(line: &str) -> Option<T> {
    serde_json::from_str(line.split_once(MARK)?.1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_run_is_disturbed_by_any_kill_and_by_a_guest_that_died() {
        let run = Run {
            number: 0,
            contender: Contender::Brink,
            workload: Workload::Near,
            seed: 0,
        };
        let calm = Found {
            crossed: true,
            ..Found::of(&run)
        };
        assert!(calm.shows_nothing() && !calm.is_disturbed());
        let by_kernel = Found {
            oom_victims: 1,
            ..calm.clone()
        };
        let hung = Found {
            lock_up: Some("it says nothing".to_owned()),
            ..calm.clone()
        };
        for found in [by_kernel, hung, Found::died(&run, "why".to_owned())] {
            assert!(found.is_disturbed() && !found.shows_nothing(), "{found:?}");
        }
        let by_tool = Found { wrong: 1, ..calm };
        assert!(by_tool.is_disturbed() && by_tool.shows_nothing());
    }

    #[test]
    fn whoever_acts_before_the_crossing_is_early_and_long_before_it_premature() {
        let of = |crossed, signalled, short| Found {
            crossed,
            signalled,
            signals: BTreeMap::from([(
                Signal::Estimate.word().to_owned(),
                Seen {
                    crossed: short,
                    overshoot: 0,
                },
            )]),
            ..Found::default()
        };
        for (crossed, signalled, short, expected) in [
            (true, Some(1), Some(1), [false, false]),
            (true, Some(-100_000), Some(1), [true, false]),
            (true, Some(-2_000_000), Some(1), [true, true]),
            (false, Some(5), Some(1), [true, false]),
            (false, Some(5), None, [true, true]),
            (false, None, None, [false, false]),
        ] {
            let found = of(crossed, signalled, short);
            let shown = [found.is_unseen(), found.is_premature()];
            assert_eq!(shown, expected, "{found:?}");
        }
    }
}

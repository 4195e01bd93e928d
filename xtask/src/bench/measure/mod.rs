//! The benchmarks themselves. Each makes cgroups of its own, bounded, and starts the real agent in them.
pub(super) mod agent;
pub(super) mod arena;
mod console;
mod decision;
mod disk;
mod events;
mod filler;
mod forensics;
mod forkbomb;
mod hooks;
mod idle;
mod idle_poll;
mod journal;
mod kills;
mod latency;
mod lone_killer;
mod lowest;
mod memory;
mod poller;
pub(super) mod programs;
mod release;
mod start;
mod stream;
mod ticks;
pub(super) mod trace;
pub(super) mod truth;
pub(super) mod units;
pub(super) mod warm_up;
mod witness;

use super::{
    random::SplitMix64,
    registry::{Benchmark, Measured, Outcome, Settings},
};

/// The benchmarks in the order they run.
pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "decision",
        about: "from figures to a chosen victim, by number of workloads",
        run: decision::run,
        hold: decision::hold,
    },
    Benchmark {
        name: "latency",
        about: "from a crossing to SIGKILL, against polls",
        run: latency::run,
        hold: latency::hold,
    },
    Benchmark {
        name: "events",
        about: "from an OOM kill, a fork bomb and an exit to the agent",
        run: events::run,
        hold: events::hold,
    },
    Benchmark {
        name: "forkbomb",
        about: "from the fork that crosses a limit of 2,000 to SIGKILL and the empty cgroup",
        run: forkbomb::run,
        hold: forkbomb::hold,
    },
    Benchmark {
        name: "start",
        about: "from the agent's start on a node that is short to SIGKILL",
        run: start::run,
        hold: start::hold,
    },
    Benchmark {
        name: "release",
        about: "from SIGKILL to the memory back, with and without process_mrelease",
        run: release::run,
        hold: release::hold,
    },
    Benchmark {
        name: "idle",
        about: "what the agent costs when nothing happens",
        run: idle::run,
        hold: idle::hold,
    },
    Benchmark {
        name: "forensics",
        about: "from kills by the limits of cgroups to incidents at the socket",
        run: forensics::run,
        hold: forensics::hold,
    },
    Benchmark {
        name: "stream",
        about: "many events to their readers, and the guard beside them",
        run: stream::run,
        hold: stream::hold,
    },
    Benchmark {
        name: "hooks",
        about: "what the hooks on processes cost a storm of forks",
        run: hooks::run,
        hold: hooks::hold,
    },
    Benchmark {
        name: "disk",
        about: "what a folder of a million files costs to measure",
        run: disk::run,
        hold: disk::hold,
    },
    Benchmark {
        name: "filler",
        about: "from a threshold on a filesystem to the start of reclaim",
        run: filler::run,
        hold: filler::hold,
    },
    Benchmark {
        name: "kills",
        about: "kills where nobody should be killed",
        run: kills::run,
        hold: kills::hold,
    },
];

/// Why nothing can be measured here, if so.
fn refusal() -> Option<Measured> {
    let root = rustix::process::geteuid().is_root();
    (!root).then(|| Measured::Skipped {
        reason: "needs root: kernel programs, cgroups of its own, SCHED_FIFO".to_owned(),
    })
}

/// What is beside a measurement.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// As the tables name it.
    name: &'static str,
    /// Fault storms on every processor, and not nothing at all.
    storm: bool,
}

/// Measures with nothing beside it, and then beside fault storms.
fn in_both_cases(
    settings: &Settings,
    mut measure: impl FnMut(Case, &mut SplitMix64, &mut Outcome) -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    if let Some(refusal) = refusal() {
        return Ok(refusal);
    }
    let mut random = SplitMix64::new(settings.seed);
    let mut outcome = Outcome::default();
    for (name, storm) in [("idle", false), ("storms", true)] {
        measure(Case { name, storm }, &mut random, &mut outcome)?;
    }
    Ok(Measured::Ran(outcome))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;
    use crate::{
        bench::{
            NAMES,
            page::{PAGE, RAW},
            raw::Results,
        },
        workspace,
    };

    /// Whether published values were held to the figures that they would be held to today.
    fn is_of_today(benchmark: &Benchmark, published: &Results) -> bool {
        let settings = Settings {
            short: published.short,
            seed: published.seed,
        };
        let mut again = Outcome {
            cells: published.outcome.cells.clone(),
            ..Outcome::default()
        };
        (benchmark.hold)(&mut again, &settings);
        let limits = |outcome: &Outcome| {
            let limits = outcome.limits.iter();
            let named = limits.map(|limit| (limit.name.clone(), limit.unit.clone(), limit.must));
            named.collect::<Vec<_>>()
        };
        limits(&again) == limits(&published.outcome)
    }

    #[test]
    fn every_name_is_known_before_anything_is_built() {
        let names: Vec<&str> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
        assert_eq!(names, NAMES);
    }

    /// A table is not measured anew with every change of a figure; until it is, the page says that it is older, or is to come.
    #[test]
    fn a_table_that_was_held_to_other_figures_says_so() {
        const OLDER: &str = "Measured before its figures were those of today:";
        const TO_COME: &str = "Not measured for this page yet:";
        let raw = workspace::root().join(RAW);
        let (mut older, mut to_come) = (BTreeSet::new(), BTreeSet::new());
        for benchmark in BENCHMARKS {
            let file = raw.join(format!("{}.json", benchmark.name));
            if !file.exists() {
                to_come.insert(benchmark.name);
            } else if !is_of_today(benchmark, &Results::read(&file).unwrap()) {
                older.insert(benchmark.name);
            }
        }
        let page = fs::read_to_string(workspace::root().join(PAGE)).unwrap();
        for (words, names) in [(OLDER, older), (TO_COME, to_come)] {
            let said = page.lines().find(|line| line.starts_with(words));
            let told = said
                .into_iter()
                .flat_map(|line| line.split('`').skip(1).step_by(2));
            assert_eq!(
                told.collect::<BTreeSet<&str>>(),
                names,
                "{PAGE} says `{words} …` with the names of the tables, or nothing"
            );
        }
    }
}

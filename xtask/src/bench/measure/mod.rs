//! The benchmarks themselves. Each makes cgroups of its own, bounded, and starts the real agent in them.
pub(super) mod agent;
pub(super) mod arena;
mod console;
mod decision;
mod events;
mod hooks;
mod idle;
mod idle_poll;
mod journal;
mod kills;
mod latency;
mod lowest;
mod poller;
pub(super) mod programs;
mod release;
mod start;
mod ticks;
pub(super) mod trace;
pub(super) mod truth;
pub(super) mod units;
pub(super) mod warm_up;
mod witness;

use super::registry::{Benchmark, Measured};

/// The benchmarks in the order they run.
pub const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "decision",
        about: "from figures to a chosen victim, by number of workloads",
        run: decision::run,
    },
    Benchmark {
        name: "latency",
        about: "from a crossing to SIGKILL, against polls",
        run: latency::run,
    },
    Benchmark {
        name: "events",
        about: "from an OOM kill, a fork bomb and an exit to the agent",
        run: events::run,
    },
    Benchmark {
        name: "start",
        about: "from the agent's start on a node that is short to SIGKILL",
        run: start::run,
    },
    Benchmark {
        name: "release",
        about: "from SIGKILL to the memory back, with and without process_mrelease",
        run: release::run,
    },
    Benchmark {
        name: "idle",
        about: "what the agent costs when nothing happens",
        run: idle::run,
    },
    Benchmark {
        name: "hooks",
        about: "what the hooks on processes cost a storm of forks",
        run: hooks::run,
    },
    Benchmark {
        name: "kills",
        about: "kills where nobody should be killed",
        run: kills::run,
    },
];

/// Why nothing can be measured here, if so.
fn refusal() -> Option<Measured> {
    let root = rustix::process::geteuid().is_root();
    (!root).then(|| Measured::Skipped {
        reason: "needs root: kernel programs, cgroups of its own, SCHED_FIFO".to_owned(),
    })
}

//! Entry points for fuzzing: one for each reader of what comes from outside, with what must hold whatever the bytes are.
//!
//! The few readers that have none are named in docs/fuzzing.md.
//!
//! The one list runs over seeds and their mutations in `cargo test`, and under libFuzzer by `cargo xtask fuzz`. An entry
//! point must not panic, not go on for ever and not take memory without bound; [`Target::check`] holds it to that. What
//! once failed stays as a file of `corpus/`.

mod bundle;
mod scratch;
mod targets;

use std::path::PathBuf;
use std::time::Duration;

use brink_host::clock::thread_cpu;
use brink_tests::counting_allocator;
pub use targets::ledger::SHAPE as LEDGER_SHAPE;

/// Memory one input may take, in bytes: the limits on documents allow some tens of MiB, and no reader needs more.
const MOST_MEMORY: usize = 256 << 20;
/// Processor time one input may take, in a debug build; what else the machine does is not counted. The slowest seed takes
/// a hundredth of it.
const LONGEST: Duration = Duration::from_secs(10);

/// Whether the bytes were what they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// They were read.
    Accepted,
    /// They were refused, with an error that can be printed.
    Refused,
}

impl Taken {
    fn from_accepted(accepted: bool) -> Self {
        if accepted {
            Self::Accepted
        } else {
            Self::Refused
        }
    }
}

/// One thing that is read from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder of seeds.
    pub name: &'static str,
    run: fn(&[u8]) -> Taken,
}

const fn target(name: &'static str, run: fn(&[u8]) -> Taken) -> Target {
    Target { name, run }
}

/// Every entry point.
pub const TARGETS: [Target; 29] = [
    target("records", targets::probe::records),
    target("btf", targets::probe::btf),
    target("format", targets::probe::format),
    target("symbols", targets::probe::symbols),
    target("traces", targets::traces::traces),
    target("node-files", targets::node::node_files),
    target("process-files", targets::process::process_files),
    target("cgroup-files", targets::cgroup::cgroup_files),
    target("host-facts", targets::host::host_facts),
    target("paths", targets::text::paths),
    target("quantities", targets::text::quantities),
    target("documents", targets::document::documents),
    target("config", targets::config::config),
    target("pods", targets::pod::pods),
    target("scenario", targets::scenario::scenario),
    target("ledger", targets::ledger::ledger),
    target("journal", targets::journal::journal),
    target("event-journal", targets::event_journal::event_journal),
    target("state-files", targets::state::state_files),
    target("outbox", targets::outbox::outbox),
    target("cluster-files", targets::cluster::cluster_files),
    target("kubeconfig", targets::access::kubeconfig),
    target("plugin-answer", targets::access::plugin_answer),
    target("questions", targets::control::questions),
    target("answers", targets::control::answers),
    target("requests", targets::stream::requests),
    target("kept-events", targets::stream::kept_events),
    target("runtime", targets::runtime::runtime),
    target("changes", targets::disk::changes),
];

impl Target {
    /// The entry point of that name.
    pub fn find(name: &str) -> Option<Self> {
        TARGETS.into_iter().find(|target| target.name == name)
    }

    /// Its committed seeds.
    pub fn corpus(&self) -> PathBuf {
        let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        package.join("corpus").join(self.name)
    }

    /// Runs it on one input.
    ///
    /// # Panics
    /// When anything does not hold: that is the finding. Memory is seen where the program's allocator counts.
    pub fn check(&self, bytes: &[u8]) -> Taken {
        let began = thread_cpu();
        let (taken, peak) = counting_allocator::peak_during(|| (self.run)(bytes));
        let (name, length) = (self.name, bytes.len());
        assert!(
            peak <= MOST_MEMORY,
            "{name}: {length} bytes took {peak} bytes of memory"
        );
        let elapsed = thread_cpu().saturating_sub(began);
        assert!(
            elapsed <= LONGEST,
            "{name}: {length} bytes took {elapsed:?}"
        );
        taken
    }
}

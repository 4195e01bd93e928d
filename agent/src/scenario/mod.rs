//! Scenarios: what a node sees step by step, and what the kubelet's loop, or Brink's, decides.

mod configured;
mod happened;
mod line;
mod live;
mod live_line;
mod read;
mod run;
#[cfg(test)]
mod tests;
mod usage;
mod written;

use brink_core::base::Moment;
use brink_core::node::engine::LiveSettings;
use brink_core::node::input::Confirmation;
use brink_core::node::observe::{Layout, Observations};
use brink_core::node::policy::Policy;
use brink_core::node::signal::Signal;
use brink_core::node::workload::{PodDetail, PodUsage, Workload, full_name};

pub use happened::of_incident;
pub use line::{EvictLine, Evicted, StepLine};
pub use live::run_live;
pub use live_line::{ActionLine, LiveLine, OrderLine};
pub use read::{API_VERSION, KIND, read};
pub use run::run;
pub use written::{Written, of_decision};

/// What to do about a scenario without a threshold.
pub const TO_WRITE: &str =
    "write one to try into its config, such as evictionHard: {memory.available: 1Gi}";

/// A scenario that can be run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its thresholds, Brink's own included.
    pub policy: Policy,
    /// How the node's filesystems are laid out.
    pub layout: Layout,
    /// Its pods, in the order they were written.
    pub pods: Vec<Workload>,
    /// Its steps; their times increase.
    pub steps: Vec<Step>,
    /// What only the live rules look at.
    pub live: LiveSettings,
}

/// One evaluation.
#[derive(Clone, Debug)]
pub struct Step {
    /// When, as it was written.
    pub at: String,
    /// When.
    pub now: Moment,
    /// Pods that ended before it, by index.
    pub gone: Vec<usize>,
    /// The signals.
    pub seen: Observations,
    /// The signals after reclaim on the node, should it come to that.
    pub after_reclaim: Observations,
    /// What each pod uses; `None` for one without statistics.
    pub usage: Vec<Option<PodUsage>>,
    /// What its containers and volumes use.
    pub details: Vec<PodDetail>,
    /// Whether memory could still be had; only the live rules look at it.
    pub confirmation: Confirmation,
}

impl Scenario {
    /// The signals that its steps have figures of, which may be none, if no threshold looks at any of them: then no threshold can
    /// ever be met.
    /// `is_live` is whether thresholds of `memory.headroom` count.
    pub fn unwatched(&self, is_live: bool) -> Option<Vec<Signal>> {
        let counts = |signal: &Signal| is_live || *signal != Signal::MemoryHeadroom;
        let is_seen = |signal: &Signal| {
            let mut steps = self.steps.iter();
            steps.any(|step| step.seen[*signal].is_some() || step.after_reclaim[*signal].is_some())
        };
        let seen: Vec<Signal> = Signal::ALL
            .into_iter()
            .filter(counts)
            .filter(is_seen)
            .collect();
        let mut thresholds = self.policy.thresholds().iter();
        let is_watched = thresholds.any(|threshold| seen.contains(&threshold.signal));
        (!is_watched).then_some(seen)
    }
}

/// `namespace/name` of a pod, as it is written everywhere else.
pub fn name_of(pod: &Workload) -> String {
    full_name(&pod.namespace, &pod.name)
}

//! Scenarios: what a node sees step by step, and what the kubelet's loop, or Brink's, decides.

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
use brink_core::node::workload::{PodDetail, PodUsage, Workload, full_name};

pub use happened::of_incident;
pub use line::{EvictLine, Evicted, StepLine};
pub use live::run_live;
pub use live_line::{ActionLine, LiveLine, OrderLine};
pub use read::{KIND, read};
pub use run::run;
pub use written::{Written, of_decision};

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

/// `namespace/name` of a pod, as it is written everywhere else.
pub fn name_of(pod: &Workload) -> String {
    full_name(&pod.namespace, &pod.name)
}

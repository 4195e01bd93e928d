//! The hard thresholds of both on memory, the node's and that of its pods: ours and the kubelet's.

use brink_core::node::engine::MemoryPolicy;
use brink_core::node::lead::Lead;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;
use brink_host::meminfo::MeminfoReader;

use super::{Settings, settings_of};
use crate::config::{AgentConfig, capacities_of};

/// Both, on a machine with so much memory, of which its pods may use so much, in bytes: on that of the pods where both watch it and the
/// kubelet comes sooner by it, or else on the node's. One that is never met is none.
pub fn lead(config: &AgentConfig, kubelet: &Settings, capacity: i64, pods: Option<i64>) -> Lead {
    let of_node = lead_on(Signal::MemoryAvailable, (config, kubelet), capacity);
    let of_pods = pods.map(|pods| {
        let signal = Signal::AllocatableMemoryAvailable;
        lead_on(signal, (config, kubelet), pods)
    });
    let watched = of_pods.filter(|lead| lead.ours.is_some() && lead.kubelets.is_some());
    watched.map_or(of_node, |of_pods| of_node.or_worse(of_pods))
}

fn lead_on(signal: Signal, (config, kubelet): (&AgentConfig, &Settings), capacity: i64) -> Lead {
    let kubelets = kubelet.hard(signal);
    let margin = kubelets.map_or(0, |threshold| config.lead_margin.over(threshold, capacity));
    Lead {
        signal,
        ours: ours(config, signal, capacity),
        kubelets: kubelets.and_then(|threshold| met_below(threshold, capacity)),
        margin,
        is_confirmed: config.memory_policy == MemoryPolicy::Confirmed,
    }
}

/// Our hard threshold on a signal of so much memory, in bytes; none where there is none, or it is never met.
pub fn ours(config: &AgentConfig, signal: Signal, capacity: i64) -> Option<i64> {
    let mut all = config.policy.thresholds().iter();
    let threshold = all.find(|threshold| threshold.signal == signal && threshold.is_hard())?;
    met_below(threshold, capacity)
}

fn met_below(threshold: &Threshold, capacity: i64) -> Option<i64> {
    let bytes = threshold.quantity(capacity).value();
    (bytes > 0).then_some(bytes)
}

/// Both, on the machine that this configuration is for; none where the kubelet's is not known.
pub fn of_machine(config: &AgentConfig) -> Option<Lead> {
    let root = config.paths.root.as_path();
    let kubelet = settings_of(root, config)?.ok()?;
    let total = MeminfoReader::open(root).ok()?.read().ok()?.total;
    let pods = capacities_of(config)[Signal::AllocatableMemoryAvailable];
    Some(lead(config, &kubelet, i64::try_from(total).ok()?, pods))
}

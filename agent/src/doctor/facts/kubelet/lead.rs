//! The hard thresholds of both on `memory.available`: ours and the kubelet's.

use brink_core::node::lead::Lead;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;
use brink_host::meminfo::MeminfoReader;

use super::{Settings, settings_of};
use crate::config::AgentConfig;

/// Both, on a machine with so much memory, in bytes. One that is never met is none.
pub fn lead(config: &AgentConfig, kubelet: &Settings, capacity: i64) -> Lead {
    let bytes = |threshold: &Threshold| {
        let bytes = threshold.quantity(capacity).value();
        (bytes > 0).then_some(bytes)
    };
    let is_ours =
        |threshold: &&Threshold| threshold.signal == Signal::MemoryAvailable && threshold.is_hard();
    let ours = config.policy.thresholds().iter().find(is_ours);
    let kubelets = kubelet.hard(Signal::MemoryAvailable);
    let margin = kubelets.map_or(0, |threshold| config.lead_margin.over(threshold, capacity));
    Lead {
        ours: ours.and_then(bytes),
        kubelets: kubelets.and_then(bytes),
        margin,
    }
}

/// Both, on the machine that this configuration is for; none where the kubelet's is not known.
pub fn of_machine(config: &AgentConfig) -> Option<Lead> {
    let root = config.paths.root.as_path();
    let kubelet = settings_of(root, config)?.ok()?;
    let total = MeminfoReader::open(root).ok()?.read().ok()?.total;
    Some(lead(config, &kubelet, i64::try_from(total).ok()?))
}

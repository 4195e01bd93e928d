//! Rules that more than the doctor goes by: what is wrong with thresholds beside reserves, and with what they ask for.
//!
//! Each is written once. The checks put what it finds into their words, and `brink explain` into sentences about one signal.

pub(crate) mod reach;
pub(super) mod reserves;
pub(super) mod swings;

use brink_core::node::signal::Signal;
use brink_core::node::threshold::Threshold;

use super::facts::crossings::Crossings;
use super::facts::kubelet;
use super::facts::kubelet::lead::ours;
use crate::config::AgentConfig;

/// A sentence for each thing that is wrong with the settings that bear on a signal: reserves of the kubelet's that do not cover thresholds
/// on it, and soft ones that swing. What cannot be known is left to the doctor, who says so. `disk` is how much there is on the kubelet's
/// disk, if that is known, and `now` microseconds since 1970.
///
/// Reads files of the kubelet's and of the event journal.
pub fn advice_on(config: &AgentConfig, signal: Signal, disk: Option<i64>, now: i64) -> Vec<String> {
    let mut advice = on_reserves(config, signal, disk);
    advice.extend(on_swings(config, signal, now));
    advice
}

fn on_reserves(config: &AgentConfig, signal: Signal, disk: Option<i64>) -> Vec<String> {
    if !reserves::concern(signal) {
        return Vec::new();
    }
    let root = config.paths.root.as_path();
    let Some(Ok(settings)) = kubelet::settings_of(root, config) else {
        return Vec::new();
    };
    let mut capacities = kubelet::memory_and_tasks(root);
    // A filesystem may not answer: it is not asked here.
    capacities[Signal::NodefsAvailable] = disk;
    let kept = capacities[signal].filter(|_| signal == Signal::MemoryAvailable);
    let kept = kept.and_then(|capacity| {
        let ours = ours(config, signal, capacity);
        reserves::Kept::of(&settings, ours, capacity).sentence()
    });
    let covered = reserves::coverage(&settings, &capacities, |one| one == signal);
    kept.into_iter().chain(covered.sentences()).collect()
}

fn on_swings(config: &AgentConfig, signal: Signal, now: i64) -> Option<String> {
    let policy = &config.policy;
    let is_soft = |one: &Threshold| one.signal == signal && !one.is_hard();
    if !policy.thresholds().iter().any(is_soft) {
        return None;
    }
    let crossings = Crossings::of(config, now)?.ok()?;
    let transition = policy.settings.pressure_transition;
    let is_its = |name: &str| name == signal.name();
    Some(swings::swinging(&crossings, transition, is_its)?.sentence())
}

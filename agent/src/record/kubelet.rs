//! What the kubelet would have done instead, told: how long after the decision, whom, and how often the kernel comes first.

use brink_core::node::shadow::{Fate, PHASES};
use brink_core::node::workload::{WorkloadTable, full_name};
use serde::{Deserialize, Serialize};

/// The kubelet's fate over all phases of its ten-second poll.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeletView {
    /// One for each whole second from 0 to 9 that its next look may be away.
    pub phases: Vec<PhaseView>,
    /// Phases in which the kernel's own OOM killer comes first.
    pub kernel_oom_first: u32,
    /// Phases in which it evicts the same victim.
    pub same_victim: u32,
}

/// What would have come of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseView {
    /// How far the kubelet's next look was away, in seconds.
    pub next_look_seconds: u32,
    /// `evicts`, `kernelOom` or `nothing`.
    pub outcome: String,
    /// How long after the decision, in seconds.
    pub after_seconds: Option<f64>,
    /// Whom it evicts.
    pub victim: Option<String>,
    /// The grace it asks for.
    pub grace_seconds: Option<i64>,
}

impl KubeletView {
    /// The view of `fates`, with names from the table they speak of.
    pub fn new(fates: &[Fate; PHASES], table: &WorkloadTable, victim: &str) -> Self {
        let phases: Vec<PhaseView> = (0..)
            .zip(fates)
            .map(|(second, fate)| PhaseView::new(second, fate, table))
            .collect();
        let count = |wanted: &dyn Fn(&PhaseView) -> bool| {
            u32::try_from(phases.iter().filter(|phase| wanted(phase)).count()).unwrap_or(u32::MAX)
        };
        Self {
            kernel_oom_first: count(&|phase| phase.outcome == "kernelOom"),
            same_victim: count(&|phase| phase.victim.as_deref() == Some(victim)),
            phases,
        }
    }

    /// One sentence for people.
    pub fn sentence(&self) -> String {
        let evictions = self.phases.iter().filter(|phase| phase.outcome == "evicts");
        let after = evictions.filter_map(|phase| phase.after_seconds);
        let (first, last) = after.fold((f64::MAX, f64::MIN), |(first, last), seconds| {
            (first.min(seconds), last.max(seconds))
        });
        let evicting = self
            .phases
            .iter()
            .filter(|phase| phase.outcome == "evicts")
            .count();
        let mut parts = Vec::new();
        if evicting > 0 {
            parts.push(format!(
                "in {evicting} of {} phases of its poll it evicts {} {}",
                self.phases.len(),
                self.whom(evicting),
                between(first, last)
            ));
        }
        if self.kernel_oom_first > 0 {
            let oom = self
                .phases
                .iter()
                .find(|phase| phase.outcome == "kernelOom");
            let after = oom.and_then(|phase| phase.after_seconds).unwrap_or(0.0);
            parts.push(format!(
                "in {} of {} the kernel's OOM killer comes first, {}",
                self.kernel_oom_first,
                self.phases.len(),
                between(after, after)
            ));
        }
        if parts.is_empty() {
            return "within two minutes it does nothing".to_owned();
        }
        parts.join("; ")
    }

    fn whom(&self, evicting: usize) -> String {
        match self.same_victim as usize {
            0 => "somebody else".to_owned(),
            all if all == evicting => "the same victim".to_owned(),
            some => format!("the same victim ({some} times) or somebody else"),
        }
    }
}

/// A stretch of seconds in words.
fn between(first: f64, last: f64) -> String {
    if last < 0.05 {
        return "at once".to_owned();
    }
    if last - first < 0.05 {
        return format!("after {last:.1} s");
    }
    format!("after {first:.0} to {last:.0} s")
}

impl PhaseView {
    fn new(next_look_seconds: u32, fate: &Fate, table: &WorkloadTable) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds for people; two minutes at most"
        )]
        let seconds = |span: &brink_core::base::Span| span.as_nanos() as f64 / 1e9;
        let name = |index: u32| {
            let workload = table.workloads().get(index as usize)?;
            Some(full_name(&workload.namespace, &workload.name))
        };
        let (outcome, after_seconds, victim, grace_seconds) = match fate {
            Fate::Evicts {
                after,
                workload,
                grace_seconds,
            } => (
                "evicts",
                Some(seconds(after)),
                name(*workload),
                Some(*grace_seconds),
            ),
            Fate::KernelOom { after } => ("kernelOom", Some(seconds(after)), None, None),
            Fate::Nothing => ("nothing", None, None, None),
        };
        Self {
            next_look_seconds,
            outcome: outcome.to_owned(),
            after_seconds,
            victim,
            grace_seconds,
        }
    }
}

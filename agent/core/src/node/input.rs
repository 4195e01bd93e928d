//! What the live engine is told: the closed set of inputs.

use alloc::sync::Arc;

use super::engine::LiveSettings;
use super::limits::Exceeded;
use super::observe::Observations;
use super::order::Phase;
use super::policy::Policy;
use super::signal::Signal;
use super::workload::{PodUsage, WorkloadTable};
use crate::base::{Moment, Span};

/// One thing that happened; the only way anything reaches the engine.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A new snapshot of the workloads.
    Workloads(Arc<WorkloadTable>),
    /// Fresh figures of the node and its workloads.
    Sample(&'a Sample<'a>),
    /// The last process of a workload is gone.
    Gone {
        /// Index in the current table.
        workload: usize,
        /// Bytes of files in memory that it is still charged for: of a pod that a kubelet runs, they come back when its
        /// volumes are unmounted.
        kept: u64,
        /// Bytes that it held when its cgroups were last read, and that nobody saw come back before these were removed:
        /// whoever reads of its processes in `/proc` may have hold of them.
        unseen: u64,
    },
    /// Somebody else killed in a workload: the kernel's OOM killer, or an operator.
    Dying {
        /// Index in the current table.
        workload: usize,
        /// Bytes that the dead process held.
        charged: u64,
    },
    /// What became of a kill that was ordered.
    Outcome {
        /// The order's number.
        order: u64,
        /// How it went.
        delivered: Delivery,
    },
    /// Reclaim on the node has run; the next sample shows what it brought.
    Reclaimed,
    /// Its time ran out while it brought something: there may be more.
    ReclaimedInPart,
    /// It was only asked what would be brought where orders are carried out.
    WouldReclaim {
        /// Bytes, as the container runtime says; images share layers, so it is the most.
        bytes: u64,
    },
    /// A workload uses more of local storage than it may.
    Exceeded {
        /// Index in the current table.
        workload: usize,
        /// The limit, and what was measured.
        limit: Exceeded,
        /// Its working set in bytes, if known.
        memory: Option<u64>,
    },
    /// Somebody changes whether orders are carried out.
    Control(Control),
    /// Another configuration.
    Reconfigure(&'a Reconfiguration),
    /// Something from before a restart, or from a time in which nobody looked.
    Recall(Recalled),
    /// Nothing but time went by.
    Tick,
}

/// A configuration that takes the place of the one before.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reconfiguration {
    /// The policy.
    pub policy: Policy,
    /// The live settings.
    pub live: LiveSettings,
}

/// What outlives the process that knew it, or is told to it late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Recalled {
    /// Orders up to this number have been given.
    LastOrder(u64),
    /// A kill was carried out; all that are known, oldest first, before anything is ordered.
    Kill {
        /// When; of one for process ids when its signals were sent.
        at: Moment,
        /// Of a kill for a shortage of process ids, how many come back once the killed are reaped; 0 of any other.
        #[cfg_attr(feature = "serde", serde(default))]
        ids: u32,
    },
    /// A threshold has been met for a while, or was last seen not to be: its grace counts from then.
    Met {
        /// Index of the threshold in the policy.
        threshold: usize,
        /// Since when.
        since: Moment,
    },
    /// A pod was evicted that is still on the node: what a kubelet starts in it again belongs to that order.
    Evicted {
        /// Index in the current table.
        workload: usize,
        /// The order's number.
        order: u64,
        /// When the pod was killed; when the order was given, if it ended before that.
        at: Moment,
    },
    /// The last order was not over when its agent ended. Its kill is among those that are recalled, and comes first.
    Unfinished(Unfinished),
    /// The guard did not run for so long although it was due: stopped, starved, or on a machine that stood still. Whoever was
    /// dying may not have run either, and is waited for as much longer.
    Missed(Span),
}

/// An order that was not over when its agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Unfinished {
    /// Its number.
    pub order: u64,
    /// Index of its victim in the current table.
    pub workload: usize,
    /// Index of its threshold in the policy; none if that has no such threshold any more.
    pub threshold: Option<usize>,
    /// What the threshold is on.
    pub signal: Signal,
    /// When it was given.
    pub opened: Moment,
    /// How far it had come.
    pub phase: Phase,
    /// Whether the signals of that phase are known to have been sent, to somebody who is still there.
    pub is_sent: bool,
    /// Working set of the victim when it was chosen, in bytes.
    pub charged: u64,
}

/// Figures that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Observations of all signals, Brink's own included.
    pub observations: Observations,
    /// What confirms that memory is short.
    pub confirmation: Confirmation,
    /// Usage parallel to the current table; a shorter slice leaves the rest unknown.
    pub usage: &'a [Option<PodUsage>],
}

/// Whether memory could still be had, beside the kubelet's formula; in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Confirmation {
    /// Headroom of the node, swap not counted.
    pub node: Option<i64>,
    /// Headroom of the cgroup all pods live in, swap not counted.
    pub pods: Option<i64>,
    /// Swap that the node could still use.
    pub swap: u64,
    /// Swap that the cgroup all pods live in could still use.
    pub pods_swap: u64,
    /// The kernel's own reserve in bytes: with less headroom than that there is no time to wait for anything, unless half of a
    /// hard threshold is less.
    pub reserve: u64,
    /// Processes in the cgroups of those killed for a shortage of process ids that still hold theirs; none where nobody
    /// counts them.
    pub unreaped: Option<u64>,
    /// Free memory on lists of CPUs, which headroom leaves out, beyond what lay there when somebody was killed last; none
    /// where that is long ago, or nobody looks.
    #[cfg_attr(feature = "serde", serde(default))]
    pub parked: Option<u64>,
}

/// Whether the signals of a kill reached anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Delivery {
    /// They did.
    Done {
        /// Processes that were signalled.
        processes: u32,
    },
    /// There was nobody left.
    Empty,
    /// They could not be sent.
    Failed,
}

/// A change of whether orders are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Control {
    /// The stop button, for a time or until further notice.
    Pause(Option<Span>),
    /// Lifts a pause.
    Unpause,
    /// Lifts a pause and a tripped guard.
    Resume,
    /// Another agent holds, or has let go of, the right to enforce on this node.
    Standby(bool),
    /// The configuration's mode.
    Enforce(bool),
    /// A kubelet was found to run here or to own the container runtime, or none was.
    Kubelet(bool),
    /// Somebody's folders are still to be measured for the first time, or everybody's once more since a filesystem ran short; or
    /// none are waited for.
    Measuring(bool),
}

impl Confirmation {
    /// Whether headroom is less than the reserve, and less than `most`.
    pub fn is_under_reserve(&self, most: i64) -> bool {
        let reserve = i64::try_from(self.reserve).unwrap_or(i64::MAX).min(most);
        self.node.is_some_and(|headroom| headroom < reserve)
    }
}

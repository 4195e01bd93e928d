//! Filesystems: whose they are to keep, and what the last victim of each is still to give back.
//!
//! A kill for memory shows at once; one for a filesystem shows when files go, and may never: whoever was killed leaves them
//! behind until somebody removes them. So nobody goes for a filesystem after somebody has, until what the first one held is
//! back, or the shortage is worse by a part of the threshold all the same. Unlike the kubelet, which takes another pod every
//! 30 s.

use super::super::action::Actions;
use super::super::observe::{Layout, Observations};
use super::super::order::{End, OpenOrder, Stake};
use super::super::policy::Policy;
use super::super::rank;
use super::super::signal::{Resource, Signal};
use super::super::threshold::{Threshold, ThresholdSet};
use super::super::workload::PodUsage;
use super::Engine;
use super::follow::usage_at;
use crate::base::{Moment, Reason};

/// So many parts of a threshold: the shortage is another one when one more of them is used.
const PARTS: i64 = 16;
/// Filesystems that are told apart, for bytes and for inodes each.
const PLACES: usize = 6;

/// Who keeps the filesystems of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Disks {
    /// Orders for a filesystem are given here.
    #[default]
    Ours,
    /// Only where it is known that there is no kubelet, and none owns the container runtime.
    UnlessKubelets,
    /// They are left to a kubelet.
    Kubelets,
}

impl Disks {
    /// Whether they are left to a kubelet, by whether one keeps them; none while that is not known.
    pub const fn left_to_kubelet(self, by_kubelet: Option<bool>) -> Option<bool> {
        match self {
            Self::Ours => Some(false),
            Self::UnlessKubelets => by_kubelet,
            Self::Kubelets => Some(true),
        }
    }
}

/// What the last victim of a filesystem held of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Debt {
    order: u64,
    /// Available when it was chosen.
    available: i64,
    /// The threshold's amount.
    quantity: i64,
    /// What it held.
    held: i64,
}

/// What victims are still to give back, bytes or inodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debts([Option<Debt>; PLACES]);

impl Engine {
    /// Whoever was killed for a filesystem is waited for half a minute, which memory and process ids have not got.
    pub(super) fn overtake(&mut self, ready: ThresholdSet, actions: &mut Actions) {
        let waits = self.open.as_ref().is_some_and(OpenOrder::waits_for_disk);
        if waits && ready != self.disks_in(ready) {
            self.close(End::Overtaken, actions);
        }
    }

    /// Those of a set that are on filesystems.
    pub(super) fn disks_in(&self, thresholds: ThresholdSet) -> ThresholdSet {
        let is_disk = |&index: &usize| {
            let threshold = self.policy.thresholds().get(index);
            threshold.is_some_and(|threshold| Stake::of(threshold.signal) == Stake::Disk)
        };
        thresholds.iter().filter(is_disk).collect()
    }

    /// Whether another policy knows the same filesystems with the same thresholds.
    pub(super) fn has_the_disks_of(&self, other: &Policy) -> bool {
        fn disks(policy: &Policy) -> impl Iterator<Item = &Threshold> {
            let thresholds = policy.thresholds().iter();
            thresholds.filter(|threshold| Stake::of(threshold.signal) == Stake::Disk)
        }
        let mut pairs = disks(&self.policy).zip(disks(other));
        self.policy.layout() == other.layout()
            && disks(&self.policy).count() == disks(other).count()
            && pairs.all(|(one, other)| one.is_same_as(other))
    }

    /// Whether two thresholds are on bytes, or inodes, of one filesystem.
    pub(super) fn is_of_the_same_disk(&self, one: usize, other: usize) -> bool {
        let of = |index: usize| {
            let threshold = self.policy.thresholds().get(index)?;
            place(self.policy.layout(), threshold.signal)
        };
        of(one).is_some() && of(one) == of(other)
    }

    /// A filesystem that is a kubelet's to keep, or for which nobody goes yet, unless the node itself can be asked first.
    pub(super) fn held_for_disk(
        &self,
        now: Moment,
        index: usize,
        signal: Signal,
    ) -> Option<Reason> {
        if self.disks.left_to_kubelet(self.by_kubelet) != Some(false) {
            return Some(Reason::Kubelet);
        }
        let is_asked_first = self.can_reclaim(index) && !self.has_just_reclaimed(now, index);
        let too_early = || self.too_early_for(signal);
        (!is_asked_first).then(too_early).flatten()
    }

    /// Why nobody goes for a filesystem yet that is short of something the node cannot give back: whoever holds most of it may
    /// not have been measured, or not since it ran short, or its last victim is still to give back what it held.
    pub(super) fn too_early_for(&self, signal: Signal) -> Option<Reason> {
        if Stake::of(signal) != Stake::Disk {
            return None;
        }
        if self.is_measuring {
            return Some(Reason::Unmeasured);
        }
        let is_owed = self.debts.is_owed(self.policy.layout(), signal);
        is_owed.then_some(Reason::Owed)
    }

    /// What a workload is known to hold of a signal's filesystem, in bytes or inodes.
    pub(super) fn held(&self, signal: Signal, usage: &[Option<PodUsage>], index: usize) -> u64 {
        let ranking = self.ranking(signal);
        let used = usage_at(usage, index);
        used.and_then(|used| rank::held_of_disk(ranking, used))
            .unwrap_or(0)
    }
}

impl Debts {
    /// Somebody who held so much is killed for `signal`.
    pub(super) fn add(
        &mut self,
        (layout, signal): (Layout, Signal),
        order: u64,
        (available, quantity): (i64, i64),
        held: u64,
    ) {
        if let Some(slot) = place(layout, signal).and_then(|place| self.0.get_mut(place)) {
            let held = i64::try_from(held).unwrap_or(i64::MAX);
            *slot = Some(Debt {
                order,
                available,
                quantity,
                held,
            });
        }
    }

    /// The order was not carried out.
    pub(super) fn revoke(&mut self, order: u64) {
        for slot in &mut self.0 {
            let _revoked = slot.take_if(|debt| debt.order == order);
        }
    }

    /// Other filesystems, or other thresholds on them: nothing is known of these.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets what is back, and what is outgrown.
    pub(super) fn observe(&mut self, layout: Layout, seen: &Observations) {
        for (signal, seen) in seen.iter() {
            let slot = place(layout, signal).and_then(|place| self.0.get_mut(place));
            if let (Some(slot), Some(seen)) = (slot, seen) {
                let _settled = slot.take_if(|debt| debt.is_settled(seen.available));
            }
        }
    }

    /// Whether what somebody held who was killed for that filesystem is still to come.
    pub(super) fn is_owed(&self, layout: Layout, signal: Signal) -> bool {
        let slot = place(layout, signal).and_then(|place| self.0.get(place));
        slot.is_some_and(Option::is_some)
    }
}

impl Debt {
    fn is_settled(&self, available: i64) -> bool {
        let more = (self.quantity / PARTS).max(1);
        available >= self.available.saturating_add(self.held)
            || available <= self.available.saturating_sub(more)
    }
}

/// Where a signal's filesystem is counted: those that are one have one place.
fn place(layout: Layout, signal: Signal) -> Option<usize> {
    let filesystem = match signal {
        Signal::NodefsAvailable | Signal::NodefsInodesFree => 0,
        Signal::ImagefsAvailable | Signal::ImagefsInodesFree => match layout {
            Layout::Single => 0,
            Layout::DedicatedImagefs | Layout::Split | Layout::LayersApart => 1,
        },
        Signal::ContainerfsAvailable | Signal::ContainerfsInodesFree => match layout {
            Layout::Single => 0,
            Layout::DedicatedImagefs => 1,
            Layout::Split | Layout::LayersApart => 2,
        },
        _ => return None,
    };
    let inodes = usize::from(signal.resource() == Resource::Inodes);
    Some(2 * filesystem + inodes)
}

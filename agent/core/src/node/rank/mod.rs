//! Who goes first: candidates put in the kubelet's order, by keys whose field order is the policy.
//!
//! Memory and disk: whoever uses more than requested goes before whoever does not, then the lower
//! priority, then the larger usage beyond the request. Process ids: the lower priority, then the
//! larger count. A pod without statistics is assumed to use the most. The uid decides between
//! equals, where the kubelet's order is random.

mod explain;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::cmp::Reverse;

pub use explain::{Decider, Place, explain, place};

use super::observe::Layout;
use super::signal::{Resource, Signal};
use super::workload::{FsUsage, PodUsage, Preference, PreferenceBy, Row, WorkloadTable};
use crate::base::Quantity;

/// What pods are ranked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// The signal to bring up.
    pub signal: Signal,
    /// The filesystem layout, which decides what counts as usage of which filesystem.
    pub layout: Layout,
    /// Whether Brink's preferences come before the kubelet's rules.
    pub preferences: Preferences,
}

/// Whether Brink's preferences count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preferences {
    /// They come first.
    Respect,
    /// They do not count: the kubelet alone.
    Ignore,
}

/// Puts the indexes of all candidates into `order`, whoever is to be evicted first in front.
///
/// `usage` runs parallel to the table; `None` stands for a pod without statistics, and so does a
/// missing entry. Critical and protected workloads are ranked like any other; they refuse later.
/// Allocates nothing while `order` has room for the whole table.
pub fn rank(
    ranking: Ranking,
    table: &WorkloadTable,
    usage: &[Option<PodUsage>],
    order: &mut Vec<u32>,
) {
    rank_head(ranking, table, usage, order, usize::MAX);
}

/// The same, but only the first `head` places are in order; who follows them stands anywhere behind. With many
/// workloads most of the work is in the order of those who are never reached.
pub fn rank_head(
    ranking: Ranking,
    table: &WorkloadTable,
    usage: &[Option<PodUsage>],
    order: &mut Vec<u32>,
    head: usize,
) {
    order.clear();
    let candidates = (0u32..)
        .zip(table.rows())
        .filter(|(_, row)| row.is_candidate);
    order.extend(candidates.map(|(index, _)| index));
    let pod = |index: u32| {
        let index = index as usize;
        (
            &table.rows()[index],
            usage.get(index).and_then(Option::as_ref),
        )
    };
    match ranking.signal.resource() {
        Resource::Pids => sort_head(order, head, |&index| {
            let (row, used) = pod(index);
            ProcessKey::of(ranking.preferences, row, used)
        }),
        _ => sort_head(order, head, |&index| {
            let (row, used) = pod(index);
            RequestKey::of(ranking, row, used)
        }),
    }
}

fn sort_head<K: Ord>(order: &mut [u32], head: usize, key: impl Fn(&u32) -> K) {
    let mut head = head.min(order.len());
    if (1..order.len()).contains(&head) {
        order.select_nth_unstable_by_key(head - 1, &key);
    } else {
        head = order.len();
    }
    order[..head].sort_unstable_by_key(&key);
}

/// The key for memory and disk; field order is the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RequestKey {
    preference: Preference,
    excess: Excess,
    priority: i32,
    /// Usage less request, in billionths; zero for a pod without statistics.
    beyond: Reverse<i128>,
    uid_order: u32,
}

/// The key for process ids; field order is the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ProcessKey {
    preference: Preference,
    priority: i32,
    /// `None` goes first: no statistics.
    processes: Option<Reverse<u64>>,
    uid_order: u32,
}

/// How usage stands to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Excess {
    /// Nothing is known of the pod.
    Unknown,
    /// It uses more than it requested.
    Over,
    /// It uses what it requested, or less.
    Within,
}

impl RequestKey {
    fn of(ranking: Ranking, row: &Row, used: Option<&PodUsage>) -> Self {
        let request = subtracted_request(ranking.signal, row);
        let (excess, beyond) = match used.map(|used| usage_of(ranking, used)) {
            None => (Excess::Unknown, 0),
            Some(used) if used > compared_request(ranking.signal, row) => {
                (Excess::Over, used.minus(request).nanos())
            }
            Some(used) => (Excess::Within, used.minus(request).nanos()),
        };
        Self {
            preference: ranking.preferences.of(row),
            excess,
            priority: row.priority,
            beyond: Reverse(beyond),
            uid_order: row.uid_order,
        }
    }
}

impl ProcessKey {
    fn of(preferences: Preferences, row: &Row, used: Option<&PodUsage>) -> Self {
        Self {
            preference: preferences.of(row),
            priority: row.priority,
            processes: used.map(|used| Reverse(used.processes.unwrap_or(0))),
            uid_order: row.uid_order,
        }
    }
}

impl Preferences {
    const fn of(self, row: &Row) -> Preference {
        match self {
            Self::Respect => row.preference,
            Self::Ignore => Preference::Normal,
        }
    }

    /// Whose word the preference is.
    const fn by(self, row: &Row) -> PreferenceBy {
        match self {
            Self::Respect => row.preference_by,
            Self::Ignore => PreferenceBy::Node,
        }
    }
}

/// The request that usage must exceed; there is none for inodes, so one inode is enough.
pub(super) fn compared_request(signal: Signal, row: &Row) -> Quantity {
    match signal.resource() {
        Resource::Memory => row.memory_request,
        Resource::EphemeralStorage => row.storage_request,
        Resource::Inodes | Resource::Pids => Quantity::ZERO,
    }
}

/// The request that is taken off usage. For inodes this is the request for bytes of storage: the
/// kubelet subtracts one from the other, and so do we.
fn subtracted_request(signal: Signal, row: &Row) -> Quantity {
    match signal.resource() {
        Resource::Memory => row.memory_request,
        Resource::EphemeralStorage | Resource::Inodes => row.storage_request,
        Resource::Pids => Quantity::ZERO,
    }
}

/// What a pod uses of the ranked resource; unknown parts count as nothing.
pub(super) fn usage_of(ranking: Ranking, used: &PodUsage) -> Quantity {
    let amount = match ranking.signal.resource() {
        Resource::Memory => used.memory,
        Resource::Pids => used.processes,
        Resource::EphemeralStorage => measured(ranking, used).bytes,
        Resource::Inodes => measured(ranking, used).inodes,
    };
    Quantity::new(reinterpreted(amount.unwrap_or(0)), ranking.signal.format())
}

/// What a pod is known to hold of the filesystem of the signal, in bytes or inodes; none where nobody knows, and of what is no
/// filesystem.
pub fn held_of_disk(ranking: Ranking, used: &PodUsage) -> Option<u64> {
    match ranking.signal.resource() {
        Resource::EphemeralStorage => measured(ranking, used).bytes,
        Resource::Inodes => measured(ranking, used).inodes,
        Resource::Memory | Resource::Pids => None,
    }
}

/// Counters are unsigned, quantities signed; the kubelet casts, so absurd values turn negative.
#[expect(
    clippy::cast_possible_wrap,
    reason = "the kubelet casts in the same way"
)]
const fn reinterpreted(amount: u64) -> i64 {
    amount as i64
}

/// The parts of a pod's disk usage that lie on the ranked filesystem.
fn measured(ranking: Ranking, used: &PodUsage) -> FsUsage {
    let PodUsage {
        rootfs,
        logs,
        volumes,
        ..
    } = *used;
    match (ranking.layout, ranking.signal) {
        (Layout::Single, _) => rootfs.plus(logs).plus(volumes),
        (
            Layout::DedicatedImagefs | Layout::LayersApart,
            Signal::NodefsAvailable | Signal::NodefsInodesFree,
        ) => logs.plus(volumes),
        // Images belong to no pod.
        (
            Layout::Split | Layout::LayersApart,
            Signal::ImagefsAvailable | Signal::ImagefsInodesFree,
        ) => FsUsage::default(),
        (Layout::Split, _) => logs.plus(volumes).plus(rootfs),
        // Where they are apart, whoever has nothing but files on nodefs frees nothing there, and the other way round.
        (Layout::DedicatedImagefs | Layout::LayersApart, _) => rootfs,
    }
}

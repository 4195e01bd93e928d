//! Which limits the sampler compares with in the kernel, so that every change of a threshold is pushed.

use brink_core::node::engine::MemoryPolicy;
use brink_core::node::policy::Policy;
use brink_core::node::signal::Signal;
use brink_host::probe::abi::MAX_WATCHES;
use brink_host::probe::abi::sample::{
    SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE, SOURCE_SLOT_HEADROOM, Watch,
};

/// Slot of the cgroup that is the node.
pub const NODE_SLOT: u32 = 0;
/// Slot of the cgroup all pods live in.
pub const PODS_SLOT: u32 = 1;
/// First slot of a workload's cgroup.
pub const FIRST_WORKLOAD_SLOT: u32 = 2;

/// A limit no value is ever below: the source is read, and nothing is told.
const NEVER: i64 = i64::MIN;

/// What the sampler has to know to choose its watches.
#[derive(Clone, Copy, Debug)]
pub struct Terrain {
    /// Capacity of the node, in bytes.
    pub capacity: i64,
    /// Capacity of the cgroup all pods live in; none if there is none.
    pub pods_capacity: Option<i64>,
    /// Whether the node is a cgroup in [`NODE_SLOT`].
    pub node_is_group: bool,
    /// Swap that the node could still use, in bytes.
    pub swap: i64,
    /// Swap that the cgroup all pods live in could still use, in bytes.
    pub pods_swap: i64,
    /// Whose word is enough for a kill.
    pub memory: MemoryPolicy,
}

impl Terrain {
    /// Whether swap is so far from `other`'s that the limits have to be made anew: by more than an eighth of the
    /// smallest memory threshold.
    pub fn is_far_from(&self, other: &Self, policy: &Policy) -> bool {
        let memory = policy.thresholds().iter().filter(|t| t.signal.is_memory());
        let amounts = memory.map(|threshold| threshold.quantity(self.capacity).value());
        let Some(smallest) = amounts.filter(|&amount| amount > 0).min() else {
            return false;
        };
        let far = |one: i64, other: i64| one.abs_diff(other) > smallest.unsigned_abs() / 8;
        far(self.swap, other.swap) || far(self.pods_swap, other.pods_swap)
    }
}

/// The watches, and where to find the value of each source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watches {
    /// For the sampler.
    pub list: Vec<Watch>,
    /// Index of a watch on the node's `available`.
    pub available: Option<usize>,
    /// Index of a watch on the node's headroom.
    pub headroom: Option<usize>,
    /// Index of a watch on the pods' `available`.
    pub pods: Option<usize>,
    /// Index of a watch on the pods' headroom.
    pub pods_headroom: Option<usize>,
    /// Limits that found no room; those are only seen at the sign of life.
    pub left_out: usize,
}

/// One watch for each amount at which a memory threshold changes: where it is crossed, where its
/// minimum reclaim lets it go, and where headroom confirms it. Swap lifts headroom above a threshold that
/// memory alone is below; that crossing is watched too, since from there on swap has to be looked at.
pub fn watches(policy: &Policy, terrain: Terrain) -> Watches {
    let mut watches = Watches::default();
    let node = |node: u32, slot: u32| if terrain.node_is_group { slot } else { node };
    let available = (
        node(SOURCE_NODE_AVAILABLE, SOURCE_SLOT_AVAILABLE),
        NODE_SLOT,
    );
    let headroom = (node(SOURCE_NODE_HEADROOM, SOURCE_SLOT_HEADROOM), NODE_SLOT);
    watches.available = watches.add(available, NEVER);
    watches.headroom = watches.add(headroom, NEVER);
    if terrain.pods_capacity.is_some() {
        watches.pods = watches.add((SOURCE_SLOT_AVAILABLE, PODS_SLOT), NEVER);
        watches.pods_headroom = watches.add((SOURCE_SLOT_HEADROOM, PODS_SLOT), NEVER);
    }
    for threshold in policy.thresholds() {
        let of_node = (terrain.capacity, terrain.swap);
        let (source, confirming, (capacity, swap)) = match threshold.signal {
            Signal::MemoryAvailable => (available, headroom, of_node),
            Signal::MemoryHeadroom => (headroom, headroom, of_node),
            Signal::AllocatableMemoryAvailable => match terrain.pods_capacity {
                Some(capacity) => (
                    (SOURCE_SLOT_AVAILABLE, PODS_SLOT),
                    (SOURCE_SLOT_HEADROOM, PODS_SLOT),
                    (capacity, terrain.pods_swap),
                ),
                None => continue,
            },
            _ => continue,
        };
        let quantity = threshold.quantity(capacity).value();
        // Headroom counts swap, which no source of the sampler does.
        let counts_swap = threshold.signal == Signal::MemoryHeadroom;
        let counted = if counts_swap { swap } else { 0 };
        let release = threshold.release(capacity).value();
        watches.add(source, quantity.saturating_sub(counted));
        watches.add(source, release.saturating_sub(counted));
        if terrain.memory == MemoryPolicy::Confirmed {
            watches.add(confirming, quantity.saturating_sub(swap));
        }
        if counts_swap {
            watches.add(source, quantity);
        }
    }
    watches
}

impl Watches {
    fn add(&mut self, (source, slot): (u32, u32), limit: i64) -> Option<usize> {
        let watch = Watch {
            source,
            slot,
            limit,
        };
        if let Some(index) = self.list.iter().position(|known| *known == watch) {
            return Some(index);
        }
        if self.list.len() == MAX_WATCHES {
            self.left_out += 1;
            return None;
        }
        self.list.push(watch);
        Some(self.list.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
    use brink_core::node::observe::Layout;
    use brink_core::node::policy::Settings;
    use brink_core::node::threshold::{Threshold, Value};

    use super::*;

    const MIB: i64 = 1 << 20;

    fn policy(thresholds: &[(Signal, i64, i64)]) -> Policy {
        let threshold = |&(signal, mib, reclaim): &(Signal, i64, i64)| Threshold {
            signal,
            grace: Span::ZERO,
            value: Value::Quantity(Quantity::from_bytes(mib * MIB)),
            min_reclaim: Some(Value::Quantity(Quantity::from_bytes(reclaim * MIB))),
        };
        let thresholds = thresholds.iter().map(threshold).collect();
        Policy::new(thresholds, Layout::Single, Settings::default())
    }

    fn limits(watches: &Watches, source: u32) -> Vec<i64> {
        let of_source = watches.list.iter().filter(|watch| watch.source == source);
        of_source
            .map(|watch| watch.limit / MIB)
            .filter(|&mib| mib > -1_000_000)
            .collect()
    }

    fn terrain(memory: MemoryPolicy) -> Terrain {
        Terrain {
            capacity: 1000 * MIB,
            pods_capacity: None,
            node_is_group: false,
            swap: 0,
            pods_swap: 0,
            memory,
        }
    }

    #[test]
    fn crossing_release_and_confirmation_are_watched() {
        let policy = policy(&[
            (Signal::MemoryAvailable, 100, 50),
            (Signal::MemoryHeadroom, 60, 0),
        ]);
        let kubelet = watches(&policy, terrain(MemoryPolicy::Kubelet));
        assert_eq!(limits(&kubelet, SOURCE_NODE_AVAILABLE), [100, 150]);
        assert_eq!(limits(&kubelet, SOURCE_NODE_HEADROOM), [60]);
        let confirmed = watches(&policy, terrain(MemoryPolicy::Confirmed));
        assert_eq!(limits(&confirmed, SOURCE_NODE_HEADROOM), [100, 60]);
        let with_swap = Terrain {
            swap: 30 * MIB,
            ..terrain(MemoryPolicy::Confirmed)
        };
        assert_eq!(
            limits(&watches(&policy, with_swap), SOURCE_NODE_HEADROOM),
            [70, 30, 60],
            "the last one tells that swap is being eaten"
        );
    }

    #[test]
    fn the_pods_swap_is_their_own() {
        let policy = policy(&[
            (Signal::MemoryAvailable, 100, 0),
            (Signal::AllocatableMemoryAvailable, 80, 0),
        ]);
        let terrain = Terrain {
            pods_capacity: Some(500 * MIB),
            swap: 50 * MIB,
            pods_swap: 20 * MIB,
            ..terrain(MemoryPolicy::Confirmed)
        };
        let watches = watches(&policy, terrain);
        assert_eq!(limits(&watches, SOURCE_NODE_HEADROOM), [50]);
        assert_eq!(limits(&watches, SOURCE_SLOT_HEADROOM), [60]);
    }

    #[test]
    fn limits_are_made_anew_when_swap_moved_by_an_eighth_of_the_smallest_threshold() {
        let policy = policy(&[
            (Signal::MemoryAvailable, 100, 0),
            (Signal::MemoryHeadroom, 80, 0),
        ]);
        let armed = Terrain {
            swap: 500 * MIB,
            pods_swap: 500 * MIB,
            ..terrain(MemoryPolicy::Confirmed)
        };
        let check = |swap: i64, pods_swap: i64, expected: bool| {
            let now = Terrain {
                swap: swap * MIB,
                pods_swap: pods_swap * MIB,
                ..armed
            };
            assert_eq!(now.is_far_from(&armed, &policy), expected, "{swap}");
        };
        check(500, 500, false);
        check(490, 500, false);
        check(489, 500, true);
        check(511, 500, true);
        check(500, 0, true);
    }

    #[test]
    fn a_node_that_is_a_group_is_read_through_its_slot() {
        let policy = policy(&[(Signal::MemoryAvailable, 100, 0)]);
        let terrain = Terrain {
            node_is_group: true,
            ..terrain(MemoryPolicy::Kubelet)
        };
        let watches = watches(&policy, terrain);
        assert!(limits(&watches, SOURCE_NODE_AVAILABLE).is_empty());
        assert_eq!(limits(&watches, SOURCE_SLOT_AVAILABLE), [100]);
    }

    #[test]
    fn pods_are_watched_only_where_there_is_such_a_cgroup() {
        let policy = policy(&[(Signal::AllocatableMemoryAvailable, 100, 0)]);
        assert_eq!(
            watches(&policy, terrain(MemoryPolicy::Confirmed)).pods,
            None
        );
        let with = Terrain {
            pods_capacity: Some(500 * MIB),
            ..terrain(MemoryPolicy::Confirmed)
        };
        let watches = watches(&policy, with);
        assert_eq!(limits(&watches, SOURCE_SLOT_AVAILABLE), [100]);
        assert_eq!(limits(&watches, SOURCE_SLOT_HEADROOM), [100]);
        assert!(watches.pods.is_some() && watches.pods_headroom.is_some());
    }
}

//! What the kernel's OOM killer killed for: the node or a cgroup's limit, and one process or a group whole.

use std::fmt;

use brink_abi::record::{RECLAIM_DIRECT, RECLAIM_MEMCG, UNKNOWN, VictimRecord};

/// What a trigger did longer ago led to no kill of now, in nanoseconds. The kernel chooses within milliseconds, but writes a
/// line on each task to the log before it tells: on a serial console of 115,200 baud that is a second a hundred tasks.
const LATELY: u64 = 10_000_000_000;

/// Where memory was short when the kernel chose a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shortage {
    /// On the node.
    Node,
    /// In a cgroup with a limit.
    Cgroup,
    /// Nobody saw what the trigger had reclaimed, or it had reclaimed nothing lately: somebody asked for a kill (sysrq).
    Unknown,
}

impl Shortage {
    /// By what the trigger reclaimed last: an allocation gives up after it reclaimed for the node, a charge after it
    /// reclaimed in its cgroup, and both do so each time just before they kill. What is older is of another shortage, or of
    /// another task that had the trigger's id: the worker that carries out somebody's sysrq may have reclaimed hours ago.
    pub const fn of(victim: &VictimRecord) -> Self {
        let reclaimed = victim.reclaim_ns != UNKNOWN
            && victim.head.at_ns.saturating_sub(victim.reclaim_ns) <= LATELY;
        let retried = victim.retry_own == 1 && victim.retry_age_ns <= LATELY;
        match victim.reclaim_gear {
            RECLAIM_DIRECT if reclaimed => Self::Node,
            RECLAIM_MEMCG if reclaimed => Self::Cgroup,
            // An allocation of the node's passes by there just before.
            _ if retried => Self::Node,
            _ => Self::Unknown,
        }
    }

    /// The word for it in logs and statuses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Cgroup => "cgroup",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Whether two victims fell to one decision, as those of a group with `memory.oom.group` do: whoever runs out of memory
/// again reclaims again first.
pub fn fell_together(one: &VictimRecord, other: &VictimRecord) -> bool {
    one.reclaim_ns != UNKNOWN
        && one.reclaim_ns == other.reclaim_ns
        && one.trigger_tid == other.trigger_tid
}

#[cfg(test)]
mod tests {
    use brink_abi::Plain as _;
    use brink_abi::record::{Head, RECLAIM_KSWAPD};

    use super::*;

    /// When the victims of these tests were chosen.
    const NOW: u64 = 3_600 * LATELY;

    fn victim(reclaim_gear: u32, reclaim_ns: u64) -> VictimRecord {
        VictimRecord {
            head: Head {
                at_ns: NOW,
                ..Head::ZERO
            },
            trigger_tid: 7,
            reclaim_gear,
            reclaim_ns,
            ..VictimRecord::ZERO
        }
    }

    #[test]
    fn the_triggers_last_reclaim_tells_where_memory_was_short() {
        let check = |gear, retry_own, expected| {
            let record = VictimRecord {
                retry_own,
                ..victim(gear, NOW - 1)
            };
            assert_eq!(Shortage::of(&record), expected, "{gear} {retry_own}");
        };
        check(RECLAIM_DIRECT, 0, Shortage::Node);
        check(RECLAIM_MEMCG, 0, Shortage::Cgroup);
        // It retried for the node before that.
        check(RECLAIM_MEMCG, 1, Shortage::Cgroup);
        check(0, 1, Shortage::Node);
        check(0, 0, Shortage::Unknown);
        check(RECLAIM_KSWAPD, 0, Shortage::Unknown);
    }

    #[test]
    fn what_a_trigger_did_long_ago_tells_nothing() {
        let check = |gear, age, retry_age_ns: Option<u64>, expected| {
            let record = VictimRecord {
                retry_own: u32::from(retry_age_ns.is_some()),
                retry_age_ns: retry_age_ns.unwrap_or(UNKNOWN),
                ..victim(gear, NOW - age)
            };
            assert_eq!(
                Shortage::of(&record),
                expected,
                "{gear} {age} {retry_age_ns:?}"
            );
        };
        check(RECLAIM_MEMCG, LATELY, None, Shortage::Cgroup);
        check(RECLAIM_MEMCG, LATELY + 1, None, Shortage::Unknown);
        check(RECLAIM_DIRECT, LATELY + 1, None, Shortage::Unknown);
        check(RECLAIM_DIRECT, NOW, None, Shortage::Unknown);
        check(RECLAIM_MEMCG, LATELY + 1, Some(LATELY), Shortage::Node);
        check(
            RECLAIM_MEMCG,
            LATELY + 1,
            Some(LATELY + 1),
            Shortage::Unknown,
        );
        let unseen = victim(RECLAIM_MEMCG, UNKNOWN);
        assert_eq!(Shortage::of(&unseen), Shortage::Unknown);
    }

    #[test]
    fn victims_of_one_decision_share_its_reclaim() {
        let one = victim(RECLAIM_MEMCG, 5);
        assert!(fell_together(&one, &victim(RECLAIM_MEMCG, 5)));
        assert!(!fell_together(&one, &victim(RECLAIM_MEMCG, 6)));
        let elsewhere = VictimRecord {
            trigger_tid: 8,
            ..one
        };
        assert!(!fell_together(&one, &elsewhere));
        let unknown = victim(0, UNKNOWN);
        assert!(!fell_together(&unknown, &unknown));
    }
}

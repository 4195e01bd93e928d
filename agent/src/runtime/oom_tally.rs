//! Kills by the kernel's own killer since the start: how many, for what, and how often several at once.

use brink_host::probe::abi::record::VictimRecord;
use brink_host::probe::shortage::{Shortage, fell_together};

/// Counts, and the latest kill: whether the next one fell to the same decision is seen from both.
#[derive(Debug, Default)]
pub struct OomTally {
    /// Processes killed because the node was out of memory.
    pub node: u32,
    /// Processes killed because a cgroup was at its limit.
    pub cgroup: u32,
    /// Processes of which it is not known.
    pub unknown: u32,
    /// Times that more than one process was killed at once.
    pub groups: u32,
    latest: Option<VictimRecord>,
    /// Whether the latest fell together with the one before it.
    is_within: bool,
}

impl OomTally {
    /// Takes one more kill.
    pub fn add(&mut self, record: VictimRecord) {
        let count = match Shortage::of(&record) {
            Shortage::Node => &mut self.node,
            Shortage::Cgroup => &mut self.cgroup,
            Shortage::Unknown => &mut self.unknown,
        };
        *count = count.saturating_add(1);
        let latest = self.latest.as_ref();
        let is_within = latest.is_some_and(|latest| fell_together(latest, &record));
        if is_within && !self.is_within {
            self.groups = self.groups.saturating_add(1);
        }
        self.is_within = is_within;
        self.latest = Some(record);
    }

    /// All of them.
    pub const fn total(&self) -> u32 {
        let known = self.node.saturating_add(self.cgroup);
        known.saturating_add(self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use brink_host::probe::abi::Plain as _;
    use brink_host::probe::abi::record::{RECLAIM_MEMCG, UNKNOWN};

    use super::*;

    fn kill(reclaim_ns: u64) -> VictimRecord {
        let mut record = VictimRecord::ZERO;
        record.head.at_ns = reclaim_ns;
        record.reclaim_gear = RECLAIM_MEMCG;
        record.reclaim_ns = reclaim_ns;
        record
    }

    #[test]
    fn none_is_forgotten_however_many_there_are() {
        let mut tally = OomTally::default();
        for at in 0..1980 {
            tally.add(kill(at));
        }
        // Three of one decision, and two of the next.
        for at in [5000, 5000, 5000, 6000, 6000] {
            tally.add(kill(at));
        }
        tally.add(kill(UNKNOWN));
        assert_eq!((tally.node, tally.cgroup, tally.unknown), (0, 1985, 1));
        assert_eq!((tally.total(), tally.groups), (1986, 2));
    }
}

//! Memory that victims gave back and that lies on lists of CPUs, where headroom does not see it.

use brink_core::base::{Moment, Span};
use brink_host::HotError;
use brink_host::cpu_lists::CpuListsReader;

use super::Guard;

/// How long it is looked for. The kernel takes up to 8 MiB a second from each list that nobody uses.
const FOR: Span = Span::from_secs(30);

/// The lists, and what lay there when somebody was killed last.
#[derive(Debug)]
pub(super) struct Parked {
    /// None where the node has no zones: a cgroup is charged no more for what lies there.
    lists: Option<CpuListsReader>,
    page: u64,
    before: Option<u64>,
    until: Moment,
}

impl Parked {
    pub(super) fn new(lists: Option<CpuListsReader>, page: u64) -> Self {
        Self {
            lists,
            page,
            before: None,
            until: Moment::START,
        }
    }

    fn read(&self) -> Option<Result<u64, HotError>> {
        self.lists.as_ref().map(CpuListsReader::pages)
    }

    /// Somebody was killed: what comes to the lists from now on is what the dead give back. A second victim dies while the
    /// first one's memory may lie there still, so it is measured from the first.
    fn expect(&mut self, now: Moment) {
        if now >= self.until {
            self.before = self.read().and_then(Result::ok);
        }
        self.until = now + FOR;
    }

    /// Bytes that have come to the lists since; none when nobody was killed lately, or they cannot be read.
    fn bytes(&self, now: Moment) -> Option<u64> {
        let before = self.before.filter(|_| now < self.until)?;
        let pages = self.read()?.ok()?;
        Some(pages.saturating_sub(before).saturating_mul(self.page))
    }
}

impl Guard {
    /// Somebody was killed.
    pub(super) fn expect_parked(&mut self, now: Moment) {
        self.parked.expect(now);
    }

    /// What of the memory of those who were killed lately headroom does not show.
    pub(super) fn parked(&self, now: Moment) -> Option<u64> {
        self.parked.bytes(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::START + Span::from_secs(seconds)
    }

    #[test]
    fn what_has_come_since_the_first_kill_counts_for_a_while() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("proc/zoneinfo");
        std::fs::create_dir(root.path().join("proc")).expect("a folder");
        let holds =
            |pages: u64| std::fs::write(&path, format!("  count: {pages}\n")).expect("a file");
        holds(100);
        let mut parked = Parked::new(CpuListsReader::open(root.path()).ok(), 4096);
        assert_eq!(parked.bytes(at(1)), None, "nobody was killed");
        parked.expect(at(1));
        assert_eq!(parked.bytes(at(1)), Some(0));
        holds(110);
        assert_eq!(parked.bytes(at(2)), Some(10 * 4096));
        parked.expect(at(2));
        assert_eq!(
            parked.bytes(at(2)),
            Some(10 * 4096),
            "measured from the first"
        );
        holds(90);
        assert_eq!(parked.bytes(at(3)), Some(0));
        assert_eq!(parked.bytes(at(32)), None, "long ago");
        parked.expect(at(32));
        holds(95);
        assert_eq!(parked.bytes(at(33)), Some(5 * 4096));
    }

    #[test]
    fn a_node_without_zones_has_none() {
        let mut parked = Parked::new(None, 4096);
        parked.expect(at(1));
        assert_eq!(parked.bytes(at(1)), None);
    }
}

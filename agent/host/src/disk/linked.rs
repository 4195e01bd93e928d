//! Files with several links, each counted once: those whose other links are still to be met are remembered, within a bound.

use std::collections::HashMap;

/// How many are remembered: as many as the table of 2^18 places takes before it grows, 4.5 MiB.
pub(super) const MOST_REMEMBERED: usize = (1 << 18) / 8 * 7;

/// What a link that was met adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Charge {
    /// The file: it is the first of its links.
    Whole,
    /// Nothing: the file was counted.
    Nothing,
    /// One part in so many: there is no room to remember it. All links together come to the file, where all are met.
    Share(u64),
}

/// The files of one filesystem that have been counted and have links that were not met.
#[derive(Debug)]
pub(super) struct LinkedFiles {
    /// By inode: how many links are still to come. A file whose links were all met is forgotten.
    open: HashMap<u64, u64>,
    most: usize,
    /// Once something was not remembered nothing new is, or a file could be counted by shares and then whole.
    full: bool,
}

impl LinkedFiles {
    pub(super) fn new(most: usize) -> Self {
        Self {
            open: HashMap::new(),
            most,
            full: false,
        }
    }

    /// A link to a file that has `links` of them.
    pub(super) fn meet(&mut self, inode: u64, links: u64) -> Charge {
        if links <= 1 && self.open.is_empty() {
            return Charge::Whole;
        }
        if let Some(left) = self.open.get_mut(&inode) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.open.remove(&inode);
            }
            return Charge::Nothing;
        }
        if links <= 1 {
            return Charge::Whole;
        }
        self.full |= self.open.len() >= self.most;
        if self.full {
            return Charge::Share(links);
        }
        self.open.insert(inode, links - 1);
        Charge::Whole
    }

    /// Whether some file has, or may have, a link that was not met: it can grow without a change here.
    pub(super) fn has_links_elsewhere(&self) -> bool {
        self.full || !self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_file_is_counted_with_its_first_link() {
        let mut files = LinkedFiles::new(10);
        assert_eq!(files.meet(1, 1), Charge::Whole);
        assert_eq!(files.meet(2, 3), Charge::Whole);
        assert_eq!(files.meet(2, 3), Charge::Nothing);
        assert!(files.has_links_elsewhere());
        assert_eq!(files.meet(2, 3), Charge::Nothing);
        assert!(!files.has_links_elsewhere(), "all of its links were met");
    }

    #[test]
    fn a_file_whose_other_link_went_meanwhile_is_not_counted_twice() {
        let mut files = LinkedFiles::new(10);
        assert_eq!(files.meet(2, 3), Charge::Whole);
        assert_eq!(files.meet(2, 1), Charge::Nothing);
    }

    #[test]
    fn beyond_the_bound_each_link_has_its_share_and_goes_on_having_it() {
        let mut files = LinkedFiles::new(1);
        assert_eq!(files.meet(1, 2), Charge::Whole);
        assert_eq!(files.meet(2, 2), Charge::Share(2));
        assert_eq!(files.meet(1, 2), Charge::Nothing);
        // There would be room again, and half of it is counted already.
        assert_eq!(files.meet(2, 2), Charge::Share(2));
        assert!(files.has_links_elsewhere(), "nobody knows");
    }

    #[test]
    fn the_bound_is_what_the_table_holds_without_growing() {
        let mut table: HashMap<u64, u64> = HashMap::new();
        table.extend((0..MOST_REMEMBERED as u64).map(|inode| (inode, 1)));
        assert!(
            table.capacity() < MOST_REMEMBERED * 8 / 7,
            "{}",
            table.capacity()
        );
    }

    proptest! {
        /// However the links of whole files come, and whatever the bound: each file counts once.
        #[test]
        fn files_with_all_their_links_count_once(
            counts in proptest::collection::vec(1..5_u64, 1..20),
            order in any::<u64>(),
            most in 0..8_usize,
        ) {
            let mut links: Vec<(u64, u64)> = Vec::new();
            for (inode, count) in (0..).zip(&counts) {
                links.extend((0..*count).map(|_| (inode, *count)));
            }
            // Any order will do that mixes files.
            links.sort_by_key(|(inode, _)| inode.wrapping_mul(order | 1).rotate_left(17));
            let step = usize::try_from(order % 7).expect("small") + 1;
            let mixed = (0..step).flat_map(|first| links.iter().skip(first).step_by(step));
            let mut files = LinkedFiles::new(most);
            // In sixtieths, which 1 to 5 divide.
            let mut sum = 0;
            for (inode, count) in mixed {
                sum += match files.meet(*inode, *count) {
                    Charge::Whole => 60,
                    Charge::Nothing => 0,
                    Charge::Share(parts) => 60 / parts,
                };
            }
            let all: HashSet<u64> = links.iter().map(|(inode, _)| *inode).collect();
            prop_assert_eq!(sum, 60 * all.len() as u64);
        }
    }
}

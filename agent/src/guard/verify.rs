//! The head of a ranking, put right: whoever would be chosen is read anew first.

use brink_core::node::rank::{Ranking, rank_head};
use brink_core::node::signal::Signal;
use brink_core::node::workload::{PodUsage, Workload, WorkloadTable};

/// Candidates at the head of the ranking that are read anew before anybody is chosen.
const FIRST: usize = 3;
/// More are not: what is read takes time, and each of these came to the head by figures just read.
const MOST: usize = 8;
/// Places that are looked at to find them.
const LOOKED_AT: usize = 64;

/// Ranks, reads the first that accept anew, and ranks again, until the first one that accepts is one that was read.
///
/// Those that refuse anyway take no place, nor do those of whom nothing can be known. `read_anew` brings a workload's
/// usage up to date; where nothing runs it sets its processes to none, so that it refuses. Allocates nothing while
/// `order` has room for the whole table.
pub(super) fn verify_head(
    ranking: Ranking,
    table: &WorkloadTable,
    usage: &mut [Option<PodUsage>],
    order: &mut Vec<u32>,
    mut read_anew: impl FnMut(usize, &mut Option<PodUsage>),
) {
    let mut verified = [u32::MAX; MOST];
    let mut count = 0;
    let mut wanted = FIRST;
    loop {
        rank_head(ranking, table, usage, order, LOOKED_AT);
        let before = count;
        let mut accepting = 0;
        for &index in order.iter().take(LOOKED_AT) {
            if accepting == wanted || count == MOST {
                break;
            }
            let place = index as usize;
            let Some(used) = usage.get_mut(place) else {
                continue;
            };
            if refuses(ranking.signal, table, place, used.as_ref()) {
                continue;
            }
            if !verified[..count].contains(&index) {
                read_anew(place, used);
                if used.is_none() || refuses(ranking.signal, table, place, used.as_ref()) {
                    continue;
                }
                verified[count] = index;
                count += 1;
            }
            accepting += 1;
        }
        if count == before {
            return;
        }
        wanted = 1;
    }
}

/// Whether the engine will pass a workload over for a signal, whatever it uses.
fn refuses(signal: Signal, table: &WorkloadTable, index: usize, used: Option<&PodUsage>) -> bool {
    let is_spared = |workload: &Workload| workload.spared_from(signal).is_some();
    table.workloads().get(index).is_none_or(is_spared)
        || used.is_some_and(|used| used.processes == Some(0))
}

#[cfg(test)]
mod tests {
    use brink_core::node::observe::Layout;
    use brink_core::node::rank::Preferences;
    use brink_core::node::workload::{Origin, Protection};

    use super::*;

    /// What is believed of a workload, and what a reading says.
    #[derive(Clone, Copy)]
    enum Is {
        /// MiB believed, MiB in truth.
        Free(u64, u64),
        /// Never evicted.
        Protected(u64),
        /// A static pod.
        Static(u64),
        /// Not among the pods.
        Outside(u64),
        /// Believed to use so many MiB, and nothing runs in it.
        Empty(u64),
        /// Nobody knows, before or after.
        Unknown,
    }

    fn used(mib: u64) -> PodUsage {
        PodUsage {
            memory: Some(mib << 20),
            ..PodUsage::default()
        }
    }

    /// Who was read, in that order, and who is the first that accepts and is known at the end.
    fn verified(all: &[Is]) -> (Vec<usize>, Option<usize>) {
        let workload = |(index, is): (usize, &Is)| Workload {
            uid: format!("{index:03}"),
            protection: matches!(is, Is::Protected(_)).then_some(Protection::Configured),
            origin: match is {
                Is::Static(_) => Origin::Static,
                _ => Origin::Api,
            },
            outside_pods: matches!(is, Is::Outside(_)),
            ..Workload::default()
        };
        let table = WorkloadTable::new(all.iter().enumerate().map(workload).collect(), 1);
        let believed = |is: &Is| match *is {
            Is::Free(mib, _)
            | Is::Protected(mib)
            | Is::Static(mib)
            | Is::Outside(mib)
            | Is::Empty(mib) => Some(used(mib)),
            Is::Unknown => None,
        };
        let mut usage: Vec<_> = all.iter().map(believed).collect();
        let (mut order, mut read) = (Vec::new(), Vec::new());
        let ranking = Ranking {
            signal: Signal::AllocatableMemoryAvailable,
            layout: Layout::Single,
            preferences: Preferences::Respect,
        };
        verify_head(ranking, &table, &mut usage, &mut order, |index, usage| {
            match all[index] {
                Is::Free(_, mib) => *usage = Some(used(mib)),
                Is::Empty(_) => usage.get_or_insert_default().processes = Some(0),
                Is::Protected(_) | Is::Static(_) | Is::Outside(_) => {
                    panic!("{index} refuses and was read")
                }
                Is::Unknown => return,
            }
            read.push(index);
        });
        let first = order.iter().map(|&index| index as usize).find(|&index| {
            usage[index].is_some() && !refuses(ranking.signal, &table, index, usage[index].as_ref())
        });
        (read, first)
    }

    #[track_caller]
    fn check(all: &[Is], read: &[usize], first: Option<usize>) {
        assert_eq!(verified(all), (read.to_vec(), first));
    }

    #[test]
    fn the_first_three_are_read_and_no_more_if_they_stay() {
        let all = [5, 4, 3, 2, 1].map(|mib| Is::Free(mib, mib));
        check(&all, &[0, 1, 2], Some(0));
        check(&[], &[], None);
    }

    #[test]
    fn who_refuses_or_is_unknown_takes_no_place() {
        let mut all = vec![
            Is::Protected(90),
            Is::Static(80),
            Is::Unknown,
            Is::Protected(70),
            Is::Outside(65),
            Is::Empty(60),
        ];
        all.extend([5, 4, 3, 2].map(|mib| Is::Free(mib, mib)));
        check(&all, &[5, 6, 7, 8], Some(6));
    }

    #[test]
    fn whoever_comes_to_the_head_is_read_before_it_is_chosen() {
        let stale = [
            Is::Free(90, 1),
            Is::Free(80, 1),
            Is::Free(70, 1),
            Is::Free(60, 2),
            Is::Free(50, 50),
            Is::Free(40, 40),
        ];
        check(&stale, &[0, 1, 2, 3, 4], Some(4));
    }

    #[test]
    fn reading_is_bounded() {
        let stale: Vec<Is> = (0..30).map(|index| Is::Free(90 - index, 1)).collect();
        let (read, _) = verified(&stale);
        assert_eq!(read, (0..MOST).collect::<Vec<_>>());
    }
}

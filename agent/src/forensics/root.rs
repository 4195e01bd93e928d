//! Where a fork bomb began: the process that most of a workload's processes descend from.
//!
//! Of the workload's births as many count as it had processes, the last ones before the decision. Each gives its weight to
//! everybody it descends from within the workload, the dead included. Of those that more than half of the weight descends from,
//! the deepest is who began it, and not the container's first process, from which everything does. A process that forks, and whose
//! child goes on alike, is one of many that look the same: so what runs the same program above it, forked without another program
//! in between, is followed up to its first process.

use std::collections::{HashMap, HashSet};

use brink_host::probe::Births;
use brink_host::probe::abi::births::Birth;
use brink_host::probe::abi::record::UNKNOWN;
use brink_host::probe::decode::name;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{ForkParent, ForkRoot};

use super::collector::Crowd;

/// A root from which not even one in so many descends is none: those between have been overwritten.
const LEAST_SHARE: u32 = 4;

/// Who a process is, whoever had its id before or after: id and start.
type Who = (u32, u64);

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Without its arguments.
    pub(super) root: ForkRoot,
    /// Its id, and those of who descends from it by forks alone.
    pub(super) copies: HashSet<u32>,
}

/// A process that somebody descends from.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Its birth in the workload, if it was seen, by its place.
    birth: Option<usize>,
    below: u32,
    /// Its name when it last forked.
    comm: [u8; 16],
}

/// Finds it among births that are sorted by time.
pub(super) fn find(
    births: &Births,
    is_victims: impl Fn(u64) -> bool,
    crowd: Crowd,
) -> Result<Found, Missing> {
    let before = |birth: &&Birth| birth.at_ns <= crowd.at_ns;
    let mut known: HashMap<u64, bool> = HashMap::new();
    let mut is_victims = |cgroup| *known.entry(cgroup).or_insert_with(|| is_victims(cgroup));
    let earlier = births.births.iter().take_while(before);
    let own: Vec<&Birth> = earlier.filter(|birth| is_victims(birth.cgroup)).collect();
    let unknown = if births.is_cut || births.has_gaps {
        Missing::Lost
    } else {
        Missing::BeforeStart
    };
    if own.is_empty() {
        return Err(unknown);
    }
    let count = crowd.processes.unwrap_or(own.len()).clamp(1, own.len());
    let nodes = weigh(&own, count);
    let of = u32::try_from(count).unwrap_or(u32::MAX);
    let root = chosen(&own, &nodes, of);
    // Where ends are missing more processes are counted than there were, and where births are missing fewer of them are here than are
    // counted: either way births of an earlier bomb are among the last ones.
    let is_sure = !births.has_gaps && !births.has_unseen_ends;
    let least = if is_sure {
        of.div_ceil(LEAST_SHARE)
    } else {
        of - of / 10
    };
    let Some((who, node)) = root.filter(|(_, node)| node.below >= least) else {
        return Err(if is_sure { unknown } else { Missing::Lost });
    };
    // Whoever was forked outside of the workload, as a container's first process is, has its birth there.
    let birth = node.birth.and_then(|place| own.get(place).copied());
    let mut all = births.births.iter().rev();
    let birth = birth.or_else(|| all.find(|birth| (birth.tgid, birth.start_ns) == who));
    // Whoever was born unseen since may be anybody's child: the first that is known of a tree whose trunk is missing is not its root.
    let is_since = || {
        births
            .births
            .first()
            .is_some_and(|first| who.1 >= first.start_ns)
    };
    if births.has_gaps && birth.is_none() && is_since() {
        return Err(Missing::Lost);
    }
    let root = ForkRoot {
        pid: who.0,
        start_ns: start(who.1),
        comm: name(&node.comm).into_owned(),
        argv: Field::Missing(Missing::ProcessGone),
        parent: birth.map_or(Field::Missing(unknown), |birth| {
            Field::Value(ForkParent {
                pid: birth.parent,
                start_ns: start(birth.parent_start_ns),
                comm: name(&birth.parent_comm).into_owned(),
            })
        }),
        descendants: node.below,
        of,
    };
    Ok(Found {
        copies: copies(&own, who, &node.comm),
        root,
    })
}

/// Everybody who has descendants among the last `count`, with how many.
fn weigh(own: &[&Birth], count: usize) -> HashMap<Who, Node> {
    let mut nodes: HashMap<Who, Node> = HashMap::new();
    let first = own.len().saturating_sub(count);
    // Children come after their parents: seen from the end, all of a process's weight is there before it is given on.
    for (place, birth) in own.iter().enumerate().rev() {
        let who = (birth.tgid, birth.start_ns);
        let below = nodes.get_mut(&who).map_or(0, |node| {
            node.birth = Some(place);
            node.below
        });
        let weight = below + u32::from(place >= first);
        let parent = nodes.entry((birth.parent, birth.parent_start_ns));
        // The latest comes first here.
        let parent = parent.or_insert(Node {
            birth: None,
            below: 0,
            comm: birth.parent_comm,
        });
        parent.below += weight;
    }
    nodes
}

/// The deepest from whom more than half descends, or whoever the most descend from, and then the first of its program.
fn chosen(own: &[&Birth], nodes: &HashMap<Who, Node>, of: u32) -> Option<(Who, Node)> {
    let majority = nodes.iter().filter(|(_, node)| node.below * 2 > of);
    let deepest = majority.max_by_key(|(who, node)| (node.birth, std::cmp::Reverse(**who)));
    let most = || {
        let all = nodes.iter();
        all.max_by_key(|(who, node)| (node.below, std::cmp::Reverse(**who)))
    };
    let (mut who, mut node) = deepest.or_else(most)?;
    // Each step leads to an earlier birth, and so to an end.
    while let Some(birth) = node.birth.and_then(|place| own.get(place))
        && birth.parent_comm == node.comm
        && let Some((above, parent)) = nodes.get_key_value(&(birth.parent, birth.parent_start_ns))
        && parent.birth < node.birth
    {
        (who, node) = (above, parent);
    }
    Some((*who, *node))
}

/// A process and all that descend from it without having run another program, as far as names tell.
fn copies(own: &[&Birth], who: Who, comm: &[u8; 16]) -> HashSet<u32> {
    let mut known: HashSet<Who> = HashSet::from([who]);
    for birth in own {
        let parent = (birth.parent, birth.parent_start_ns);
        if birth.parent_comm == *comm && known.contains(&parent) {
            known.insert((birth.tgid, birth.start_ns));
        }
    }
    known.into_iter().map(|(pid, _)| pid).collect()
}

fn start(nanos: u64) -> Field<u64> {
    Field::or(
        Some(nanos).filter(|nanos| *nanos != UNKNOWN),
        Missing::KernelLacksIt,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: u64 = 7;

    /// Births in the order in which they are made, each a nanosecond after the one before.
    #[derive(Default)]
    struct Tree(Births);

    impl Tree {
        fn fork(&mut self, cgroup: u64, parent: u32, comm: &str, child: u32) {
            let mut parent_comm = [0; 16];
            parent_comm[..comm.len()].copy_from_slice(comm.as_bytes());
            let at_ns = self.0.births.len() as u64 + 1;
            self.0.births.push(Birth {
                at_ns,
                start_ns: u64::from(child) * 10,
                parent_start_ns: u64::from(parent) * 10,
                cgroup,
                tgid: child,
                parent,
                parent_comm,
            });
        }

        /// Everybody forks two, one after the other, until there are so many.
        fn storm(&mut self, first: u32, comm: &str, ids: std::ops::Range<u32>) {
            let mut forkers = vec![first];
            for (number, child) in ids.enumerate() {
                self.fork(POD, forkers[number / 2], comm, child);
                forkers.push(child);
            }
        }

        fn find(&self, processes: Option<usize>) -> Result<Found, Missing> {
            let at_ns = self.0.births.len() as u64 + 1;
            find(&self.0, |cgroup| cgroup == POD, Crowd { at_ns, processes })
        }
    }

    /// The root's id and name, its parent's, and its share.
    fn found(tree: &Tree, processes: usize) -> (u32, String, Option<u32>, u32, u32) {
        let root = tree.find(Some(processes)).unwrap().root;
        let parent = root.parent.value().map(|parent| parent.pid);
        (root.pid, root.comm, parent, root.descendants, root.of)
    }

    #[test]
    fn the_program_that_forks_is_the_root_and_not_what_started_it() {
        let mut tree = Tree::default();
        tree.fork(1, 50, "containerd-shim", 100);
        for helper in 101..110 {
            tree.fork(POD, 100, "init", helper);
        }
        tree.fork(POD, 100, "init", 200);
        tree.fork(POD, 200, "sh", 300);
        tree.storm(300, "bomb", 1000..1500);
        assert_eq!(
            found(&tree, 500),
            (300, "bomb".to_owned(), Some(200), 500, 500)
        );
        let copies = tree.find(Some(500)).unwrap().copies;
        assert!(copies.contains(&300) && copies.contains(&1499) && !copies.contains(&200));
        assert_eq!(copies.len(), 501);
    }

    #[test]
    fn those_in_between_may_be_dead_and_a_chain_has_a_beginning() {
        let mut tree = Tree::default();
        tree.fork(1, 50, "runc", 100);
        // Each forks one, and is gone.
        for child in 101..400 {
            tree.fork(POD, child - 1, "chain", child);
        }
        let (pid, comm, parent, descendants, of) = found(&tree, 100);
        assert_eq!((pid, comm.as_str(), parent), (100, "chain", Some(50)));
        assert_eq!((descendants, of), (100, 100));
    }

    #[test]
    fn who_was_there_before_counts_no_more_than_the_bomb() {
        let mut tree = Tree::default();
        for worker in 101..401 {
            tree.fork(POD, 100, "server", worker);
        }
        tree.fork(POD, 100, "server", 500);
        tree.storm(500, "bomb", 1000..1500);
        // Of 801 processes: the bomb has a majority, and another name.
        let (pid, comm, parent, ..) = found(&tree, 801);
        assert_eq!((pid, comm.as_str(), parent), (500, "bomb", Some(100)));
        // Its own children are what most of a server's processes are.
        let mut tree = Tree::default();
        tree.storm(100, "server", 101..401);
        assert_eq!(found(&tree, 300).0, 100);
    }

    #[test]
    fn what_came_after_and_what_is_elsewhere_is_left_out() {
        let mut tree = Tree::default();
        tree.storm(300, "bomb", 1000..1100);
        for other in 2000..2500 {
            tree.fork(1, 60, "make", other);
        }
        let crowd = |at_ns| Crowd {
            at_ns,
            processes: Some(100),
        };
        let at = |at_ns| find(&tree.0, |cgroup| cgroup == POD, crowd(at_ns));
        assert_eq!(at(600).unwrap().root.of, 100);
        assert_eq!(at(40).unwrap().root.of, 40);
        assert_eq!(at(0).unwrap_err(), Missing::BeforeStart);
        // Whoever forked it did so before anybody looked.
        let root = at(600).unwrap().root;
        assert_eq!(root.parent, Field::Missing(Missing::BeforeStart));
    }

    #[test]
    fn an_id_that_was_given_twice_is_two_processes() {
        let mut tree = Tree::default();
        tree.storm(300, "bomb", 1000..1100);
        let mut again = tree.0.births.clone();
        for birth in &mut again {
            (birth.start_ns, birth.parent_start_ns) =
                (birth.start_ns + 1, birth.parent_start_ns + 1);
            birth.at_ns += 100;
        }
        tree.0.births.extend(again);
        let root = tree.find(Some(100)).unwrap().root;
        assert_eq!(root.start_ns, Field::Value(3001));
        assert_eq!(root.descendants, 100);
    }

    #[test]
    fn where_births_are_missing_nobody_is_the_root_whose_own_was_not_seen() {
        let mut tree = Tree::default();
        tree.storm(5000, "bomb", 1000..1100);
        assert_eq!(tree.find(Some(100)).unwrap().root.pid, 5000);
        tree.0.has_gaps = true;
        assert_eq!(tree.find(Some(100)).unwrap_err(), Missing::Lost);
        // This one is older than all that is kept.
        let mut tree = Tree::default();
        tree.0.has_gaps = true;
        tree.storm(300, "bomb", 1000..1100);
        let root = tree.find(Some(100)).unwrap().root;
        assert_eq!(
            (root.pid, root.parent),
            (300, Field::Missing(Missing::Lost))
        );
        let mut tree = Tree::default();
        tree.0.has_gaps = true;
        tree.fork(POD, 1, "sh", 300);
        tree.storm(300, "bomb", 1000..1100);
        assert_eq!(tree.find(Some(100)).unwrap().root.pid, 300);
        tree.fork(POD, 1, "sh", 301);
        tree.storm(301, "bomb", 2000..2040);
        assert_eq!(tree.find(Some(140)).unwrap_err(), Missing::Lost);
    }

    #[test]
    fn where_ends_are_missing_an_earlier_bomb_is_not_the_root() {
        let bombs = |has_unseen_ends| {
            let mut tree = Tree::default();
            tree.0.has_unseen_ends = has_unseen_ends;
            tree.fork(POD, 1, "sh", 300);
            tree.storm(300, "bomb", 1000..1100);
            tree.fork(POD, 1, "sh", 301);
            tree.storm(301, "bomb", 2000..2040);
            tree
        };
        // All of the earlier one have ended. Who is counted all the same is most of the crowd.
        assert_eq!(bombs(false).find(Some(140)).unwrap().root.pid, 300);
        assert_eq!(bombs(true).find(Some(140)).unwrap_err(), Missing::Lost);
        // A count that is right leads to the later one.
        let root = bombs(true).find(Some(40)).unwrap().root;
        assert_eq!((root.pid, root.descendants, root.of), (301, 40, 40));
    }

    #[test]
    fn where_ends_alone_are_missing_no_birth_is() {
        let mut tree = Tree::default();
        tree.0.has_unseen_ends = true;
        assert_eq!(tree.find(Some(100)).unwrap_err(), Missing::BeforeStart);
        // Younger than the oldest birth that is kept, and without one: it was there before anybody looked.
        tree.storm(5000, "bomb", 1000..1100);
        let root = tree.find(Some(100)).unwrap().root;
        assert_eq!(
            (root.pid, root.parent),
            (5000, Field::Missing(Missing::BeforeStart))
        );
    }

    #[test]
    fn what_was_overwritten_is_told_as_lost() {
        let mut tree = Tree::default();
        tree.storm(300, "bomb", 1000..9000);
        // The oldest are gone: nobody who is left is the parent of many.
        tree.0.births.drain(..6000);
        tree.0.is_cut = true;
        assert_eq!(tree.find(Some(2000)).unwrap_err(), Missing::Lost);
        assert_eq!(
            Tree::default().find(None).unwrap_err(),
            Missing::BeforeStart
        );
    }
}

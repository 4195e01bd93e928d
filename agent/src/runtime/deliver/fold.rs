//! Kills of the kernel's own killer as events on their pods: a few at once, and in a storm one that counts the others.

use std::collections::BTreeMap;

use brink_core::base::rate::TokenBucket;
use brink_core::base::{Moment, Span};
use brink_kube::outbox::entry::VERSION;
use brink_kube::outbox::{Cause, Entry, EventWords, Key, Part, PodRef};

/// Reason of the event.
const REASON: &str = "OOMKilled";
/// Events that may follow each other at once.
const BURST: u32 = 8;
/// Time in which one more becomes possible: at most 60 events an hour in the longest storm.
const REFILL: Span = Span::from_secs(60);
/// Containers whose kills are counted while there may be no event; those of others are counted together.
const CONTAINERS: usize = 64;

/// One kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kill {
    /// The pod.
    pub(super) pod: PodRef,
    /// The container, by its name or id; none if it was not in one.
    pub(super) container: Option<String>,
    /// Process id.
    pub(super) pid: u32,
    /// Name of the process.
    pub(super) comm: String,
    /// What was short of memory.
    pub(super) short: &'static str,
    /// When, `CLOCK_MONOTONIC` in nanoseconds.
    pub(super) at_ns: u64,
    /// The same, RFC 3339 to the second.
    pub(super) wall: String,
}

/// Kills that have not been told.
#[derive(Debug)]
pub(super) struct Fold {
    bucket: TokenBucket,
    waiting: BTreeMap<(String, Option<String>), Group>,
}

/// Kills of one container.
#[derive(Clone, Debug)]
struct Group {
    first: Kill,
    last: Kill,
    count: u32,
}

impl Fold {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            bucket: TokenBucket::new(BURST, REFILL, now),
            waiting: BTreeMap::new(),
        }
    }

    /// Takes a kill; it is told at once or with others later. False where there is no room for its container.
    pub(super) fn take(&mut self, kill: Kill) -> bool {
        let key = (kill.pod.uid.clone(), kill.container.clone());
        if let Some(group) = self.waiting.get_mut(&key) {
            group.count = group.count.saturating_add(1);
            group.last = kill;
        } else if self.waiting.len() < CONTAINERS {
            let group = Group {
                first: kill.clone(),
                last: kill,
                count: 1,
            };
            self.waiting.insert(key, group);
        } else {
            return false;
        }
        true
    }

    /// What may be told now, the longest waiting first.
    pub(super) fn due(&mut self, boot: &str, now: Moment) -> Vec<Entry> {
        let mut due = Vec::new();
        while !self.waiting.is_empty() && self.bucket.take(now) {
            let oldest = self
                .waiting
                .iter()
                .min_by_key(|(_, group)| group.first.at_ns);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            if let Some(group) = self.waiting.remove(&key) {
                due.push(group.entry(boot));
            }
        }
        due
    }

    /// When something may be told that waits.
    pub(super) fn next(&self, now: Moment) -> Option<Moment> {
        let waits = !self.waiting.is_empty();
        waits.then(|| self.bucket.next_token(now)).flatten()
    }
}

impl Group {
    fn entry(self, boot: &str) -> Entry {
        let message = self.message();
        let Self { first, last, count } = self;
        Entry {
            version: VERSION,
            key: Key {
                boot: boot.to_owned(),
                of: Cause::OomKill(first.at_ns),
            },
            pod: first.pod,
            status: None,
            status_part: Part::None,
            event: EventWords {
                warns: true,
                reason: REASON.to_owned(),
                message,
                annotations: BTreeMap::new(),
                count,
                first: first.wall,
                last: last.wall,
            },
            event_part: Part::Owed,
        }
    }

    fn message(&self) -> String {
        let Kill {
            container,
            pid,
            comm,
            short,
            ..
        } = &self.last;
        let place = container.as_ref().map_or_else(String::new, |container| {
            format!(" in container {container}")
        });
        let short = match *short {
            "node" => "the node was out of memory",
            "cgroup" => "a memory limit was reached",
            _ => "what was short of memory is not known",
        };
        let killed =
            format!("The kernel's OOM killer ended process {pid} ({comm}){place}: {short}.");
        match self.count {
            1 => killed,
            count => format!("{count} kills since the last event, the latest: {killed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill(pod: &str, container: &str, at_ns: u64) -> Kill {
        Kill {
            pod: PodRef {
                namespace: "shop".to_owned(),
                name: pod.to_owned(),
                uid: pod.to_owned(),
            },
            container: Some(container.to_owned()),
            pid: 7,
            comm: "java".to_owned(),
            short: "cgroup",
            at_ns,
            wall: format!("2026-11-22T10:00:{:02}Z", at_ns % 60),
        }
    }

    fn at(seconds: i64) -> Moment {
        Moment::from_secs(1000 + seconds)
    }

    #[test]
    fn a_kill_is_told_at_once_and_names_who_and_where() {
        let mut fold = Fold::new(at(0));
        fold.take(kill("web", "app", 5));
        let told = fold.due("boot", at(0));
        assert_eq!(told.len(), 1);
        assert_eq!((&*told[0].pod.name, told[0].event.count), ("web", 1));
        assert_eq!(
            told[0].event.message,
            "The kernel's OOM killer ended process 7 (java) in container app: a memory limit was reached."
        );
        assert_eq!(told[0].status, None);
        assert_eq!(fold.next(at(0)), None);
    }

    #[test]
    fn a_storm_becomes_few_events_that_count_all_of_it() {
        let mut fold = Fold::new(at(0));
        let (mut events, mut kills) = (0, 0);
        // An hour of five kills a second in three containers.
        for tenth in 0..36_000_u64 {
            let now = at(0) + Span::from_millis(i64::try_from(tenth).unwrap() * 100);
            if tenth % 2 == 0 {
                fold.take(kill(
                    "web",
                    ["a", "b", "c"][usize::try_from(tenth / 2 % 3).unwrap()],
                    tenth,
                ));
            }
            for told in fold.due("boot", now) {
                events += 1;
                kills += u64::from(told.event.count);
            }
        }
        assert!((BURST..=BURST + 61).contains(&events), "{events} events");
        let end = at(3600 + 600);
        kills += fold
            .due("boot", end)
            .iter()
            .map(|told| u64::from(told.event.count))
            .sum::<u64>();
        assert_eq!(kills, 18_000);
    }

    #[test]
    fn the_longest_waiting_is_told_first_and_a_token_is_waited_for() {
        let mut fold = Fold::new(at(0));
        for pod in 0..u64::from(BURST) {
            fold.take(kill(&format!("p{pod}"), "c", pod));
        }
        assert_eq!(fold.due("boot", at(0)).len(), BURST as usize);
        fold.take(kill("z", "c", 100));
        fold.take(kill("a", "c", 101));
        assert_eq!(fold.due("boot", at(1)), []);
        assert_eq!(fold.next(at(1)), Some(at(60)));
        let told = fold.due("boot", at(60));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].pod.name, "z");
    }

    #[test]
    fn what_finds_no_room_is_said() {
        let mut fold = Fold::new(at(0));
        for pod in 0..CONTAINERS as u64 {
            assert!(fold.take(kill(&format!("p{pod}"), "c", pod)));
        }
        assert!(!fold.take(kill("more", "c", 99)));
        assert!(fold.take(kill("p3", "c", 99)), "its container is known");
    }
}

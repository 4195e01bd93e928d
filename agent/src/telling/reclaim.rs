//! What the node gives back before anybody goes, as events and in the log.

use std::time::Duration;

use brink_core::base::Moment;
use brink_core::node::reclaim::Reclaim;
use brink_stream::model::data::{NodeReclaim, ReclaimOutcome, ReclaimPhase};
use brink_stream::model::kind::Kind;
use tracing::{debug, info, warn};

use super::Telling;
use crate::disks::answer::{End, Outcome, Removed};
use crate::guard::disks::ReclaimAsked;
use crate::record::text::{amount, of_each, unsigned};

/// Names of what was removed that are told, and their bytes: of a small journal the longest event has 256 KiB. The rest is counted.
const MOST: usize = 256;
const MOST_BYTES: usize = 32 << 10;
/// Refusals that are told.
const MOST_REFUSALS: usize = 16;
/// Names in one line of the log.
const IN_A_LINE: usize = 16;

/// A reclaim, as far as it has come.
#[derive(Clone, Debug)]
pub struct Reclaimed {
    /// What was asked for.
    pub asked: ReclaimAsked,
    /// Nothing is removed.
    pub is_dry: bool,
    /// What is tried.
    pub ways: &'static [Reclaim],
    /// Whom.
    pub runtime: Option<String>,
    /// What came of it; none while it begins.
    pub outcome: Option<Outcome>,
    /// What is left afterwards.
    pub available: Option<i64>,
    /// Thresholds on filesystems that are met all the same.
    pub short: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl Reclaimed {
    /// What the filesystem has more than before, in bytes; 0 where inodes were short.
    pub fn freed_bytes(&self) -> u64 {
        let is_bytes = self.asked.signal.name().ends_with("available");
        let after = self.available.filter(|_| is_bytes);
        let freed = after.map_or(0, |after| after.saturating_sub(self.asked.available));
        u64::try_from(freed).unwrap_or(0)
    }

    /// Tells the log that it is over, and what is gone by name.
    pub fn log(&self) {
        let Some(outcome) = &self.outcome else {
            return;
        };
        for names in lines(outcome) {
            // The event has what would go, as often as that is asked.
            if self.is_dry {
                debug!(names, "would be removed from the container runtime");
            } else {
                info!(names, "removed from the container runtime");
            }
        }
        let signal = self.asked.signal.name();
        let left = self.available.map(|left| amount(signal, left));
        let said = unsigned(outcome.said_bytes);
        let millis = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        let (containers, images) = (outcome.containers.len(), outcome.images.len());
        let (result, why) = (outcome.end.word(), outcome.why.as_deref());
        let kept = of_each(&outcome.kept);
        let (short, dry_run) = (self.short.join(", "), self.is_dry);
        if matches!(outcome.end, End::Lost(_) | End::Late) {
            warn!(
                signal,
                result,
                why,
                containers,
                images,
                left,
                short,
                millis,
                "the container runtime could not give back what it has"
            );
        } else {
            info!(
                signal,
                result,
                containers,
                images,
                kept,
                said,
                left,
                short,
                dry_run,
                millis,
                "reclaim on the node has run"
            );
        }
    }

    fn outcome(&self, outcome: &Outcome) -> ReclaimOutcome {
        let mut room = MOST_BYTES;
        let named: Vec<&Removed> = all(outcome)
            .take(MOST)
            .take_while(|one| {
                let is_left = one.name.len() <= room;
                room = room.saturating_sub(one.name.len());
                is_left
            })
            .collect();
        let kept = outcome.kept.iter();
        ReclaimOutcome {
            result: outcome.end.word().to_owned(),
            why: outcome.why.clone(),
            containers: outcome.containers.len() as u64,
            images: outcome.images.len() as u64,
            more: all(outcome).skip(named.len()).count() as u64,
            removed: named.iter().map(|one| one.name.clone()).collect(),
            removed_bytes: named.iter().map(|one| one.bytes).collect(),
            kept: kept.map(|(why, many)| ((*why).to_owned(), *many)).collect(),
            refused: outcome
                .refused
                .iter()
                .take(MOST_REFUSALS)
                .cloned()
                .collect(),
            said_bytes: outcome.said_bytes,
            available: self.available,
            short: self.short.clone(),
            took_ms: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// All that was removed, or would be, in this order.
fn all(outcome: &Outcome) -> impl Iterator<Item = &Removed> {
    outcome.containers.iter().chain(&outcome.images)
}

/// The names of all that was removed, some to a line.
fn lines(outcome: &Outcome) -> Vec<String> {
    let names: Vec<&str> = all(outcome).map(|one| one.name.as_str()).collect();
    let lines = names.chunks(IN_A_LINE).map(|some| some.join(", "));
    lines.collect()
}

impl Telling {
    /// Tells that a reclaim begins, or what came of it.
    pub fn reclaim(&self, at: Moment, reclaimed: &Reclaimed) {
        let ReclaimAsked {
            signal,
            quantity,
            available,
            ..
        } = reclaimed.asked;
        let outcome = reclaimed.outcome.as_ref();
        let data = NodeReclaim {
            phase: match outcome {
                None => ReclaimPhase::Started,
                Some(_) => ReclaimPhase::Finished,
            },
            signal: signal.name().to_owned(),
            quantity,
            available,
            dry_run: reclaimed.is_dry,
            functions: reclaimed
                .ways
                .iter()
                .map(|way| way.name().to_owned())
                .collect(),
            runtime: reclaimed.runtime.clone(),
            outcome: outcome.map(|outcome| reclaimed.outcome(outcome)),
        };
        self.say(Kind::NodeReclaim, at, None, &data);
    }
}

#[cfg(test)]
impl Reclaimed {
    /// What was asked for with 5 bytes left of 10, and came to this.
    pub(crate) fn of(outcome: Outcome) -> Self {
        Self {
            asked: ReclaimAsked {
                signal: brink_core::node::signal::Signal::NodefsAvailable,
                quantity: 10,
                available: 5,
                at: Moment::START,
                is_dry: false,
            },
            is_dry: false,
            ways: &[],
            runtime: None,
            outcome: Some(outcome),
            available: None,
            short: Vec::new(),
            took: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reclaimed(containers: usize, name: &str) -> Reclaimed {
        let removed = |at: usize| Removed {
            name: format!("{name}{at}"),
            bytes: (at == 0).then_some(77),
        };
        Reclaimed::of(Outcome {
            containers: (0..containers).map(removed).collect(),
            images: vec![removed(0)],
            kept: [("inUse", 3), ("pinned", 2)].into(),
            ..Outcome::default()
        })
    }

    #[track_caller]
    fn check((containers, name): (usize, &str), named: usize, more: u64) {
        let reclaimed = reclaimed(containers, name);
        let outcome = reclaimed.outcome.as_ref().unwrap();
        let told = reclaimed.outcome(outcome);
        assert_eq!((told.removed.len(), told.more), (named, more));
        assert_eq!(told.removed_bytes.len(), named);
        assert_eq!(told.removed_bytes[..2], [Some(77), None]);
        assert_eq!(told.kept["inUse"], 3);
        let logged: usize = lines(outcome)
            .iter()
            .map(|line| line.split(", ").count())
            .sum();
        assert_eq!(logged, containers + 1, "the log has all of them");
    }

    #[test]
    fn what_is_gone_is_told_by_name_and_what_has_no_room_is_counted() {
        check((100, "a"), 101, 0);
        check((300, "a"), 256, 45);
        // Names of a KiB and a few bytes.
        let long = "a".repeat(1 << 10);
        check((40, &long), 31, 10);
    }
}

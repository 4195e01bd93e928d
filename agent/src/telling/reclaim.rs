//! What the node gives back before anybody goes, as events and in the log.

use std::time::Duration;

use brink_core::base::Moment;
use brink_core::node::reclaim::Reclaim;
use brink_stream::model::data::{NodeReclaim, ReclaimOutcome, ReclaimPhase};
use brink_stream::model::kind::Kind;
use tracing::{info, warn};

use super::Telling;
use crate::disks::answer::{End, Outcome};
use crate::guard::disks::ReclaimAsked;
use crate::record::text::{amount, unsigned};

/// Names that are told; the rest is counted.
const MOST: usize = 16;

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

    /// Tells the log that it is over.
    pub fn log(&self) {
        let Some(outcome) = &self.outcome else {
            return;
        };
        let signal = self.asked.signal.name();
        let left = self.available.map(|left| amount(signal, left));
        let said = unsigned(outcome.said_bytes);
        let millis = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        let (containers, images) = (outcome.containers.len(), outcome.images.len());
        let (result, why) = (outcome.end.word(), outcome.why.as_deref());
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
        let some = |names: &mut dyn Iterator<Item = &String>| names.take(MOST).cloned().collect();
        ReclaimOutcome {
            result: outcome.end.word().to_owned(),
            why: outcome.why.clone(),
            containers: outcome.containers.len() as u64,
            images: outcome.images.len() as u64,
            removed: some(&mut outcome.containers.iter().chain(&outcome.images)),
            refused: some(&mut outcome.refused.iter()),
            said_bytes: outcome.said_bytes,
            available: self.available,
            short: self.short.clone(),
            took_ms: u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
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

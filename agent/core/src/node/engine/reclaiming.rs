//! What the node itself can give back before anybody goes for a filesystem: asked for, waited for, and remembered.

use super::super::action::{Action, Actions};
use super::super::input::Sample;
use super::super::observe::Observation;
use super::super::reclaim::{self, Reclaim};
use super::super::safety::Mode;
use super::super::signal::Resource;
use super::Engine;
use crate::base::{Moment, Reason, Span};

/// What could not give back enough is asked again after the kubelet's monitoring interval.
const RECLAIM_AGAIN: Span = Span::from_secs(10);
/// What would be given back is asked as seldom as whoever would go for a filesystem is told of: nothing changes by it.
const DRY_AGAIN: Span = Span::from_secs(30);
/// So often in a row the node is asked to go on whose time ran out while it gave back. With half a minute for each time that is two
/// minutes in which nobody goes, as long as a kubelet waits for one removal by default.
const MOST_PARTS: u8 = 3;

/// How far reclaim on the node has come. One is under way at a time; what was too little is remembered way by way, for dead
/// containers that went for one filesystem are no images that could go for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reclaiming {
    stage: Stage,
    /// How dead containers, and unused images, were seen to be too little.
    tried: [Option<Tried>; 2],
    /// How often in a row it was asked to go on.
    parts: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nobody has asked for it.
    #[default]
    Not,
    /// Under way.
    Asked(&'static [Reclaim]),
    /// Done then; the next sample shows whether it was enough.
    Done(&'static [Reclaim], Moment, Came),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// All that there was.
    All,
    /// A part of it, when time ran out.
    Part,
    /// Nothing, for it was only said what would: so many bytes.
    Said(u64),
}

/// One way that was not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tried {
    at: Moment,
    /// The bytes that it is said to bring where orders are carried out; none where it was carried out itself.
    said: Option<u64>,
}

impl Tried {
    /// Whether it need not be asked for yet. What was only said is nothing that was tried, once orders are carried out.
    fn counts(self, now: Moment, is_enforcing: bool) -> bool {
        let again = match self.said {
            Some(_) if is_enforcing => return false,
            Some(_) => DRY_AGAIN,
            None => RECLAIM_AGAIN,
        };
        now < self.at + again
    }
}

impl Reclaiming {
    /// What was asked for has run; nothing where nobody asked.
    pub(super) fn finish(&mut self, now: Moment, came: Came) {
        if let Stage::Asked(ways) = self.stage {
            self.stage = Stage::Done(ways, now, came);
        }
    }

    /// These were not enough when they had run. Those whose time ran out may have more, and are not given up for it.
    fn conclude(&mut self, ways: &[Reclaim], at: Moment, came: Came) {
        self.stage = Stage::Not;
        let said = match came {
            Came::Part if self.parts < MOST_PARTS => {
                self.parts += 1;
                return;
            }
            Came::All | Came::Part => None,
            Came::Said(bytes) => Some(bytes),
        };
        self.parts = 0;
        for &way in ways {
            self.tried[place(way)] = Some(Tried { at, said });
        }
    }

    /// Whether all of these were too little a moment ago: they are not asked for at every sample.
    fn has_tried(&self, ways: &[Reclaim], now: Moment, is_enforcing: bool) -> bool {
        ways.iter().all(|&way| {
            let tried = self.tried[place(way)];
            tried.is_some_and(|tried| tried.counts(now, is_enforcing))
        })
    }

    /// The bytes that these are said to bring; none where nobody has said it. Ways that go together were asked together, and each
    /// has what was said of all.
    fn said(&self, ways: &[Reclaim]) -> Option<u64> {
        let said = ways.iter().map(|&way| self.tried[place(way)]?.said);
        said.min().flatten()
    }
}

const fn place(way: Reclaim) -> usize {
    match way {
        Reclaim::DeadContainers => 0,
        Reclaim::UnusedImages => 1,
    }
}

impl Engine {
    /// What the node can give back for a threshold.
    fn ways(&self, index: usize) -> &'static [Reclaim] {
        let signal = self.policy.thresholds()[index].signal;
        reclaim::functions(self.policy.layout(), signal)
    }

    pub(super) fn can_reclaim(&self, index: usize) -> bool {
        !self.ways(index).is_empty()
    }

    /// Whether the node has given back what it can for a threshold a moment ago, and it was not enough.
    pub(super) fn has_just_reclaimed(&self, now: Moment, index: usize) -> bool {
        let is_enforcing = self.mode(now) == Mode::Enforcing;
        self.reclaim.has_tried(self.ways(index), now, is_enforcing)
    }

    /// What the node can give back by itself comes before any workload; the error says that it is
    /// being waited for, or would be enough where orders are carried out.
    ///
    /// Whether it was enough shows by itself: a threshold that is not short any more asks for nobody. Unlike on the kubelet, which
    /// takes a pod for a disk that has room again where any other threshold is short, each speaks for itself alone.
    pub(super) fn reclaim_first(
        &mut self,
        now: Moment,
        chosen: usize,
        sample: &Sample<'_>,
        actions: &mut Actions,
    ) -> Result<(), Reason> {
        let ways = self.ways(chosen);
        if !self.has_just_reclaimed(now, chosen)
            && let Stage::Done(done, at, came) = self.reclaim.stage
        {
            // Where an order was waited for meanwhile, that may be long ago, and it is asked for again.
            self.reclaim.conclude(done, at, came);
        }
        if self.has_just_reclaimed(now, chosen) {
            let said = self.reclaim.said(ways);
            let is_enough = said.is_some_and(|bytes| self.would_let_go(chosen, sample, bytes));
            return if is_enough {
                Err(Reason::Reclaimed)
            } else {
                Ok(())
            };
        }
        if self.reclaim.stage == Stage::Not {
            self.reclaim.stage = Stage::Asked(ways);
            actions.push(Action::Reclaim { threshold: chosen });
        }
        Err(Reason::Waiting)
    }

    /// Whether a threshold would let go with so many bytes more. Of inodes nobody says what images hold.
    fn would_let_go(&self, index: usize, sample: &Sample<'_>, bytes: u64) -> bool {
        let threshold = self.policy.thresholds()[index];
        let more = i64::try_from(bytes).unwrap_or(i64::MAX);
        let seen = sample.observations[threshold.signal].map(|seen| Observation {
            available: seen.available.saturating_add(more),
            ..seen
        });
        threshold.signal.resource() == Resource::EphemeralStorage
            && seen.is_some_and(|seen| !threshold.is_held(Some(&seen)))
    }
}

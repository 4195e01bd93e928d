//! What the node itself can give back before anybody goes for a filesystem: asked for, waited for, and remembered.

use super::super::action::{Action, Actions};
use super::super::input::Sample;
use super::super::reclaim::{self, Reclaim};
use super::Engine;
use crate::base::{Moment, Reason, Span};

/// What could not give back enough is asked again after the kubelet's monitoring interval.
const RECLAIM_AGAIN: Span = Span::from_secs(10);

/// How far reclaim on the node has come. One is under way at a time; what was too little is remembered way by way, for dead
/// containers that went for one filesystem are no images that could go for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reclaiming {
    stage: Stage,
    /// When dead containers, and unused images, were seen to be too little.
    tried: [Option<Moment>; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nobody has asked for it.
    #[default]
    Not,
    /// Under way.
    Asked(&'static [Reclaim]),
    /// Done then; the next sample shows whether it was enough.
    Done(&'static [Reclaim], Moment),
}

impl Reclaiming {
    /// What was asked for has run; nothing where nobody asked.
    pub(super) fn finish(&mut self, now: Moment) {
        if let Stage::Asked(ways) = self.stage {
            self.stage = Stage::Done(ways, now);
        }
    }

    /// These were not enough when they had run.
    fn give_up(&mut self, ways: &[Reclaim], at: Moment) {
        for &way in ways {
            self.tried[place(way)] = Some(at);
        }
        self.stage = Stage::Not;
    }

    /// Whether all of these were too little a moment ago: they are not asked for at every sample.
    fn has_tried(&self, ways: &[Reclaim], now: Moment) -> bool {
        ways.iter().all(|&way| {
            let at = self.tried[place(way)];
            at.is_some_and(|at| now < at + RECLAIM_AGAIN)
        })
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
        self.reclaim.has_tried(self.ways(index), now)
    }

    /// What the node can give back by itself comes before any workload; the error says that it is
    /// being waited for, or was enough.
    pub(super) fn reclaim_first(
        &mut self,
        now: Moment,
        chosen: usize,
        sample: &Sample<'_>,
        actions: &mut Actions,
    ) -> Result<(), Reason> {
        let ways = self.ways(chosen);
        if self.reclaim.has_tried(ways, now) {
            return Ok(());
        }
        if let Stage::Done(done, at) = self.reclaim.stage {
            if reclaim::is_sufficient(&self.policy, Some(&sample.observations)) {
                self.reclaim = Reclaiming::default();
                return Err(Reason::Reclaimed);
            }
            // Where an order was waited for meanwhile, that may be long ago, and it is asked for again.
            self.reclaim.give_up(done, at);
            if self.reclaim.has_tried(ways, now) {
                return Ok(());
            }
        }
        if self.reclaim.stage == Stage::Not {
            self.reclaim.stage = Stage::Asked(ways);
            actions.push(Action::Reclaim { threshold: chosen });
        }
        Err(Reason::Waiting)
    }
}

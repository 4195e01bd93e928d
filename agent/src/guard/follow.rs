//! Following an order that is being carried out: when memory comes back, when the victim is gone, when it is over.

use brink_core::base::{Moment, Span};
use brink_core::node::decision::Decision;
use brink_core::node::input::Input;
use brink_core::node::observe::Observations;
use brink_core::node::order::OpenOrder;
use brink_core::node::signal::Signal;
use brink_host::ledger::SlotId;

use super::act::Tally;
use super::page::Page;
use super::usage::read_usage;
use super::{Guard, now};
use crate::ledger::entry::Completion;

/// A victim is looked at every quarter of a millisecond at first, then every one, then every five.
const PACES: [(Span, Span); 2] = [
    (Span::from_millis(5), Span::from_micros(250)),
    (Span::from_millis(250), Span::from_millis(1)),
];
const SLOW_PACE: Span = Span::from_millis(5);
/// Memory counts as coming back once this much of it is there.
const FIRST_BACK: u64 = 256 << 10;

/// The order that is being carried out.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) order: u64,
    pub(super) workload: usize,
    pub(super) slot: Option<SlotId>,
    pub(super) page: Option<Box<Page>>,
    /// Whether the runtime has been told of it.
    pub(super) announced: bool,
    pub(super) completion: Completion,
    signal: Signal,
    /// The amount the signal has to be at again, in bytes or a count.
    quantity: i64,
    dry_run: bool,
    opened: Moment,
    /// Usage of the victim's cgroups when it was chosen, page cache included.
    charged: Option<u64>,
}

impl Current {
    pub(super) fn new(
        order: u64,
        workload: usize,
        decision: &Decision,
        open: Option<&OpenOrder>,
    ) -> Self {
        Self {
            order,
            workload,
            slot: None,
            page: None,
            announced: false,
            completion: Completion::default(),
            signal: decision.crossed.signal,
            quantity: decision.quantity.value(),
            dry_run: open.is_none_or(|open| open.dry_run),
            opened: decision.at,
            charged: None,
        }
    }

    /// The kill was sent.
    pub(super) fn killed(&mut self, tally: &Tally, at: Moment) {
        let stages = &mut self.completion.stages;
        stages.first_signal = stages.first_signal.or(tally.first_signal);
        stages.last_signal = Some(at);
        self.completion.kill = Some(tally.kill);
        self.opened = at;
    }

    /// When to look at the victim again; never for a dry run.
    pub(super) fn next_look(&self, now: Moment) -> Option<Moment> {
        let age = now.since(self.opened);
        let pace = PACES
            .iter()
            .find(|(until, _)| age < *until)
            .map_or(SLOW_PACE, |(_, pace)| *pace);
        (!self.dry_run).then(|| now + pace)
    }

    /// Takes in what the victim's cgroups still hold.
    fn note_usage(&mut self, usage: Option<u64>, at: Moment) {
        let Some(usage) = usage else {
            return;
        };
        let charged = *self.charged.get_or_insert(usage);
        let freed = charged.saturating_sub(usage);
        self.completion.freed = self.completion.freed.max(freed);
        let stages = &mut self.completion.stages;
        if freed >= FIRST_BACK && stages.first_back.is_none() {
            stages.first_back = Some(at);
        }
    }

    fn is_killed(&self) -> bool {
        self.completion.stages.last_signal.is_some()
    }
}

impl Guard {
    /// Looks at the victim of the order that is being carried out, and at the node.
    pub(super) fn follow(&mut self, at: Moment) {
        let Some(mut current) = self.current.take() else {
            self.times.follow = None;
            return;
        };
        let mut usage = Some(0_u64);
        let mut empty = true;
        for (_, group) in self.roster.of(current.workload) {
            usage = usage
                .zip(read_usage(group))
                .map(|(sum, more)| sum.saturating_add(more));
            // Asked victims are only looked at: whoever came meanwhile has been granted the same grace.
            empty &= if current.is_killed() {
                self.killer.sweep(&group.target).is_empty()
            } else {
                group.target.is_empty()
            };
        }
        current.note_usage(usage, at);
        let gone = empty && current.completion.stages.gone.is_none();
        if gone {
            current.completion.stages.gone = Some(now());
        }
        let workload = current.workload;
        self.times.follow = current.next_look(at);
        self.current = Some(current);
        if gone {
            self.feed(now(), &Input::Gone { workload });
        }
        self.look(now());
    }

    /// Notes when the signal of the current order is above its threshold again.
    pub(super) fn note_progress(&mut self, seen: &Observations, at: Moment) {
        if let Some(current) = &mut self.current
            && let Some(seen) = seen[current.signal]
            && seen.available >= current.quantity
            && current.completion.stages.above_again.is_none()
        {
            current.completion.stages.above_again = Some(at);
        }
    }
}

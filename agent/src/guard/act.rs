//! Carrying the engine's answers out: the record first, then the signal, then everything else.

use std::time::Duration;

use brink_core::base::Moment;
use brink_core::node::action::Action;
use brink_core::node::input::{Delivery, Input};
use brink_core::node::order::{End, OpenOrder};
use brink_core::node::signal::Signal;
use brink_host::kill::{KillOutcome, Means as HostMeans};
use brink_host::ledger::SlotId;

use super::figures::NodeFigures;
use super::follow::{Cause, Current};
use super::ports::Report;
use super::step::Step;
use super::{Guard, now};
use crate::ledger::entry::{Completion, Kill, Mark, Means, Record, Stages};

impl Guard {
    /// Feeds one input and carries out what follows.
    pub(super) fn feed(&mut self, at: Moment, input: &Input<'_>) {
        self.engine.step(at, input.clone(), &mut self.actions);
        self.conclude(at, input, None, Stages::default());
    }

    /// Carries out the answers to the last step, and tells of it.
    pub(super) fn conclude(
        &mut self,
        at: Moment,
        input: &Input<'_>,
        figures: Option<&NodeFigures>,
        stages: Stages,
    ) {
        let killed = self.carry_out(at, stages);
        self.tell(at, input, figures);
        if let Some((order, delivered)) = killed {
            // At most one level deep: an outcome may end an order, and gives none.
            self.feed(now(), &Input::Outcome { order, delivered });
        }
    }

    /// Carries out the answers to the last step; what became of a kill is for the engine to know.
    fn carry_out(&mut self, at: Moment, stages: Stages) -> Option<(u64, Delivery)> {
        let mut killed = None;
        for place in 0..self.actions.as_slice().len() {
            let Some(&action) = self.actions.as_slice().get(place) else {
                break;
            };
            match action {
                Action::Kill { order, workload } => {
                    self.open_record(order, workload, at, stages);
                    killed = Some(self.kill(order, workload));
                }
                Action::Ask {
                    order, workload, ..
                } => {
                    self.open_record(order, workload, at, stages);
                    self.ask(workload);
                }
                Action::WouldEvict { order, workload } => {
                    self.open_record(order, workload, at, stages);
                }
                Action::Ended { order, end } => self.close_record(order, end),
                Action::Reclaim { threshold } => self.ask_to_reclaim(threshold, at),
                Action::Crossed { .. }
                | Action::Cleared { .. }
                | Action::Held { .. }
                | Action::Conditions(_)
                | Action::Mode(_) => {}
            }
        }
        self.announce();
        killed
    }

    /// Writes the record of a new order; an order that only turns hard has one already.
    fn open_record(&mut self, order: u64, workload: usize, at: Moment, stages: Stages) {
        if self
            .current
            .as_ref()
            .is_some_and(|current| current.order == order)
        {
            return;
        }
        let Some(decision) = self.engine.decision() else {
            return;
        };
        let stages = Stages {
            above: self.last_above.get(decision.threshold).copied().flatten(),
            decided: Some(at),
            ..stages
        };
        self.author.clocks = self.author.clocks.current();
        let open = self.engine.open_order();
        let record = Record {
            until: open.and_then(OpenOrder::deadline),
            ..Record::of(&self.author, decision, stages, self.engine.table())
        };
        let slot = self
            .ledger
            .as_mut()
            .map(|ledger| write_record(ledger, &record));
        let page = self.ports.pages.pop();
        let cause = Cause {
            signal: decision.crossed.signal,
            // What a workload is over by itself is not what the signal shows.
            quantity: match decision.limit {
                Some(_) => i64::MAX,
                None => decision.quantity.value(),
            },
        };
        let mut current = Current::new(order, workload, cause, decision.at);
        current.dry_run = open.is_none_or(|open| open.dry_run);
        current.slot = slot;
        current.completion.stages = Stages {
            recorded: Some(now()),
            ..stages
        };
        match page {
            Some(mut page) => {
                page.write(&record, None);
                current.page = Some(page);
            }
            None => drop(
                self.ports
                    .pages_lost
                    .fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            ),
        }
        self.current = Some(current);
    }

    /// Tells of a decision that has just been carried out, with what is known of it so far.
    fn announce(&mut self) {
        let Some(current) = self.current.as_mut().filter(|current| !current.announced) else {
            return;
        };
        current.announced = true;
        let Some(mine) = &mut current.page else {
            return;
        };
        mine.complete(current.completion);
        let Some(mut copy) = self.ports.pages.pop() else {
            self.ports
                .pages_lost
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return;
        };
        copy.copy_from(mine);
        if let Err(Report::Decided(page)) = self.ports.reports.send(Report::Decided(copy)) {
            self.ports.recycle_page(page);
        }
    }

    /// SIGKILL to every cgroup of the workload that goes with it; the answer is for the engine.
    fn kill(&mut self, order: u64, workload: usize) -> (u64, Delivery) {
        let charged = self.sampled_usage_of(workload);
        let mut total = Tally::default();
        let signal = self.current.as_ref().map(Current::signal);
        self.killer
            .release_memory(signal.is_none_or(Signal::is_memory));
        let is_unmoved = self.is_unmoved();
        self.mark(Mark::Hardened, now());
        for target in self.roster.victims_of(workload) {
            let outcome = if is_unmoved {
                self.killer.kill_prepared(target)
            } else {
                self.killer.kill(target)
            };
            total.add(&outcome);
            if outcome.signalled > 0 {
                let _dies_since_before = self.newcomers.note_killed(target.id().0);
            }
        }
        total.kill.waited_ns = total
            .first_signal
            .zip(total.cpu)
            .and_then(|(at, cpu)| self.awake.waited_ns(at, cpu));
        if total.kill.signalled > 0 {
            self.mark(Mark::Signalled, now());
        }
        self.watch_victim(order, workload);
        self.watch_for_newcomers(workload);
        self.expect_reaping(now(), workload);
        self.expect_parked(now());
        let family = self
            .roster
            .of(workload)
            .flat_map(|(_, group)| &group.family);
        let reclaim = self
            .kernel
            .as_ref()
            .and_then(|kernel| kernel.reclaim_cost(family));
        if let Some(current) = self
            .current
            .as_mut()
            .filter(|current| current.order == order)
        {
            current.completion.reclaim = reclaim;
            // Of a victim that was asked first, what it held then.
            current.charged = current.charged.or(charged);
            current.killed(&total, now());
            self.times.follow = current.next_look(now());
        }
        (order, total.delivery())
    }

    /// SIGTERM to the same.
    fn ask(&mut self, workload: usize) {
        let mut first = None;
        for target in self.roster.victims_of(workload) {
            let outcome = self.killer.terminate(target);
            first = first.or(moment(outcome.times.after_first_signal));
        }
        self.mark(Mark::Asked, first.unwrap_or_else(now));
        self.watch_for_newcomers(workload);
        if let Some(current) = &mut self.current {
            current.completion.stages.asked = first;
            self.times.follow = current.next_look(now());
        }
    }

    /// Asks the kernel to tell when the victim's cgroups are empty.
    fn watch_victim(&mut self, order: u64, workload: usize) {
        let current = self.current.as_mut();
        let Some(current) = current.filter(|current| current.order == order) else {
            return;
        };
        for target in self.roster.victims_of(workload) {
            let id = target.id().0;
            let is_new = !current.watched().any(|watched| watched == id);
            if is_new
                && current.remember_watched(id)
                && let Some(kernel) = &mut self.kernel
            {
                let _too_many_watched = kernel.watch_victim(id);
            }
        }
    }

    /// The order is over. The record stays open while its victim is still on its way out.
    pub(super) fn close_record(&mut self, order: u64, end: End) {
        if self
            .current
            .as_ref()
            .is_some_and(|current| current.order == order)
        {
            self.mark(Mark::Ended, now());
        }
        let Some(mut current) = self.current.take_if(|current| current.order == order) else {
            return;
        };
        current.completion.end = Some(end);
        current.completion.stages.ended = Some(now());
        if current.lingers() {
            self.complete_in_ledger(&current);
            self.linger(current);
        } else {
            self.finish_record(current);
        }
        self.plan_follow(now());
    }

    /// Marks in the ledger how far the order has come.
    fn mark(&mut self, mark: Mark, at: Moment) {
        let slot = self.current.as_ref().and_then(|current| current.slot);
        if let (Some(ledger), Some(slot)) = (&mut self.ledger, slot) {
            let at = u64::try_from(at.as_nanos()).unwrap_or(0);
            let _is_still_there = ledger.mark(slot, mark as usize, at);
        }
    }

    fn complete_in_ledger(&mut self, current: &Current) {
        if let (Some(ledger), Some(slot)) = (&mut self.ledger, current.slot) {
            ledger.complete(slot, |bytes| write_completion(bytes, &current.completion));
        }
    }

    /// Everything about an order is known, or is not waited for any more.
    pub(super) fn finish_record(&mut self, mut current: Current) {
        if let Some(kernel) = &mut self.kernel {
            for id in current.watched() {
                kernel.unwatch_victim(id);
            }
        }
        self.complete_in_ledger(&current);
        if let Some(mut page) = current.page.take() {
            page.complete(current.completion);
            if let Err(Report::Completed(page)) = self.ports.reports.send(Report::Completed(page)) {
                self.ports.recycle_page(page);
            }
        }
    }

    /// Tells the runtime of a step: what was fed in, and what came of it.
    fn tell(&mut self, at: Moment, input: &Input<'_>, figures: Option<&NodeFigures>) {
        let Some(mut step) = self.ports.steps.pop() else {
            self.ports
                .steps_lost
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            return;
        };
        let Step {
            generation,
            figures: kept,
            ..
        } = &mut *step;
        *generation = self.engine.table().generation();
        *kept = figures.copied().unwrap_or_default();
        if !step.fill(at, input, self.actions.as_slice()) {
            self.ports
                .steps_lost
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        if let Err(Report::Step(step)) = self.ports.reports.send(Report::Step(step)) {
            self.ports.recycle_step(step);
        }
    }
}

/// What the kills of one workload's cgroups did together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) first_signal: Option<Moment>,
    /// What the guard had spent on a processor at that signal.
    cpu: Option<Duration>,
    pub(super) kill: Kill,
    groups: u32,
    empty: u32,
}

impl Tally {
    fn add(&mut self, outcome: &KillOutcome) {
        self.groups += 1;
        self.empty += u32::from(outcome.is_empty() && outcome.signalled == 0);
        self.first_signal = self
            .first_signal
            .or(moment(outcome.times.after_first_signal));
        self.cpu = self.cpu.or(outcome.times.cpu_at_first_signal);
        self.kill.means = match outcome.means {
            HostMeans::Signals => Means::Signals,
            HostMeans::GroupKill => Means::CgroupKill,
            HostMeans::Freezer => Means::Freezer,
            HostMeans::UnifiedGroupKill => Means::UnifiedCgroupKill,
        };
        self.kill.passes += outcome.passes;
        self.kill.signalled += outcome.signalled;
        self.kill.refused += outcome.refused;
        self.kill.spared += outcome.spared;
        self.kill.releasing += outcome.releasing;
        let errno = outcome.failure.map(|failure| failure.errno.raw_os_error());
        self.kill.errno = self.kill.errno.or(errno);
    }

    fn delivery(&self) -> Delivery {
        match (self.kill.signalled, self.empty == self.groups) {
            (processes @ 1.., _) => Delivery::Done { processes },
            (0, true) => Delivery::Empty,
            (0, false) => Delivery::Failed,
        }
    }
}

fn moment(nanos: Option<u64>) -> Option<Moment> {
    i64::try_from(nanos?).ok().map(Moment::from_nanos)
}

fn write_record(ledger: &mut brink_host::ledger::Ledger, record: &Record<'_>) -> SlotId {
    ledger.record(|bytes| {
        // A record fits by construction: names are cut to a fixed length.
        let _fits = postcard::to_slice(record, bytes);
    })
}

fn write_completion(bytes: &mut [u8], completion: &Completion) {
    let _fits = postcard::to_slice(completion, bytes);
}

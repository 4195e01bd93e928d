//! Taking up the order that an agent before us has left open.

use std::path::Path;

use brink_core::base::{Moment, Span};
use brink_core::node::input::{Input, Recalled, Unfinished};
use brink_core::node::order::{End, Phase};
use brink_host::clock::since_boot_ns;
use brink_host::ledger::Ledger;
use brink_host::process::ProcessInfo;

use super::follow::{Cause, Current};
use super::ports::{Evicted, Interrupted};
use super::{Guard, now};
use crate::ledger::{Completion, Record};

/// Start times are told in hundredths of a second, rounded down.
const TICK: Span = Span::from_millis(10);

impl Guard {
    /// Tells the engine of it. The victim is followed from now on, and its record goes on.
    pub(super) fn take_up(&mut self, interrupted: Option<Interrupted>) {
        let Some(before) = interrupted else {
            return;
        };
        let workloads = self.engine.table().workloads();
        let found = workloads.iter().position(|w| w.uid == before.uid);
        let Some(workload) = found.filter(|_| self.engine.open_order().is_none()) else {
            return;
        };
        match before.phase {
            Phase::Asked { .. } => self.take_up_asked(&before, workload),
            Phase::Killed { at } => {
                let is_left = before.is_sent && self.is_anybody_left(workload, at);
                self.recall(&before, workload, is_left);
                if is_left {
                    let mut victim = self.resumed(&before, workload);
                    victim.resume_killed(at);
                    self.linger(victim);
                }
            }
        }
        self.plan_follow(now());
    }

    /// Goes on killing what a kubelet starts again in pods that an agent before us has evicted.
    pub(super) fn recall_evicted(&mut self, evicted: &[Evicted]) {
        for before in evicted {
            let workloads = self.engine.table().workloads();
            let found = workloads
                .iter()
                .position(|workload| workload.uid == before.uid && workload.by_kubelet);
            let Some(workload) = found else {
                continue;
            };
            let recalled = Recalled::Evicted {
                workload,
                order: before.order,
                at: before.at,
            };
            self.feed(now(), &Input::Recall(recalled));
            self.watch_for_newcomers(workload);
        }
    }

    fn take_up_asked(&mut self, before: &Interrupted, workload: usize) {
        self.current = Some(self.resumed(before, workload));
        let is_gone = |asked| !self.is_anybody_left(workload, asked);
        if before.asked.is_some_and(is_gone) {
            self.close_record(before.order, End::Gone);
            return;
        }
        self.recall(before, workload, before.is_sent);
        let open = self.engine.open_order();
        if open.is_none_or(|open| open.id != before.order) {
            // The stop button was pressed meanwhile, or the victim is protected by now.
            self.close_record(before.order, End::Stopped);
        }
    }

    fn recall(&mut self, before: &Interrupted, workload: usize, is_sent: bool) {
        let crossed = &before.crossed;
        let mut thresholds = self.engine.policy().thresholds().iter();
        let threshold = thresholds.position(|threshold| {
            threshold.signal == crossed.signal
                && threshold.grace.as_nanos() == crossed.grace
                && threshold.quantity(crossed.seen.capacity).value() == crossed.quantity
        });
        let charged = before.charged.filter(|_| crossed.signal.is_memory());
        let unfinished = Unfinished {
            order: before.order,
            workload,
            threshold,
            signal: crossed.signal,
            opened: before.opened,
            phase: before.phase,
            is_sent,
            charged: charged.unwrap_or(0),
        };
        self.feed(now(), &Input::Recall(Recalled::Unfinished(unfinished)));
    }

    /// The order with its record, as the agent before us had it.
    fn resumed(&mut self, before: &Interrupted, workload: usize) -> Current {
        let cause = Cause {
            signal: before.crossed.signal,
            quantity: before.crossed.quantity,
        };
        let mut current = Current::new(before.order, workload, cause, before.opened);
        current.slot = Some(before.slot);
        // What has been told of it is remembered from the ledger.
        current.announced = true;
        let mut entries = self.ledger.iter().flat_map(Ledger::entries);
        let entry = entries.find(|entry| entry.slot == before.slot);
        let Some((record, completion)) = entry.as_ref().and_then(Record::read) else {
            return current;
        };
        current.completion = completion.unwrap_or(Completion {
            stages: record.stages,
            ..Completion::default()
        });
        current.page = self.ports.pages.pop();
        if let Some(page) = &mut current.page {
            page.write(&record, None);
        }
        current
    }

    /// Whether somebody lives there who was there when the signals were sent: whoever came later is nobody's victim, and was
    /// not seen to come by an agent that was away.
    fn is_anybody_left(&self, workload: usize, signalled: Moment) -> bool {
        let mut is_left = false;
        for target in self.roster.victims_of(workload) {
            let is_whole = target.each_process(&mut |pid| {
                is_left |= !came_after(&self.root, pid, signalled);
            });
            is_left |= !is_whole;
        }
        is_left
    }
}

/// Whether a process has certainly begun after a moment.
fn came_after(root: &Path, pid: i32, moment: Moment) -> bool {
    let Ok(Some(process)) = ProcessInfo::read(root, pid) else {
        return false;
    };
    let saturated = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let since_boot = saturated(since_boot_ns());
    // The clock of start times goes on while the machine sleeps.
    let asleep = since_boot.saturating_sub(now().as_nanos());
    let began = saturated(process.start_ticks).saturating_mul(TICK.as_nanos());
    Moment::from_nanos(began.saturating_sub(asleep)) > moment
}

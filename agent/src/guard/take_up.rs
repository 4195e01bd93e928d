//! Taking up the order that an agent before us has left open.

use std::path::Path;

use brink_core::base::{Moment, Span};
use brink_core::node::input::{Input, Recalled, Unfinished};
use brink_core::node::order::{End, Phase};
use brink_core::node::recent::EVICTED;
use brink_core::node::workload::WorkloadTable;
use brink_host::clock::since_boot_ns;
use brink_host::ledger::Ledger;
use brink_host::process::ProcessInfo;

use super::follow::{Cause, Current};
use super::ports::{Evicted, Interrupted};
use super::{Guard, now};
use crate::ledger::{Completion, Record};

/// Start times are told in hundredths of a second, rounded down.
const TICK: Span = Span::from_millis(10);

/// Pods that an agent before us has evicted, until a roster has them: the first one may be made before much is known of the
/// node's pods.
#[derive(Debug, Default)]
pub(super) struct Unrecalled {
    /// The engine knows of those behind the first `left`, or it is too late. They stay: the guard frees no memory.
    evicted: Vec<Evicted>,
    left: usize,
}

impl Unrecalled {
    fn new(evicted: Vec<Evicted>) -> Self {
        Self {
            left: evicted.len(),
            evicted,
        }
    }

    /// One that a table has, with its index there; each comes once.
    fn next(&mut self, now: Moment, table: &WorkloadTable) -> Option<(usize, &Evicted)> {
        let workloads = table.workloads();
        let place = |before: &Evicted| {
            let mut places = workloads.iter();
            places.position(|workload| workload.uid == before.uid && workload.by_kubelet)
        };
        let mut at = 0;
        while at < self.left {
            let before = &self.evicted[at];
            let found = place(before);
            if found.is_none() && now.since(before.at) < EVICTED {
                at += 1;
                continue;
            }
            self.left -= 1;
            self.evicted.swap(at, self.left);
            if let Some(workload) = found {
                return Some((workload, &self.evicted[self.left]));
            }
        }
        None
    }
}

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
    pub(super) fn recall_evicted(&mut self, evicted: Vec<Evicted>) {
        self.unrecalled = Unrecalled::new(evicted);
        self.recall_more(now());
    }

    /// The same for those that no roster had before.
    pub(super) fn recall_more(&mut self, at: Moment) {
        while let Some((workload, before)) = self.unrecalled.next(at, self.engine.table()) {
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

#[cfg(test)]
mod tests {
    use super::super::scene::Scene;
    use super::*;

    fn evicted(order: u64, at: Moment) -> Evicted {
        Evicted {
            uid: Scene::UID.to_owned(),
            order,
            at,
        }
    }

    #[test]
    fn a_pod_that_only_a_later_roster_has_is_evicted_all_the_same() {
        let mut scene = Scene::killing();
        let none = scene.roster(&[]);
        scene.guard.replace_roster(none);
        let other = Evicted {
            uid: "of another pod".to_owned(),
            ..evicted(8, scene.begun)
        };
        let before = vec![other, evicted(7, scene.begun)];
        scene.guard.recall_evicted(before);
        assert_eq!(scene.guard.unrecalled.left, 2);
        let with_pod = scene.roster(&["a", "idle"]);
        scene.guard.replace_roster(with_pod);
        assert_eq!(scene.guard.engine.evicted_by(scene.begun, 0), Some(7));
        assert!(scene.is_killed("a"), "what runs there was started again");
        assert_eq!(scene.guard.unrecalled.left, 1);
    }

    #[test]
    fn an_eviction_is_recalled_once_and_not_for_too_long() {
        let scene = Scene::killing();
        let table = scene.guard.engine.table();
        let (old, late) = (scene.begun, scene.begun + EVICTED);
        let mut unrecalled = Unrecalled::new(vec![evicted(7, old)]);
        assert_eq!(unrecalled.next(old, table), Some((0, &evicted(7, old))));
        assert_eq!(unrecalled.next(old, table), None);
        let empty = WorkloadTable::default();
        let mut unrecalled = Unrecalled::new(vec![evicted(7, old)]);
        assert_eq!(unrecalled.next(late, &empty), None);
        assert_eq!(unrecalled.next(late, table), None, "forgotten");
    }
}

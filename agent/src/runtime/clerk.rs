//! The clerk: takes the guard's reports, keeps the state, tells the log, the journal and the hooks.

mod said;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use brink_core::node::action::Action;
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::input::{Recalled, Reconfiguration};
use brink_core::node::order::Phase;
use brink_core::node::policy::Policy;
use brink_core::node::safety::Mode;
use brink_core::node::signal::Signal;
use brink_core::node::workload::{Workload, WorkloadTable};
use brink_host::clock::ClockPair;
use brink_host::probe::shortage::Shortage;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tracing::{error, info, warn};

use self::said::{log_decision, say};
use super::deliver::Deliver;
use super::equipment::Loaded;
use super::foresight::{BoardCell, foresee};
use super::foretold::Foretold;
use super::graces::{Graces, Kept};
use super::hooks::{Hooks, Occasion};
use super::journal::Journal;
use super::state::{Course, Reading, Shared, State};
use super::steps::give_back;
use crate::forensics::Collector;
use crate::guard;
use crate::guard::again::Again;
use crate::guard::page::Page;
use crate::guard::ports::{Ports, Report};
use crate::guard::rung::{Rung, Standing};
use crate::guard::step::{Kind, Step};
use crate::record::DecisionRecord;
use crate::record::kubelet::KubeletView;
use crate::record::wire::{Time, wall_clock};
use crate::storage::Keeper;
use crate::telling::{Heard, RingLosses, Telling};
use crate::warmer::Warmer;

/// How long an order waits for the step that led to it.
const STEP_PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Takes reports until the guard ends.
pub struct Clerk {
    /// The queues.
    pub ports: Arc<Ports>,
    /// What everybody sees.
    pub shared: Arc<Shared>,
    /// Keeps figures fresh, as fast as it is told to.
    pub warmer: Arc<Warmer>,
    /// Measures disks, as often as it is told to.
    pub keeper: Arc<Keeper>,
    /// Programs around a kill.
    pub hooks: Hooks,
    /// Inputs and answers, for replay.
    pub journal: Option<Journal>,
    /// The board of the newest roster.
    pub board: Arc<BoardCell>,
    /// Graces that have begun, for a restart.
    pub graces: Graces,
    /// What is worked out of decisions after the kill, for a restart.
    pub foretold: Foretold,
    /// Whether the right to enforce is ours.
    pub enforces: Arc<AtomicBool>,
    /// Steps whose loss the journal has been told of.
    pub steps_lost: u64,
    /// Whether the step of the configuration that the guard takes over has been seen.
    pub is_taken_over: bool,
    /// Where events are told.
    pub telling: Telling,
    /// Who makes incidents of kills.
    pub collector: Collector,
    /// Where Kubernetes is told.
    pub deliver: Deliver,
    /// What the kernel's programs offer, for what their rings lose.
    pub loaded: Arc<Loaded>,
    /// What their rings had lost when they were last looked at.
    pub ring_losses: RingLosses,
}

impl Clerk {
    /// Runs until the guard has ended.
    pub fn run(mut self) {
        loop {
            self.ports.reports.hush();
            while let Some(report) = self.ports.reports.take() {
                if let Report::Stopped = report {
                    // Nobody looks after this, and the last moments may have been the worst.
                    self.ring_losses.hurry();
                    self.count_lost();
                    self.shared.tell_guards_end();
                    return;
                }
                self.take(report);
            }
            self.count_lost();
            let mut bell = [PollFd::new(&self.ports.reports, PollFlags::IN)];
            // An order waits for the step that led to it, which comes at once unless it was lost.
            let patience = self.telling.has_waiting().then_some(STEP_PATIENCE);
            // An interrupted wait is an early one.
            let rung = poll(&mut bell, patience.as_ref());
            if rung == Ok(0) {
                self.telling.tell_waiting();
            }
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Step(step) => {
                let workloads = self.take_step(&step);
                give_back(&self.ports.steps, step, workloads);
            }
            Report::Heard(ticket) => self.shared.lock().heard = ticket,
            Report::Decided(page) => self.take_page(page, Occasion::Before),
            Report::Completed(page) => self.take_page(page, Occasion::After),
            Report::OomKill(record) => {
                let comm = brink_host::probe::decode::name(&record.comm).into_owned();
                let shortage = Shortage::of(&record);
                let short = shortage.word();
                warn!(
                    pid = record.pid,
                    comm, short, "the kernel's OOM killer chose a process"
                );
                self.collector.chosen(&record);
                if let Some(cluster) = self.deliver.get() {
                    cluster.oom_kill(&record);
                }
                self.shared.counters.oom_kill(shortage);
                self.shared.lock().oom_kills.add(record);
            }
            Report::Again(again) => self.take_again(again),
            Report::Rung(standing) => {
                self.telling.rung(guard::now(), &standing);
                self.take_standing(*standing);
            }
            Report::Pods(group) => self.take_pods_group(group),
            Report::Reconfigured(new) => self.take_reconfigured(*new),
            Report::Retired => self.ports.free_retired(),
            Report::Left(_) | Report::Stopped => {}
        }
    }

    /// The guard has taken a configuration over. Its step has told so already, unless that was lost.
    fn take_reconfigured(&mut self, new: Reconfiguration) {
        if std::mem::take(&mut self.is_taken_over) {
            return;
        }
        let mut state = self.shared.lock();
        let _the_same = state.pending.pop_front();
        state.reconfigure(&new);
        let mode = state.mode;
        drop(state);
        let memory = new.live.memory;
        self.telling
            .configuration(guard::now(), &new.policy, memory, mode);
        if let Some(journal) = &mut self.journal {
            journal.reconfigure(new);
        }
    }

    fn take_pods_group(&self, group: Option<String>) {
        if let Some(group) = group.as_deref() {
            info!(
                group,
                "allocatable memory is that of this group of all pods"
            );
        } else {
            warn!(
                "the group of all pods is gone: allocatable memory is not measured until it is there again"
            );
        }
        self.shared.lock().pods_group = group;
    }

    fn take_standing(&self, standing: Standing) {
        let (rung, scheduling) = (standing.rung.word(), &standing.scheduling);
        let reasons = standing.reasons.join("; ");
        if standing.reasons.is_empty() {
            info!(rung, scheduling, "the guard stands on the top rung");
        } else if standing.is_passing() && standing.reasons.len() == 1 {
            info!(
                rung,
                scheduling, reasons, "the guard begins on a lower rung"
            );
        } else if standing.rung == Rung::KernelSampler {
            warn!(
                rung,
                scheduling, reasons, "the guard stands on the top rung, and does without something"
            );
        } else {
            warn!(
                rung,
                scheduling, reasons, "the guard stands on a lower rung"
            );
        }
        self.shared.lock().standing = Some(standing);
    }

    /// Takes a step, and tells how many workloads the newest roster has. The state is free again before anything is written:
    /// a disk that stalls must not keep a pause waiting.
    fn take_step(&mut self, step: &Step) -> usize {
        let noted = self.note(step);
        self.warmer.set_slack(noted.slack);
        let enforces = noted.in_force.1 == Mode::Enforcing && self.is_enforcer();
        self.warmer.auditor().enforce(enforces);
        self.tell(step, &noted);
        let lost = self.steps_lost();
        if let Some(journal) = &mut self.journal {
            // Before the step: those that are missing may be from before it or after it, and a gap must not be told too late.
            if lost > self.steps_lost {
                journal.lost(lost - self.steps_lost);
                self.steps_lost = lost;
            }
            if let Some(new) = noted.new {
                journal.reconfigure(new);
            }
            journal.step(step, noted.table.as_ref());
        }
        if let Some(policy) = &noted.policy {
            self.shared.counters.step(policy, step);
            for action in &step.actions {
                say(policy, step, action);
            }
        }
        if let Some(kept) = noted.graces.as_ref().filter(|_| self.is_enforcer()) {
            self.graces.write(kept);
        }
        noted.workloads
    }

    /// Tells the events of a step.
    fn tell(&self, step: &Step, noted: &Noted) {
        if let Some(policy) = &noted.policy {
            self.telling.step(&Heard {
                step,
                policy,
                memory: noted.in_force.0,
                mode: noted.in_force.1,
                is_reconfigured: noted.new.is_some(),
            });
        }
    }

    /// Takes a step over into the state.
    fn note(&mut self, step: &Step) -> Noted {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let is_taken_over = step.kind == Kind::Reconfigure;
        let new = is_taken_over.then(|| state.pending.pop_front()).flatten();
        if let Some(new) = &new {
            state.reconfigure(new);
            self.is_taken_over = true;
        }
        if step.kind == Kind::Sample {
            remember(&mut state, step);
            self.keeper.see(&state.policy, &step.observations);
        }
        if let Kind::Recall(Recalled::Unfinished(before)) = step.kind
            && matches!(before.phase, Phase::Asked { .. })
        {
            state.open_order = Some(before.order);
            self.telling.taken_up(before.order);
        }
        let mut is_grace = false;
        for action in &step.actions {
            is_grace |= changes_grace(&state, action);
            self.apply(&mut state, step, action);
        }
        state.settle_recalled(step);
        // Another agent beside this one says how the node stands.
        if let Some(cluster) = self.deliver.get()
            && step.kind == Kind::Sample
            && self.is_enforcer()
        {
            let seen = (state.conditions, &step.observations);
            cluster.looked(seen, &state.policy, state.mode);
        }
        let is_look = is_grace || step.kind == Kind::Sample;
        let graces = is_look
            .then(|| self.graces.due(&state, step.at, is_grace))
            .flatten();
        Noted {
            new,
            table: state.table_of(step.generation).cloned(),
            policy: (!step.actions.is_empty() || is_taken_over).then(|| state.policy.clone()),
            in_force: (state.memory, state.mode),
            graces,
            slack: slack(&state),
            workloads: state.table().map_or(0, |table| table.len()),
        }
    }

    fn apply(&self, state: &mut State, step: &Step, action: &Action) {
        match *action {
            Action::Crossed { threshold } => {
                state.met.insert(threshold);
                // A grace that was recalled began before this agent saw it.
                state.met_since[threshold].get_or_insert(step.at);
            }
            Action::Cleared { threshold } => {
                state.met.remove(threshold);
                state.met_since[threshold] = None;
                state.held[threshold] = None;
            }
            Action::Held { threshold, reason } => state.held[threshold] = Some(reason),
            Action::Conditions(conditions) => state.conditions = conditions,
            Action::Mode(mode) => state.mode = mode,
            Action::Kill { order, .. }
            | Action::Ask { order, .. }
            | Action::WouldEvict { order, .. } => {
                state.open_order = Some(order);
                // An order of the last run rests on figures that this one has not got.
                // One for a limit on none of the node.
                if !matches!(step.kind, Kind::Recall(_) | Kind::Exceeded { .. }) {
                    foresee(&self.board, state, step, order);
                }
            }
            Action::Ended { .. } => state.open_order = None,
            Action::Reclaim { .. } => {}
        }
    }

    fn take_page(&mut self, page: Box<Page>, occasion: Occasion) {
        match page.record() {
            Ok(record) => {
                self.shared.counters.decision(&record, page.completion());
                let record = DecisionRecord::new(&record, page.completion());
                let decided = self.note_decision(record, occasion);
                self.tell_decision(&decided, occasion);
            }
            Err(error) => error!(%error, "a decision could not be read back"),
        }
        self.ports.recycle_page(page);
    }

    /// Takes a decision over into the state.
    fn note_decision(&self, mut record: DecisionRecord, occasion: Occasion) -> Decided {
        let mut state = self.shared.lock();
        if let Some((order, fates, table)) = &state.foreseen
            && *order == record.order
        {
            let victim = record.victim_name();
            record.kubelet = Some(KubeletView::new(fates, table, &victim));
        }
        let uid = &record.victim.uid;
        record.left_alone = state.left_alone.get(uid).cloned().unwrap_or_default();
        state.add_decision(record.clone());
        let qos = state.qos_of(&record.victim.uid);
        let is_new = occasion == Occasion::Before && self.deliver.get().is_some();
        let victim = is_new.then(|| state.workload(&record.victim.uid).cloned());
        let told = victim
            .flatten()
            .map(|victim| (victim, state.policy.clone()));
        // One that was left open, and is not taken up, ends without an answer of the engine's.
        if record.end.is_some() && state.open_order == Some(record.order) {
            state.open_order = None;
        }
        Decided { record, qos, told }
    }

    /// Tells a decision to everybody.
    fn tell_decision(&mut self, decided: &Decided, occasion: Occasion) {
        let (record, qos) = (&decided.record, decided.qos);
        // Before all else: a kubelet that has not heard of it starts again what was killed.
        if let (Some(cluster), Some((victim, policy))) = (self.deliver.get(), &decided.told) {
            cluster.ordered(record, victim, policy);
        }
        // At once: whoever has seen the record may end us now.
        if record.kubelet.is_some() {
            self.foretold.keep(&self.shared);
        }
        match occasion {
            Occasion::Before => {
                self.telling.ordered(record, qos);
                self.collector.ordered(record);
            }
            Occasion::After => {
                if !self.collector.completed(record, qos) {
                    self.telling.completed(record, qos);
                }
            }
        }
        log_decision(record);
        self.hooks.run(occasion, record);
        if let Some(journal) = &mut self.journal {
            journal.decision(record);
        }
    }

    /// Adds to a decision's record what was killed by it since.
    fn take_again(&mut self, again: Again) {
        let nanos = u64::try_from(again.at.as_nanos()).unwrap_or(0);
        let time = Time {
            wall: wall_clock(ClockPair::now().realtime_of(nanos)),
            monotonic_ns: again.at.as_nanos(),
        };
        let Again {
            order, processes, ..
        } = again;
        let mut state = self.shared.lock();
        let mut decisions = state.decisions.iter_mut().rev();
        let Some(known) = decisions.find(|record| record.order == order) else {
            warn!(
                order,
                processes, "what was started again in an evicted pod was killed"
            );
            return;
        };
        known.add_again(processes, time);
        let record = known.clone();
        drop(state);
        warn!(
            order,
            victim = record.victim_name(),
            processes,
            times = record.again.as_ref().map_or(0, |again| again.kills),
            "what a kubelet started again in an evicted pod was killed"
        );
        if let Some(journal) = &mut self.journal {
            journal.decision(&record);
        }
    }

    /// Steps that were not told, or not whole, so far. A report that found no room may have been one.
    fn steps_lost(&self) -> u64 {
        self.ports.steps_lost.load(Ordering::Relaxed) + self.ports.reports.lost()
    }

    /// Whether what outlives the agent is ours to write: a standby's orders and graces are its own.
    fn is_enforcer(&self) -> bool {
        self.enforces.load(Ordering::Acquire)
    }

    fn count_lost(&mut self) {
        let pages = self.ports.pages_lost.load(Ordering::Relaxed);
        let others = self.ports.commands.lost() + self.ports.evicted.lost();
        let lost = self.steps_lost() + pages + others;
        let before = std::mem::replace(&mut self.shared.lock().lost, lost);
        let now = guard::now();
        if lost > before {
            warn!(lost, "reports of the guard were lost: its queues were full");
            self.telling.lost_reports(now, lost - before, lost);
        }
        let meters = self.loaded.meters();
        self.telling.lost_records(
            &mut self.ring_losses,
            meters.as_deref(),
            (now, Instant::now()),
        );
    }
}

/// What is to be done about a step once the state is free again.
struct Noted {
    /// The configuration that it took over.
    new: Option<Reconfiguration>,
    /// The table that it speaks of.
    table: Option<Arc<WorkloadTable>>,
    /// The policy that its answers speak of; none without answers.
    policy: Option<Policy>,
    /// Whose word is enough, and whether orders are carried out.
    in_force: (MemoryPolicy, Mode),
    /// Graces to be kept.
    graces: Option<Kept>,
    /// Bytes to the nearest memory threshold.
    slack: i64,
    /// Workloads of the newest roster.
    workloads: usize,
}

/// What is to be told of a decision once the state is free again.
struct Decided {
    record: DecisionRecord,
    /// The class of its victim, if it is known.
    qos: Option<&'static str>,
    /// Its victim and the policy in force, where Kubernetes is to hear of a new order.
    told: Option<(Workload, Policy)>,
}

/// Only soft thresholds have a grace that a restart could lose.
fn changes_grace(state: &State, action: &Action) -> bool {
    let (Action::Crossed { threshold } | Action::Cleared { threshold }) = *action else {
        return false;
    };
    state.is_soft(threshold)
}

fn remember(state: &mut State, step: &Step) {
    let value = |signal: Signal| step.observations[signal].map(|seen| seen.available);
    state.add_course(Course {
        at: step.at,
        available: value(Signal::MemoryAvailable),
        allocatable: value(Signal::AllocatableMemoryAvailable),
        headroom: value(Signal::MemoryHeadroom),
    });
    let before = state.reading.take();
    let usage = if step.usage.is_empty() {
        let same = before.filter(|before| before.generation == step.generation);
        same.map_or_else(Vec::new, |before| before.usage)
    } else {
        state.closely += 1;
        step.usage.clone()
    };
    state.reading = Some(Reading {
        at: step.at,
        generation: step.generation,
        figures: step.figures,
        observations: step.observations,
        confirmation: step.confirmation,
        usage,
    });
}

/// Bytes to the nearest memory threshold, as of the last reading.
fn slack(state: &State) -> i64 {
    let Some(reading) = &state.reading else {
        return i64::MAX;
    };
    let thresholds = state.policy.thresholds().iter();
    let memory = thresholds.filter(|threshold| threshold.signal.is_memory());
    let slack = memory.filter_map(|threshold| {
        let seen = reading.observations[threshold.signal]?;
        Some(
            seen.available
                .saturating_sub(threshold.quantity(seen.capacity).value()),
        )
    });
    slack.min().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;

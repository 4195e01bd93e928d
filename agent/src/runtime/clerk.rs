//! The clerk: takes the guard's reports, keeps the state, tells the log, the journal and the hooks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use brink_core::base::Reason;
use brink_core::node::action::Action;
use brink_core::node::signal::Signal;
use rustix::event::{PollFd, PollFlags, poll};
use tracing::{error, info, warn};

use super::foresight::{BoardCell, foresee};
use super::graces::Graces;
use super::hooks::{Hooks, Occasion};
use super::journal::Journal;
use super::state::{Course, Reading, Shared, State};
use super::steps::give_back;
use crate::guard::page::Page;
use crate::guard::ports::{Ports, Report};
use crate::guard::rung::Standing;
use crate::guard::step::{Kind, Step};
use crate::record::DecisionRecord;
use crate::record::kubelet::KubeletView;
use crate::record::text::{amount, end_words};
use crate::record::words::mode_word;
use crate::warmer::Warmer;

/// Takes reports until the guard ends.
pub struct Clerk {
    /// The queues.
    pub ports: Arc<Ports>,
    /// What everybody sees.
    pub shared: Arc<Shared>,
    /// Keeps figures fresh, as fast as it is told to.
    pub warmer: Arc<Warmer>,
    /// Programs around a kill.
    pub hooks: Hooks,
    /// Inputs and answers, for replay.
    pub journal: Option<Journal>,
    /// The board of the newest roster.
    pub board: Arc<BoardCell>,
    /// Graces that have begun, for a restart.
    pub graces: Graces,
}

impl Clerk {
    /// Runs until the guard has ended.
    pub fn run(mut self) {
        loop {
            self.ports.reports.hush();
            while let Some(report) = self.ports.reports.take() {
                if let Report::Stopped = report {
                    self.shared.tell_guards_end();
                    return;
                }
                self.take(report);
            }
            self.count_lost();
            let mut bell = [PollFd::new(&self.ports.reports, PollFlags::IN)];
            // An interrupted wait is an early one.
            let _interrupted = poll(&mut bell, None);
        }
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Step(step) => {
                let workloads = self.take_step(&step);
                give_back(&self.ports.steps, step, workloads);
            }
            Report::Decided(page) => self.take_page(page, Occasion::Before),
            Report::Completed(page) => self.take_page(page, Occasion::After),
            Report::OomKill(record) => {
                let comm = brink_host::probe::decode::name(&record.comm).into_owned();
                warn!(
                    pid = record.pid,
                    comm, "the kernel's OOM killer chose a process"
                );
                self.shared.lock().add_oom_kill(record);
            }
            Report::Rung(standing) => self.take_standing(*standing),
            Report::Retired(_) | Report::Reconfigured(_) | Report::Stopped => {}
        }
    }

    fn take_standing(&self, standing: Standing) {
        let reasons = standing.reasons.join("; ");
        if standing.reasons.is_empty() {
            info!(
                rung = standing.rung.word(),
                scheduling = standing.scheduling,
                "the guard stands on the top rung"
            );
        } else {
            warn!(
                rung = standing.rung.word(),
                scheduling = standing.scheduling,
                reasons,
                "the guard stands on a lower rung"
            );
        }
        self.shared.lock().standing = Some(standing);
    }

    /// Takes a step, and tells how many workloads the newest roster has.
    fn take_step(&mut self, step: &Step) -> usize {
        let mut state = self.shared.lock();
        if step.kind == Kind::Reconfigure
            && let Some(new) = state.pending.take()
        {
            state.reconfigure(&new);
            if let Some(journal) = &mut self.journal {
                journal.reconfigure(new);
            }
        }
        if let Some(journal) = &mut self.journal {
            journal.step(step, state.table_of(step.generation));
        }
        if step.kind == Kind::Sample {
            remember(&mut state, step);
        }
        for action in &step.actions {
            self.tell(&mut state, step, action);
        }
        let slack = slack(&state);
        let workloads = state.table().map_or(0, |table| table.len());
        drop(state);
        self.warmer.set_slack(slack);
        workloads
    }

    fn tell(&self, state: &mut State, step: &Step, action: &Action) {
        match *action {
            Action::Crossed { threshold } => {
                state.met.insert(threshold);
                state.met_since[threshold] = Some(step.at);
                self.keep_grace(state, threshold);
                tell_threshold(state, step, threshold, "threshold crossed");
            }
            Action::Cleared { threshold } => {
                state.met.remove(threshold);
                state.met_since[threshold] = None;
                state.held[threshold] = None;
                self.keep_grace(state, threshold);
                tell_threshold(state, step, threshold, "threshold cleared");
            }
            Action::Held { threshold, reason } => {
                state.held[threshold] = Some(reason);
                if !matches!(reason, Reason::Waiting | Reason::Stale) {
                    let signal = signal_name(state, threshold);
                    info!(
                        signal,
                        reason = reason.word(),
                        "a threshold is due and not acted on"
                    );
                }
            }
            Action::Conditions(conditions) => {
                state.conditions = conditions;
                info!(conditions = %conditions, "node conditions");
            }
            Action::Mode(mode) => {
                state.mode = mode;
                warn!(
                    mode = mode_word(mode),
                    "whether orders are carried out changed"
                );
            }
            Action::Kill { order, .. }
            | Action::Ask { order, .. }
            | Action::WouldEvict { order, .. } => {
                state.open_order = Some(order);
                foresee(&self.board, state, step, order);
            }
            Action::Ended { .. } => state.open_order = None,
            Action::Reclaim { .. } => {}
        }
    }

    /// Only soft thresholds have a grace that a restart could lose.
    fn keep_grace(&self, state: &State, threshold: usize) {
        if state
            .policy
            .thresholds()
            .get(threshold)
            .is_some_and(|threshold| !threshold.is_hard())
        {
            self.graces.save(state);
        }
    }

    fn take_page(&mut self, page: Box<Page>, occasion: Occasion) {
        match page.record() {
            Ok(record) => {
                let mut record = DecisionRecord::new(&record, page.completion());
                let mut state = self.shared.lock();
                if let Some((order, fates, table)) = &state.foreseen
                    && *order == record.order
                {
                    let victim = record.victim_name();
                    record.kubelet = Some(KubeletView::new(fates, table, &victim));
                }
                state.add_decision(record.clone());
                drop(state);
                log_decision(&record);
                self.hooks.run(occasion, &record);
                if let Some(journal) = &mut self.journal {
                    journal.decision(&record);
                }
            }
            Err(error) => error!(%error, "a decision could not be read back"),
        }
        self.ports.recycle_page(page);
    }

    fn count_lost(&self) {
        let ports = &self.ports;
        let counters = [&ports.steps_lost, &ports.pages_lost];
        let lost: u64 = counters
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum();
        let lost = lost + ports.reports.lost() + ports.commands.lost();
        let mut state = self.shared.lock();
        if lost > state.lost {
            warn!(lost, "reports of the guard were lost: its queues were full");
            state.lost = lost;
        }
    }
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

fn signal_name(state: &State, threshold: usize) -> &'static str {
    state
        .policy
        .thresholds()
        .get(threshold)
        .map_or("", |threshold| threshold.signal.name())
}

fn tell_threshold(state: &State, step: &Step, threshold: usize, what: &str) {
    let Some(threshold) = state.policy.thresholds().get(threshold) else {
        return;
    };
    let name = threshold.signal.name();
    let seen = step.observations[threshold.signal];
    let available = seen
        .map(|seen| amount(name, seen.available))
        .unwrap_or_default();
    let quantity = seen.map(|seen| amount(name, threshold.quantity(seen.capacity).value()));
    let hard = threshold.is_hard();
    info!(
        signal = name,
        hard,
        available,
        quantity = quantity.unwrap_or_default(),
        "{what}"
    );
}

fn log_decision(record: &DecisionRecord) {
    let order = record.order;
    let victim = record.victim_name();
    let signal = record.threshold.signal.as_str();
    #[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
    let millis = |stage: &str| record.since_sample(stage).map(|nanos| nanos as f64 / 1e6);
    let Some(end) = &record.end else {
        info!(
            order,
            victim,
            signal,
            mode = record.mode,
            "eviction ordered"
        );
        return;
    };
    info!(
        order,
        victim,
        signal,
        mode = record.mode,
        signalled_ms = millis("firstSignal"),
        freed = crate::record::text::unsigned(record.freed_bytes),
        end = end_words(end),
        "eviction over"
    );
}

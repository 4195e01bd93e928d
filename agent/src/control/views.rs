//! What is answered: views of the shared state, and the few things that can be asked to happen.

use std::sync::Arc;
use std::time::Duration;

use brink_core::base::Moment;
use brink_core::node::decision::Standing;
use brink_core::node::observe::Layout;
use brink_core::node::rank::{Preferences, Ranking as RankFor, explain, place, rank};
use brink_core::node::signal::Signal;
use brink_core::node::workload::{PodUsage, WorkloadTable};
use brink_host::clock::ClockPair;
use brink_host::probe::Row;

use super::protocol::{
    Answer, Explanation, ProgramView, Question, Ranking, RingView, SamplerView, Status,
    ThresholdState,
};
use super::server::refused;
use crate::guard;
use crate::guard::ports::Command;
use crate::record::wire::{
    API_VERSION, RankedWorkload, SignalValue, Time, excess_word, memory_word, mode_word,
    preference_word, wall_clock,
};
use crate::runtime::prepare::Running;
use crate::runtime::state::State;

/// How long to wait for fresh figures before older ones are shown.
const FRESH: Duration = Duration::from_millis(200);

/// Everything that answers are made from.
pub struct Views {
    running: Arc<Running>,
}

impl Views {
    /// Views of a running agent.
    pub const fn new(running: Arc<Running>) -> Self {
        Self { running }
    }

    /// Answers one question.
    pub async fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Status => {
                self.refresh().await;
                Answer::Status(Box::new(self.status()))
            }
            Question::Rank { signal } => {
                self.refresh().await;
                self.ranking(signal.as_deref())
            }
            Question::ExplainWorkload { workload } => {
                self.refresh().await;
                self.explanation(&workload)
            }
            Question::Decision { order } => self.decision(order),
            Question::Decisions => {
                let state = self.running.shared.lock();
                Answer::Decisions(state.decisions.iter().cloned().collect())
            }
            Question::Pause { seconds } => self.pause(seconds).await,
            Question::Resume => self.resume().await,
        }
    }

    /// Asks the guard for a full reading, and waits a moment for it.
    async fn refresh(&self) {
        let before = self.running.shared.lock().closely;
        if self.running.ports.commands.send(Command::Inquire).is_err() {
            return;
        }
        let fresh = async {
            while self.running.shared.lock().closely == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Older figures carry their age.
        let _too_busy = tokio::time::timeout(FRESH, fresh).await;
    }

    async fn pause(&self, seconds: Option<u64>) -> Answer {
        if let Err(error) = self.running.button.press(seconds.map(Duration::from_secs)) {
            return refused(
                &format!("the stop button cannot be pressed: {error}"),
                "stop the agent to stop enforcement",
            );
        }
        let pressed = self.running.button.read();
        self.control(Command::Control(pressed.control())).await
    }

    async fn resume(&self) -> Answer {
        if let Err(error) = self.running.button.lift() {
            return refused(
                &format!("the stop button cannot be lifted: {error}"),
                &format!("remove {}", self.running.button.path().display()),
            );
        }
        self.control(Command::Control(brink_core::node::input::Control::Resume))
            .await
    }

    /// Sends a command and tells the mode that came of it.
    async fn control(&self, command: Command) -> Answer {
        if self.running.ports.commands.send(command).is_err() {
            return refused("the guard's queue is full", "try again");
        }
        self.refresh().await;
        Answer::Done {
            mode: mode_word(self.running.shared.lock().mode).to_owned(),
        }
    }

    fn decision(&self, order: Option<u64>) -> Answer {
        let state = self.running.shared.lock();
        let found = match order {
            Some(order) => state.decision(order),
            None => state.decisions.back(),
        };
        match (found, order) {
            (Some(record), _) => Answer::Decision(Box::new(record.clone())),
            (None, Some(order)) => refused(
                &format!("there is no decision {order} in the ledger of this boot"),
                "`brink explain` without a number shows the latest one",
            ),
            (None, None) => refused(
                "nothing has been decided since the machine was started",
                "`brink rank` shows who would go now",
            ),
        }
    }

    fn time(&self, at: Moment) -> Time {
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(0);
        Time {
            wall: wall_clock(self.running.started.realtime_of(nanos)),
            monotonic_ns: at.as_nanos(),
        }
    }

    fn status(&self) -> Status {
        let state = self.running.shared.lock();
        let now = guard::now();
        let reading = state.reading.as_ref();
        let table = state.table();
        let protected = table.map_or(0, |table| {
            table
                .rows()
                .iter()
                .filter(|row| row.is_critical || row.is_protected)
                .count()
        });
        let standing = state.standing.as_ref();
        let ClockPair { monotonic_ns, .. } = self.running.started;
        let started = Moment::from_nanos(i64::try_from(monotonic_ns).unwrap_or(0));
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Status {
            api_version: API_VERSION.to_owned(),
            kind: "Status".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.time(started),
            now: self.time(now),
            mode: mode_word(state.mode).to_owned(),
            memory_policy: memory_word(state.memory).to_owned(),
            rung: standing.map(|standing| standing.rung.word().to_owned()),
            scheduling: standing.map(|standing| standing.scheduling.clone()),
            rung_reasons: standing.map_or_else(Vec::new, |standing| standing.reasons.clone()),
            signals: signals(&state),
            headroom_bytes: reading.and_then(|reading| reading.figures.headroom),
            usable_swap_bytes: reading.map_or(0, |reading| reading.confirmation.swap),
            figures_age_ms: reading.map(|reading| now.since(reading.at).as_nanos() / 1_000_000),
            thresholds: thresholds(&state, now),
            conditions: state
                .conditions
                .iter()
                .map(|c| c.name().to_owned())
                .collect(),
            workloads: count(table.map_or(0, |table| table.len())),
            protected: count(protected),
            open_order: state.open_order,
            decisions: count(state.decisions.len()),
            last_order: state.decisions.back().map(|record| record.order),
            oom_kills: count(state.oom_kills.len()),
            programs: self.programs(),
            rings: self.rings(),
            reports_lost: state.lost,
            sampler: self.sampler(),
        }
    }

    fn programs(&self) -> Vec<ProgramView> {
        let view = |program: &crate::runtime::equipment::ProgramState| ProgramView {
            name: program.name.clone(),
            family: program.family.clone(),
            running: program.absent.is_none(),
            why: program.absent.clone(),
        };
        self.running.loaded.programs().iter().map(view).collect()
    }

    fn rings(&self) -> Vec<RingView> {
        let Some(meters) = self.running.loaded.meters() else {
            return Vec::new();
        };
        let view = |row: Row| {
            let loss = meters.loss(row).ok()?;
            Some(RingView {
                row: row.label().to_owned(),
                seen: loss.seen,
                sent: loss.sent,
                dropped: loss.dropped,
                filtered: loss.filtered,
            })
        };
        Row::ALL.into_iter().filter_map(view).collect()
    }

    fn sampler(&self) -> Option<SamplerView> {
        let meter = self.running.loaded.meters()?.sampler().ok()?;
        Some(SamplerView {
            ticks: meter.ticks,
            mean_ns: meter.cost_ns.checked_div(meter.ticks).unwrap_or(0),
            max_ns: meter.cost_max_ns,
        })
    }

    fn ranking(&self, signal: Option<&str>) -> Answer {
        let Some(signal) = parse_signal(signal) else {
            return refused(
                &format!("there is no signal {:?}", signal.unwrap_or_default()),
                "name one of those that `brink status` shows",
            );
        };
        let state = self.running.shared.lock();
        let Some(ranked) = Ranked::new(&state, signal) else {
            return refused(
                "the guard has not read the node yet",
                "try again in a moment",
            );
        };
        let name = |pair: &[u32]| ranked.why(pair[0], pair[1]);
        Answer::Ranking(Box::new(Ranking {
            api_version: API_VERSION.to_owned(),
            kind: "Ranking".to_owned(),
            signal: signal.name().to_owned(),
            now: self.time(guard::now()),
            workloads: ranked
                .order
                .iter()
                .map(|&index| ranked.workload(index))
                .collect(),
            why: ranked.order.windows(2).map(name).collect(),
        }))
    }

    fn explanation(&self, wanted: &str) -> Answer {
        let state = self.running.shared.lock();
        let Some(ranked) = Ranked::new(&state, Signal::MemoryAvailable) else {
            return refused(
                "the guard has not read the node yet",
                "try again in a moment",
            );
        };
        let Some(index) = ranked.find(wanted) else {
            return refused(
                &format!("no workload is called {wanted:?}"),
                "`brink rank` lists all of them; a number explains a decision",
            );
        };
        let place = ranked.order.iter().position(|&other| other == index);
        Answer::Explanation(Box::new(Explanation {
            api_version: API_VERSION.to_owned(),
            kind: "Explanation".to_owned(),
            workload: ranked.workload(index),
            signal: ranked.ranking.signal.name().to_owned(),
            place: place.and_then(|place| u32::try_from(place + 1).ok()),
            candidates: u32::try_from(ranked.order.len()).unwrap_or(u32::MAX),
            reasons: ranked.reasons(index, place),
            cgroups: Vec::new(),
        }))
    }
}

/// The workloads as they would be ranked now.
struct Ranked<'a> {
    ranking: RankFor,
    table: &'a WorkloadTable,
    usage: &'a [Option<PodUsage>],
    order: Vec<u32>,
}

impl<'a> Ranked<'a> {
    fn new(state: &'a State, signal: Signal) -> Option<Self> {
        let reading = state.reading.as_ref()?;
        let table = state.table_of(reading.generation)?;
        let ranking = RankFor {
            signal,
            layout: Layout::Single,
            preferences: Preferences::Respect,
        };
        let mut order = Vec::with_capacity(table.len());
        rank(ranking, table, &reading.usage, &mut order);
        Some(Self {
            ranking,
            table,
            usage: &reading.usage,
            order,
        })
    }

    fn find(&self, wanted: &str) -> Option<u32> {
        let workloads = self.table.workloads();
        let full = |w: &brink_core::node::workload::Workload| format!("{}/{}", w.namespace, w.name);
        let exactly = workloads
            .iter()
            .position(|w| full(w) == wanted || w.uid == wanted);
        let by_name = || workloads.iter().position(|w| w.name == wanted);
        u32::try_from(exactly.or_else(by_name)?).ok()
    }

    fn why(&self, one: u32, other: u32) -> String {
        explain(self.ranking, self.table, self.usage, (one, other))
    }

    fn workload(&self, index: u32) -> RankedWorkload {
        let place = place(self.ranking, self.table, self.usage, index).map(Standing::from);
        let workload = self.table.workloads().get(index as usize);
        let row = self.table.rows().get(index as usize);
        let text = |field: fn(&brink_core::node::workload::Workload) -> &String| {
            workload.map(field).cloned().unwrap_or_default()
        };
        RankedWorkload {
            namespace: text(|w| &w.namespace),
            name: text(|w| &w.name),
            uid: text(|w| &w.uid),
            preference: row
                .map_or("", |row| preference_word(row.preference))
                .to_owned(),
            usage_to_request: place
                .map_or("", |place| excess_word(place.excess))
                .to_owned(),
            priority: row.map_or(0, |row| row.priority),
            usage: place.and_then(|place| place.usage),
            request: place.map_or(0, |place| place.request),
            refusal: self.refusal(index).map(str::to_owned),
        }
    }

    fn refusal(&self, index: u32) -> Option<&'static str> {
        let row = self.table.rows().get(index as usize)?;
        let workload = self.table.workloads().get(index as usize)?;
        let refusal = workload.refusal().map(brink_core::base::Reason::word);
        refusal.or_else(|| row.is_protected.then_some("protected"))
    }

    fn reasons(&self, index: u32, place: Option<usize>) -> Vec<String> {
        let Some(place) = place else {
            return vec!["It is no candidate: nothing runs in it, or its life is over.".to_owned()];
        };
        let mut reasons = Vec::new();
        if let Some(refusal) = self.refusal(index) {
            reasons.push(format!("It is ranked, and refuses: {refusal}."));
        }
        let goes = |&&other: &&u32| self.refusal(other).is_none();
        let first = self.order.iter().find(goes).copied();
        match first {
            Some(first) if first == index => {
                reasons
                    .push("It would go first if a memory threshold were crossed now.".to_owned());
            }
            Some(first) => {
                reasons.push(format!("It would not go first: {}", self.why(first, index)));
            }
            None => reasons.push("Nobody can be evicted at all.".to_owned()),
        }
        if let Some(&next) = self.order.get(place + 1) {
            reasons.push(self.why(index, next));
        }
        reasons
    }
}

fn parse_signal(name: Option<&str>) -> Option<Signal> {
    let Some(name) = name else {
        return Some(Signal::MemoryAvailable);
    };
    Signal::ALL.into_iter().find(|signal| signal.name() == name)
}

fn signals(state: &State) -> Vec<SignalValue> {
    let Some(reading) = &state.reading else {
        return Vec::new();
    };
    let known = reading.observations.iter().filter_map(|(signal, seen)| {
        let seen = seen.as_ref()?;
        Some(SignalValue {
            signal: signal.name().to_owned(),
            available: seen.available,
            capacity: seen.capacity,
        })
    });
    known.collect()
}

fn thresholds(state: &State, now: Moment) -> Vec<ThresholdState> {
    let one = |(index, threshold): (usize, &brink_core::node::threshold::Threshold)| {
        let seen = state
            .reading
            .as_ref()
            .and_then(|r| r.observations[threshold.signal]);
        ThresholdState {
            signal: threshold.signal.name().to_owned(),
            value: threshold.value.to_string(),
            hard: threshold.is_hard(),
            grace_seconds: threshold.grace.as_secs(),
            quantity: seen.map(|seen| threshold.quantity(seen.capacity).value()),
            met: state.met.contains(index),
            met_for_ms: state.met_since[index].map(|since| now.since(since).as_nanos() / 1_000_000),
            held: state.held[index].map(|reason| reason.word().to_owned()),
        }
    };
    state
        .policy
        .thresholds()
        .iter()
        .enumerate()
        .map(one)
        .collect()
}

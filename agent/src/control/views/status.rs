//! How the agent and the node are: figures, thresholds, rung, mode, the open order, and what was lost.

use std::collections::BTreeMap;
use std::path::Path;

use brink_core::base::{Moment, Quantity};
use brink_core::node::threshold::{Threshold, Value};
use brink_host::clock::ClockPair;
use brink_host::probe::Row;
use brink_host::psi::{PressureReader, Stall};
use brink_stream::journal::{JournalState, JournalStatus};
use brink_stream::outlet::OutletStatus;

use super::Views;
use crate::control::protocol::{
    BrokenManifestView, DoorView, EventJournalView, EventsView, OomView, OutletView, ProgramView,
    RecorderView, RefusedView, RingView, SamplerView, Status, ThresholdState,
};
use crate::guard;
use crate::pod::{Broken, BrokenFile};
use crate::record::wire::{API_VERSION, OrderView, PressureView, SignalValue};
use crate::record::words::{memory_word, mode_word};
use crate::runtime::cluster::Cluster;
use crate::runtime::equipment::ProgramState;
use crate::runtime::oom_tally::OomTally;
use crate::runtime::state::State;
use crate::runtime::streaming::DoorState;

impl Views {
    /// How the agent and the node are now, by the latest figures.
    pub fn status(&self) -> Status {
        // Read before the state is held: whoever writes to it does not wait for files.
        let pressure = pressure(&self.running.root);
        let state = self.running.shared.lock();
        let now = guard::now();
        let reading = state.reading.as_ref();
        let standing = state.standing.as_ref();
        let ClockPair { monotonic_ns, .. } = self.running.started;
        let started = Moment::from_nanos(i64::try_from(monotonic_ns).unwrap_or(0));
        let open = state.open_order.and_then(|order| state.decision(order));
        Status {
            api_version: API_VERSION.to_owned(),
            kind: "Status".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: self.time(started),
            now: self.time(now),
            mode: mode_word(state.mode).to_owned(),
            pause: self.pressed(),
            other_enforcer: self.running.enforcement.other(),
            refused_configuration: state.refused.as_ref().map(|refused| RefusedView {
                at: self.time(refused.at),
                why: refused.why.clone(),
            }),
            broken_manifests: broken(&state.broken_manifests),
            more_broken_manifests: state.broken_manifests.more,
            memory_policy: memory_word(state.memory).to_owned(),
            rung: standing.map(|standing| standing.rung.word().to_owned()),
            scheduling: standing.map(|standing| standing.scheduling.clone()),
            rung_reasons: standing.map_or_else(Vec::new, |standing| standing.reasons.clone()),
            signals: signals(&state),
            pods_cgroup: state.pods_group.clone(),
            headroom_bytes: reading.and_then(|reading| reading.figures.headroom),
            usable_swap_bytes: reading.map_or(0, |reading| reading.confirmation.swap),
            figures_age_ms: reading.map(|reading| now.since(reading.at).as_nanos() / 1_000_000),
            pressure,
            thresholds: thresholds(&state, now),
            conditions: conditions(&state),
            workloads: count(state.table().map_or(0, |table| table.len())),
            protected: count(protected(&state)),
            open_order: open.map(OrderView::of),
            decisions: count(state.decisions.len()),
            last_order: state.decisions.back().map(OrderView::of),
            oom_kills: state.oom_kills.total(),
            oom: oom(&state.oom_kills),
            programs: self.programs(),
            rings: self.rings(),
            reports_lost: state.lost,
            sampler: self.sampler(),
            events: self.events(),
            recorder: self.recorder(now),
            kubernetes: self.running.cluster.as_ref().map(Cluster::view),
            storage: self.storage(&state, now),
            disks: self.running.disks.view(now),
        }
    }

    fn events(&self) -> Option<EventsView> {
        let telling = &self.running.telling;
        let numbering = telling.hub()?.numbering();
        let outlets = telling.outlets().into_iter();
        Some(EventsView {
            last: numbering.last,
            numbers: numbering.failed,
            journal: telling.journal().map(journal),
            outlets: outlets.map(outlet).collect(),
            doors: self.doors.iter().map(|door| door_view(door)).collect(),
        })
    }

    fn recorder(&self, now: Moment) -> Option<RecorderView> {
        let recorder = self.running.recorder.get()?;
        recorder.pace(now).map(RecorderView::of)
    }

    fn programs(&self) -> Vec<ProgramView> {
        let meters = self.running.loaded.meters();
        let skipped: BTreeMap<&str, u64> = meters
            .iter()
            .flat_map(|meters| meters.skipped(|_| true))
            .collect();
        let view = |program: &ProgramState| ProgramView {
            name: program.name.clone(),
            family: program.family.clone(),
            running: program.absent.is_none(),
            why: program.absent.clone(),
            skipped: skipped.get(program.name.as_str()).copied(),
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
        Some(SamplerView::of(
            meter.ticks,
            meter.cost_ns,
            meter.cost_max_ns,
        ))
    }
}

fn broken(manifests: &Broken) -> Vec<BrokenManifestView> {
    let view = |broken: &BrokenFile| BrokenManifestView {
        file: broken.path.display().to_string(),
        why: broken.why.clone(),
        pods_stand: broken.is_remembered,
    };
    manifests.files.iter().map(view).collect()
}

fn journal(status: JournalStatus) -> EventJournalView {
    let (state, why) = match status.state {
        JournalState::Writing => ("writing", None),
        JournalState::Full(why) => ("full", Some(why)),
        JournalState::Failed(why) => ("failed", Some(why)),
        JournalState::Unopened(why) => ("unopened", Some(why)),
    };
    EventJournalView {
        state: state.to_owned(),
        why,
        size: status.size,
        written: status.written,
        waiting: status.waiting as u64,
        lost: status.lost,
    }
}

fn outlet((name, status): (&'static str, OutletStatus)) -> OutletView {
    OutletView {
        name: name.to_owned(),
        why: status.failed,
        sent: status.sent,
        lost: status.lost,
    }
}

fn door_view(door: &DoorState) -> DoorView {
    DoorView {
        setting: door.setting.to_owned(),
        address: door.address.clone(),
        why: door.why(),
    }
}

/// What the kernel accounts for, in the order in which it concerns us.
fn pressure(root: &Path) -> Vec<PressureView> {
    let percent = |stall: Stall| f64::from(stall.avg10) / 100.0;
    let read = |resource: &str| {
        let found = PressureReader::node(root, resource).ok()?.read().ok()?;
        Some(PressureView {
            resource: resource.to_owned(),
            some: percent(found.some),
            full: found.full.map(percent),
        })
    };
    ["memory", "io", "cpu"]
        .into_iter()
        .filter_map(read)
        .collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn conditions(state: &State) -> Vec<String> {
    let names = state.conditions.iter().map(|one| one.name().to_owned());
    names.collect()
}

/// Workloads that are never evicted.
fn protected(state: &State) -> usize {
    let workloads = state.table().map_or(&[][..], |table| table.workloads());
    let spared = workloads.iter().filter(|each| each.spared().is_some());
    spared.count()
}

const fn oom(kills: &OomTally) -> OomView {
    OomView {
        node: kills.node,
        cgroup: kills.cgroup,
        unknown: kills.unknown,
        groups: kills.groups,
    }
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

/// How each threshold stands.
pub(super) fn thresholds(state: &State, now: Moment) -> Vec<ThresholdState> {
    let one = |(index, threshold): (usize, &Threshold)| {
        let seen = state
            .reading
            .as_ref()
            .and_then(|reading| reading.observations[threshold.signal]);
        let fixed = match threshold.value {
            Value::Quantity(quantity) => Some(quantity),
            Value::Fraction(_) => None,
        };
        let quantity = seen.map(|seen| threshold.quantity(seen.capacity)).or(fixed);
        ThresholdState {
            signal: threshold.signal.name().to_owned(),
            value: threshold.value.to_string(),
            hard: threshold.is_hard(),
            grace_seconds: threshold.grace.as_secs(),
            quantity: quantity.map(Quantity::value),
            observed: seen.is_some(),
            met: state.met.contains(index),
            met_for_ms: state.met_since[index].map(|since| now.since(since).as_nanos() / 1_000_000),
            held: state.held[index].map(|reason| reason.word().to_owned()),
        }
    };
    let thresholds = state.policy.thresholds().iter();
    thresholds.enumerate().map(one).collect()
}

//! The live rules as short stories: a node, its workloads, and what happens when.

mod changes;
mod disks;
mod evicted;
mod limits;
mod orders;
mod restart;
mod whom;

use alloc::string::ToString;
use alloc::vec::Vec;

use super::super::action::Action;
use super::super::gate::thresholds_met;
use super::super::input::{
    Confirmation, Control, Delivery, Recalled, Reconfiguration, Sample, Unfinished,
};
use super::super::observe::{Layout, Observation, Observations};
use super::super::order::{End, Phase};
use super::super::policy::Settings;
use super::super::signal::Signal;
use super::super::threshold::{Threshold, Value};
use super::super::workload::{PodUsage, Preference, PreferenceBy, Protection, Workload};
use super::*;
use crate::base::{Quantity, Span};

const MIB: i64 = 1 << 20;
const CAPACITY: i64 = 4096 * MIB;

fn ms(value: i64) -> Moment {
    Moment::from_nanos(value * 1_000_000)
}

fn threshold(signal: Signal, mib: i64, grace: i64) -> Threshold {
    Threshold {
        signal,
        grace: Span::from_secs(grace),
        value: Value::Quantity(Quantity::from_bytes(mib * MIB)),
        min_reclaim: None,
    }
}

/// A node with three workloads that use 300, 200 and 100 MiB, none of them requested.
struct Node {
    engine: Engine,
    actions: Actions,
    now: Moment,
    available: i64,
    headroom: Option<i64>,
    swap: u64,
    parked: Option<u64>,
    pids: Option<i64>,
    usage: Vec<Option<PodUsage>>,
}

impl Node {
    fn new(settings: LiveSettings, thresholds: Vec<Threshold>) -> Self {
        let policy = Policy::new(
            thresholds,
            Layout::Single,
            Settings {
                max_pod_grace: 5,
                ..Settings::default()
            },
        );
        let mut node = Self {
            engine: Engine::new(policy, settings, ms(0)),
            actions: Actions::default(),
            now: ms(0),
            available: 2048,
            headroom: Some(2048),
            swap: 0,
            parked: None,
            pids: None,
            usage: [300, 200, 100].map(|mib| Some(holding(mib))).to_vec(),
        };
        node.workloads(["a", "b", "c"].map(named).to_vec());
        node
    }

    fn enforcing(thresholds: Vec<Threshold>) -> Self {
        let settings = LiveSettings {
            enforce: true,
            memory: MemoryPolicy::Kubelet,
            ..LiveSettings::default()
        };
        Self::new(settings, thresholds)
    }

    fn workloads(&mut self, workloads: Vec<Workload>) {
        let generation = self.engine.table().generation() + 1;
        let table = Arc::new(WorkloadTable::new(workloads, generation));
        self.step(Input::Workloads(table));
    }

    fn step(&mut self, input: Input<'_>) -> Vec<Action> {
        self.engine.step(self.now, input, &mut self.actions);
        assert_eq!(self.actions.lost(), 0);
        self.actions.as_slice().to_vec()
    }

    /// A sample at `at` ms with so many MiB available, and as much headroom.
    fn at(&mut self, at: i64, available: i64) -> Vec<Action> {
        self.headroom = Some(available);
        self.sample(at, available)
    }

    fn sample(&mut self, at: i64, available: i64) -> Vec<Action> {
        self.now = ms(at);
        self.available = available;
        let (observations, confirmation) = self.figures();
        let usage = self.usage.clone();
        self.step(Input::Sample(&Sample {
            observations,
            confirmation,
            usage: &usage,
        }))
    }

    fn figures(&self) -> (Observations, Confirmation) {
        let mut observations = Observations::default();
        observations[Signal::MemoryAvailable] = Some(Observation {
            available: self.available * MIB,
            capacity: CAPACITY,
            at: Some(self.now),
        });
        observations[Signal::MemoryHeadroom] = self.headroom.map(|mib| Observation {
            available: mib * MIB,
            capacity: CAPACITY,
            at: Some(self.now),
        });
        observations[Signal::PidAvailable] = self.pids.map(|left| Observation {
            available: left,
            capacity: 32_768,
            at: Some(self.now),
        });
        let confirmation = Confirmation {
            node: self.headroom.map(|mib| mib * MIB),
            pods: None,
            swap: self.swap,
            pods_swap: self.swap,
            reserve: 10 * MIB as u64,
            unreaped: None,
            parked: self.parked,
        };
        (observations, confirmation)
    }

    /// Whether somebody could have to go for what the last sample said.
    fn is_pressed(&self) -> bool {
        let (observations, confirmation) = self.figures();
        let met = thresholds_met(self.engine.policy(), &observations, true);
        self.engine.is_pressing(met, &observations, &confirmation)
    }

    fn holds(&mut self, workload: usize, mib: u64) {
        self.usage[workload] = Some(holding(mib));
    }
}

fn holding(mib: u64) -> PodUsage {
    PodUsage {
        memory: Some(mib * MIB as u64),
        processes: Some(1),
        ..PodUsage::default()
    }
}

fn named(name: &str) -> Workload {
    Workload {
        name: name.to_string(),
        uid: name.to_string(),
        ..Workload::default()
    }
}

fn kills(actions: &[Action]) -> Vec<usize> {
    let kill = |action: &Action| match action {
        Action::Kill { workload, .. } => Some(*workload),
        _ => None,
    };
    actions.iter().filter_map(kill).collect()
}

fn held(actions: &[Action]) -> Vec<Reason> {
    let held = |action: &Action| match action {
        Action::Held { reason, .. } => Some(*reason),
        _ => None,
    };
    actions.iter().filter_map(held).collect()
}

fn ends(actions: &[Action]) -> Vec<End> {
    let end = |action: &Action| match action {
        Action::Ended { end, .. } => Some(*end),
        _ => None,
    };
    actions.iter().filter_map(end).collect()
}

fn hard() -> Vec<Threshold> {
    [threshold(Signal::MemoryAvailable, 100, 0)].to_vec()
}

fn soft_and_hard() -> Vec<Threshold> {
    [
        threshold(Signal::MemoryAvailable, 100, 0),
        threshold(Signal::MemoryAvailable, 200, 60),
    ]
    .to_vec()
}

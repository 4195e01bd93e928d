//! What the kubelet would have done: the same rules on samples ten seconds apart, on the course the node was on.
//!
//! At a decision nobody knows how far away the kubelet's next look is, so every whole second from
//! now to nine is tried. Between now and that look everything goes on growing as it did; if memory
//! runs out before, the kernel's own OOM killer comes first.

use alloc::vec::Vec;

use super::choose::choose;
use super::gate::{GateState, evaluate};
use super::grace;
use super::kubelet::MONITORING_INTERVAL;
use super::observe::{Observation, Observations};
use super::policy::Policy;
use super::rank::{Preferences, Ranking, rank};
use super::signal::Signal;
use super::workload::{PodUsage, WorkloadTable};
use crate::base::{Moment, Span};

/// Distances of the kubelet's next look that are tried, in seconds from 0.
pub const PHASES: usize = 10;
/// How far ahead the course is followed.
const HORIZON: Span = Span::from_secs(120);

/// The node at a decision and the course it was on.
#[derive(Clone, Copy, Debug)]
pub struct Course<'a> {
    /// The kubelet's policy; Brink's own headroom is left out.
    pub policy: &'a Policy,
    /// Since when its thresholds have been met.
    pub gate: &'a GateState,
    /// The moment of the decision.
    pub now: Moment,
    /// All signals at that moment.
    pub observations: &'a Observations,
    /// Change of each memory signal, in bytes a second; negative while memory runs short.
    pub rates: MemoryRates,
    /// Headroom with usable swap, in bytes, if known: at zero the kernel kills.
    pub headroom: Option<i64>,
    /// The workloads.
    pub table: &'a WorkloadTable,
    /// Their usage at that moment, parallel to the table.
    pub usage: &'a [Option<PodUsage>],
    /// Their growth in bytes a second, parallel to the table.
    pub growth: &'a [i64],
}

/// Change in bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryRates {
    /// Of `memory.available`.
    pub available: i64,
    /// Of `allocatableMemory.available`.
    pub allocatable: i64,
    /// Of headroom and usable swap together.
    pub headroom: i64,
}

/// What would have come of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Fate {
    /// The kubelet evicts.
    Evicts {
        /// How long after the decision.
        after: Span,
        /// Index of its victim in the table.
        workload: u32,
        /// The grace it asks for, in seconds.
        grace_seconds: i64,
    },
    /// The kernel's OOM killer comes first.
    KernelOom {
        /// How long after the decision memory runs out.
        after: Span,
    },
    /// Nothing within two minutes.
    Nothing,
}

/// What would have come of each phase: the kubelet looks after 0, 1, … 9 s, then every ten.
pub fn fates(course: &Course<'_>) -> [Fate; PHASES] {
    let mut order = Vec::with_capacity(course.table.len());
    let mut second = 0;
    [(); PHASES].map(|()| {
        let fate = fate(course, Span::from_secs(second), &mut order);
        second += 1;
        fate
    })
}

fn fate(course: &Course<'_>, first_look: Span, order: &mut Vec<u32>) -> Fate {
    let out_of_memory = course.out_of_memory();
    let mut gate = course.gate_of(course.now + first_look);
    let mut after = first_look;
    while after < HORIZON {
        if let Some(oom) = out_of_memory.filter(|&oom| oom <= after) {
            return Fate::KernelOom { after: oom };
        }
        let (observations, usage) = course.at(after);
        let verdict = evaluate(course.policy, &mut gate, course.now + after, &observations);
        if let Some(chosen) = choose(course.policy, verdict.fresh)
            && let Some((workload, grace_seconds)) = course.victim(chosen, &usage, order)
        {
            return Fate::Evicts {
                after,
                workload,
                grace_seconds,
            };
        }
        after = after + MONITORING_INTERVAL;
    }
    out_of_memory
        .filter(|&oom| oom < HORIZON)
        .map_or(Fate::Nothing, |after| Fate::KernelOom { after })
}

impl Course<'_> {
    /// When headroom and swap are used up at the present rate.
    fn out_of_memory(&self) -> Option<Span> {
        let headroom = self.headroom?.max(0);
        let falling = self.rates.headroom.checked_neg().filter(|&rate| rate > 0)?;
        let nanos = i128::from(headroom) * 1_000_000_000 / i128::from(falling);
        Some(Span::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX)))
    }

    /// The gate of a kubelet one of whose looks is at `look`: it saw a threshold met at its first look after it was.
    fn gate_of(&self, look: Moment) -> GateState {
        let mut gate = *self.gate;
        for index in 0..self.policy.thresholds().len() {
            if let Some(since) = gate.first_observed(index) {
                let interval = MONITORING_INTERVAL.as_nanos();
                let looks = look.since(since).as_nanos() / interval;
                gate.resume(
                    index,
                    look - Span::from_nanos(looks.saturating_mul(interval)),
                );
            }
        }
        gate
    }

    fn at(&self, after: Span) -> (Observations, Vec<Option<PodUsage>>) {
        let mut observations = *self.observations;
        observations[Signal::MemoryHeadroom] = None;
        let rates = [
            (Signal::MemoryAvailable, self.rates.available),
            (Signal::AllocatableMemoryAvailable, self.rates.allocatable),
        ];
        for (signal, rate) in rates {
            observations[signal] = observations[signal].map(|seen| Observation {
                available: moved(seen.available, rate, after),
                ..seen
            });
        }
        for signal in Signal::ALL {
            observations[signal] = observations[signal].map(|seen| Observation {
                at: Some(self.now + after),
                ..seen
            });
        }
        let grown = |(index, used): (usize, &Option<PodUsage>)| {
            let rate = self.growth.get(index).copied().unwrap_or(0);
            used.map(|used| PodUsage {
                memory: used.memory.map(|bytes| grown(bytes, rate, after)),
                ..used
            })
        };
        (
            observations,
            self.usage.iter().enumerate().map(grown).collect(),
        )
    }

    fn victim(
        &self,
        chosen: usize,
        usage: &[Option<PodUsage>],
        order: &mut Vec<u32>,
    ) -> Option<(u32, i64)> {
        let threshold = self.policy.thresholds().get(chosen)?;
        let ranking = Ranking {
            signal: threshold.signal,
            layout: self.policy.layout().of_kubelet(),
            preferences: Preferences::Ignore,
        };
        rank(ranking, self.table, usage, order);
        let refuses = |index: u32| {
            let workload = self.table.workloads().get(index as usize);
            workload.is_none_or(|each| each.is_critical() || each.is_outside(threshold.signal))
        };
        let victim = order.iter().copied().find(|&index| !refuses(index))?;
        let pod = self
            .table
            .workloads()
            .get(victim as usize)?
            .termination_grace;
        let maximum = self.policy.settings.max_pod_grace;
        Some((
            victim,
            grace::override_seconds(threshold.is_hard(), maximum, pod),
        ))
    }
}

fn moved(bytes: i64, rate: i64, after: Span) -> i64 {
    let change = i128::from(rate) * i128::from(after.as_nanos()) / 1_000_000_000;
    let moved = i128::from(bytes) + change;
    i64::try_from(moved).unwrap_or(if moved < 0 { i64::MIN } else { i64::MAX })
}

fn grown(bytes: u64, rate: i64, after: Span) -> u64 {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    u64::try_from(moved(bytes, rate, after)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::super::observe::Layout;
    use super::super::policy::Settings;
    use super::super::threshold::{Threshold, Value};
    use super::super::workload::Workload;
    use super::*;
    use crate::base::Quantity;

    const MIB: i64 = 1 << 20;

    fn threshold(mib: i64, grace: i64) -> Threshold {
        Threshold {
            signal: Signal::MemoryAvailable,
            grace: Span::from_secs(grace),
            value: Value::Quantity(Quantity::from_bytes(mib * MIB)),
            min_reclaim: None,
        }
    }

    fn named(name: &str) -> Workload {
        Workload {
            name: name.to_string(),
            uid: name.to_string(),
            ..Workload::default()
        }
    }

    /// 99 MiB left of 4 GiB.
    fn short_of(signal: Signal) -> Observations {
        let mut observations = Observations::default();
        observations[signal] = Some(Observation {
            available: 99 * MIB,
            capacity: 4096 * MIB,
            at: Some(Moment::START),
        });
        observations
    }

    fn holds(mib: u64) -> PodUsage {
        PodUsage {
            memory: Some(mib << 20),
            ..PodUsage::default()
        }
    }

    /// 99 MiB available with a hard threshold of 100 MiB; `a` uses 300 MiB, `b` 200 MiB and grows.
    fn fates_at(thresholds: &[Threshold], headroom: i64, rate: i64) -> [Fate; PHASES] {
        fates_since(thresholds, headroom, rate, None)
    }

    /// The same with the first threshold met since then.
    fn fates_since(
        thresholds: &[Threshold],
        headroom: i64,
        rate: i64,
        since: Option<Moment>,
    ) -> [Fate; PHASES] {
        let mut gate = GateState::default();
        if let Some(since) = since {
            gate.resume(0, since);
        }
        let policy = Policy::new(thresholds.to_vec(), Layout::Single, Settings::default());
        let table = WorkloadTable::new(["a", "b"].map(named).to_vec(), 1);
        let observations = short_of(Signal::MemoryAvailable);
        fates(&Course {
            policy: &policy,
            gate: &gate,
            now: Moment::START,
            observations: &observations,
            rates: MemoryRates {
                available: -rate * MIB,
                allocatable: 0,
                headroom: -rate * MIB,
            },
            headroom: Some(headroom * MIB),
            table: &table,
            usage: &[300, 200].map(|mib| Some(holds(mib))),
            growth: &[0, rate * MIB],
        })
    }

    #[test]
    fn a_fast_leak_meets_the_kernels_killer_in_most_phases() {
        let fates = fates_at(&[threshold(100, 0)], 99, 50);
        let oom = Span::from_millis(1980);
        let evicts = |after| Fate::Evicts {
            after: Span::from_secs(after),
            workload: 0,
            grace_seconds: 1,
        };
        assert_eq!(fates[..2], [evicts(0), evicts(1)]);
        assert_eq!(fates[2..], [Fate::KernelOom { after: oom }; 8]);
    }

    #[test]
    fn the_victim_is_who_uses_most_when_the_kubelet_looks() {
        let fates = fates_at(&[threshold(100, 0)], 900, 40);
        let victims = fates.map(|fate| match fate {
            Fate::Evicts { workload, .. } => Some(workload),
            _ => None,
        });
        assert_eq!(victims, [0, 0, 0, 1, 1, 1, 1, 1, 1, 1].map(Some));
    }

    #[test]
    fn a_soft_threshold_is_looked_at_until_its_grace_is_over() {
        let fates = fates_at(&[threshold(100, 15)], 900, 0);
        let after = |second| Fate::Evicts {
            after: Span::from_secs(second),
            workload: 0,
            grace_seconds: 0,
        };
        assert_eq!(fates[0], after(20));
        assert_eq!(fates[5], after(25));
    }

    #[test]
    fn a_grace_began_at_the_kubelets_first_look_after_the_crossing() {
        let crossed = Moment::from_secs(-8);
        let fates = fates_since(&[threshold(100, 15)], 900, 0, Some(crossed));
        let after = fates.map(|fate| match fate {
            Fate::Evicts { after, .. } => after.as_secs(),
            _ => -1,
        });
        assert_eq!(after, [20, 21, 12, 13, 14, 15, 16, 17, 18, 19]);
    }

    #[test]
    fn for_the_memory_of_the_pods_somebody_among_them_goes() {
        for (signal, expected) in [
            (Signal::AllocatableMemoryAvailable, 1),
            (Signal::MemoryAvailable, 0),
        ] {
            let thresholds = [Threshold {
                signal,
                ..threshold(100, 0)
            }];
            let policy = Policy::new(thresholds.to_vec(), Layout::Single, Settings::default());
            let placed = |(name, outside_pods): (&str, bool)| Workload {
                outside_pods,
                ..named(name)
            };
            let table = WorkloadTable::new([("a", true), ("b", false)].map(placed).to_vec(), 1);
            let observations = short_of(signal);
            let fates = fates(&Course {
                policy: &policy,
                gate: &GateState::default(),
                now: Moment::START,
                observations: &observations,
                rates: MemoryRates::default(),
                headroom: None,
                table: &table,
                usage: &[300, 200].map(|mib| Some(holds(mib))),
                growth: &[0, 0],
            });
            let evicts =
                |fate| matches!(fate, Fate::Evicts { workload, .. } if workload == expected);
            assert!(fates.into_iter().all(evicts), "{signal:?}: {fates:?}");
        }
    }

    #[test]
    fn a_crossing_that_nobody_grows_into_ends_in_nothing() {
        assert_eq!(
            fates_at(&[threshold(50, 0)], 900, 0),
            [Fate::Nothing; PHASES]
        );
    }
}

//! The truth of one run: when each signal crossed, by a sampler of its own, and who was killed when, by the kernel's tracer.
use std::{fs, path::Path, time::Duration};

use anyhow::Context as _;
use brink_host::{
    cgroup::{CgroupDir, Layout},
    meminfo::MeminfoReader,
    probe::{
        abi::{
            Plain as _,
            sample::{
                SOURCE_NODE_AVAILABLE, SOURCE_NODE_ESTIMATE, SOURCE_NODE_HEADROOM,
                SOURCE_NODE_SHARE, SOURCE_SLOT_AVAILABLE,
            },
            truth::{Crossing, TruthWatch},
        },
        truth::{Order, Truth},
    },
    zoneinfo::Zoneinfo,
};
use std::os::fd::{AsFd as _, AsRawFd as _};

use crate::bench::{
    measure::{trace::Trace, truth, units::signed},
    peers::contender::Signal,
};

/// What is over after so long was no crossing that anybody had to answer.
const SPIKE_NS: u64 = 1_000_000;
const EVENTS: [&str; 2] = ["oom/mark_victim", "signal/signal_generate"];
/// Of all signals only these two.
const FILTER: &str = "sig==9||sig==15";
/// `si_code` of a signal that the kernel sends.
const FROM_KERNEL: &str = "128";

/// The judge of all runs of a guest.
pub(super) struct Judge {
    truth: Truth,
    trace: Trace,
    pods: CgroupDir,
    period_ns: u64,
    total: u64,
    /// What the kernel keeps back of its estimate in all, and the sum of the zones' low watermarks.
    estimate: [i64; 2],
}

/// What counts as crossed, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Aim {
    /// Of headroom, the estimate and the working set.
    pub(super) limits: [i64; 3],
    /// What the pods' group may be charged.
    pub(super) pods_may: i64,
    /// The share of all memory that has to be available of what users have or could have.
    pub(super) share: i64,
}

/// A signal that was sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shot {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) at: u64,
    /// The process.
    pub(super) target: i32,
    /// By the kernel's own killer.
    pub(super) by_kernel: bool,
    /// SIGKILL, and not SIGTERM.
    pub(super) is_kill: bool,
}

impl Judge {
    /// Loads the truth, which looks once a period, and learns what the kernel keeps back.
    pub(super) fn new(layout: &Layout, pods: &str, period: Duration) -> anyhow::Result<Self> {
        let truth = truth::load()?;
        let trace = Trace::start(&EVENTS)?.context("there is no tracefs")?;
        trace.filter("signal/signal_generate", FILTER)?;
        let meminfo = MeminfoReader::open(Path::new("/"))?.read()?;
        let hierarchy = layout.require(brink_host::cgroup::Controller::Memory)?;
        let mut judge = Self {
            truth,
            trace,
            pods: CgroupDir::open(hierarchy, pods)?,
            period_ns: u64::try_from(period.as_nanos())?,
            total: meminfo.total,
            estimate: [0, low_watermarks()?],
        };
        judge.estimate[0] = judge.kept_back()?;
        Ok(judge)
    }

    /// What the truth's own sum is above the kernel's figure: the kernel keeps that back. Others may take memory between
    /// the two readings, so it is the middle one of many.
    fn kept_back(&mut self) -> anyhow::Result<i64> {
        const READINGS: usize = 31;
        let file = MeminfoReader::open(Path::new("/"))?;
        self.values()?;
        let mut differences = Vec::new();
        for _ in 0..READINGS {
            truth::wait_for_tick(&self.truth)?;
            let sum = self.now()?[1];
            let available = file.read()?.available.context("no MemAvailable")?;
            differences.push(sum - signed(available));
        }
        differences.sort_unstable();
        Ok(differences[READINGS / 2])
    }

    /// All signals now, in their order; of the pods' usage what is left of nothing, of a share all of the estimate.
    pub(super) fn values(&mut self) -> anyhow::Result<[i64; 5]> {
        self.start([i64::MIN; 5], Aim::default())?;
        self.now()
    }

    /// All signals as of the latest tick.
    pub(super) fn now(&self) -> anyhow::Result<[i64; 5]> {
        let mut values = [0; 5];
        for (value, index) in values.iter_mut().zip(0..) {
            *value = self.truth.crossing(index)?.value;
        }
        Ok(values)
    }

    /// Judges against these limits from now on.
    pub(super) fn aim(&mut self, aim: Aim) -> anyhow::Result<()> {
        let [headroom, estimate, available] = aim.limits;
        let [unused, share] = [Signal::PodsUsage, Signal::Share].map(|signal| signal.least(0));
        self.start([headroom, estimate, available, unused, share], aim)?;
        self.trace.clear()
    }

    fn start(&mut self, limits: [i64; 5], aim: Aim) -> anyhow::Result<()> {
        let [reserve, low] = self.estimate;
        let [headroom, estimate, available, unused, share] = limits;
        let node = |source, limit| TruthWatch {
            source,
            limit,
            ..TruthWatch::ZERO
        };
        let estimated = |source, limit| TruthWatch {
            capacity: reserve,
            reclaimable: low,
            ..node(source, limit)
        };
        let watches = [
            node(SOURCE_NODE_HEADROOM, headroom),
            estimated(SOURCE_NODE_ESTIMATE, estimate),
            node(SOURCE_NODE_AVAILABLE, available),
            TruthWatch {
                source: SOURCE_SLOT_AVAILABLE,
                fd: self.pods.as_fd().as_raw_fd(),
                limit: unused,
                capacity: aim.pods_may,
                ..TruthWatch::ZERO
            },
            TruthWatch {
                inactive_file: aim.share,
                ..estimated(SOURCE_NODE_SHARE, share)
            },
        ];
        self.truth.start(&Order {
            period_ns: self.period_ns,
            capacity: self.total,
            deferred: 0,
            watches: &watches,
        })?;
        truth::forget(&mut self.truth)
    }

    /// What became of one signal.
    pub(super) fn crossing(&self, signal: Signal) -> anyhow::Result<Crossing> {
        Ok(self.truth.crossing(u32::try_from(signal.place())?)?)
    }

    /// What became of all of them, in their order.
    pub(super) fn crossings(&self) -> anyhow::Result<[Crossing; Signal::ALL.len()]> {
        let mut crossings = [Crossing::ZERO; Signal::ALL.len()];
        for (crossing, signal) in crossings.iter_mut().zip(Signal::ALL) {
            *crossing = self.crossing(signal)?;
        }
        Ok(crossings)
    }

    /// Who was signalled since [`Judge::aim`], in order. Stops the trace.
    pub(super) fn shots(&self) -> anyhow::Result<Vec<Shot>> {
        let entries = self.trace.read()?;
        let mut shots: Vec<Shot> = entries
            .iter()
            .filter(|entry| entry.name == "signal_generate")
            .filter_map(|entry| shot(entry.at, &entry.fields))
            .collect();
        shots.sort_by_key(|shot| shot.at);
        Ok(shots)
    }

    /// What the truth itself takes of a processor, in thousandths.
    pub(super) fn cost(&self) -> anyhow::Result<u64> {
        let result = self.truth.result()?;
        let mean = result.cost_ns.checked_div(result.ticks).unwrap_or(0);
        Ok(mean * 1000 / self.period_ns)
    }
}

/// `sig=9 errno=0 code=0 comm=a pid=12 grp=1 res=0`
fn shot(at: u64, fields: &str) -> Option<Shot> {
    // A command name may hold anything; what follows it does not.
    let (before, after) = fields.rsplit_once(" pid=")?;
    let value = |name: &str| {
        let mut words = before.split(' ');
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    Some(Shot {
        at,
        target: after.split(' ').next()?.parse().ok()?,
        by_kernel: value("code") == Some(FROM_KERNEL),
        is_kill: value("sig") == Some("9"),
    })
}

/// The first time below the limit that had to be answered: the later one, if the first was but a spike.
pub(super) fn crossed(crossing: &Crossing) -> Option<u64> {
    let first = Some(crossing.crossed_ns).filter(|&at| at > 0)?;
    let was_spike =
        crossing.back_ns > 0 && crossing.back_ns.saturating_sub(crossing.crossed_ns) <= SPIKE_NS;
    let later = crossing.latest_ns > first;
    Some(if was_spike && later {
        crossing.latest_ns
    } else {
        first
    })
}

/// The crossing that a signal of that time answered: a spike too, if it came before the longer one.
pub(super) fn answered(crossing: &Crossing, signalled: Option<u64>) -> Option<u64> {
    let held = crossed(crossing)?;
    let spike = crossing.crossed_ns;
    let is_for_spike = signalled.is_some_and(|at| (spike..held).contains(&at));
    Some(if is_for_spike { spike } else { held })
}

/// The sum of the zones' low watermarks, in bytes.
fn low_watermarks() -> anyhow::Result<i64> {
    let text = fs::read_to_string("/proc/zoneinfo").context("/proc/zoneinfo")?;
    let pages: i64 = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("low "))
        .filter_map(|rest| rest.trim().parse::<i64>().ok())
        .sum();
    anyhow::ensure!(
        Zoneinfo::read(Path::new("/")).is_ok() && pages > 0,
        "no watermarks in /proc/zoneinfo"
    );
    Ok(pages * i64::try_from(rustix::param::page_size())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_whatever_the_command_is_called() {
        let expected = Shot {
            at: 7,
            target: 12,
            by_kernel: false,
            is_kill: true,
        };
        let of = |text| shot(7, text);
        assert_eq!(
            of("sig=9 errno=0 code=0 comm=a pid=3 b pid=12 grp=1 res=0"),
            Some(expected)
        );
        let kernel = of("sig=9 errno=0 code=128 comm=brink-hog pid=12 grp=1 res=0");
        assert!(kernel.is_some_and(|shot| shot.by_kernel));
        let term = of("sig=15 errno=0 code=0 comm=brink-hog pid=12 grp=1 res=0");
        assert!(term.is_some_and(|shot| !shot.is_kill));
        assert_eq!(of("sig=9"), None);
    }

    #[test]
    fn a_spike_is_no_crossing_if_a_longer_one_follows() {
        let crossing = |back, latest| Crossing {
            crossed_ns: 100,
            back_ns: back,
            latest_ns: latest,
            ..Crossing::ZERO
        };
        assert_eq!(crossed(&Crossing::ZERO), None);
        assert_eq!(crossed(&crossing(0, 100)), Some(100));
        assert_eq!(
            crossed(&crossing(100 + SPIKE_NS, 9_000_000)),
            Some(9_000_000)
        );
        assert_eq!(crossed(&crossing(101 + SPIKE_NS, 9_000_000)), Some(100));
        let spike = crossing(100 + SPIKE_NS, 9_000_000);
        assert_eq!(answered(&spike, None), Some(9_000_000));
        assert_eq!(answered(&spike, Some(9_000_000)), Some(9_000_000));
        assert_eq!(answered(&spike, Some(5_000_000)), Some(100));
        assert_eq!(answered(&spike, Some(99)), Some(9_000_000), "before both");
    }
}

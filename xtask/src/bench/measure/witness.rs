//! The truth: a sampler of its own in the kernel, every 50 µs, that knows nothing of the agent.
use std::{
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

use anyhow::Context as _;
use brink_host::{
    cgroup::{CgroupDir, stat::StatReader},
    meminfo::MeminfoReader,
    probe::{
        abi::{
            Plain as _,
            sample::{
                SOURCE_NODE_AVAILABLE, SOURCE_NODE_HEADROOM, SOURCE_SLOT_AVAILABLE,
                SOURCE_SLOT_HEADROOM,
            },
            truth::{Crossing, TruthWatch},
        },
        truth::{Order, Truth},
    },
    zoneinfo::Zoneinfo,
};

use super::{truth, units::signed};

/// The period of the truth.
pub(super) const PERIOD_NS: u64 = 50_000;

/// Whose memory is judged.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ground<'a> {
    /// The machine's.
    Machine,
    /// A group's, whose limit is the capacity.
    Group(&'a CgroupDir),
}

/// The judge.
pub(super) struct Witness {
    truth: Truth,
    confirmed: bool,
}

/// What it saw of one crossing. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    /// The first time below the limit; nothing if there was none.
    pub(super) first: Option<Excursion>,
    /// The latest, which may be the first.
    pub(super) latest: Option<Excursion>,
    /// Bytes below the limit at the worst.
    pub(super) overshoot: i64,
}

/// What is over as soon as this was no crossing that anybody had to answer: five of the truth's ticks.
const SPIKE_NS: u64 = 250_000;

/// A time below the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Excursion {
    /// The first tick below the limit.
    pub(super) crossed: u64,
    /// The tick before that.
    pub(super) before: u64,
    /// The first tick at the limit again; nothing while it lasts.
    pub(super) back: Option<u64>,
}

impl Seen {
    /// The time below the limit that somebody met who looked at `looked`; the first if nobody looked, or if it was more
    /// than a spike.
    pub(super) fn met(&self, looked: Option<u64>) -> Option<Excursion> {
        let was_spike = self.first.is_some_and(|first| {
            first
                .back
                .is_some_and(|back| back.saturating_sub(first.crossed) <= SPIKE_NS)
        });
        let latest = self
            .latest
            .filter(|latest| was_spike && looked.is_some_and(|looked| latest.before <= looked));
        latest.or(self.first)
    }
}

impl Witness {
    /// Loads it. With `confirmed`, a crossing is both `memory.available` and headroom below the limit, as that policy
    /// has it; else `memory.available` alone.
    pub(super) fn new(confirmed: bool) -> anyhow::Result<Self> {
        Ok(Self {
            truth: truth::load()?,
            confirmed,
        })
    }

    /// Judges against a limit from now on.
    pub(super) fn aim(&mut self, ground: Ground<'_>, limit: i64) -> anyhow::Result<()> {
        let (watches, order) = match ground {
            Ground::Machine => machine(limit)?,
            Ground::Group(dir) => group(dir, limit)?,
        };
        self.truth.start(&Order {
            watches: &watches,
            ..order
        })?;
        self.forget()
    }

    /// Forgets what was seen.
    pub(super) fn forget(&mut self) -> anyhow::Result<()> {
        truth::forget(&mut self.truth)
    }

    /// `memory.available` now, in bytes.
    pub(super) fn available(&mut self, ground: Ground<'_>) -> anyhow::Result<i64> {
        self.aim(ground, i64::MIN)?;
        Ok(self.truth.crossing(0)?.value)
    }

    /// The crossing, if there was one.
    pub(super) fn seen(&self) -> anyhow::Result<Seen> {
        let available = self.truth.crossing(0)?;
        if !self.confirmed {
            return Ok(of(&available));
        }
        Ok(later(&available, &self.truth.crossing(1)?))
    }

    /// Watches a group's usage fall to `limit` from now on; [`Seen::back`] is when it has.
    pub(super) fn aim_at_usage(&mut self, dir: &CgroupDir, limit: i64) -> anyhow::Result<()> {
        // What is left of nothing, less the usage: below `-limit` while more than `limit` is used.
        let watches = [TruthWatch {
            source: SOURCE_SLOT_AVAILABLE,
            fd: dir.as_fd().as_raw_fd(),
            limit: -limit,
            ..TruthWatch::ZERO
        }];
        self.truth.start(&Order {
            period_ns: PERIOD_NS,
            capacity: 0,
            deferred: 0,
            watches: &watches,
        })?;
        self.forget()
    }

    /// The only watch.
    pub(super) fn first(&self) -> anyhow::Result<Seen> {
        Ok(of(&self.truth.crossing(0)?))
    }

    /// What the truth itself costs and misses, as a note.
    pub(super) fn note(&self) -> anyhow::Result<String> {
        let result = self.truth.result()?;
        let mean = result.cost_ns.checked_div(result.ticks).unwrap_or(0);
        Ok(format!(
            "the truth sampler took {mean} ns a tick in the mean and {:.0} µs at most; its ticks were {:.0} µs apart at most",
            super::units::micros(signed(result.cost_max_ns)),
            super::units::micros(signed(result.gap_max_ns)),
        ))
    }
}

fn of(crossing: &Crossing) -> Seen {
    let known = |at: u64| Some(at).filter(|&at| at > 0);
    let excursion = |crossed, before, back| {
        known(crossed).map(|crossed| Excursion {
            crossed,
            before,
            back: known(back),
        })
    };
    Seen {
        first: excursion(crossing.crossed_ns, crossing.before_ns, crossing.back_ns),
        latest: excursion(
            crossing.latest_ns,
            crossing.latest_before_ns,
            crossing.latest_back_ns,
        ),
        overshoot: crossing.overshoot,
    }
}

/// Both are below their limit from the later crossing to the earlier way back.
fn later(available: &Crossing, headroom: &Crossing) -> Seen {
    let (one, other) = (of(available), of(headroom));
    let both = |one: Option<Excursion>, other: Option<Excursion>| {
        let (one, other) = (one?, other?);
        let last = if one.crossed >= other.crossed {
            one
        } else {
            other
        };
        let back = match (one.back, other.back) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let together = Excursion { back, ..last };
        together
            .back
            .is_none_or(|back| back > together.crossed)
            .then_some(together)
    };
    let latest = both(one.latest, other.latest);
    Seen {
        first: both(one.first, other.first).or(latest),
        latest,
        overshoot: if one.first.map(|first| first.crossed) >= other.first.map(|first| first.crossed)
        {
            one.overshoot
        } else {
            other.overshoot
        },
    }
}

fn machine(limit: i64) -> anyhow::Result<([TruthWatch; 2], Order<'static>)> {
    let info = MeminfoReader::open(Path::new("/"))?.read()?;
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let owned = Zoneinfo::read(Path::new("/"))?.totals().free * page;
    let watch = |source| TruthWatch {
        source,
        limit,
        ..TruthWatch::ZERO
    };
    let order = Order {
        period_ns: PERIOD_NS,
        capacity: info.total,
        deferred: info.free.saturating_sub(owned),
        watches: &[],
    };
    Ok((
        [watch(SOURCE_NODE_AVAILABLE), watch(SOURCE_NODE_HEADROOM)],
        order,
    ))
}

fn group(dir: &CgroupDir, limit: i64) -> anyhow::Result<([TruthWatch; 2], Order<'static>)> {
    let capacity = dir
        .memory_limit()?
        .value()
        .context("the group has no limit")?;
    let stat = StatReader::open(dir)?.read()?;
    let known = |bytes: Option<u64>| signed(bytes.unwrap_or(0));
    let file = known(stat.active_file) + known(stat.inactive_file);
    let held = known(stat.dirty) + known(stat.writeback);
    let watch = |source| TruthWatch {
        source,
        fd: dir.as_fd().as_raw_fd(),
        limit,
        capacity: signed(capacity),
        inactive_file: known(stat.inactive_file),
        reclaimable: (file - held).max(0) + known(stat.slab_reclaimable),
    };
    let order = Order {
        period_ns: PERIOD_NS,
        capacity,
        deferred: 0,
        watches: &[],
    };
    Ok((
        [watch(SOURCE_SLOT_AVAILABLE), watch(SOURCE_SLOT_HEADROOM)],
        order,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_that_is_over_is_not_what_was_met() {
        let excursion = |crossed, back| Excursion {
            crossed,
            before: crossed - 1,
            back,
        };
        let seen = |back| Seen {
            first: Some(excursion(10, Some(back))),
            latest: Some(excursion(20_000_000, None)),
            overshoot: 0,
        };
        let (spike, missed) = (10 + SPIKE_NS, 11 + SPIKE_NS);
        for (back, looked, expected) in [
            (spike, Some(20_000_001), 20_000_000),
            (spike, Some(19_999_999), 20_000_000),
            (spike, Some(19_999_998), 10),
            (spike, None, 10),
            (missed, Some(20_000_001), 10),
        ] {
            let met = seen(back).met(looked).map(|met| met.crossed);
            assert_eq!(met, Some(expected), "{back} {looked:?}");
        }
        assert_eq!(Seen::default().met(Some(5)), None);
    }
}

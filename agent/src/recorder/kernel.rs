//! What the kernel's programs record: the node every 10 ms, and counts of each cgroup.

use std::sync::Arc;

use brink_host::probe::abi::flight::FlightPoint;
use brink_host::probe::{FlightReader, Meters, ProbeError};
use brink_stream::model::incident::NodePoint;

use super::cut::{Form, NodePart, REACH_MS};
use super::point::{Counts, Tells};

/// What the programs count, and which of it means something: one is not to be had without the other, for what is read is kept
/// until they count again.
pub struct Counters {
    /// Of everybody.
    pub meters: Arc<Meters>,
    tells: Tells,
}

impl Counters {
    /// What they have counted of a cgroup: what none of them counts is a zero there, and says nothing.
    pub fn of(&self, id: u64) -> Option<Counts> {
        let meter = self.meters.cgroup(id).ok()?.unwrap_or_default();
        let reclaims = meter.direct.saturating_add(meter.memcg);
        Some(Counts {
            reclaims: self.tells.reclaims.then_some(reclaims),
            forks: self.tells.forks.then_some(meter.forks),
        })
    }
}

/// The reading ends of the programs' maps.
pub struct Kernel {
    flight: FlightReader,
    meters: Arc<Meters>,
}

impl Kernel {
    /// What the programs offer, once they are loaded.
    pub const fn new(flight: FlightReader, meters: Arc<Meters>) -> Self {
        Self { flight, meters }
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        Counters {
            meters: Arc::clone(&self.meters),
            tells: self.tells(),
        }
    }

    /// Whether a point was left since then (`CLOCK_MONOTONIC`, nanoseconds): the sampler may be refused or stand still.
    pub fn is_recording(&self, since_ns: u64) -> bool {
        let meter = self.meters.sampler();
        meter.is_ok_and(|meter| meter.flights > 0 && meter.flight_ns >= since_ns)
    }

    /// Whether every cgroup that comes or goes is counted.
    pub const fn tells_cgroups(&self) -> bool {
        self.flight.tells().cgroups
    }

    /// What is counted of each cgroup.
    pub const fn tells(&self) -> Tells {
        let tells = self.flight.tells();
        Tells {
            reclaims: tells.reclaims,
            forks: tells.forks,
        }
    }

    /// From one point to the next, in milliseconds.
    pub fn period_ms(&self) -> u32 {
        u32::try_from(self.flight.every_ns() / 1_000_000).unwrap_or(0)
    }

    /// The node up to `at_ns`, as this form wants it.
    ///
    /// # Errors
    /// [`ProbeError`] when a map cannot be read.
    pub fn node(&self, at_ns: u64, form: Form) -> Result<NodePart, ProbeError> {
        let written = self.meters.sampler()?.flights;
        let reach = u64::from(REACH_MS) * 1_000_000;
        let mut kept = form.node();
        let (mut reclaims, mut forks) = (Rising::default(), Rising::default());
        let tells = self.flight.tells();
        let span = (at_ns.saturating_sub(reach), at_ns);
        self.flight.read(written, span, |point| {
            let before_ms = u32::try_from((at_ns - point.at_ns) / 1_000_000).unwrap_or(REACH_MS);
            let reclaims = reclaims.next(point.reclaims);
            let forks = forks.next(point.forks);
            let full = NodePoint {
                reclaims: tells.reclaims.then_some(reclaims),
                forks: tells.forks.then_some(forks),
                ..node_point(before_ms, point)
            };
            kept.push(before_ms, full);
        })?;
        Ok(NodePart {
            points: kept.finish(),
            period_ms: self.period_ms(),
        })
    }
}

fn node_point(before_ms: u32, point: &FlightPoint) -> NodePoint {
    let amount = |units: u32| FlightPoint::bytes(units.into()).unsigned_abs();
    NodePoint {
        before_ms,
        available: FlightPoint::bytes(point.available.into()),
        headroom: FlightPoint::bytes(point.headroom.into()),
        anon: amount(point.anon),
        file: amount(point.file),
        ..NodePoint::default()
    }
}

/// A counter of which the points have the low bits, oldest first.
#[derive(Clone, Copy, Debug, Default)]
struct Rising {
    latest: Option<u64>,
}

impl Rising {
    fn next(&mut self, bits: u32) -> u64 {
        let latest = self.latest.unwrap_or_else(|| bits.into());
        let value = latest + u64::from(bits.wrapping_sub(super::point::low(latest)));
        self.latest = Some(value);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_goes_on_where_its_low_bits_come_round() {
        let mut rising = Rising::default();
        let found = [5, 7, u32::MAX, 2, 2].map(|bits| rising.next(bits));
        let round = 1 << 32;
        assert_eq!(found, [5, 7, round - 1, round + 2, round + 2]);
    }
}

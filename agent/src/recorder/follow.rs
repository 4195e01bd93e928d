//! The cgroups near their limit as the kernel's timer follows them: who stands in which lane, and what was left there.

use std::time::Duration;

use brink_host::clock;
use brink_host::probe::abi::survey::{LANES, PAGE_TRACES, TRACE_PAGES, Trace, UNTRACED};
use brink_host::probe::{ProbeError, Survey};

use super::book::NEAR;
use super::point::{Stamp, bytes};

/// Whoever is recorded closely has a lane there too.
const _: () = assert!(NEAR == LANES);

/// What the thread knows of the timer.
#[derive(Debug)]
pub struct Following {
    lanes: [Lane; NEAR],
    /// Left since the beat before, oldest first. Takes all the memory it ever will at the start.
    traces: Vec<Trace>,
    period: Duration,
}

/// Who stands in a lane.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// A slot of a group, and whether every movement of it counts.
    holder: Option<(usize, bool)>,
    /// What was left before that was of somebody else, in nanoseconds of `CLOCK_MONOTONIC`.
    since_ns: u64,
}

impl Default for Following {
    fn default() -> Self {
        Self {
            lanes: [Lane::default(); NEAR],
            traces: Vec::with_capacity(PAGE_TRACES * TRACE_PAGES as usize),
            period: Duration::ZERO,
        }
    }
}

impl Following {
    /// Has the timer leave a trace once in a period.
    ///
    /// # Errors
    /// [`ProbeError`] where there is no such timer.
    pub fn keep_pace(&mut self, survey: &mut Survey, period: Duration) -> Result<(), ProbeError> {
        if self.period != period {
            survey.follow_every(period)?;
            self.period = period;
        }
        Ok(())
    }

    /// Takes what was left since the last time.
    ///
    /// # Errors
    /// [`ProbeError`] where it cannot be read; then there is nothing.
    pub fn collect(&mut self, survey: &mut Survey) -> Result<(), ProbeError> {
        self.traces.clear();
        survey.traces(|trace| self.traces.push(*trace))
    }

    /// What the group of this slot used each time, in bytes, oldest first; none where that is not known. Nothing but for the lane
    /// that it stands in.
    pub fn of(&self, lane: usize, slot: usize) -> impl Iterator<Item = (Stamp, Option<u64>)> {
        let found = self.lanes.get(lane).copied().unwrap_or_default();
        let is_his = found.holder.is_some_and(|(holder, _)| holder == slot);
        let traces = self.traces.iter().filter(move |_| is_his);
        let traces = traces.filter(move |trace| trace.at_ns > found.since_ns);
        traces.map(move |trace| {
            let units = trace.units.get(lane).copied().unwrap_or(UNTRACED);
            let usage = (units != UNTRACED).then(|| bytes(units));
            (Stamp::of(trace.at_ns), usage)
        })
    }

    /// Gives a lane to the group of a slot, or to nobody. `is_close` has every movement of it count.
    ///
    /// # Errors
    /// [`ProbeError`] where the kernel does not take it; then nobody stands there.
    pub fn assign(
        &mut self,
        survey: &mut Survey,
        lane: usize,
        holder: Option<(usize, bool)>,
    ) -> Result<(), ProbeError> {
        let Some(place) = self.lanes.get_mut(lane) else {
            return Ok(());
        };
        if place.holder == holder {
            return Ok(());
        }
        let before = place.holder.take();
        let slot = holder.map(|(slot, _)| slot);
        survey.follow(lane, slot, holder.is_some_and(|(_, close)| close))?;
        place.holder = holder;
        if before.map(|(slot, _)| slot) != slot {
            place.since_ns = clock::monotonic_ns();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_in_a_lane_is_of_who_stands_there_and_since_he_does() {
        let mut following = Following::default();
        following.lanes[5] = Lane {
            holder: Some((40, false)),
            since_ns: 2_000_000,
        };
        for (millis, units) in [(1, 7), (2, 8), (3, 9), (4, UNTRACED)] {
            let mut trace = Trace {
                at_ns: millis * 1_000_000,
                units: [UNTRACED; LANES],
            };
            trace.units[5] = units;
            following.traces.push(trace);
        }
        let of = |lane, slot| following.of(lane, slot).collect::<Vec<_>>();
        let at = |millis: u64| Stamp::of(millis * 1_000_000);
        assert_eq!(of(5, 40), [(at(3), Some(9 << 12)), (at(4), None)]);
        assert_eq!(of(5, 41), []);
        assert_eq!(of(6, 40), []);
        assert_eq!(of(NEAR, 40), []);
    }
}

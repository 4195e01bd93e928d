//! What the flight recorder's timer leaves in the kernel: a ring of traces, and how many there were.

use std::array::from_fn;
use std::convert::Infallible;

use brink::recorder::point;
use brink_host::probe::TraceReading;
use brink_host::probe::abi::Plain;
use brink_host::probe::abi::plain::read;
use brink_host::probe::abi::survey::{Follower, PAGE_TRACES, TRACE_PAGES, Trace, TracePage};

use crate::Taken;

/// Traces that the ring holds.
const LENGTH: usize = PAGE_TRACES * TRACE_PAGES as usize;
/// The page that comes next is left alone.
const MOST: usize = LENGTH - PAGE_TRACES;

/// What the timer has counted at two readings, one after the other, and the ring as both of them find it. What is missing at the end
/// is zeros, like whatever was never written.
pub(crate) fn traces(bytes: &[u8]) -> Taken {
    let (counts, ring) = bytes.split_at(bytes.len().min(2 * size_of::<Follower>()));
    let held = |place: usize| -> Trace {
        let rest = ring.get(place * size_of::<Trace>()..);
        rest.and_then(read).unwrap_or(Trace::ZERO)
    };
    let page = |index: u32| -> Result<TracePage, Infallible> {
        let first = index as usize * PAGE_TRACES;
        let traces = from_fn(|offset| held(first + offset));
        Ok(TracePage { traces })
    };
    let (mut reading, mut read_to, mut handed) = (TraceReading::default(), 0, 0);
    for counted in counts.chunks(size_of::<Follower>()) {
        let Some(counted) = read::<Follower>(counted) else {
            break;
        };
        let before = reading.followed().overwritten;
        let mut found = Vec::new();
        let Ok(()) = reading.go_on(counted, page, |trace| found.push(*trace));
        check(&found, counted.traces, held);
        // Each that was left is handed over once or told as overwritten.
        let left = counted.traces.saturating_sub(read_to);
        let missing = left.checked_sub(found.len() as u64);
        let followed = reading.followed();
        assert_eq!(followed.counted, counted);
        assert_eq!(
            Some(followed.overwritten),
            missing.map(|missing| before.saturating_add(missing))
        );
        read_to = counted.traces;
        handed += found.len();
    }
    Taken::from_accepted(handed > 0)
}

/// They are the newest of so many, oldest first, as they stand in the ring.
fn check(found: &[Trace], written: u64, held: impl Fn(usize) -> Trace) {
    assert!(found.len() <= MOST, "{}", found.len());
    for (number, trace) in (0..written).rev().zip(found.iter().rev()) {
        let place = usize::try_from(number % LENGTH as u64);
        assert_eq!(place.map(&held), Ok(*trace), "{number}");
        let _stamp = point::Stamp::of(trace.at_ns);
        for units in trace.units {
            assert_eq!(point::units(point::bytes(units)), units);
        }
    }
}

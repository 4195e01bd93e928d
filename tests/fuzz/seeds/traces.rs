//! The ring of traces, as the flight recorder's timer leaves it.

use brink_host::probe::abi::plain::bytes_of;
use brink_host::probe::abi::survey::{Follower, LANES, PAGE_TRACES, TRACE_PAGES, Trace, UNTRACED};

use super::write;

/// Traces that it holds.
const LENGTH: usize = PAGE_TRACES * TRACE_PAGES as usize;

pub(super) fn rings() {
    write("traces", "two-readings", &ring([20, 50], 50));
    write("traces", "overwritten", &ring([40, 400], 48));
}

/// What was counted at two readings, and the first places of the ring at the second.
fn ring(counted: [u64; 2], places: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for traces in counted {
        let follower = Follower {
            traces,
            told: traces / 8,
            cost_ns: traces * 4_000,
            cost_max_ns: 20_000,
        };
        bytes.extend_from_slice(bytes_of(&follower));
    }
    let length = LENGTH as u64;
    for place in 0..places {
        let rounds = (counted[1] - 1 - place) / length;
        bytes.extend_from_slice(bytes_of(&trace(place + rounds * length)));
    }
    bytes
}

/// One every 100 ms: somebody who grows, somebody who stands still, and nobody else.
fn trace(number: u64) -> Trace {
    let mut trace = Trace {
        at_ns: 9_956_458_758_556 + number * 100_000_000,
        units: [UNTRACED; LANES],
    };
    trace.units[0] = 25_600 + u32::try_from(number).unwrap_or(0);
    trace.units[5] = 7;
    trace
}

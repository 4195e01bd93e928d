//! The cgroups that the survey follows by itself: a timer in the kernel leaves what they use in a ring, and wakes only when one moves.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use aya::Ebpf;
use aya::maps::{Array, MapData, RingBuf};
use aya::programs::{ProgramError, SocketFilter, TestRun as _, TestRunOptions};
use brink_abi::survey::{Follower, PAGE_TRACES, TRACE_PAGES, Trace, TracePage};

use super::error::{ProbeError, Refusal};
use super::load::{chain, take};
use super::pod::Pod;
use super::programs::FOLLOW as NAME;

const TRACES: &str = "TRACES";
const FOLLOWER: &str = "FOLLOWER";
/// Traces of the whole ring.
const LENGTH: u64 = PAGE_TRACES as u64 * TRACE_PAGES as u64;
/// A packet for the test run; the program never looks at it, the kernel wants an Ethernet header's worth.
const PACKET: [u8; 32] = [0; 32];

/// The reading ends of what the timer leaves.
pub(super) struct Follow {
    pace: Array<MapData, u64>,
    moved: RingBuf<MapData>,
    /// The same, for whoever waits while another uses the survey.
    moved_fd: Arc<OwnedFd>,
    traces: Array<MapData, Pod<TracePage>>,
    follower: Array<MapData, Pod<Follower>>,
    /// Traces that were read, or passed over.
    read: u64,
    /// What was counted when they were read last.
    counted: Follower,
}

impl Follow {
    /// Loads the program. The timer stands still until it gets a pace.
    pub(super) fn load(object: &mut Ebpf) -> Result<Self, ProbeError> {
        program(object)?
            .load()
            .map_err(|error| ProbeError::Object(chain(&error)))?;
        let moved: RingBuf<MapData> = take(object, "MOVED")?;
        let moved_fd = moved.as_fd().try_clone_to_owned();
        let moved_fd = moved_fd.map_err(|error| ProbeError::Io {
            what: "a second descriptor of the ring that wakes the flight recorder",
            error,
        })?;
        Ok(Self {
            pace: take(object, "PACE")?,
            moved,
            moved_fd: Arc::new(moved_fd),
            traces: take(object, TRACES)?,
            follower: take(object, FOLLOWER)?,
            read: 0,
            counted: Follower::default(),
        })
    }

    /// Starts the timer, or gives it another pace.
    pub(super) fn start(&mut self, object: &mut Ebpf, period_ns: u64) -> Result<(), ProbeError> {
        let failed = |error| ProbeError::Map {
            name: "PACE",
            error,
        };
        self.pace.set(0, period_ns, 0).map_err(failed)?;
        let options = TestRunOptions {
            data_in: Some(&PACKET),
            ..TestRunOptions::default()
        };
        let result = program(object)?.test_run(options).map_err(broken)?;
        match Refusal::from_result(result.return_value) {
            None => Ok(()),
            Some(why) => Err(ProbeError::Refused { what: NAME, why }),
        }
    }

    /// Readable when one has moved.
    pub(super) fn moved(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.moved_fd)
    }

    /// Hands over what was left since the last time, oldest first. Of what was overwritten meanwhile nothing is said.
    pub(super) fn read(&mut self, mut each: impl FnMut(&Trace)) -> Result<(), ProbeError> {
        // Before the traces: who moves after that wakes anew.
        while self.moved.next().is_some() {}
        self.counted = self.counts()?;
        let left = self.counted.traces;
        for number in pages_of(self.read, left) {
            let index = u32::try_from(number % u64::from(TRACE_PAGES)).unwrap_or(0);
            let Pod(page) = self
                .traces
                .get(&index, 0)
                .map_err(|error| ProbeError::Map {
                    name: TRACES,
                    error,
                })?;
            for (place, trace) in (number * PAGE_TRACES as u64..).zip(&page.traces) {
                if (self.read..left).contains(&place) {
                    each(trace);
                }
            }
        }
        self.read = left;
        Ok(())
    }

    /// What the timer had counted when its traces were read last.
    pub(super) const fn counted(&self) -> Follower {
        self.counted
    }

    fn counts(&self) -> Result<Follower, ProbeError> {
        let found = self.follower.get(&0, 0);
        let Pod(found) = found.map_err(|error| ProbeError::Map {
            name: FOLLOWER,
            error,
        })?;
        Ok(found)
    }
}

/// The pages of what was left and not read, by their number since the start: all but one that may be begun meanwhile.
fn pages_of(read: u64, left: u64) -> std::ops::Range<u64> {
    let page = PAGE_TRACES as u64;
    let end = left.div_ceil(page);
    let oldest = end.saturating_sub(LENGTH / page - 1);
    (read / page).max(oldest)..end
}

fn program(object: &mut Ebpf) -> Result<&mut SocketFilter, ProbeError> {
    let loaded = object
        .program_mut(NAME)
        .ok_or(ProbeError::NotLoaded(NAME))?;
    loaded.try_into().map_err(broken)
}

fn broken(error: ProgramError) -> ProbeError {
    ProbeError::Program { name: NAME, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_is_read_but_for_the_page_that_comes_next() {
        let check =
            |read, left, expected| assert_eq!(pages_of(read, left), expected, "{read} {left}");
        let (page, pages) = (PAGE_TRACES as u64, u64::from(TRACE_PAGES));
        check(0, 0, 0..0);
        check(0, 1, 0..1);
        check(1, 1, 0..1);
        check(page - 1, page + 1, 0..2);
        check(page, page + 1, 1..2);
        check(0, pages * page, 1..pages);
        check(0, pages * page + 1, 2..pages + 1);
        check(5 * page, pages * page + 1, 5..pages + 1);
    }
}

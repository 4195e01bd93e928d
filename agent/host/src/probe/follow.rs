//! The cgroups that the survey follows by itself: a timer in the kernel leaves what they use in a ring, and wakes only when one moves.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use aya::Ebpf;
use aya::maps::{Array, MapData, RingBuf};
use aya::programs::SocketFilter;
use brink_abi::survey::{Follower, PAGE_TRACES, TRACE_PAGES, Trace, TracePage};

use super::call::{done, program, run};
use super::error::ProbeError;
use super::load::{chain, take};
use super::pages::{Shape, in_map};
use super::pod::Pod;
use super::programs::FOLLOW as NAME;

const TRACES: &str = "TRACES";
const FOLLOWER: &str = "FOLLOWER";
const RING: Shape = Shape {
    page: PAGE_TRACES,
    pages: TRACE_PAGES,
};

/// How following stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// What the timer had counted when its traces were read last.
    pub counted: Follower,
    /// Traces that were overwritten before anybody read them.
    pub overwritten: u64,
}

/// How far the ring of traces was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceReading {
    /// Traces that were read, or passed over.
    read: u64,
    /// As it stood when they were read last.
    followed: Followed,
}

impl TraceReading {
    /// Hands over what was left since the last time, oldest first. What was overwritten meanwhile is counted. `counted` is as the
    /// timer had counted before, and `page` finds a page by its place in the ring.
    ///
    /// # Errors
    /// The first of `page`; the next time begins where this one did.
    pub fn go_on<E>(
        &mut self,
        counted: Follower,
        page: impl FnMut(u32) -> Result<TracePage, E>,
        mut each: impl FnMut(&Trace),
    ) -> Result<(), E> {
        self.followed.counted = counted;
        let unread = self.read..counted.traces;
        let mut found = 0;
        RING.read(page, (unread.start, unread.end), |first, page| {
            for (offset, trace) in page.traces.iter().enumerate() {
                if unread.contains(&(first + offset as u64)) {
                    found += 1;
                    each(trace);
                }
            }
        })?;
        self.read = unread.end;
        // The timer's count never falls, but nothing here depends on that.
        let left = unread.end.saturating_sub(unread.start);
        let overwritten = &mut self.followed.overwritten;
        *overwritten = overwritten.saturating_add(left.saturating_sub(found));
        Ok(())
    }

    /// As it stood when traces were read last.
    pub const fn followed(&self) -> Followed {
        self.followed
    }
}

/// The reading ends of what the timer leaves.
pub(super) struct Follow {
    pace: Array<MapData, u64>,
    moved: RingBuf<MapData>,
    /// The same, for whoever waits while another uses the survey.
    moved_fd: Arc<OwnedFd>,
    traces: Array<MapData, Pod<TracePage>>,
    follower: Array<MapData, Pod<Follower>>,
    reading: TraceReading,
}

impl Follow {
    /// Loads the program. The timer stands still until it gets a pace.
    pub(super) fn load(object: &mut Ebpf) -> Result<Self, ProbeError> {
        program::<SocketFilter>(object, NAME)?
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
            reading: TraceReading::default(),
        })
    }

    /// Starts the timer, or gives it another pace.
    pub(super) fn start(&mut self, object: &mut Ebpf, period_ns: u64) -> Result<(), ProbeError> {
        let failed = |error| ProbeError::Map {
            name: "PACE",
            error,
        };
        self.pace.set(0, period_ns, 0).map_err(failed)?;
        done(NAME, run(program(object, NAME)?, NAME)?)
    }

    /// Readable when one has moved.
    pub(super) fn moved(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.moved_fd)
    }

    /// Hands over what was left since the last time, oldest first. What was overwritten meanwhile is counted.
    pub(super) fn read(&mut self, each: impl FnMut(&Trace)) -> Result<(), ProbeError> {
        // Before the traces: who moves after that wakes anew.
        while self.moved.next().is_some() {}
        let counted = self.counts()?;
        let page = in_map(&self.traces, TRACES);
        self.reading.go_on(counted, page, each)
    }

    /// As it stood when its traces were read last.
    pub(super) const fn followed(&self) -> Followed {
        self.reading.followed()
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

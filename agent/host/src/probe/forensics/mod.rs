//! Kills as the kernel saw them: the OOM killer's victims, SIGKILL by anybody, and the ends of both.
//!
//! For a thread that may wait and allocate, not for the guard. The programs run only where [`Wishes::forensics`] asked
//! for them; [`Probe::take_forensics`] then gives the [`ForensicsRing`] once:
//!
//! ```no_run
//! # fn collect(probe: &mut brink_host::probe::Probe) {
//! use brink_host::probe::forensics::Told;
//!
//! let Some(mut ring) = probe.take_forensics() else { return };
//! loop {
//!     // … poll `ring.fd()` together with whatever else is waited for …
//!     for told in ring.drain() {
//!         match told {
//!             Told::Oom(oom) => println!("{} was chosen", oom.victim.comm),
//!             Told::Kill(kill) => println!("{} by {}", kill.target.comm, kill.sender.comm),
//!             Told::End(end) => println!("{} exited", end.tgid),
//!             Told::Released(released) => println!("the memory of {} is gone", released.tgid),
//!         }
//!     }
//! }
//! # }
//! ```
//!
//! What comes in which order: a victim of the OOM killer is told as [`Kill`] with [`SignalCode::Kernel`] and, at once
//! after that, as [`Oom`] (which alone says that it was the OOM killer; both have the same `tgid` and `start_ns`). A group
//! that is taken whole is several [`Oom`] with one [`Decision::at_ns`]. Who shares the victim's memory without being a
//! thread of it is told after that as a [`Kill`] by the same thread, and by no [`Oom`]. [`End`] and [`Released`] come in either order, and
//! the one or the other not at all where two processes share their memory or a table was full. What the ring had no room for
//! is counted in the rows [`Row::OomKills`], [`Row::SignalKills`] and [`Row::KillEnds`] of [`Meters::loss`]. SIGKILL to
//! who is dying already is filtered. The last eighth of the ring is for the OOM killer's victims alone.
//!
//! Cgroups are told by id: the inode number of the cgroup's directory. All times are `CLOCK_MONOTONIC` but `start_ns`,
//! which is `CLOCK_BOOTTIME`. Memory is in bytes.
//!
//! [`Wishes::forensics`]: super::Wishes::forensics
//! [`Probe::take_forensics`]: super::Probe::take_forensics
//! [`Meters::loss`]: super::Meters::loss
//! [`Row::OomKills`]: super::Row::OomKills
//! [`Row::SignalKills`]: super::Row::SignalKills
//! [`Row::KillEnds`]: super::Row::KillEnds

mod decode;
mod told;

use std::os::fd::{AsFd as _, BorrowedFd};

use aya::maps::{MapData, RingBuf};

pub use decode::told;
pub use told::{
    Actor, Decision, End, Frame, Kill, Limit, Method, Oom, Process, Released, SignalCode, Stack,
    Stacks, Told,
};

/// The reading end of the ring of kills.
pub struct ForensicsRing {
    ring: RingBuf<MapData>,
    undecoded: u64,
    ends_early: bool,
}

impl ForensicsRing {
    pub(super) fn new(ring: RingBuf<MapData>, ends_early: bool) -> Self {
        Self {
            ring,
            undecoded: 0,
            ends_early,
        }
    }

    /// Whether an [`End`] is told before the process gives its memory back, and not after that: since 6.16 the kernel tells of an exit
    /// as it begins.
    pub const fn ends_early(&self) -> bool {
        self.ends_early
    }

    /// Readable when a record waits. It stays so until everything that waits was taken.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Everything that waits, oldest first; a record that comes meanwhile is among it. Each record leaves the ring as it is
    /// given out.
    pub fn drain(&mut self) -> impl Iterator<Item = Told> {
        std::iter::from_fn(|| self.take())
    }

    /// The oldest record that waits.
    pub fn take(&mut self) -> Option<Told> {
        loop {
            let item = self.ring.next()?;
            match told(&item) {
                Ok(found) => return Some(found),
                Err(_) => self.undecoded += 1,
            }
        }
    }

    /// Records that could not be understood: above zero, object and agent do not fit.
    pub fn undecoded(&self) -> u64 {
        self.undecoded
    }
}

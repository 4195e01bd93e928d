//! The reader of the large ring, for a thread that may wait.

use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{MapData, RingBuf};

use super::decode::{DecodeError, Evidence, evidence};

/// The large ring's reading end.
pub struct EvidenceReader {
    ring: RingBuf<MapData>,
    undecoded: u64,
}

impl EvidenceReader {
    pub(super) fn new(ring: RingBuf<MapData>) -> Self {
        Self { ring, undecoded: 0 }
    }

    /// Readable when a cgroup or a program start is told. Reclaim alone wakes only when an eighth of the ring waits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Hands over every record that waits, at most `bound` of them, and returns how many were taken from the ring.
    pub fn drain(&mut self, bound: usize, mut each: impl FnMut(&Evidence<'_>)) -> usize {
        for taken in 0..bound {
            let Some(item) = self.ring.next() else {
                return taken;
            };
            match evidence(&item) {
                Ok(found) => each(&found),
                Err(DecodeError { .. }) => self.undecoded += 1,
            }
        }
        bound
    }

    /// Records that could not be understood: above zero, object and agent do not fit.
    pub fn undecoded(&self) -> u64 {
        self.undecoded
    }
}

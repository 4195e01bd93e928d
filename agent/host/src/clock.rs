//! The two clocks of the records: monotonic nanoseconds for every stage, the wall clock beside it, and which boot it was.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::HostError;
use crate::hot_file::read_bytes;

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// The wall clock was set when it lies further than this from where it would have come by itself, in nanoseconds.
const SET: u64 = 1_000_000;

/// Nanoseconds of `CLOCK_MONOTONIC`: the clock of the kernel programs and of every record.
pub fn monotonic_ns() -> u64 {
    u64::try_from(nanoseconds(clock_gettime(ClockId::Monotonic))).unwrap_or(0)
}

/// Nanoseconds of `CLOCK_BOOTTIME`, which start times of processes are told in: it goes on while the machine sleeps.
pub fn since_boot_ns() -> u64 {
    u64::try_from(nanoseconds(clock_gettime(ClockId::Boottime))).unwrap_or(0)
}

/// What the calling thread has spent on a processor so far.
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(
        u64::try_from(nanoseconds(clock_gettime(ClockId::ThreadCPUTime))).unwrap_or(0),
    )
}

/// What all threads of this process have spent on processors so far, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    u64::try_from(nanoseconds(clock_gettime(ClockId::ProcessCPUTime))).unwrap_or(0)
}

/// A moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockPair {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`, nanoseconds since 1970 (negative before).
    pub realtime_ns: i64,
    /// The two readings are at most this far apart, nanoseconds.
    pub uncertainty_ns: u64,
}

impl ClockPair {
    /// Reads both clocks, the wall clock between two readings of the other; the tightest of three tries counts.
    pub fn now() -> Self {
        let tries = [Self::once(), Self::once(), Self::once()];
        tries.into_iter().fold(tries[0], |best, next| {
            if next.uncertainty_ns < best.uncertainty_ns {
                next
            } else {
                best
            }
        })
    }

    fn once() -> Self {
        let before = monotonic_ns();
        let realtime_ns = nanoseconds(clock_gettime(ClockId::Realtime));
        let uncertainty_ns = monotonic_ns().saturating_sub(before);
        Self {
            monotonic_ns: before + uncertainty_ns / 2,
            realtime_ns,
            uncertainty_ns,
        }
    }

    /// This pair as long as the wall clock has only gone on since, and one of now when it was set. Times that are told
    /// again and again stay the same, and are still those that everybody else's clock shows.
    #[must_use]
    pub fn current(self) -> Self {
        self.or_newer(Self::now())
    }

    fn or_newer(self, now: Self) -> Self {
        let apart = self.realtime_of(now.monotonic_ns).abs_diff(now.realtime_ns);
        let unsure = self.uncertainty_ns.saturating_add(now.uncertainty_ns);
        if apart > SET.saturating_add(unsure) {
            now
        } else {
            self
        }
    }

    /// The wall-clock time of another monotonic moment, as this pair sees it, nanoseconds since 1970.
    pub fn realtime_of(&self, monotonic_ns: u64) -> i64 {
        if monotonic_ns >= self.monotonic_ns {
            self.realtime_ns
                .saturating_add_unsigned(monotonic_ns - self.monotonic_ns)
        } else {
            self.realtime_ns
                .saturating_sub_unsigned(self.monotonic_ns - monotonic_ns)
        }
    }
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec
        .saturating_mul(NANOS_PER_SECOND)
        .saturating_add(time.tv_nsec)
}

/// The kernel's random id of this boot, 16 bytes: monotonic times of different boots cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// Reads `proc/sys/kernel/random/boot_id` under a root.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn read(root: &Path) -> Result<Self, HostError> {
        let path = root.join("proc/sys/kernel/random/boot_id");
        let text = read_bytes(&path)?;
        Self::parse(text.trim_ascii()).ok_or(HostError::Malformed {
            path,
            what: "boot id",
        })
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut digits = text
            .iter()
            .filter(|byte| **byte != b'-')
            .map(|byte| char::from(*byte).to_digit(16));
        let mut id = [0u8; 16];
        for byte in &mut id {
            let (high, low) = (digits.next()??, digits.next()??);
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        digits.next().is_none().then_some(Self(id))
    }
}

impl std::fmt::Display for BootId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                out.write_str("-")?;
            }
            write!(out, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_carries_over_to_other_moments() {
        let pair = ClockPair {
            monotonic_ns: 1_000,
            realtime_ns: 5_000,
            uncertainty_ns: 0,
        };
        assert_eq!(pair.realtime_of(1_500), 5_500);
        assert_eq!(pair.realtime_of(400), 4_400);
        assert_eq!(pair.realtime_of(u64::MAX), i64::MAX);
    }

    #[test]
    fn a_clock_that_was_set_makes_a_new_pair() {
        let pair = |monotonic_ns, realtime_ns, uncertainty_ns| ClockPair {
            monotonic_ns,
            realtime_ns,
            uncertainty_ns,
        };
        let before = pair(1_000, 5_000, 0);
        for (now, is_kept) in [
            (pair(2_000, 6_000, 0), true),
            (pair(2_000, 1_006_000, 0), true),
            (pair(2_000, 1_006_001, 0), false),
            (pair(2_000, 1_006_001, 1), true),
            (pair(2_000_000_000, 5_000, 0), false),
        ] {
            let expected = if is_kept { before } else { now };
            assert_eq!(before.or_newer(now), expected, "{now:?}");
        }
    }

    #[test]
    fn the_clock_runs_forward_and_the_pair_is_tight() {
        let before = monotonic_ns();
        let pair = ClockPair::now();
        assert!(before <= pair.monotonic_ns && pair.monotonic_ns <= monotonic_ns());
        assert!(
            pair.realtime_ns > 1_600_000_000 * NANOS_PER_SECOND,
            "{pair:?}"
        );
    }

    #[test]
    fn a_boot_id_is_read_and_printed_as_the_kernel_prints_it() {
        let text = "0b3a5e0f-11aa-4c2d-9e8f-0123456789ab";
        let id = BootId::parse(text.as_bytes()).expect("a real id");
        assert_eq!(id.to_string(), text);
        assert_eq!(BootId::parse(b"0b3a5e0f-11aa"), None);
        assert_eq!(BootId::parse(b"zz3a5e0f-11aa-4c2d-9e8f-0123456789ab"), None);
        assert_eq!(BootId::parse(format!("{text}00").as_bytes()), None);
        assert_eq!(
            BootId::read(Path::new("/")).expect("this boot"),
            BootId::read(Path::new("/")).expect("this boot")
        );
    }
}

//! How fast a walk may go: a share of one core and so many entries a second, whichever is slower, paid slice by slice.
//!
//! After each slice the walk pauses for as long as is missing to the time the slice should have taken. What is left over of a
//! slice that waited for the disk is not saved up: a later one never goes faster for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::clock::thread_cpu;

/// Entries between two looks at the clocks: a fraction of a millisecond of work.
const SLICE: u32 = 256;
/// How long a pause goes on without a look at whether to stop.
const NAP: Duration = Duration::from_millis(20);

/// What a walk may take of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Of one core, percent; 100 and more is as fast as it can.
    pub cpu_percent: u32,
    /// Each may cost the disk a read; 0 is as fast as it can.
    pub entries_per_second: u32,
}

impl Pace {
    /// Where a change feed lets most walks be left out.
    pub const WITH_FEED: Self = Self {
        cpu_percent: 4,
        entries_per_second: 25_000,
    };
    /// Where every look is a walk.
    pub const WITHOUT_FEED: Self = Self {
        cpu_percent: 2,
        entries_per_second: 10_000,
    };
    /// As fast as it can, for tests and for measuring the walk itself.
    pub const UNBOUNDED: Self = Self {
        cpu_percent: 100,
        entries_per_second: 0,
    };

    /// What is still to be waited after a slice.
    fn pause(self, slice: Slice) -> Duration {
        let by_cpu = match self.cpu_percent {
            100.. => Duration::ZERO,
            percent => slice.cpu.saturating_mul(100) / percent.max(1),
        };
        let by_entries = match self.entries_per_second {
            0 => Duration::ZERO,
            rate => Duration::from_secs(u64::from(slice.entries)) / rate,
        };
        by_cpu.max(by_entries).saturating_sub(slice.elapsed)
    }
}

/// What a slice of a walk has cost.
#[derive(Debug, Clone, Copy)]
struct Slice {
    entries: u32,
    cpu: Duration,
    elapsed: Duration,
}

/// Why a walk ended before it was through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Somebody asked for it.
    Cancelled,
    /// It took longer than it was given.
    Deadline,
}

/// Keeps a walk to its pace.
pub(super) struct Pacer<'a> {
    pace: Pace,
    within: Duration,
    stop: &'a AtomicBool,
    /// What cannot wait for the end of the walk.
    beside: Option<&'a mut dyn FnMut()>,
    began: Instant,
    cpu_before: Duration,
    entries: u32,
    slice_began: Instant,
    slice_cpu: Duration,
}

impl<'a> Pacer<'a> {
    pub(super) fn new(pace: Pace, within: Duration, stop: &'a AtomicBool) -> Self {
        let (now, cpu) = (Instant::now(), thread_cpu());
        Self {
            pace,
            within,
            stop,
            beside: None,
            began: now,
            cpu_before: cpu,
            entries: 0,
            slice_began: now,
            slice_cpu: cpu,
        }
    }

    /// Has something else done between slices and in each pause. What it costs counts as the walk's.
    pub(super) fn beside(self, beside: &'a mut dyn FnMut()) -> Self {
        Self {
            beside: Some(beside),
            ..self
        }
    }

    /// One entry more; pauses where one is due.
    pub(super) fn entry(&mut self) -> Result<(), Stopped> {
        self.entries += 1;
        if self.entries < SLICE {
            return Ok(());
        }
        self.rest()
    }

    /// Ends the slice. To be called at the end of a walk too, or many small ones in a row would keep to no pace.
    pub(super) fn rest(&mut self) -> Result<(), Stopped> {
        let cpu = thread_cpu();
        let pause = self.pace.pause(Slice {
            entries: self.entries,
            cpu: cpu.saturating_sub(self.slice_cpu),
            elapsed: self.slice_began.elapsed(),
        });
        let until = Instant::now() + pause;
        // What falling asleep and waking cost belongs to the next slice.
        self.slice_cpu = cpu;
        self.entries = 0;
        let outcome = self.nap_until(until);
        self.slice_began = Instant::now();
        outcome
    }

    fn nap_until(&mut self, until: Instant) -> Result<(), Stopped> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stopped::Cancelled);
            }
            if self.began.elapsed() > self.within {
                return Err(Stopped::Deadline);
            }
            if let Some(beside) = &mut self.beside {
                beside();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(NAP));
        }
    }

    /// Time since the beginning, and what of it this thread was on a processor.
    pub(super) fn spent(&self) -> (Duration, Duration) {
        (
            self.began.elapsed(),
            thread_cpu().saturating_sub(self.cpu_before),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_slower_of_share_and_rate_counts() {
        fn check(cpu_percent: u32, entries_per_second: u32, slice: (u32, u64, u64), expected: u64) {
            let pace = Pace {
                cpu_percent,
                entries_per_second,
            };
            let (entries, cpu, elapsed) = slice;
            let pause = pace.pause(Slice {
                entries,
                cpu: Duration::from_micros(cpu),
                elapsed: Duration::from_micros(elapsed),
            });
            assert_eq!(pause, Duration::from_micros(expected), "{pace:?} {slice:?}");
        }
        check(5, 0, (256, 500, 500), 9_500);
        check(4, 0, (256, 500, 500), 12_000);
        // The disk has let it wait for longer than it would have paused.
        check(5, 0, (256, 500, 60_000), 0);
        check(100, 10_000, (256, 500, 500), 25_100);
        check(5, 100_000, (256, 500, 500), 9_500);
        check(100, 0, (256, 500, 500), 0);
        check(0, 0, (1, 10, 10), 990);
    }

    #[test]
    fn a_stop_and_a_deadline_end_it_within_a_nap() {
        let slow = Pace {
            cpu_percent: 100,
            entries_per_second: 1,
        };
        let stop = AtomicBool::new(true);
        let mut pacer = Pacer::new(slow, Duration::MAX, &stop);
        assert_eq!(pacer.rest(), Err(Stopped::Cancelled));
        stop.store(false, Ordering::Relaxed);
        let mut pacer = Pacer::new(slow, Duration::ZERO, &stop);
        assert_eq!(pacer.entry(), Ok(()), "within a slice nobody looks");
        assert_eq!(pacer.rest(), Err(Stopped::Deadline));
    }

    #[test]
    fn what_cannot_wait_is_done_within_a_pause_more_than_once() {
        let pace = Pace {
            cpu_percent: 100,
            entries_per_second: 5,
        };
        let (stop, mut times) = (AtomicBool::new(false), 0);
        let mut count = || times += 1;
        let mut pacer = Pacer::new(pace, Duration::MAX, &stop).beside(&mut count);
        assert_eq!(pacer.entry(), Ok(()));
        assert_eq!(pacer.rest(), Ok(()));
        assert!(times > 1, "{times}");
    }

    proptest! {
        #[test]
        fn a_slice_and_its_pause_never_take_more_than_the_share(
            percent in 1..100_u32,
            cpu in 0..1_000_000_u64,
            waited in 0..1_000_000_u64,
        ) {
            let pace = Pace { cpu_percent: percent, entries_per_second: 0 };
            let (cpu, elapsed) = (Duration::from_micros(cpu), Duration::from_micros(cpu + waited));
            let whole = elapsed + pace.pause(Slice { entries: 1, cpu, elapsed });
            // A nanosecond less by rounding down.
            prop_assert!((whole + Duration::from_nanos(1)) * percent >= cpu * 100);
        }
    }
}

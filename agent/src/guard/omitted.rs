//! Processes that the kernel's programs were kept from counting: how soon the counts are made good, and whether they can be.
//!
//! A program that runs on a processor is not begun there a second time, so where tracepoints can be preempted (Linux 7) some births
//! and ends are counted by nobody. Who came unseen is on the kernel's lists, and is counted as soon as it tells that it left a program
//! out. Who ended unseen is on none: he stays counted until he is reaped, or, where that was not seen either, until another process has
//! his number; files decide from then on.

use brink_core::base::{Moment, Span};
use brink_core::node::signal::Signal;

use super::kernel::Kernel;
use super::{Guard, now};

/// The kernel is asked so often how many it has left out, where anybody goes by the counts.
const ASKED: Span = Span::from_secs(1);
/// With more threads than this the counts of processes are not mended.
const MOST_SYNCED: i64 = 5_000;

/// The programs that see who comes into a cgroup.
const COMING: [&str; 2] = ["fork", "attach"];
/// The program that sees who ends.
const ENDING: &str = "exit";

/// How often the kernel has left such programs out since they were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Omitted {
    comings: u64,
    ends: u64,
}

impl Omitted {
    /// Whether a program is one of these.
    pub(super) fn concerns(program: &str) -> bool {
        COMING.contains(&program) || program == ENDING
    }

    /// Adds up what the kernel tells of programs.
    pub(super) fn of(told: impl Iterator<Item = (&'static str, u64)>) -> Self {
        told.fold(Self::default(), |mut sum, (program, count)| {
            if COMING.contains(&program) {
                sum.comings = sum.comings.saturating_add(count);
            } else if program == ENDING {
                sum.ends = sum.ends.saturating_add(count);
            }
            sum
        })
    }
}

/// What the counts lack.
#[derive(Debug, Default)]
pub(super) struct Omissions {
    /// What the kernel told last.
    told: Omitted,
    /// Whoever came unseen up to here is counted by now.
    made_good: u64,
}

impl Omissions {
    /// Takes what the kernel tells; true while somebody may have come who is not counted yet. What it does not tell this time is as it
    /// was.
    pub(super) fn hear(&mut self, told: Omitted) -> bool {
        self.told = Omitted {
            comings: self.told.comings.max(told.comings),
            ends: self.told.ends.max(told.ends),
        };
        self.told.comings != self.made_good
    }

    /// The kernel's lists were gone through since it told that.
    pub(super) const fn make_good(&mut self) {
        self.made_good = self.told.comings;
    }

    /// Whether nobody has ended unseen.
    pub(super) const fn have_ends_been_seen(&self) -> bool {
        self.told.ends == 0
    }

    /// Whether the counts are right for all that is known.
    pub(super) const fn are_none(&self) -> bool {
        self.told.comings == self.made_good && self.have_ends_been_seen()
    }
}

impl Guard {
    /// Mends the kernel's counts of processes, which drift by a rare race, and where the kernel has left a program out. It takes two
    /// microseconds a process, in which nothing else is looked at, so a very full machine keeps what was counted at the start.
    pub(super) fn sync_processes(&mut self) {
        let mut thresholds = self.engine.policy().thresholds().iter();
        let wanted = thresholds.any(|threshold| threshold.signal == Signal::PidAvailable);
        let kernel = self.kernel.as_mut();
        let Some(kernel) = kernel.filter(|kernel| wanted && kernel.counts_processes()) else {
            self.times.recount = None;
            return;
        };
        self.times.recount = Some(now() + ASKED);
        let threads = self.files.ids().machines();
        if threads.is_none_or(|threads| threads > MOST_SYNCED) {
            kernel.ask_for_omissions();
        } else {
            kernel.sync_processes();
        }
    }

    /// The same at once where somebody has come unseen since the last time, and the count of threads with it: of whoever came unseen
    /// that lacks too, and would tell of its limit late.
    pub(super) fn recount(&mut self, at: Moment) {
        self.times.recount = self.kernel.is_some().then(|| at + ASKED);
        let kernel = self.kernel.as_mut();
        if kernel.is_some_and(Kernel::ask_for_omissions) {
            self.calibrate_threads();
            // What decides nothing any more is mended at the next pass.
            if self
                .kernel
                .as_ref()
                .is_some_and(Kernel::have_ends_been_seen)
            {
                self.sync_processes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fork: u64, attach: u64, exit: u64) -> Omitted {
        let programs = [
            ("fork", fork),
            ("attach", attach),
            ("exit", exit),
            ("free", 90),
            ("birth", 90),
        ];
        Omitted::of(programs.into_iter())
    }

    #[test]
    fn each_program_that_changes_a_count_is_asked_for_and_no_other() {
        let all = ["fork", "free", "exit", "exec", "attach", "birth"];
        let asked = all.into_iter().filter(|name| Omitted::concerns(name));
        assert_eq!(asked.collect::<Vec<_>>(), ["fork", "exit", "attach"]);
    }

    #[test]
    fn who_came_unseen_is_looked_for_once_each_time_that_more_did() {
        let mut omissions = Omissions::default();
        // What the kernel tells once a second, whether its lists can be gone through then, whether they are to be, and whether
        // the counts are right afterwards.
        for (count, works, is_due, is_whole) in [
            (told(0, 0, 0), true, false, true),
            (told(3, 0, 0), true, true, true),
            (told(3, 0, 0), true, false, true),
            (told(3, 1, 0), true, true, true),
            // Too many threads, or the iterator fails: it stays due.
            (told(9, 1, 0), false, true, false),
            (told(9, 1, 0), false, true, false),
            (told(9, 1, 0), true, true, true),
            // A descriptor that cannot be read tells nothing new.
            (told(0, 0, 0), true, false, true),
            (told(10, 1, 0), true, true, true),
        ] {
            assert_eq!(omissions.hear(count), is_due, "{count:?}");
            if is_due && works {
                omissions.make_good();
            }
            assert_eq!(omissions.are_none(), is_whole, "{count:?}");
        }
    }

    #[test]
    fn who_ended_unseen_is_on_no_list() {
        let mut omissions = Omissions::default();
        assert!(!omissions.hear(told(0, 0, 1)), "nobody to be looked for");
        omissions.make_good();
        assert!(!omissions.are_none());
        assert!(!omissions.hear(told(0, 0, 0)));
        assert!(!omissions.are_none());
    }
}

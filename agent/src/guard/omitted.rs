//! Processes that the kernel's programs were kept from counting: how soon the counts are made good, and whether they can be.
//!
//! A program that runs on a processor is not begun there a second time, so where tracepoints can be preempted (Linux 7) some births
//! and ends are counted by nobody. Who came unseen is on the kernel's lists, and is counted as soon as it tells that it left a program
//! out. Who ended unseen is on none: he stays counted until he is reaped, or, where that was not seen either, until another process has
//! his number; files decide from then on.
//!
//! The fork that crosses a limit on tasks may be one of those too, and then nobody tells of the crossing: while programs are being left
//! out, the files are looked at instead.

use brink_core::base::{Moment, Span};
use brink_core::node::signal::Signal;

use super::kernel::Kernel;
use super::{Guard, now};

/// The kernel is asked so often how many it has left out, where anybody goes by the counts.
const ASKED: Span = Span::from_secs(1);
/// So long after more were left out than before, nobody relies on being told of a limit on tasks. It is asked again meanwhile, so that
/// where it goes on there is no gap in between.
const DOUBTED: Span = Span::from_secs(2);
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
    /// When it told last of more who came unseen than before.
    grew: Option<Moment>,
}

impl Omissions {
    /// Takes what the kernel tells now; true while somebody may have come who is not counted yet. What it does not tell this time is
    /// as it was.
    pub(super) fn hear(&mut self, told: Omitted, at: Moment) -> bool {
        if told.comings > self.told.comings {
            self.grew = Some(at);
        }
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

    /// Whether whoever comes now may come unseen, as others just did.
    pub(super) fn may_go_on(&self, at: Moment) -> bool {
        self.grew.is_some_and(|grew| at < grew + DOUBTED)
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
        let Some(kernel) = kernel.filter(|kernel| wanted && kernel.counts_tasks()) else {
            self.times.recount = None;
            return;
        };
        let at = now();
        self.times.recount = Some(at + ASKED);
        let threads = self.files.ids().machines();
        let is_mendable = threads.is_some_and(|threads| threads <= MOST_SYNCED);
        if is_mendable && kernel.counts_processes() {
            kernel.sync_processes(at);
        } else {
            kernel.ask_for_omissions(at);
        }
    }

    /// The same at once where somebody has come unseen since the last time, and the count of threads with it: of whoever came unseen
    /// that lacks too, and would tell of its limit late. Whether it is passed already is looked at in this turn.
    pub(super) fn recount(&mut self, at: Moment) {
        self.times.recount = self.kernel.is_some().then(|| at + ASKED);
        let kernel = self.kernel.as_mut();
        if kernel.is_some_and(|kernel| kernel.ask_for_omissions(at)) {
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
        let kernel = self.kernel.as_ref();
        if kernel.is_some_and(|kernel| kernel.may_miss_ids(at)) {
            self.times.evaluate = Some(at);
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
        let (mut omissions, mut at) = (Omissions::default(), Moment::START);
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
            at = at + ASKED;
            assert_eq!(omissions.hear(count, at), is_due, "{count:?}");
            if is_due && works {
                omissions.make_good();
            }
            assert_eq!(omissions.are_none(), is_whole, "{count:?}");
        }
    }

    #[test]
    fn who_ended_unseen_is_on_no_list() {
        let mut omissions = Omissions::default();
        let at = Moment::START;
        assert!(!omissions.hear(told(0, 0, 1), at), "nobody to look for");
        omissions.make_good();
        assert!(!omissions.are_none());
        assert!(!omissions.hear(told(0, 0, 0), at));
        assert!(!omissions.are_none());
        assert!(!omissions.may_go_on(at), "who ends crosses no limit");
    }

    #[test]
    fn a_limit_may_be_crossed_unseen_for_a_while_after_each_time_that_more_came_so() {
        let mut omissions = Omissions::default();
        // Milliseconds, what the kernel tells then if it is asked, and whether the next fork may be left out too.
        for (millis, told, may) in [
            (0, Some(told(0, 0, 0)), false),
            (1_000, Some(told(1, 0, 0)), true),
            // Counting them anew says nothing of those who come next.
            (1_000, Some(told(1, 0, 0)), true),
            (2_000, Some(told(1, 0, 0)), true),
            (2_999, None, true),
            (3_000, Some(told(1, 0, 0)), false),
            // In a storm each answer is another one. A move into a cgroup that is counted may cross its limit as well.
            (4_000, Some(told(1, 1, 0)), true),
            (5_010, Some(told(9, 1, 0)), true),
            (6_020, Some(told(9, 1, 7)), true),
            (7_009, None, true),
            (7_010, None, false),
        ] {
            let at = Moment::START + Span::from_millis(millis);
            if let Some(told) = told {
                omissions.hear(told, at);
                omissions.make_good();
            }
            assert_eq!(omissions.may_go_on(at), may, "{millis} ms");
        }
    }
}

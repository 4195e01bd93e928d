//! Victims of a shortage of process ids: how many of their processes still hold theirs, dead or dying.

use brink_core::base::{Moment, Span};
use brink_core::node::credit::LIFETIME;
use brink_core::node::reaping::REAPING;
use brink_core::node::signal::Signal;

use super::Guard;
use super::kernel::Kernel;

/// Cgroups that are remembered; of a victim with more of them nothing is known.
const MOST: usize = 256;

/// The count of threads is made good so often while anybody is waited for: an end that no program saw is known as such after
/// one second and a half.
const COUNTED: Span = Span::from_millis(500);

/// So long after a kill the ends that are known to be unseen are no longer those of others before it.
const SETTLED: Span = Span::from_millis(1_500);

/// The cgroups of the latest victims.
#[derive(Debug)]
pub(super) struct Unreaped {
    cgroups: Vec<u64>,
    /// Some are not among them.
    incomplete: bool,
    /// Processes that nobody counted when the first of them was added.
    untracked: Option<u64>,
    /// The latest kill.
    since: Option<Moment>,
}

impl Unreaped {
    pub(super) fn new() -> Self {
        Self {
            cgroups: Vec::with_capacity(MOST),
            incomplete: false,
            untracked: None,
            since: None,
        }
    }

    /// Remembers a victim; without room for all of it nothing is known until the wait is over. `untracked` processes were
    /// counted nowhere so far.
    fn add<'a>(
        &mut self,
        now: Moment,
        untracked: Option<u64>,
        family: impl Iterator<Item = &'a u64>,
    ) {
        if !self.waits(now) {
            self.cgroups.clear();
            self.incomplete = false;
            self.untracked = untracked;
        }
        self.since = Some(now);
        for id in family {
            if !self.cgroups.contains(id) {
                self.incomplete |= self.cgroups.len() == MOST;
                if self.incomplete {
                    return;
                }
                self.cgroups.push(*id);
            }
        }
    }

    /// Whether anybody is waited for.
    fn waits(&self, now: Moment) -> bool {
        self.is_within(REAPING, now)
    }

    fn is_within(&self, length: Span, now: Moment) -> bool {
        self.since.is_some_and(|since| now < since + length)
    }

    /// The cgroups whose processes are waited for; none when nobody is, or nothing is known: a process that was counted
    /// nowhere since could be theirs.
    fn at(&self, now: Moment, untracked: Option<u64>) -> Option<&[u64]> {
        let is_known = self.waits(now) && !self.incomplete && !self.cgroups.is_empty();
        let is_whole = untracked.is_some() && untracked == self.untracked;
        (is_known && is_whole).then_some(&self.cgroups)
    }
}

/// Ends of tasks that the programs have not seen: of a storm of them they are not run for every one. Only those count that
/// stayed unseen: of each end the kernel tells a grace period after it has given the id back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    /// By how much the programs' count of threads was lowered to make it good.
    lowered: u64,
    /// The same at the mark.
    mark: Option<u64>,
}

impl Ends {
    /// The count was changed by so much.
    pub(super) const fn correct(&mut self, delta: i64) {
        if delta < 0 {
            self.lowered = self.lowered.saturating_add(delta.unsigned_abs());
        }
    }

    /// Counts anew from here.
    pub(super) const fn mark(&mut self) {
        self.mark = Some(self.lowered);
    }

    /// How many there were since the mark.
    pub(super) fn unseen(&self) -> u64 {
        self.mark
            .map_or(0, |mark| self.lowered.saturating_sub(mark))
    }
}

impl Guard {
    /// Remembers the victim of an order on process ids.
    pub(super) fn expect_reaping(&mut self, now: Moment, workload: usize) {
        let current = self.current.as_ref();
        if current.is_some_and(|current| current.signal() == Signal::PidAvailable) {
            let members = self.roster.of(workload);
            let family = members.flat_map(|(_, group)| &group.family);
            let kernel = self.kernel.as_ref();
            let had_processes = |id: &&u64| kernel.is_some_and(|kernel| kernel.has_meter(**id));
            let untracked = kernel.and_then(Kernel::untracked);
            self.unreaped
                .add(now, untracked, family.filter(had_processes));
            self.times.count = Some(now + COUNTED);
        }
    }

    /// Makes the count of threads good, as long as anybody is waited for.
    pub(super) fn count_ends(&mut self, now: Moment) {
        self.calibrate_threads();
        self.times.count = self.unreaped.waits(now).then(|| now + COUNTED);
    }

    /// Processes in the cgroups of those victims that still hold their ids, by the kernel's count; none without it. Who
    /// lives there long after the kill was not killed, so in the end only the dead count. An end that no program saw could be
    /// one of theirs, so nobody is held back for it.
    pub(super) fn unreaped(&mut self, now: Moment) -> Option<u64> {
        let kernel = self.kernel.as_mut()?;
        if !self.unreaped.waits(now) {
            kernel.mark_ends();
            return None;
        }
        kernel.check_meters();
        let cgroups = self.unreaped.at(now, kernel.untracked())?;
        let holding = if self.unreaped.is_within(LIFETIME, now) {
            kernel.processes_and_zombies(cgroups)
        } else {
            kernel.zombies(cgroups)
        };
        // Whoever has just been killed is being reaped: ends of others that nobody saw are not to stand for theirs.
        let unseen = if self.unreaped.is_within(SETTLED, now) {
            0
        } else {
            kernel.unseen_ends()
        };
        holding.map(|holding| holding.saturating_sub(unseen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::START + Span::from_secs(seconds)
    }

    /// All processes were counted, or as many as ever were not.
    const NONE_LOST: Option<u64> = Some(7);

    #[test]
    fn who_was_counted_nowhere_could_be_the_victims() {
        let mut unreaped = Unreaped::new();
        unreaped.add(at(1), NONE_LOST, [5].iter());
        for (untracked, expected) in [
            (NONE_LOST, Some(&[5_u64][..])),
            (Some(8), None),
            (None, None),
        ] {
            assert_eq!(unreaped.at(at(2), untracked), expected, "{untracked:?}");
        }
        unreaped.add(at(40), Some(8), [6].iter());
        assert_eq!(unreaped.at(at(41), Some(8)), Some(&[6][..]));
    }

    #[test]
    fn ends_that_no_program_saw_are_what_the_count_was_lowered_by() {
        let mut ends = Ends::default();
        // At the start the programs know of nobody.
        ends.correct(900);
        ends.correct(-3);
        assert_eq!(ends.unseen(), 0, "nothing was marked");
        ends.mark();
        ends.correct(-7);
        ends.correct(2);
        assert_eq!(ends.unseen(), 7);
        ends.mark();
        assert_eq!(ends.unseen(), 0);
    }

    #[test]
    fn victims_are_remembered_for_a_while_and_a_crowd_is_not() {
        let mut unreaped = Unreaped::new();
        assert_eq!(unreaped.at(at(1), NONE_LOST), None);
        unreaped.add(at(1), NONE_LOST, [7, 8].iter());
        unreaped.add(at(3), NONE_LOST, [8, 9].iter());
        assert_eq!(unreaped.at(at(32), NONE_LOST), Some(&[7, 8, 9][..]));
        assert_eq!(unreaped.at(at(33), NONE_LOST), None);
        unreaped.add(at(34), NONE_LOST, [5].iter());
        assert_eq!(unreaped.at(at(34), NONE_LOST), Some(&[5][..]));
        let crowd: Vec<u64> = (0..257).collect();
        unreaped.add(at(34), NONE_LOST, crowd.iter());
        unreaped.add(at(35), NONE_LOST, [5].iter());
        assert_eq!(unreaped.at(at(35), NONE_LOST), None);
        unreaped.add(at(65), NONE_LOST, [5].iter());
        assert_eq!(unreaped.at(at(65), NONE_LOST), Some(&[5][..]));
    }
}

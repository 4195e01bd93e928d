//! Victims of a shortage of process ids: how many of their processes still hold theirs, dead or dying.

use brink_core::base::{Moment, Span};
use brink_core::node::signal::Signal;

use super::Guard;

/// Cgroups that are remembered; of a victim with more of them nothing is known.
const MOST: usize = 256;
/// As long as the engine waits for process ids.
const FOR: Span = Span::from_secs(5);

/// The cgroups of the latest victims.
#[derive(Debug)]
pub(super) struct Unreaped {
    cgroups: Vec<u64>,
    /// Some are not among them.
    incomplete: bool,
    until: Moment,
}

impl Unreaped {
    pub(super) fn new() -> Self {
        Self {
            cgroups: Vec::with_capacity(MOST),
            incomplete: false,
            until: Moment::START,
        }
    }

    /// Remembers a victim; without room for all of it nothing is known until the wait is over.
    fn add<'a>(&mut self, now: Moment, family: impl Iterator<Item = &'a u64>) {
        if now >= self.until {
            self.cgroups.clear();
            self.incomplete = false;
        }
        self.until = now + FOR;
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

    /// The cgroups whose processes are waited for; none when nobody is, or nothing is known.
    fn at(&self, now: Moment) -> Option<&[u64]> {
        let is_known = now < self.until && !self.incomplete && !self.cgroups.is_empty();
        is_known.then_some(&self.cgroups)
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
            self.unreaped.add(now, family.filter(had_processes));
        }
    }

    /// Processes in the cgroups of those victims that still hold their ids, by the kernel's count; none without it.
    pub(super) fn unreaped(&mut self, now: Moment) -> Option<u64> {
        let cgroups = self.unreaped.at(now)?;
        let kernel = self.kernel.as_mut()?;
        kernel.check_meters();
        kernel.processes_and_zombies(cgroups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::START + Span::from_secs(seconds)
    }

    #[test]
    fn victims_are_remembered_for_a_while_and_a_crowd_is_not() {
        let mut unreaped = Unreaped::new();
        assert_eq!(unreaped.at(at(1)), None);
        unreaped.add(at(1), [7, 8].iter());
        unreaped.add(at(3), [8, 9].iter());
        assert_eq!(unreaped.at(at(7)), Some(&[7, 8, 9][..]));
        assert_eq!(unreaped.at(at(8)), None);
        unreaped.add(at(9), [5].iter());
        assert_eq!(unreaped.at(at(9)), Some(&[5][..]));
        let crowd: Vec<u64> = (0..257).collect();
        unreaped.add(at(9), crowd.iter());
        unreaped.add(at(10), [5].iter());
        assert_eq!(unreaped.at(at(10)), None);
        unreaped.add(at(15), [5].iter());
        assert_eq!(unreaped.at(at(15)), Some(&[5][..]));
    }
}

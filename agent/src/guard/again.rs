//! What a kubelet starts again in a pod that is evicted: it is killed under the same order, before it holds much.
//!
//! A kubelet that has not heard of an eviction yet starts what was killed. Another thread watches the cgroups of evicted pods
//! and tells of each container that is made in one; from then on the guard looks at it every millisecond, as the first process
//! comes into it a moment later. What nobody told of is found with the next roster, and at each housekeeping pass.

use std::sync::Arc;

use brink_core::base::{Moment, Span};
use brink_core::node::safety::Mode;
use brink_host::kill::KillTarget;

use super::ports::Report;
use super::{Guard, now};

/// Containers that are looked at, at a time; more are left to the next roster.
const MOST: usize = 16;
/// A new container is looked at this often, as long as its first process is to be expected.
const SOON: Span = Span::from_millis(1);
const EXPECTED: Span = Span::from_secs(2);
/// The same later on: one that is there and empty is about to be removed.
const LATER: Span = Span::from_millis(20);
/// Cgroups that are remembered; a container of a victim that has more of them and dies slowly may be told as started again.
const REMEMBERED: usize = 256;

/// A container that was made in an evicted pod.
#[derive(Debug)]
pub struct Newcomer {
    /// Id of the pod's own cgroup.
    pub pod: u64,
    /// The container's cgroup.
    pub target: KillTarget,
}

/// A kill of what was started again in an evicted pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The order by which the pod is evicted.
    pub order: u64,
    /// When it was.
    pub at: Moment,
    /// Processes that were signalled.
    pub processes: u32,
}

/// The containers that are looked at.
#[derive(Debug)]
pub(super) struct Newcomers {
    slots: [Option<Followed>; MOST],
    /// Where somebody has been killed.
    killed: Killed,
}

/// The latest cgroups in which somebody was killed. A container that is started again has another one, so whoever is found in
/// these is still dying, which can take long, and has been told.
#[derive(Debug)]
struct Killed {
    cgroups: [Option<u64>; REMEMBERED],
    /// The place of the next one.
    next: usize,
}

#[derive(Debug)]
struct Followed {
    newcomer: Box<Newcomer>,
    /// When it came, or somebody was last killed in it.
    since: Moment,
    /// Somebody was killed in it, and nobody has seen it empty since.
    is_dying: bool,
}

impl Newcomers {
    pub(super) fn new() -> Self {
        Self {
            slots: [const { None }; MOST],
            killed: Killed {
                cgroups: [None; REMEMBERED],
                next: 0,
            },
        }
    }

    /// Somebody was killed in a cgroup; whether that is known already.
    pub(super) fn note_killed(&mut self, cgroup: u64) -> bool {
        let Killed { cgroups, next } = &mut self.killed;
        let is_known = cgroups.contains(&Some(cgroup));
        if !is_known {
            cgroups[*next] = Some(cgroup);
            *next = (*next + 1) % REMEMBERED;
        }
        is_known
    }

    /// When one of them is to be looked at next.
    fn next(&self, now: Moment) -> Option<Moment> {
        let pace = |followed: &Followed| {
            if now.since(followed.since) < EXPECTED {
                SOON
            } else {
                LATER
            }
        };
        let paces = self.slots.iter().flatten().map(pace);
        paces.min().map(|pace| now + pace)
    }
}

impl Guard {
    /// Has what is made in a victim's cgroup told, if a kubelet may start it again.
    pub(super) fn watch_for_newcomers(&self, workload: usize) {
        let found = self.roster.table.workloads().get(workload);
        if !found.is_some_and(|workload| workload.by_kubelet) {
            return;
        }
        for (_, group) in self.roster.of(workload) {
            // The roster has it too: nothing is freed where there is no room.
            let _counted = self.ports.evicted.send(Some(Arc::clone(group)));
        }
    }

    /// A container was made in an evicted pod.
    pub(super) fn take_newcomer(&mut self, newcomer: Box<Newcomer>) {
        let at = now();
        let free = self.newcomers.slots.iter_mut().find(|slot| slot.is_none());
        match free {
            Some(slot) => {
                *slot = Some(Followed {
                    newcomer,
                    since: at,
                    is_dying: false,
                });
            }
            // Found again with the next roster. Only where the reports are full as well it is freed here.
            None => self.give_back(newcomer),
        }
        self.look_at_newcomers(at);
    }

    /// Kills whoever has come into them; lets go of those that are removed, and of those whose pod is evicted no longer.
    pub(super) fn look_at_newcomers(&mut self, at: Moment) {
        for place in 0..MOST {
            let Some(mut followed) = self.newcomers.slots[place].take() else {
                continue;
            };
            let target = &followed.newcomer.target;
            let order = self.order_on(followed.newcomer.pod, at);
            let order = order.filter(|_| target.dir().is_alive());
            let Some(order) = order else {
                if self.ports.reports.is_full() {
                    self.newcomers.slots[place] = Some(followed);
                } else {
                    self.give_back(followed.newcomer);
                }
                continue;
            };
            if self.is_in_grace(order) {
                self.newcomers.slots[place] = Some(followed);
                continue;
            }
            if target.is_empty() {
                followed.is_dying = false;
            } else if followed.is_dying {
                self.killer.sweep(target);
            } else {
                let outcome = self.killer.kill(target);
                if outcome.signalled > 0 {
                    (followed.since, followed.is_dying) = (at, true);
                    let _seen_empty_since = self.newcomers.note_killed(target.id().0);
                    self.tell_again(order, outcome.signalled);
                }
            }
            self.newcomers.slots[place] = Some(followed);
        }
        self.times.again = self.newcomers.next(at);
    }

    /// Kills whoever runs in the containers of evicted pods that nobody follows any more.
    pub(super) fn kill_what_was_started_again(&mut self, at: Moment) {
        for workload in 0..self.roster.table.len() {
            let Some(order) = self.order_against(workload, at) else {
                continue;
            };
            if self.is_followed(workload) {
                continue;
            }
            let mut processes = 0;
            for target in self.roster.victims_of(workload) {
                if target.is_empty() {
                    continue;
                }
                let signalled = self.killer.kill(target).signalled;
                if signalled > 0 && !self.newcomers.note_killed(target.id().0) {
                    processes += signalled;
                }
            }
            if processes > 0 {
                self.watch_for_newcomers(workload);
                self.tell_again(order, processes);
            }
        }
    }

    /// The order by which the pod of a cgroup is evicted.
    fn order_on(&self, pod: u64, at: Moment) -> Option<u64> {
        let mut members = self.roster.members.iter();
        let member = members.find(|member| member.group.target.id().0 == pod)?;
        self.order_against(member.workload, at)
    }

    /// The order by which a workload is evicted, if orders are carried out.
    fn order_against(&self, workload: usize, at: Moment) -> Option<u64> {
        let order = self.engine.evicted_by(at, workload)?;
        (self.engine.mode(at) == Mode::Enforcing).then_some(order)
    }

    /// Whether the victim of an order has only been asked to end so far. Whoever comes meanwhile, or was missed by the roster,
    /// has what is left of that grace.
    fn is_in_grace(&self, order: u64) -> bool {
        let open = self.engine.open_order();
        open.is_some_and(|open| open.id == order && open.is_soft())
    }

    fn tell_again(&self, order: u64, processes: u32) {
        let again = Again {
            order,
            at: now(),
            processes,
        };
        let _told_or_counted = self.ports.reports.send(Report::Again(again));
    }

    /// The guard frees no memory.
    fn give_back(&self, newcomer: Box<Newcomer>) {
        let _told_or_counted = self.ports.reports.send(Report::Left(newcomer));
    }
}

#[cfg(test)]
mod tests {
    use brink_core::node::input::Input;
    use brink_host::cgroup::Layout;

    use super::super::scene::Scene;
    use super::*;
    use crate::fake;

    fn at(millis: i64) -> Moment {
        Moment::START + Span::from_millis(millis)
    }

    /// A target of plain files: what it is does not matter here.
    fn newcomer() -> Newcomer {
        let root = tempfile::tempdir().unwrap();
        fake::mount_unified(root.path());
        fake::write(root.path(), "sys/fs/cgroup/pod/cgroup.procs", "");
        let layout = Layout::detect(root.path()).unwrap();
        Newcomer {
            pod: 1,
            target: KillTarget::open(&layout, "/pod").unwrap(),
        }
    }

    #[test]
    fn the_first_process_is_looked_for_every_millisecond_and_later_ones_seldom() {
        let mut newcomers = Newcomers::new();
        assert_eq!(newcomers.next(at(0)), None, "nobody is looked at");
        newcomers.slots[3] = Some(Followed {
            newcomer: Box::new(newcomer()),
            since: at(1_000),
            is_dying: false,
        });
        assert_eq!(newcomers.next(at(2_999)), Some(at(3_000)));
        assert_eq!(newcomers.next(at(3_000)), Some(at(3_020)));
        newcomers.slots[0] = Some(Followed {
            newcomer: Box::new(newcomer()),
            since: at(3_000),
            is_dying: true,
        });
        assert_eq!(newcomers.next(at(3_000)), Some(at(3_001)));
    }

    #[test]
    fn what_comes_into_a_pod_that_is_asked_to_end_has_the_rest_of_its_grace() {
        let mut scene = Scene::asking();
        let asked = scene.ask();
        let newcomer = Box::new(scene.newcomer("b"));
        scene.guard.take_newcomer(newcomer);
        assert!(scene.guard.newcomers.slots[0].is_some());
        let until = asked + Scene::GRACE;
        scene.guard.look_at_newcomers(until - Span::from_millis(1));
        assert!(!scene.is_killed("a") && !scene.is_killed("b"));
        scene.guard.feed(until, &Input::Tick);
        assert!(scene.is_killed("a"));
        scene.guard.look_at_newcomers(until);
        assert!(scene.is_killed("b"));
    }

    #[test]
    fn what_cannot_be_given_back_is_kept_until_there_is_room() {
        let mut scene = Scene::killing();
        let begun = scene.begun;
        let reports = Arc::clone(&scene.guard.ports);
        let reports = &reports.reports;
        while !reports.is_full() {
            reports.send(Report::Heard(0)).unwrap();
        }
        // Nobody has evicted the pod.
        let newcomer = Box::new(scene.newcomer("b"));
        scene.guard.take_newcomer(newcomer);
        assert!(scene.guard.newcomers.slots[0].is_some() && reports.lost() == 0);
        assert!(scene.guard.times.again.is_some(), "it is looked at again");
        reports.take().unwrap();
        scene.guard.look_at_newcomers(begun);
        assert!(scene.guard.newcomers.slots[0].is_none());
        let told = std::iter::from_fn(|| reports.take()).last();
        assert!(matches!(told, Some(Report::Left(_))), "{told:?}");
    }

    #[test]
    fn who_dies_slowly_was_not_started_again() {
        let mut scene = Scene::killing();
        let begun = scene.begun;
        scene.sample(begun, 50);
        assert!(scene.is_killed("a"));
        // Nothing is freed and nobody leaves, so nobody waits for it any longer.
        let later = begun + Span::from_secs(10);
        scene.sample(later, 150);
        scene.guard.follow(later);
        assert!(!scene.guard.is_followed(0));
        scene.guard.kill_what_was_started_again(later);
        scene
            .guard
            .kill_what_was_started_again(later + Span::from_secs(10));
        assert!(scene.told_again().is_empty());
        scene.runs("idle", 2);
        scene
            .guard
            .kill_what_was_started_again(later + Span::from_secs(20));
        scene
            .guard
            .kill_what_was_started_again(later + Span::from_secs(30));
        assert_eq!(scene.told_again(), [2], "once, and without the dying one");
    }

    #[test]
    fn the_latest_cgroups_are_remembered() {
        let mut newcomers = Newcomers::new();
        assert!(!newcomers.note_killed(1) && newcomers.note_killed(1));
        for cgroup in 2..=REMEMBERED as u64 {
            assert!(!newcomers.note_killed(cgroup));
        }
        assert!(newcomers.note_killed(1));
        assert!(!newcomers.note_killed(0), "it takes the place of the first");
        assert!(!newcomers.note_killed(1));
    }
}

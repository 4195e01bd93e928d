//! Housekeeping: everything is read, armed and cross-checked again, and the standing is told when it changed.

use brink_core::base::{Moment, Span};
use brink_core::node::input::{Input, Reconfiguration};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::ThresholdSet;
use brink_host::probe::calibrate::Verdict;
use brink_host::probe::pace::LOOKS;

use super::assess::doubt;
use super::figures::saturated;
use super::files::NodeFiles;
use super::kernel::Kernel;
use super::ports::Report;
use super::roster::Roster;
use super::rung::{Rung, Standing};
use super::turn::ARMING;
use super::watches::Terrain;
use super::{Guard, now};

/// A sampler that was distrusted must agree this often in a row before it serves again.
const AGREEMENTS: u32 = 2;
/// The pace of refreshing what the sampler cannot read of the node's own cgroups, in its ticks: in half the time in which the
/// fastest growth could use up what was left when it last told, which is eight of them; it tells when half of that is gone.
/// Within these bounds: near a limit the growth may be faster than the fastest refresh.
const TICKS: u64 = LOOKS / 2;
const FASTEST_TERMS: Span = Span::from_millis(100);
const SLOWEST_TERMS: Span = Span::from_millis(500);

impl Guard {
    /// The pass that is always there, every ten seconds unless configured.
    pub(super) fn housekeep(&mut self, at: Moment) {
        self.ports.pass(at);
        self.times.housekeeping = at + self.times.housekeeping_every;
        if let Err(error) = self.files.refresh() {
            self.trouble = Some(error.to_string());
            // Its cgroup may have been removed and made anew.
            if let Ok(mut files) = NodeFiles::open(&self.root, &self.layout, &self.node) {
                files.follow_pods(self.roster.pods_group.as_deref());
                self.files = files;
            }
        }
        self.tell_pods();
        self.arm();
        self.check_sampler();
        self.calibrate_threads();
        self.sync_processes();
        self.check_counts();
        self.kill_what_was_started_again(now());
        self.tell_standing();
        self.follow_measuring(now(), self.measuring.met());
        self.look(now());
        let groups = self.files.node_group().or(self.files.pods_group());
        self.times.terms = groups
            .filter(|_| self.sampler_serves())
            .map(|_| now() + FASTEST_TERMS);
    }

    /// Points the sampler at the node as it is now.
    fn arm(&mut self) {
        let Ok(figures) = self.files.read(now()) else {
            return;
        };
        let terrain = Terrain {
            capacity: figures.memory.map_or(0, |seen| seen.capacity),
            pods_capacity: figures.pods.map(|seen| seen.capacity),
            node_is_group: self.files.node_group().is_some(),
            swap: saturated(self.files.slow().swap),
            pods_swap: saturated(self.files.slow().pods_swap),
            memory: self.memory,
        };
        self.terrain = Some(terrain);
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        if let Some(why) = kernel.without_sampler().map(str::to_owned) {
            self.distrust(&why);
            return;
        }
        if let Err(error) = kernel.arm(&self.files, self.engine.policy(), terrain) {
            let why = format!("the sampler cannot be armed: {error}");
            self.distrust(&why);
        }
    }

    /// Compares the sampler with the files; trust is lost at once and comes back slowly.
    fn check_sampler(&mut self) {
        if self
            .kernel
            .as_ref()
            .is_none_or(|kernel| kernel.without_sampler().is_some())
        {
            return;
        }
        let mut verdict = self.recheck();
        if verdict != Verdict::Agrees {
            verdict = self.recheck();
        }
        if verdict == Verdict::Agrees {
            self.agreements = self.agreements.saturating_add(1);
            if self.distrusted && self.agreements >= AGREEMENTS {
                self.distrusted = false;
                self.without_kernel.clear();
            }
        } else if !self.distrusted {
            self.distrust(&doubt(verdict));
        } else {
            self.agreements = 0;
        }
    }

    /// Falls to the next rung at once.
    pub(super) fn distrust(&mut self, why: &str) {
        self.distrusted = true;
        self.agreements = 0;
        self.without_kernel = vec![why.to_owned()];
        self.tell_standing();
    }

    /// Tells the standing if it changed.
    fn tell_standing(&mut self) {
        let serves = self.sampler_serves();
        let rung = Rung::of(serves, self.is_realtime);
        let mut reasons = self.without_kernel.clone();
        let kernel = self.kernel.as_ref().filter(|_| serves);
        let without_pods = kernel.and_then(Kernel::without_pods);
        reasons.extend(without_pods.map(|why| {
            format!(
                "allocatable memory is read from files, as the sampler cannot be armed for the group of all pods: {why}"
            )
        }));
        reasons.extend(self.scheduling.1.clone());
        let unreadable = self.unreadable.take();
        reasons.extend(unreadable.map(|error| format!("the node could not be read: {error}")));
        reasons.extend(self.trouble.take());
        let standing = Standing {
            rung,
            scheduling: self.scheduling.0.clone(),
            reasons,
        };
        self.author.rung = rung;
        if self.told.as_ref() != Some(&standing) {
            self.told = Some(standing.clone());
            let _told_or_counted = self.ports.reports.send(Report::Rung(Box::new(standing)));
        }
    }

    /// Tells which cgroup is measured as that of all pods, if it is another now.
    fn tell_pods(&mut self) {
        let group = self.files.pods_group().map(|pods| pods.dir().group());
        if self.told_pods.as_deref() == group {
            return;
        }
        let group = group.map(str::to_owned);
        // One that finds no room is told by the next pass.
        if self.ports.reports.send(Report::Pods(group.clone())).is_ok() {
            self.told_pods = group;
        }
    }

    pub(super) fn calibrate_threads(&mut self) {
        let ids = self.files.ids();
        self.threads = ids.count();
        let Some(kernel) = &mut self.kernel else {
            return;
        };
        kernel.count_tasks_of(ids.counter());
        kernel.calibrate_threads(|| ids.machines());
        self.arm_threads();
    }

    /// Asks for a signal at the next number of threads at which a threshold on process ids changes.
    pub(super) fn arm_threads(&mut self) {
        let (Some(most), Some(threads)) = (self.files.ids().most(), self.threads) else {
            return;
        };
        let thresholds = self.engine.policy().thresholds().iter();
        let pids = thresholds.filter(|threshold| threshold.signal == Signal::PidAvailable);
        let limits = pids.map(|threshold| most.saturating_sub(threshold.quantity(most).value()));
        let next = limits
            .clone()
            .filter(|&limit| limit >= threads)
            .min()
            .or_else(|| limits.max());
        let limit = next.and_then(|limit| u32::try_from(limit).ok());
        if let Some(kernel) = &mut self.kernel {
            kernel.limit_threads(limit);
        }
    }

    /// Refreshes what the sampler cannot read of the node's own cgroups.
    pub(super) fn refresh_terms(&mut self, at: Moment) {
        let Some(kernel) = &mut self.kernel else {
            self.times.terms = None;
            return;
        };
        self.times.terms = Some(at + terms_pace(kernel.period_ns()));
        let had_pods = kernel.without_pods().is_none();
        let is_refreshed = kernel.refresh_terms(&self.files).is_ok();
        let has_lost_pods = had_pods && kernel.without_pods().is_some();
        if !is_refreshed {
            self.distrust("a cgroup of the node itself can no longer be read");
        } else if has_lost_pods {
            // Nothing is pushed of them from here on: the look plans the next ones.
            self.look(at);
        }
    }

    /// Brings the next refresh of terms forward where the sampler has come to tick faster since it was planned.
    pub(super) fn hurry_terms(&mut self, period_ns: u64, at: Moment) {
        self.times.terms = self.times.terms.map(|due| sooner(due, at, period_ns));
    }

    /// Takes a new roster; the old one goes back to be freed elsewhere.
    pub(super) fn replace_roster(&mut self, roster: Box<Roster>) {
        self.see_whether_removed(&roster);
        let old = std::mem::replace(&mut self.roster, roster);
        // Before anybody is chosen from it: of another group's shortage its word on who is outside would be wrong.
        if self.files.follow_pods(self.roster.pods_group.as_deref()) {
            self.times.housekeeping = now();
        }
        self.killer.protect(&mut self.roster.protected);
        let table = std::sync::Arc::clone(&self.roster.table);
        self.make_room();
        self.feed(now(), &Input::Workloads(table));
        self.move_victims(&old);
        self.adopt_slots();
        self.recall_more(now());
        self.kill_what_was_started_again(now());
        self.ports.retire(old);
    }

    /// A victim whose cgroups were removed is gone, and this is the last moment at which that can be told of them: the
    /// new roster does not have them. A pod that it has is followed by its own cgroup, which is charged for what its containers
    /// have not given back.
    fn see_whether_removed(&mut self, new: &Roster) {
        let followed = self.current.as_ref();
        let Some(victim) = followed.filter(|victim| victim.completion.stages.gone.is_none()) else {
            return;
        };
        let (workload, mut known, mut removed) = (victim.workload, false, true);
        let uid = self.roster.table.workloads().get(workload).map(|w| &w.uid);
        let mut others = new.table.workloads().iter();
        let stays = others.any(|other| Some(&other.uid) == uid);
        for (_, group) in self.roster.of(workload) {
            known = true;
            removed &= group.is_removed() && !(stays && group.target.dir().is_alive());
        }
        if known && removed {
            let kept = self.mounted(workload);
            let held = self.held_by(workload).out_of_sight();
            let followed = self.current.as_mut();
            let unseen = followed.map_or(0, |victim| victim.end(held, now()));
            self.feed_gone(workload, kept, unseen);
        }
    }

    /// Victims have another index now, or are gone from the table.
    fn move_victims(&mut self, old: &Roster) {
        let (old_table, new) = (old.table.workloads(), self.roster.table.workloads());
        let followed = self
            .current
            .iter_mut()
            .chain(self.lingering.iter_mut().flatten());
        for victim in followed {
            let uid = old_table.get(victim.workload).map(|w| &w.uid);
            let place = uid.and_then(|uid| new.iter().position(|w| &w.uid == uid));
            let mut groups = old.of(victim.workload);
            // A cgroup is removed when nobody is in it any more.
            if place.is_none() && groups.all(|(_, group)| group.is_removed()) {
                victim.note_gone(now());
            }
            victim.workload = place.unwrap_or(usize::MAX);
        }
    }

    /// Gives the roster's cgroups their slots of the sampler.
    pub(super) fn adopt_slots(&mut self) {
        self.times.arm = self.kernel.is_some().then(now);
        if let Some(kernel) = &mut self.kernel {
            kernel.adopt_roster(&mut self.roster);
        }
    }

    /// Arms some more slots.
    pub(super) fn arm_more(&mut self, at: Moment) {
        let done = match &mut self.kernel {
            Some(kernel) => kernel.arm_roster(&mut self.roster),
            None => true,
        };
        self.times.arm = (!done).then(|| at + ARMING);
    }

    /// Takes another configuration over.
    pub(super) fn reconfigure(&mut self, new: Box<Reconfiguration>) {
        self.memory = new.live.memory;
        self.author.policy = new.live.memory;
        // Indexes of thresholds mean something else now.
        self.last_above = [None; ThresholdSet::CAPACITY];
        self.met_before = ThresholdSet::EMPTY;
        self.heard_met = None;
        self.feed(now(), &Input::Reconfigure(&new));
        let _told_or_counted = self.ports.reports.send(Report::Reconfigured(new));
        self.housekeep(now());
    }
}

/// A refresh of terms that is due at some time, as of a tick after which the next is so far away.
fn sooner(due: Moment, at: Moment, period_ns: u64) -> Moment {
    due.min(at + terms_pace(Some(period_ns)))
}

/// The pace of refreshing terms where the sampler ticks so often, in nanoseconds.
fn terms_pace(period_ns: Option<u64>) -> Span {
    let pace = period_ns.map_or(0, |period| period.saturating_mul(TICKS));
    let pace = Span::from_nanos(i64::try_from(pace).unwrap_or(i64::MAX));
    pace.clamp(FASTEST_TERMS, SLOWEST_TERMS)
}

#[cfg(test)]
mod tests {
    use super::super::pods::PodsGroup;
    use super::super::scene::Scene;
    use super::*;
    use crate::fake::write;

    #[test]
    fn allocatable_memory_is_of_the_group_that_the_roster_has_told_of() {
        let mut scene = Scene::killing();
        let root = scene.guard.root.clone();
        for group in ["kubepods", "kubepods.slice"] {
            let file = |name: &str| format!("sys/fs/cgroup/{group}/{name}");
            write(&root, &file("memory.max"), "1048576\n");
            write(&root, &file("memory.current"), "0\n");
            let stat = "inactive_file 0\nactive_file 0\n";
            write(&root, &file("memory.stat"), stat);
        }
        scene.guard.node.pods = PodsGroup::Kubelets;
        let guard = &mut scene.guard;
        guard.files = NodeFiles::open(&root, &guard.layout, &guard.node).unwrap();
        let far = now() + Span::from_secs(3600);
        let mut check = |group: Option<&str>, is_another: bool| {
            let mut roster = scene.roster(&["a", "idle"]);
            roster.pods_group = group.map(str::to_owned);
            scene.guard.times.housekeeping = far;
            scene.guard.replace_roster(roster);
            let measured = scene.guard.files.pods_group();
            assert_eq!(measured.map(|pods| pods.dir().group()), group);
            let is_pass_due = scene.guard.times.housekeeping < far;
            assert_eq!(is_pass_due, is_another, "{group:?}");
        };
        check(None, false);
        check(Some("/kubepods"), true);
        check(Some("/kubepods"), false);
        check(Some("/kubepods.slice"), true);
        check(None, true);
    }

    /// The runtime removes the cgroups of the dead; what they held may still be the pod's.
    #[test]
    fn a_pod_without_containers_is_gone_when_it_is_charged_for_nothing_more() {
        let mut scene = Scene::killing();
        let root = scene.guard.root.clone();
        let charge = |bytes: &str| {
            write(&root, "sys/fs/cgroup/pod/memory.current", bytes);
        };
        charge("314572800\n");
        scene.sample(scene.begun, 50);
        assert!(scene.is_killed("a"));
        let roster = scene.roster(&["a", "idle"]);
        for container in ["a", "idle"] {
            std::fs::remove_dir_all(root.join("sys/fs/cgroup/pod").join(container)).unwrap();
        }
        scene.guard.replace_roster(roster);
        let followed = |scene: &Scene| {
            let order = scene.guard.engine.open_order();
            order.is_some_and(|order| !order.is_gone())
        };
        assert!(followed(&scene));
        scene.guard.follow(now());
        assert!(followed(&scene), "it is charged for all of it");
        charge("0\n");
        scene.guard.follow(now());
        assert!(!followed(&scene));
    }

    #[test]
    fn a_roster_that_was_replaced_is_freed_elsewhere_although_the_reports_are_full() {
        let mut scene = Scene::killing();
        let ports = std::sync::Arc::clone(&scene.guard.ports);
        while ports.reports.send(Report::Heard(0)).is_ok() {}
        let mut replace = |names: &[&str]| {
            let roster = scene.roster(names);
            scene.guard.replace_roster(roster);
            ports.retired.len()
        };
        assert_eq!((replace(&["a"]), replace(&["a", "idle"])), (1, 2));
        ports.free_retired();
        assert_eq!(replace(&["a"]), 1);
    }

    #[test]
    fn a_refresh_is_brought_forward_and_never_put_off() {
        let at = |millis| Moment::START + Span::from_millis(millis);
        // Planned far from a limit at 1,000 ms, which has come near since.
        for (now, period_ns, expected) in [
            (1_010, 200_000_000, 1_500),
            (1_010, 50_000_000, 1_210),
            (1_010, 200_000, 1_110),
            (1_450, 200_000, 1_500),
        ] {
            assert_eq!(
                sooner(at(1_500), at(now), period_ns),
                at(expected),
                "{now} {period_ns}"
            );
        }
    }

    #[test]
    fn the_less_is_left_the_more_often_terms_are_refreshed() {
        let millis = |millis: u64| Some(millis * 1_000_000);
        for (period, expected) in [
            (None, 100),
            (millis(1), 100),
            (millis(50), 200),
            (millis(200), 500),
        ] {
            let pace = terms_pace(period);
            assert_eq!(pace, Span::from_millis(expected), "{period:?}");
        }
    }
}

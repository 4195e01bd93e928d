//! Whose limit was hit where the kernel's decision is not told: worked out, and compared with the kernel's own word.

use std::fs;

use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Version};
use brink_host::probe::{Facts, Family, Probe, Roots, Signal, Wishes, coverage};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Confidence, Incident, LimitMethod};
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, guest_only, lacks, skip, wait_until};

use crate::log::Log;
use crate::scene::{MIB, PATIENCE, Scene};

/// Kills until one is looked at before its victim has gone.
const TRIES: usize = 5;

/// A collector that is told of victims by the program beside the sampler alone.
struct Untold {
    scene: Scene,
    probe: Probe,
}

impl Untold {
    /// A group of so many MiB with a workload in it, or what this host lacks.
    fn new(mib: u64) -> Result<Self, String> {
        let facts = Facts::gather(&Roots::default());
        let settings = coverage::settings(&facts, Wishes::default());
        let probe = Probe::load(&facts, &settings).map_err(|why| why.to_string())?;
        for (program, state) in probe.coverage().programs() {
            let is_needed = matches!(program.family, Family::Oom | Family::Reclaim);
            if let (true, Err(why)) = (is_needed, state) {
                return Err(format!("{}: {why}", program.name));
            }
        }
        let scene = Scene::without_decisions(mib)?;
        Ok(Self { scene, probe })
    }

    /// The incident of a leak in a group, as it opens.
    fn oom_in(&mut self, group: &OwnedCgroup) -> Incident {
        self.oom_of(&Scene::leak_in(group, 200))
    }

    /// The incident of a process that the kernel kills, as it opens.
    fn oom_of(&mut self, victim: &Hog) -> Incident {
        let pid = victim.pid().unsigned_abs();
        let record = wait_until(PATIENCE, || {
            let mut found = None;
            self.probe.drain_signals(usize::MAX, |signal| match signal {
                Signal::Victim(record) if record.pid == pid => found = Some(*record),
                _ => {}
            });
            found
        });
        self.scene
            .collector
            .chosen(&record.expect("the kernel tells of its victim"));
        self.scene.about(Kind::OomKill, pid)
    }

    /// Lets the kernel kill in a group: what is told of the limit must be this, and what the kernel has logged.
    fn check(
        &mut self,
        group: &OwnedCgroup,
        short: &str,
        method: LimitMethod,
    ) -> Result<(), String> {
        let mut log = Log::from_now();
        // Of one that had gone before it could be looked at nothing can be inferred: that says nothing against what is told of others.
        let too_late = Field::Missing(Missing::ProcessGone);
        let told = std::iter::repeat_with(|| self.oom_in(group));
        let told = told.take(TRIES).find(|told| told.limit != too_late);
        let told = told.expect("each had gone too early");
        check_limit(&told, short, method);
        log.agrees(&told, || self.oom_in(group))
    }

    fn is_v1(&self) -> bool {
        let dir = self.scene.sandbox.dir(Controller::Memory);
        dir.unwrap().version() == Version::V1
    }

    /// Takes the limit of the sandbox away; what is to run out gets one of its own.
    fn unlimit(&self) {
        let dir = self.scene.sandbox.dir(Controller::Memory).unwrap().path();
        if self.is_v1() {
            // A kernel without swap accounting has none of the first.
            let _absent = fs::write(dir.join("memory.memsw.limit_in_bytes"), "-1");
            fs::write(dir.join("memory.limit_in_bytes"), "-1").unwrap();
        } else {
            fs::write(dir.join("memory.max"), "max").unwrap();
        }
    }
}

#[track_caller]
fn check_limit(told: &Incident, short: &str, method: LimitMethod) {
    let limit = told.limit.value();
    let limit = limit.unwrap_or_else(|| panic!("{told:#?}"));
    assert_eq!(
        (limit.cgroup.as_str(), limit.method, limit.confidence),
        (short, method, Confidence::High),
        "{told:#?}"
    );
}

#[test]
fn the_group_whose_count_of_ooms_rose_is_the_kernels() {
    let mut all = match Untold::new(128) {
        Ok(all) => all,
        Err(why) => lacks!("{why}"),
    };
    if all.is_v1() {
        skip!("cgroup v1 does not count a group's own OOMs");
    }
    all.scene.limit(&all.scene.web, 64);
    let own = all.scene.web.group().to_owned();
    let above = all.scene.sandbox.group.group().to_owned();
    let inner = all.scene.web.child("inner").unwrap();
    all.scene.follow();
    // The victim's own cgroup has no limit, and both above it do.
    if let Err(why) = all.check(&inner, &own, LimitMethod::EventDelta) {
        skip!("all but the kernel's own word: {why}");
    }
    all.scene.limit(&all.scene.web, 512);
    if let Err(why) = all.check(&inner, &above, LimitMethod::EventDelta) {
        skip!("all but the kernel's own word: {why}");
    }
}

#[test]
fn without_counts_the_group_at_its_limit_is_the_kernels() {
    let mut all = match Untold::new(256) {
        Ok(all) => all,
        Err(why) => lacks!("{why}"),
    };
    // Nobody has looked at its counts before. Its limit is less than what may lie between use and limit when one is hit, so
    // that it is at it even when its victim is gone.
    let fresh = all.scene.sandbox.group.child("fresh").unwrap();
    all.scene.limit(&fresh, 2);
    let path = fresh.group().to_owned();
    if let Err(why) = all.check(&fresh, &path, LimitMethod::AtLimit) {
        skip!("all but the kernel's own word: {why}");
    }
}

#[test]
fn the_only_group_with_a_limit_is_the_kernels() {
    let mut all = match Untold::new(256) {
        Ok(all) => all,
        Err(why) => lacks!("{why}"),
    };
    let fresh = all.scene.sandbox.group.child("fresh").unwrap();
    all.scene.limit(&fresh, 64);
    all.unlimit();
    let path = fresh.group().to_owned();
    if let Err(why) = all.check(&fresh, &path, LimitMethod::OnlyLimit) {
        skip!("all but the kernel's own word: {why}");
    }
}

#[test]
fn the_node_is_told_by_what_its_trigger_reclaimed_last() {
    guest_only!("the kernel's OOM killer is let loose on the machine");
    let mut all = match Untold::new(256) {
        Ok(all) => all,
        Err(why) => lacks!("{why}"),
    };
    let mut log = Log::from_now();
    let mut exhaust = || all.oom_of(&Scene::exhaust());
    let told = exhaust();
    check_limit(&told, "/", LimitMethod::LastReclaim);
    if let Err(why) = log.agrees(&told, exhaust) {
        skip!("all but the kernel's own word: {why}");
    }
}

/// Whoever hits the limit of a group with `oom_kill_disable` waits, and the group stands under OOM for as long as he does. Its
/// processes are killed for the limit above it all the same.
#[test]
fn a_group_under_oom_that_has_nobody_killed_is_not_the_one() {
    let mut all = match Untold::new(256) {
        Ok(all) => all,
        Err(why) => lacks!("{why}"),
    };
    if !all.is_v1() {
        skip!("only in a group of cgroup v1 may the kernel's killer be switched off");
    }
    let web = all.scene.web.group().to_owned();
    let [inner, beside] = ["inner", "beside"].map(|name| all.scene.web.child(name).unwrap());
    all.scene.limit(&all.scene.web, 64);
    all.scene.limit(&inner, 40);
    all.unlimit();
    all.scene.follow();
    let dir = inner.dir(&all.scene.sandbox.layout, Controller::Memory);
    let control = dir.unwrap().path().join("memory.oom_control");
    fs::write(&control, "1").unwrap();
    // The first fits in. The second fills the group and waits, until both are killed.
    let mut victim = Scene::leak_in(&inner, 30);
    victim.wait_touched(30 * MIB, PATIENCE).unwrap();
    let _waiting = Scene::leak_in(&inner, 64);
    let under = wait_until(PATIENCE, || {
        let text = fs::read_to_string(&control).unwrap();
        text.contains("under_oom 1").then_some(())
    });
    under.expect("somebody waits in its OOM");
    let mut log = Log::from_now();
    // It never holds as much as the victim while that lives.
    let _third = Scene::leak_in(&beside, 64);
    let told = all.oom_of(&victim);
    check_limit(&told, &web, LimitMethod::OnlyLimit);
    if let Err(why) = log.agrees(&told, || all.oom_in(&beside)) {
        skip!("all but the kernel's own word: {why}");
    }
}

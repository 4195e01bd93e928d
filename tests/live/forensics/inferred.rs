//! Whose limit was hit where the kernel's decision is not told: worked out, and compared with the kernel's own word.

use std::fs;

use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Version};
use brink_host::probe::{Facts, Family, Probe, Roots, Signal, Wishes, coverage};
use brink_stream::model::incident::{Confidence, Incident, LimitMethod};
use brink_stream::model::kind::Kind;
use brink_tests::{lacks, skip, wait_until};

use crate::log::Log;
use crate::scene::{PATIENCE, Scene};

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
        let leak = Scene::leak_in(group, 200);
        let pid = leak.pid().unsigned_abs();
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
        let told = self.oom_in(group);
        let limit = told.limit.value();
        let limit = limit.unwrap_or_else(|| panic!("{told:#?}"));
        assert_eq!(
            (limit.cgroup.as_str(), limit.method, limit.confidence),
            (short, method, Confidence::High),
            "{told:#?}"
        );
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

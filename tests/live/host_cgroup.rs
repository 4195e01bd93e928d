//! Groups on the real kernel: what is read is what was allocated, limited and set.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use brink_host::HostError;
use brink_host::cgroup::owned::{OwnedCgroup, remove_abandoned};
use brink_host::cgroup::preference::Preference;
use brink_host::cgroup::stat::{MemoryStat, StatReader};
use brink_host::cgroup::swap::SwapRoomReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::walk::groups_below;
use brink_host::cgroup::{CgroupDir, Controller, Layout, Limit, Version};
use brink_host::hog::{HogSpec, Load};
use brink_tests::{Hog, Sandbox, lacks, skip, wait_until};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
/// A program's own pages, page tables, and what each CPU has charged in advance.
const SLACK: u64 = 6 * MIB;

fn hog(group: &OwnedCgroup, load: Load, bytes: u64) -> Hog {
    let spec = HogSpec::new(load, bytes, PATIENCE);
    Hog::spawn(
        Path::new(env!("CARGO_BIN_EXE_brink-hog")),
        Some(group),
        &spec,
    )
    .expect("a hog")
}

/// What a group reads after a hog took 48 MiB.
fn after(load: Load) -> Option<(u64, MemoryStat)> {
    let sandbox = Sandbox::new(&[Controller::Memory], 256 * MIB).ok()?;
    let dir = sandbox.dir(Controller::Memory).expect("made for it");
    let (usage, stat) = (
        UsageReader::open(dir).expect("usage"),
        StatReader::open(dir).expect("stat"),
    );
    let mut hog = hog(&sandbox.group, load, 48 * MIB);
    hog.wait_touched(48 * MIB, PATIENCE).expect("progress");
    Some((usage.read().expect("usage"), stat.read().expect("stat")))
}

fn is_about(found: Option<u64>, expected: u64) -> bool {
    found.is_some_and(|found| (expected..expected + SLACK).contains(&found))
}

#[test]
fn anonymous_memory_is_counted_to_the_page() {
    let Some((usage, stat)) = after(Load::Anon) else {
        lacks!("no memory controller for a group of our own")
    };
    assert!(is_about(Some(usage), 48 * MIB), "{usage}");
    assert!(is_about(stat.anon, 48 * MIB), "{stat:?}");
    assert!(
        stat.reclaimable().is_some_and(|bytes| bytes < SLACK),
        "{stat:?}"
    );
}

#[test]
fn shared_memory_is_file_memory_that_cannot_be_reclaimed() {
    let Some((usage, stat)) = after(Load::Shmem) else {
        lacks!("no memory controller for a group of our own")
    };
    assert!(is_about(Some(usage), 48 * MIB), "{usage}");
    assert!(
        is_about(stat.shmem, 48 * MIB) && is_about(stat.file, 48 * MIB),
        "{stat:?}"
    );
    assert!(
        stat.reclaimable().is_some_and(|bytes| bytes < SLACK),
        "{stat:?}"
    );
}

#[test]
fn clean_page_cache_is_reclaimable() {
    let Some((usage, stat)) = after(Load::CacheRead) else {
        lacks!("no memory controller for a group of our own")
    };
    assert!(is_about(Some(usage), 48 * MIB), "{usage}");
    assert!(is_about(stat.file, 48 * MIB), "{stat:?}");
    // A page or two of the filesystem's own may be dirty.
    let unclean = stat
        .dirty
        .zip(stat.writeback)
        .map_or(0, |(one, other)| one + other);
    assert!(unclean < MIB, "{stat:?}");
    let all = stat.reclaimable().map(|clean| clean + unclean);
    assert!(is_about(all, 48 * MIB), "{stat:?}");
}

#[test]
fn pipes_are_in_the_usage_and_in_none_of_the_parts() {
    let Some((usage, stat)) = after(Load::Pipes) else {
        lacks!("no memory controller for a group of our own")
    };
    assert!(usage >= 48 * MIB, "{usage}");
    assert!(
        stat.anon < Some(SLACK) && stat.file < Some(SLACK),
        "{stat:?}"
    );
}

#[test]
fn limits_are_what_was_set() {
    let sandbox = match Sandbox::new(&[Controller::Memory, Controller::Pids], 64 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let memory = sandbox.dir(Controller::Memory).expect("made for it");
    assert_eq!(memory.memory_limit().expect("limit"), Limit::At(64 * MIB));
    assert_eq!(memory.memory_high().expect("high"), Limit::Unlimited);
    sandbox
        .group
        .limit_tasks(&sandbox.layout, 9)
        .expect("writable");
    let pids = sandbox.dir(Controller::Pids).expect("made for it");
    assert_eq!(
        (
            pids.pids_limit().expect("limit"),
            pids.tasks().expect("count")
        ),
        (Limit::At(9), 0)
    );
    let child = sandbox.group.child("inner").expect("a child");
    let inner = child
        .dir(&sandbox.layout, Controller::Memory)
        .expect("made for it");
    assert_eq!(inner.memory_limit().expect("limit"), Limit::Unlimited);
    if inner.version() == Version::V1 {
        let stat = StatReader::open(inner).expect("stat").read().expect("stat");
        assert_eq!(stat.hierarchical_limit, Some(64 * MIB));
    }
    let root = CgroupDir::open(
        sandbox.layout.require(Controller::Memory).expect("memory"),
        "/",
    )
    .expect("root");
    assert_eq!(
        root.memory_limit().expect("the root has none"),
        Limit::Unlimited
    );
    assert_eq!(
        root.pids_limit().expect("the root has none"),
        Limit::Unlimited
    );
}

#[test]
fn a_kill_by_the_kernel_in_the_group_is_counted() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 24 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let dir = sandbox.dir(Controller::Memory).expect("made for it");
    let before = dir.memory_events().expect("events");
    let mut hog = hog(&sandbox.group, Load::Anon, 48 * MIB);
    let status = hog.wait(PATIENCE).expect("the limit ends it");
    assert!(!status.success(), "{status}");
    let after = dir.memory_events().expect("events");
    assert_eq!(
        (before.oom_kill, after.oom_kill),
        (Some(0), Some(1)),
        "{after:?}"
    );
}

#[test]
fn the_owner_asks_to_be_spared() {
    let layout = Layout::detect(Path::new("/")).expect("a layout");
    let Some(unified) = layout.unified().cloned() else {
        skip!("no v2 tree is mounted: v1 has no user attributes")
    };
    let group = match OwnedCgroup::create(&layout, "test", &[]) {
        Ok(group) => group,
        Err(error) => skip!("{error}"),
    };
    let dir = CgroupDir::open(&unified, group.group()).expect("ours");
    let set = |name: &str, value: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(dir.path(), name, value.as_bytes(), flags).expect("attributes");
    };
    assert_eq!(dir.preference().expect("readable"), Preference::None);
    set("user.oomd_avoid", "1");
    assert_eq!(dir.preference().expect("readable"), Preference::Avoid);
    set("user.oomd_omit", "1");
    assert_eq!(dir.preference().expect("readable"), Preference::Omit);
    // The attributes of a group that was handed to a user are that user's wish, not the node's.
    std::os::unix::fs::chown(dir.path(), Some(65_534), None).expect("root");
    assert_eq!(dir.preference().expect("readable"), Preference::None);
    set("trusted.oomd_avoid", "1");
    assert_eq!(dir.preference().expect("readable"), Preference::Avoid);
}

#[test]
fn a_group_goes_with_everything_in_it() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 256 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let outer = sandbox.group.child("a").expect("a child");
    let inner = outer.child("b").expect("a grandchild");
    let mut hog = hog(&inner, Load::Anon, 8 * MIB);
    hog.wait_touched(8 * MIB, PATIENCE).expect("progress");
    let hierarchy = sandbox
        .layout
        .require(Controller::Memory)
        .expect("memory")
        .clone();
    assert_eq!(sandbox.group.processes().expect("list"), [hog.pid()]);
    let below = groups_below(&hierarchy, sandbox.group.group(), 9).expect("list");
    assert_eq!(below, [sandbox.group.group(), outer.group(), inner.group()]);
    let folder = hierarchy.folder(sandbox.group.group()).expect("inside");
    sandbox.group.remove().expect("removable");
    assert!(!folder.exists());
    assert!(!hog.wait(PATIENCE).expect("killed").success());
}

#[test]
fn what_a_dead_maker_left_is_removed_and_the_rest_is_not() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 256 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let mut gone = Command::new("true").spawn().expect("true");
    gone.wait().expect("ended");
    let hierarchy = sandbox.layout.require(Controller::Memory).expect("memory");
    let left = hierarchy.path.join(format!("brink-test-{}-0", gone.id()));
    fs::create_dir(&left).expect("a group");
    assert_eq!(
        remove_abandoned(&sandbox.layout, "test").expect("removable"),
        1
    );
    assert!(!left.exists());
    assert!(
        sandbox
            .dir(Controller::Memory)
            .expect("made for it")
            .is_alive()
    );
}

#[test]
fn a_removed_group_answers_with_an_error_and_never_with_zero() {
    let sandbox = match Sandbox::new(&[Controller::Memory], 256 * MIB) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    let hierarchy = sandbox
        .layout
        .require(Controller::Memory)
        .expect("memory")
        .clone();
    let dir = CgroupDir::open(&hierarchy, sandbox.group.group()).expect("ours");
    let usage = UsageReader::open(&dir).expect("usage");
    assert!(usage.read().is_ok() && dir.is_alive());
    sandbox.group.remove().expect("removable");
    let gone = wait_until(Duration::from_secs(2), || usage.read().err());
    assert!(gone.is_some() && !dir.is_alive(), "{gone:?}");
    assert!(matches!(
        UsageReader::open(&dir),
        Err(HostError::Open { .. })
    ));
}

#[test]
fn a_bounded_group_and_those_in_it_can_use_no_swap() {
    let Ok(sandbox) = Sandbox::new(&[Controller::Memory], 64 * MIB) else {
        lacks!("no memory controller for a group of our own")
    };
    let hierarchy = sandbox.layout.require(Controller::Memory).expect("memory");
    let inner = sandbox.group.child("inner").expect("a group in it");
    for group in [&sandbox.group, &inner] {
        let reader = SwapRoomReader::open(Path::new("/"), hierarchy, group.group());
        let room = reader.expect("readable").read(64 * MIB);
        assert_eq!(room, Ok(Some(0)), "{}", group.group());
    }
}

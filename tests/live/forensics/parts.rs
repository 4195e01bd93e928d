//! What a victim held, by kind, swap among it, and who else held how much: an OOM record against amounts that are known beforehand.

use std::fs;
use std::path::Path;
use std::time::Duration;

use brink_host::cgroup::Version;
use brink_host::hog::{HogSpec, Load};
use brink_stream::model::field::Field;
use brink_stream::model::kind::Kind;
use brink_tests::{Hog, Swap, files_are_in_memory, guest_only, lacks, skip, wait_until};

use crate::scene::{MIB, PATIENCE, Scene};

/// How far a part may be from what is known of it. Since 6.2 every processor keeps a part of each counter to itself (32 pages,
/// or two for every processor there is), and kernels before that as much for every thread.
const TOLERANCE: u64 = MIB;
/// What the program has of its own beside the memory that it takes: heap, stack, and what its linker relocates.
const OWN: u64 = 2 * MIB;

/// A line of `/proc/PID/status` in bytes.
fn told_by_proc(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    let number: Option<u64> = number.and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{key} in {status}")) << 10
}

/// That a part is between two amounts, give or take the tolerance.
#[track_caller]
fn check(name: &str, told: &Field<u64>, [least, most]: [u64; 2]) {
    let told = *told.value().unwrap_or_else(|| panic!("{name}: {told:?}"));
    let known = least.saturating_sub(TOLERANCE)..=most + TOLERANCE;
    assert!(known.contains(&told), "{name}: {told}, not in {known:?}");
}

/// The victim holds what it was told to hold and does nothing; it is killed because somebody else in its cgroup takes more. So
/// nothing that it has moves while it is looked at.
#[test]
fn the_parts_of_a_victims_memory_are_those_it_took() {
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    if files_are_in_memory() {
        lacks!("what is mapped of a file on tmpfs is shared memory");
    }
    scene.limit(&scene.web, 96);
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let spec = HogSpec::new(Load::Parts, 64 * MIB, Duration::from_mins(1));
    let mut victim = Hog::spawn(program, Some(&scene.web), &spec).unwrap();
    victim.wait_touched(64 * MIB, PATIENCE).unwrap();
    let pid = victim.pid().unsigned_abs();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let proc = |key| told_by_proc(&status, key);
    // It never holds as much as the other, so that one is chosen; and it fits in once that is gone.
    let spec = HogSpec::new(Load::Anon, 48 * MIB, Duration::from_mins(1));
    let mut other = Hog::spawn(program, Some(&scene.web), &spec).unwrap();
    let opened = scene.about(Kind::OomKill, pid);
    other.wait_touched(48 * MIB, PATIENCE).unwrap();
    assert_eq!(opened.victims.len(), 1, "{opened:#?}");
    let told = &opened.victims[0];
    check("anon", &told.anon, [32 * MIB, 32 * MIB + OWN]);
    // Its own program is mapped too, as much of it as was in use; that of a guest lies in memory.
    check("shmem", &told.shmem, [16 * MIB, proc("RssShmem:")]);
    // Before Linux 6.2 a thread keeps its last 64 faults to itself, each of which may have mapped 16 pages of a file.
    let file = proc("RssFile:");
    assert!(file >= 12 * MIB, "{status}");
    check("file", &told.file, [file.min(16 * MIB), file]);
    check("swap", &told.swap, [proc("VmSwap:"); 2]);
    for (name, part, key) in [
        ("anon", &told.anon, "RssAnon:"),
        ("shmem", &told.shmem, "RssShmem:"),
    ] {
        check(name, part, [proc(key); 2]);
    }
    // All of them are less than that tolerance, and no processor keeps a part of their counter to itself.
    let tables = *told.page_tables.value().unwrap();
    let known = proc("VmPTE:");
    assert!(tables.abs_diff(known) <= 64 << 10, "{tables}, not {known}");
    // The table of the group says the same of the victim, all parts together.
    let lines = opened.top_of_cgroup.value().unwrap();
    let line = lines.iter().find(|line| line.pid == pid).unwrap();
    let parts = [&told.anon, &told.file, &told.shmem].map(|part| *part.value().unwrap());
    let sum: u64 = parts.iter().sum();
    assert!(line.rss.abs_diff(sum) <= TOLERANCE, "{line:?} {parts:?}");
}

/// Somebody who holds much in a cgroup that has nothing to do with it is in the table of the node, with what he holds.
#[test]
fn who_holds_much_is_in_the_table_of_the_node() {
    const LINES: usize = 10;
    const HOLDS: u64 = 256 * MIB;
    let scene = match Scene::new(400) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    scene.limit(&scene.web, 64);
    let beside = scene.sandbox.group.child("beside").unwrap();
    let mut large = Scene::leak_in(&beside, HOLDS / MIB);
    large.wait_touched(HOLDS, PATIENCE).unwrap();
    let leak = scene.leak(200);
    let closed = scene.about(Kind::IncidentClosed, leak.pid().unsigned_abs());
    let top = closed.top_of_node.value().expect("it was made");
    assert!(
        top.is_sorted_by(|one, other| one.rss >= other.rss),
        "{top:?}"
    );
    let large = large.pid().unsigned_abs();
    let Some(line) = top.iter().find(|line| line.pid == large) else {
        // This machine may be full of larger ones.
        assert_eq!(top.len(), LINES, "{large} is not in {top:?}");
        assert!(top.iter().all(|line| line.rss >= HOLDS), "{top:?}");
        return;
    };
    assert_eq!(line.comm, "brink-hog");
    assert!(
        (HOLDS - TOLERANCE..HOLDS + 16 * MIB).contains(&line.rss),
        "{line:?}"
    );
}

/// A victim of which half was moved to swap, which its group may then use no more of: what is there stays there.
#[test]
fn what_a_victim_has_in_swap_is_what_was_moved_there() {
    guest_only!("swap is switched on and off");
    let scene = match Scene::new(256) {
        Ok(scene) => scene,
        Err(why) => lacks!("{why}"),
    };
    let dir = scene.memory();
    if dir.version() == Version::V1 {
        skip!("cgroup v1 bounds memory and swap together");
    }
    let _area = match Swap::on_disk(128) {
        Ok(area) => area,
        Err(why) => lacks!("{why}"),
    };
    let of_web = |name: &str| dir.path().join(name);
    let above = dir.path().parent().unwrap().join("memory.swap.max");
    fs::write(above, "max").unwrap();
    let mut victim = scene.leak(64);
    victim.wait_touched(64 * MIB, PATIENCE).unwrap();
    let pid = victim.pid().unsigned_abs();
    let proc = |key| {
        told_by_proc(
            &fs::read_to_string(format!("/proc/{pid}/status")).unwrap(),
            key,
        )
    };
    let moved = wait_until(PATIENCE, || {
        // It fails when it has found less than it was asked for.
        let _short = fs::write(of_web("memory.reclaim"), (8 * MIB).to_string());
        (proc("VmSwap:") >= 32 * MIB).then_some(())
    });
    assert!(moved.is_some(), "{} bytes are in swap", proc("VmSwap:"));
    let used = fs::read_to_string(of_web("memory.swap.current")).unwrap();
    scene.limit(&scene.web, 64);
    fs::write(of_web("memory.swap.max"), used).unwrap();
    let known = proc("VmSwap:");
    let _other = scene.leak(48);
    let opened = scene.about(Kind::OomKill, pid);
    let told = &opened.victims[0];
    check("swap", &told.swap, [known; 2]);
    check(
        "anon",
        &told.anon,
        [64 * MIB - known, 64 * MIB - known + OWN],
    );
}

//! Swap and zram: what they are worth to headroom, and what an agent decides without, with, and with full swap.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::control::protocol::Status;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Version};
use brink_host::hog::{HogSpec, Load};
use brink_tests::{Hog, Swap, guest_only, lacks, skip, slowed, wait_until};

/// Size of an area in MiB.
const AREA: u64 = 256;
/// The header of an area, and what the kernel rounds.
const SLACK: u64 = MIB;

fn usable(node: &Node, expected: u64) -> Status {
    let is_near = |status: &Status| status.usable_swap_bytes.abs_diff(expected) <= SLACK;
    let status = wait_until(PATIENCE, || node.status().filter(is_near));
    let found = || node.status().map(|status| status.usable_swap_bytes >> 20);
    status.unwrap_or_else(|| panic!("{:?} MiB, not {}", found(), expected >> 20))
}

fn seen(status: &Status, signal: &str) -> i64 {
    let mut signals = status.signals.iter();
    let found = signals.find(|seen| seen.signal == signal);
    found.unwrap_or_else(|| panic!("{status:?}")).available
}

/// The machine as the node, watched.
fn watched() -> Node {
    let mut node = Node::new(1500);
    node.workload("leaker", "containers: [{name: c}]");
    node.configure_machine(
        "observe",
        "evictionHard: {memory.available: 1Mi}\nhousekeepingInterval: 1s",
    );
    node.start(&[]);
    node
}

#[test]
fn swap_counts_as_headroom_and_zram_by_half() {
    guest_only!("swap is switched on and off");
    let node = watched();
    usable(&node, 0);
    let disk = match Swap::on_disk(AREA) {
        Ok(disk) => disk,
        Err(why) => lacks!("{why}"),
    };
    let status = usable(&node, AREA * MIB);
    let headroom = status.headroom_bytes.unwrap() + status.usable_swap_bytes.cast_signed();
    let told = seen(&status, "memory.headroom");
    assert!(
        (told - headroom).unsigned_abs() <= SLACK,
        "{told} {headroom}"
    );
    drop(disk);
    usable(&node, 0);
    let zram = match Swap::in_zram(AREA) {
        Ok(zram) => zram,
        Err(why) => lacks!("{why}"),
    };
    usable(&node, AREA * MIB / 2);
    let _both = Swap::on_disk(AREA).unwrap();
    usable(&node, AREA * MIB * 3 / 2);
    drop(zram);
    usable(&node, AREA * MIB);
}

/// A threshold from what the machine has now, and a leak that passes it by 100 MiB on both signals: less than there is swap.
fn enforcing(node: &mut Node) -> u64 {
    let status = node.status().unwrap();
    let available = seen(&status, "memory.available");
    let headroom = status.headroom_bytes.unwrap();
    let threshold = available.min(headroom) - 200 * MIB.cast_signed();
    node.stop(rustix::process::Signal::TERM);
    let hard = format!("evictionHard: {{memory.available: \"{threshold}\"}}");
    node.configure_machine("enforce", &format!("{hard}\nhousekeepingInterval: 1s"));
    node.start(&[]);
    let leak = available.max(headroom) - threshold + 100 * MIB.cast_signed();
    leak.cast_unsigned()
}

/// Waits until the threshold is met and not acted on for want of a confirmation.
fn held(node: &Node) {
    let is_held = |status: &Status| {
        let mut thresholds = status.thresholds.iter();
        thresholds.any(|each| each.met && each.held.as_deref() == Some("unconfirmed"))
    };
    let found = wait_until(PATIENCE, || node.status().filter(is_held));
    assert!(found.is_some(), "{:?}\n{}", node.status(), node.log());
}

fn leaking(node: &Node, bytes: u64) -> Hog {
    let mut spec = HogSpec::new(Load::Anon, bytes, Duration::from_mins(1));
    spec.floor = 0;
    node.hog(0, &spec)
}

/// A leak is borne while this swap is free, which counts as so many bytes, and not once it is gone.
fn check_free(make: fn() -> Result<Swap, String>, worth: u64) -> Result<(), String> {
    let mut node = watched();
    let swap = make()?;
    usable(&node, worth);
    let bytes = enforcing(&mut node);
    usable(&node, worth);
    let leak = leaking(&node, bytes);
    held(&node);
    std::thread::sleep(slowed(Duration::from_millis(300)));
    assert!(
        lives(&leak) && node.decisions().is_empty(),
        "{}",
        node.log()
    );
    drop(swap);
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    assert_eq!(record.memory.usable_swap_bytes, 0);
    Ok(())
}

#[test]
fn free_swap_holds_an_eviction_until_it_is_gone() {
    guest_only!("swap is switched on and off");
    if let Err(why) = check_free(|| Swap::on_disk(AREA), AREA * MIB) {
        lacks!("{why}");
    }
}

#[test]
fn free_zram_holds_an_eviction_until_it_is_gone() {
    guest_only!("swap is switched on and off");
    if let Err(why) = check_free(|| Swap::in_zram(4 * AREA), 2 * AREA * MIB) {
        lacks!("{why}");
    }
}

/// A group that holds less than it took: the rest is in swap.
fn filled(mib: u64) -> (OwnedCgroup, Hog) {
    let layout = brink_host::cgroup::Layout::detect(Path::new("/")).unwrap();
    let group = OwnedCgroup::create(&layout, "test", &[Controller::Memory]).unwrap();
    let dir = group.dir(&layout, Controller::Memory).unwrap();
    let limit = match dir.version() {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    };
    fs::write(dir.path().join(limit), (32 * MIB).to_string()).unwrap();
    let mut spec = HogSpec::new(Load::Anon, mib * MIB, Duration::from_mins(1));
    spec.floor = 0;
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let mut hog = Hog::spawn(program, Some(&group), &spec).unwrap();
    hog.wait_touched(mib * MIB, PATIENCE).unwrap();
    (group, hog)
}

/// A leak is not borne when this swap is full.
fn check_full(make: fn() -> Result<Swap, String>) -> Result<(), String> {
    let mut node = watched();
    let swap = make()?;
    let (group, filler) = filled(AREA + 16);
    let bytes = enforcing(&mut node);
    let status = node.status().unwrap();
    assert!(status.usable_swap_bytes < 64 * MIB, "{status:?}");
    let leak = leaking(&node, bytes);
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    let left = record.memory.usable_swap_bytes;
    assert!(left < 64 * MIB, "{left} bytes of swap");
    drop((filler, group, swap));
    Ok(())
}

#[test]
fn full_swap_holds_nothing() {
    guest_only!("swap is switched on and off");
    if let Err(why) = check_full(|| Swap::on_disk(AREA)) {
        lacks!("{why}");
    }
}

#[test]
fn full_zram_holds_nothing() {
    guest_only!("swap is switched on and off");
    if let Err(why) = check_full(|| Swap::in_zram(AREA)) {
        lacks!("{why}");
    }
}

#[test]
fn a_node_may_use_no_more_swap_than_its_limits_leave() {
    guest_only!("swap is switched on and off");
    let mut node = Node::new(300);
    let dir = node.sandbox.dir(Controller::Memory).unwrap();
    if dir.version() == Version::V1 {
        skip!("cgroup v1 bounds memory and swap together");
    }
    let limit = dir.path().join("memory.swap.max");
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let _swap = match Swap::on_disk(AREA) {
        Ok(swap) => swap,
        Err(why) => lacks!("{why}"),
    };
    fs::write(&limit, (100 * MIB).to_string()).unwrap();
    let hard = "evictionHard: {memory.available: 60Mi}";
    node.configure("enforce", &format!("{hard}\nhousekeepingInterval: 1s"));
    node.start(&[]);
    usable(&node, 100 * MIB);
    let leak = node.holding(leaker, 260);
    held(&node);
    assert!(
        lives(&leak) && node.decisions().is_empty(),
        "{}",
        node.log()
    );
    fs::write(&limit, "0").unwrap();
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.memory.usable_swap_bytes, 0);
}

//! What the kernel's own killer killed for, as the agent tells it.

use std::fs;
use std::time::Duration;

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::control::protocol::{OomView, Status};
use brink_host::cgroup::Controller;
use brink_host::cgroup::events::MemoryEvents;
use brink_host::hog::Load;
use brink_tests::{Hog, guest_only, lacks, skip, slowed, wait_until};

/// A node whose agent only watches, and a workload in it that may take 32 MiB; or why nothing would be seen.
fn bounded() -> Result<(Node, usize), String> {
    let mut node = Node::new(300);
    let bounded = node.workload("bounded", "containers: [{name: c}]");
    node.groups[bounded]
        .limit_memory(&node.sandbox.layout, 32 * MIB)
        .unwrap();
    node.configure("observe", "evictionHard: {memory.available: 1Mi}");
    let status = node.start(&[]);
    let mut programs = status.programs.iter();
    let missing =
        programs.find(|each| !each.running && ["oom", "reclaim"].contains(&&*each.family));
    match missing {
        _ if status.programs.is_empty() => Err(format!("{:?}", status.rung_reasons)),
        Some(missing) => Err(format!("{missing:?}")),
        None => Ok((node, bounded)),
    }
}

#[track_caller]
fn check(node: &Node, expected: OomView) -> Status {
    let status = wait_until(PATIENCE, || {
        node.status().filter(|status| status.oom == expected)
    });
    status.unwrap_or_else(|| {
        panic!(
            "{:?}\n{}",
            node.status().map(|status| status.oom),
            node.log()
        )
    })
}

#[test]
fn a_cgroup_at_its_limit_is_told_as_that() {
    let (node, bounded) = match bounded() {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    for cgroup in 1..=2 {
        gone_after(&node.load(bounded, Load::Anon, 100 * MIB));
        let expected = OomView {
            cgroup,
            ..OomView::default()
        };
        assert_eq!(check(&node, expected).oom_kills, cgroup);
    }
    assert!(
        node.log().contains("\"short\":\"cgroup\""),
        "{}",
        node.log()
    );
    let page = node.said(&["status"]);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(
        page.contains("2 kills") && page.contains("2 for the limit of a cgroup"),
        "{page}"
    );
}

#[test]
fn a_group_that_is_taken_whole_is_told_as_that() {
    let (node, bounded) = match bounded() {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let dir = node.groups[bounded].dir(&node.sandbox.layout, Controller::Memory);
    let whole = dir.unwrap().path().join("memory.oom.group");
    if !whole.exists() {
        skip!("cgroup v1 has no memory.oom.group");
    }
    fs::write(whole, "1").unwrap();
    let beside = node.holding(bounded, 4);
    gone_after(&node.load(bounded, Load::Anon, 100 * MIB));
    gone_after(&beside);
    let expected = OomView {
        cgroup: 2,
        groups: 1,
        ..OomView::default()
    };
    check(&node, expected);
}

#[test]
fn being_slowed_down_above_memory_high_is_told_as_no_kill() {
    let (node, bounded) = match bounded() {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let dir = node.groups[bounded].dir(&node.sandbox.layout, Controller::Memory);
    let folder = dir.unwrap().path().to_path_buf();
    if !folder.join("memory.high").exists() {
        skip!("cgroup v1 has no memory.high");
    }
    fs::write(folder.join("memory.high"), (8 * MIB).to_string()).unwrap();
    let slowed_down = node.load(bounded, Load::Anon, 24 * MIB);
    let events = || {
        let text = fs::read(folder.join("memory.events")).unwrap();
        MemoryEvents::parse(&text).unwrap()
    };
    let throttled = wait_until(PATIENCE, || (events().high > Some(0)).then_some(()));
    assert!(throttled.is_some(), "{:?}", events());
    std::thread::sleep(slowed(Duration::from_millis(500)));
    assert_eq!(events().oom, Some(0));
    assert!(lives(&slowed_down), "{}", node.log());
    assert_eq!(check(&node, OomView::default()).oom_kills, 0);
    // The same workload at its limit is told at once.
    drop(slowed_down);
    fs::write(folder.join("memory.high"), "max").unwrap();
    gone_after(&node.load(bounded, Load::Anon, 100 * MIB));
    let expected = OomView {
        cgroup: 1,
        ..OomView::default()
    };
    check(&node, expected);
}

#[test]
fn an_oom_of_the_node_is_told_as_that() {
    guest_only!("the kernel's OOM killer is let loose on the machine");
    let (node, _) = match bounded() {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let before = killed_by_the_kernel();
    let mut hog = Hog::exhaust(program).unwrap();
    assert!(!hog.wait(Duration::from_secs(25)).unwrap().success());
    // Mostly one. It chooses again where the first one's memory is not back soon enough for it.
    let expected = OomView {
        node: killed_by_the_kernel() - before,
        ..OomView::default()
    };
    assert!(expected.node > 0);
    check(&node, expected);
}

/// How many the kernel's killer has taken since the machine started, by its own count.
fn killed_by_the_kernel() -> u32 {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.unwrap().parse().unwrap()
}

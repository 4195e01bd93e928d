//! The rungs of the ladder, each on the real kernel: what carries the signal there, what the agent says, and that it still kills.
use std::fs;
use std::os::unix::fs::FileExt;

use crate::support::{MIB, Node, PATIENCE, gone_after};
use brink::control::protocol::Status;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{Controller, Version};
use brink_host::hog::Load;
use brink_tests::{lacks, skip, wait_until};

const HARD: &str = "evictionHard: {memory.available: 60Mi}";

/// A leak on a node configured so: the standing before it, and the record's rung.
fn leak_on(node: &mut Node, extra: &str, flags: &[&str]) -> (Status, String) {
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", &format!("{HARD}\n{extra}"));
    let status = node.start(flags);
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    (status, record.rung)
}

fn reasons(status: &Status) -> String {
    status.rung_reasons.join("; ")
}

#[test]
fn the_kernel_sampler_is_the_top_rung() {
    let mut node = Node::new(300);
    let (status, rung) = leak_on(&mut node, "", &[]);
    if status.rung.as_deref() != Some("kernel-sampler") {
        lacks!("the sampler cannot serve here: {}", reasons(&status));
    }
    assert_eq!(rung, "kernel-sampler");
    let sampler = status.sampler.expect("its cost is known");
    assert!(sampler.ticks > 0 && sampler.mean_ns > 0, "{sampler:?}");
    for ring in &status.rings {
        assert_eq!(
            ring.seen,
            ring.sent + ring.dropped + ring.filtered,
            "{ring:?}"
        );
    }
}

#[test]
fn without_programs_the_guard_polls_under_real_time() {
    let mut node = Node::new(300);
    let (status, rung) = leak_on(&mut node, "kernelPrograms: false", &[]);
    assert!(reasons(&status).contains("switched off"), "{status:?}");
    if !status
        .scheduling
        .as_deref()
        .unwrap_or_default()
        .starts_with("SCHED_FIFO")
    {
        lacks!("no real time here: {}", reasons(&status));
    }
    assert_eq!(rung, "realtime-poll");
}

#[test]
fn without_real_time_it_polls_at_nice_minus_20() {
    let mut node = Node::new(300);
    let extra = "kernelPrograms: false\nrealtime: {priority: 0}";
    let (status, rung) = leak_on(&mut node, extra, &[]);
    assert_eq!(status.scheduling.as_deref(), Some("nice -20"));
    assert_eq!(rung, "poll");
}

/// A child of the v1 cpu controller has no real-time run time of its own; the agent enters one.
#[test]
fn a_cpu_group_without_run_time_is_named_and_can_be_left() {
    let mut node = Node::new(300);
    let layout = node.sandbox.layout.clone();
    match layout.hierarchy(Controller::Cpu) {
        Some(hierarchy) if hierarchy.version == Version::V1 => {}
        _ => skip!("the cpu controller is not on cgroup v1"),
    }
    let cpu = OwnedCgroup::create(&layout, "test", &[Controller::Cpu]).unwrap();
    let runtime = cpu
        .dir(&layout, Controller::Cpu)
        .unwrap()
        .path()
        .join("cpu.rt_runtime_us");
    match fs::read_to_string(&runtime) {
        Ok(text) if text.trim() == "0" => {}
        _ => skip!("the kernel has no RT_GROUP_SCHED"),
    }
    node.workload("idle", "containers: [{name: c}]");
    node.configure("observe", HARD);
    cpu.add_process(std::process::id()).unwrap();
    let refused = node.start(&[]);
    node.stop(rustix::process::Signal::TERM);
    let moved = node.start(&["--move-guard-to-root-cpu-group", "true"]);
    leave(&layout);
    assert_eq!(refused.scheduling.as_deref(), Some("nice -20"));
    assert!(
        reasons(&refused).contains("rt_runtime"),
        "{}",
        reasons(&refused)
    );
    assert_eq!(moved.scheduling.as_deref(), Some("SCHED_FIFO 49"));
    let guards = threads_in_root(moved.pid, &layout);
    assert!(
        guards
            .iter()
            .all(|name| name == "brink-guard" || name.starts_with("brink-free")),
        "{guards:?}"
    );
    assert!(guards.contains(&"brink-guard".to_owned()));
    node.stop(rustix::process::Signal::TERM);
}

/// Back to the root cpu group, so that ours can be removed.
fn leave(layout: &brink_host::cgroup::Layout) {
    let root = layout
        .hierarchy(Controller::Cpu)
        .unwrap()
        .path
        .join("cgroup.procs");
    fs::write(root, std::process::id().to_string()).unwrap();
    if let Some(unified) = layout.unified() {
        fs::write(
            unified.path.join("cgroup.procs"),
            std::process::id().to_string(),
        )
        .unwrap();
    }
}

/// Names of the threads of a process that are in the root cpu group.
fn threads_in_root(pid: u32, layout: &brink_host::cgroup::Layout) -> Vec<String> {
    let root = layout
        .hierarchy(Controller::Cpu)
        .unwrap()
        .path
        .join("tasks");
    let tasks = fs::read_to_string(root).unwrap();
    let folder = format!("/proc/{pid}/task");
    let name = |tid: &str| fs::read_to_string(format!("{folder}/{tid}/comm")).ok();
    tasks
        .lines()
        .filter_map(name)
        .map(|name| name.trim().to_owned())
        .collect()
}

/// The agent in a mount namespace of its own, where /proc/meminfo says something else than the kernel's own counters.
#[test]
fn numbers_that_differ_from_the_files_lower_the_rung_at_once() {
    let mut node = Node::new(300);
    node.workload("idle", "containers: [{name: c}]");
    let file = node.path("meminfo");
    let real = fs::read_to_string("/proc/meminfo").unwrap();
    fs::write(&file, &real).unwrap();
    let mount = format!(
        "mount --bind {} /proc/meminfo && exec \"$@\"",
        file.display()
    );
    node.within = ["unshare", "-m", "sh", "-c", &mount, "sh"]
        .map(str::to_owned)
        .to_vec();
    node.configure_machine("observe", "housekeepingInterval: 1s");
    let status = node.start(&[]);
    if status.sampler.is_none() {
        lacks!("the sampler does not run here: {}", reasons(&status));
    }
    let lie: String = real
        .lines()
        .map(|line| match line.strip_prefix("AnonPages:") {
            Some(rest) => {
                let kib: u64 = rest.trim().trim_end_matches(" kB").parse().unwrap();
                format!(
                    "AnonPages: {:width$} kB\n",
                    kib + (1 << 20),
                    width = rest.len() - " kB ".len()
                )
            }
            None => format!("{line}\n"),
        })
        .collect();
    assert_eq!(
        lie.len(),
        real.len(),
        "written over in one go, so that no half is read"
    );
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .write_all_at(lie.as_bytes(), 0)
        .unwrap();
    let fallen = wait_until(PATIENCE, || {
        node.status()
            .filter(|status| status.rung.as_deref() != Some("kernel-sampler"))
    });
    let fallen = fallen.expect("it falls to the next rung");
    assert!(
        reasons(&fallen).contains("differ by more than the tolerance"),
        "{}",
        reasons(&fallen)
    );
}

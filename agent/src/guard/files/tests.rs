//! The node read from files that are made up: swap of groups, zones below their reserves, and process ids.

use std::fs;

use super::*;

const MIB: u64 = 1 << 20;
const V1: &str = "30 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
const V2: &str = "30 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

/// A machine with a disk to swap to, of which `swap_free` MiB are free.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(mountinfo: &str, swap_free: u64) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("proc/self/mountinfo", mountinfo);
        machine.write(
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/sda2 partition 4194304 0 -2\n",
        );
        machine.zone(100_000);
        machine.swap_free(swap_free);
        machine.write("sys/fs/cgroup/cgroup.controllers", "memory\n");
        machine
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn swap_free(&self, mib: u64) {
        self.meminfo(500 * MIB, mib);
    }

    fn meminfo(&self, free: u64, swap_free: u64) {
        let (free, swap) = (free / 1024, swap_free * 1024);
        self.write(
            "proc/meminfo",
            &format!(
                "MemTotal: 8388608 kB\nMemFree: {free} kB\nBuffers: 0 kB\nCached: 0 kB\nSwapCached: 0 kB\n\
                 Active(file): 0 kB\nInactive(file): 0 kB\nUnevictable: 0 kB\nMlocked: 0 kB\nDirty: 0 kB\n\
                 Writeback: 0 kB\nAnonPages: 0 kB\nShmem: 0 kB\nSReclaimable: 0 kB\nSUnreclaim: 0 kB\n\
                 KernelStack: 0 kB\nPageTables: 0 kB\nSwapTotal: 4194304 kB\nSwapFree: {swap} kB\n"
            ),
        );
    }

    /// A small zone that is always full, and one with `free` pages of which it keeps 10000.
    fn zone(&self, free: u64) {
        let zone = |name: &str, free: u64| {
            format!(
                "Node 0, zone {name}\n  pages free {free}\n min 10000\n low 12000\n high 14000\n managed 500000\n \
                 protection: (0, 0)\n"
            )
        };
        let text = zone("DMA32", 30_000) + &zone("Normal", free);
        self.write("proc/zoneinfo", &text);
    }

    /// A v2 group of 1000 MiB with 900 in use.
    fn group_v2(&self, group: &str) {
        let mib = |mib: u64| format!("{}\n", mib * MIB);
        let file = |name: &str| format!("sys/fs/cgroup{group}/{name}");
        self.write(&file("memory.max"), &mib(1000));
        self.write(&file("memory.current"), &mib(900));
        self.write(&file("memory.stat"), "inactive_file 0\nactive_file 0\n");
    }

    fn open(&self, plan: &NodePlan) -> NodeFiles {
        let root = self.0.path();
        let layout = Layout::detect(root).unwrap();
        NodeFiles::open(root, &layout, plan).unwrap()
    }
}

/// Usable swap of node and pods after a look, in MiB.
fn swap(files: &NodeFiles) -> (u64, u64) {
    files.read(Moment::START).unwrap();
    let slow = files.slow();
    (slow.swap / MIB, slow.pods_swap / MIB)
}

fn group(name: &str) -> NodePlan {
    NodePlan {
        scope: Scope::Group(name.to_owned()),
        ..NodePlan::default()
    }
}

#[test]
fn a_group_that_may_not_swap_is_not_confirmed_with_the_machines_swap() {
    let machine = Machine::new(V2, 2048);
    machine.group_v2("/node");
    machine.write("sys/fs/cgroup/node/memory.swap.max", "0\n");
    machine.write("sys/fs/cgroup/node/memory.swap.current", "0\n");
    let files = machine.open(&group("/node"));
    let figures = files.read(Moment::START).unwrap();
    let confirmation = figures.confirmation(files.slow());
    assert_eq!(confirmation.node, Some((100 * MIB).cast_signed()));
    assert_eq!(confirmation.swap, 0);
}

#[test]
fn a_v1_group_whose_memory_and_swap_are_bounded_alike_has_none() {
    let machine = Machine::new(V1, 2048);
    let file = |name: &str| format!("sys/fs/cgroup/memory/node/memory.{name}");
    let mib = |mib: u64| format!("{}\n", mib * MIB);
    machine.write(&file("limit_in_bytes"), &mib(1000));
    machine.write(&file("usage_in_bytes"), &mib(900));
    machine.write(
        &file("stat"),
        "total_inactive_file 0\ntotal_active_file 0\n",
    );
    let mut files = machine.open(&group("/node"));
    assert_eq!(swap(&files), (2048, 0), "no swap accounting");
    machine.write(&file("memsw.limit_in_bytes"), &mib(1000));
    machine.write(&file("memsw.usage_in_bytes"), &mib(900));
    files.refresh().unwrap();
    assert_eq!(swap(&files), (0, 0));
    machine.write(&file("memsw.limit_in_bytes"), &mib(1500));
    files.refresh().unwrap();
    assert_eq!(swap(&files), (500, 0));
    // 200 MiB swapped out: 300 are left, and memory is as full as before.
    machine.write(&file("memsw.usage_in_bytes"), &mib(1100));
    assert_eq!(swap(&files), (300, 0));
    machine.write(&file("swappiness"), "0\n");
    files.refresh().unwrap();
    assert_eq!(swap(&files), (0, 0));
}

#[test]
fn the_pods_have_their_own_limit_of_swap() {
    let machine = Machine::new(V2, 2048);
    machine.group_v2("/pods");
    let mib = |mib: u64| format!("{}\n", mib * MIB);
    machine.write("sys/fs/cgroup/pods/memory.swap.max", &mib(100));
    machine.write("sys/fs/cgroup/pods/memory.swap.current", &mib(40));
    let files = machine.open(&NodePlan {
        scope: Scope::Machine,
        pods: PodsGroup::Named("/pods".to_owned()),
    });
    assert_eq!(swap(&files), (2048, 60));
    machine.write("sys/fs/cgroup/pods/memory.swap.current", &mib(90));
    assert_eq!(swap(&files), (2048, 10));
}

/// Bytes that the pods may use, and the group they are in.
fn allocatable(files: &NodeFiles) -> Option<(i64, &str)> {
    let seen = files.read(Moment::START).unwrap().pods?;
    Some((
        seen.capacity / MIB.cast_signed(),
        files.pods_group()?.dir().group(),
    ))
}

#[test]
fn a_kubelets_group_of_all_pods_is_taken_when_it_is_there_and_looked_for_again_when_it_goes() {
    let machine = Machine::new(V2, 0);
    let limit = |group: &str, mib: u64| {
        machine.group_v2(group);
        let file = format!("sys/fs/cgroup{group}/memory.max");
        machine.write(&file, &format!("{}\n", mib * MIB));
    };
    let end = |group: &str| {
        let folder = machine.0.path().join(format!("sys/fs/cgroup{group}"));
        fs::remove_dir_all(folder).unwrap();
    };
    let mut files = machine.open(&NodePlan {
        scope: Scope::Machine,
        pods: PodsGroup::Kubelets,
    });
    let mut check = |expected: Option<(i64, &str)>| {
        files.find_pods();
        files.refresh().unwrap();
        assert_eq!(allocatable(&files), expected);
    };
    check(None);
    limit("/kubepods.slice", 1000);
    check(Some((1000, "/kubepods.slice")));
    limit("/kubepods.slice", 900);
    check(Some((900, "/kubepods.slice")));
    // It is made anew under the same name, and by the other driver.
    end("/kubepods.slice");
    limit("/kubepods.slice", 800);
    check(Some((800, "/kubepods.slice")));
    end("/kubepods.slice");
    limit("/kubepods", 700);
    check(Some((700, "/kubepods")));
    end("/kubepods");
    check(None);
}

#[test]
fn of_a_kubelets_groups_the_one_that_is_followed_is_read_whatever_else_is_there() {
    let machine = Machine::new(V2, 0);
    let (systemd, cgroupfs) = ("/kubepods.slice", "/kubepods");
    machine.group_v2(systemd);
    let plan = |pods: PodsGroup| NodePlan {
        scope: Scope::Machine,
        pods,
    };
    let mut files = machine.open(&plan(PodsGroup::Kubelets));
    files.refresh().unwrap();
    assert_eq!(allocatable(&files), None, "nobody has said which");
    assert!(!files.follow_pods(None));
    assert!(files.follow_pods(Some(cgroupfs)), "before it is there");
    assert_eq!(allocatable(&files), None);
    machine.group_v2(cgroupfs);
    files.refresh().unwrap();
    assert_eq!(allocatable(&files), Some((1000, cgroupfs)));
    assert!(!files.follow_pods(Some(cgroupfs)));
    let folder = machine.0.path().join("sys/fs/cgroup/kubepods");
    fs::remove_dir_all(folder).unwrap();
    files.refresh().unwrap();
    assert_eq!(allocatable(&files), None, "it is gone, and no other taken");
    assert!(files.follow_pods(Some(systemd)));
    assert_eq!(allocatable(&files), Some((1000, systemd)), "at once");
    assert!(files.follow_pods(None));
    assert_eq!(allocatable(&files), None);
    let mut named = machine.open(&plan(PodsGroup::Named(systemd.to_owned())));
    assert!(!named.follow_pods(None), "it stays");
    assert_eq!(allocatable(&named), Some((1000, systemd)));
}

#[test]
fn a_kubelets_group_without_figures_keeps_nobody_from_the_rest() {
    let machine = Machine::new(V2, 0);
    machine.write("sys/fs/cgroup/kubepods.slice/cgroup.procs", "");
    let mut files = machine.open(&NodePlan {
        scope: Scope::Machine,
        pods: PodsGroup::Kubelets,
    });
    files.find_pods();
    assert_eq!(allocatable(&files), None);
    assert!(files.read(Moment::START).unwrap().memory.is_some());
}

#[test]
fn each_look_sees_swap_as_it_is() {
    let machine = Machine::new(V2, 2048);
    machine.group_v2("/node");
    let of_machine = machine.open(&NodePlan::default());
    let of_group = machine.open(&group("/node"));
    for free in [2048, 700, 3, 0] {
        machine.swap_free(free);
        assert_eq!(swap(&of_machine).0, free);
        assert_eq!(swap(&of_group).0, free);
    }
}

#[test]
fn a_zone_below_its_reserve_lies_between_both_headrooms() {
    let machine = Machine::new(V2, 0);
    let mut files = machine.open(&NodePlan::default());
    let page = page();
    let mut check = |normal: u64, sums: u64, zones: u64| {
        machine.zone(normal);
        machine.meminfo((30_000 + normal) * page, 0);
        files.refresh_zones().unwrap();
        let figures = files.read(Moment::START).unwrap();
        let headroom = |numbers: brink_host::probe::calibrate::Numbers| {
            numbers.headroom.unwrap().cast_unsigned() / page
        };
        assert_eq!(headroom(figures.numbers()), sums, "{normal}");
        assert_eq!(headroom(figures.numbers_by_zone()), zones, "{normal}");
    };
    check(15_000, 25_000, 25_000);
    // 4000 pages below its reserve: the other zone's 20000 are there all the same.
    check(6_000, 16_000, 20_000);
    check(0, 10_000, 20_000);
}

#[test]
fn the_sampler_is_believed_although_a_zone_is_below_its_reserve() {
    use brink_host::probe::calibrate::{Verdict, compare};
    let machine = Machine::new(V2, 0);
    machine.zone(0);
    machine.meminfo(30_000 * page(), 0);
    let files = machine.open(&NodePlan::default());
    let figures = files.read(Moment::START).unwrap();
    let sampled = NodeFigures {
        headroom: Some(saturated(20_000 * page())),
        headroom_by_zone: None,
        ..figures
    };
    let verdict = |after| compare(&figures.numbers(), &sampled.numbers(), &after, MIB);
    assert!(matches!(verdict(figures.numbers()), Verdict::Differs(_)));
    assert_eq!(verdict(figures.numbers_by_zone()), Verdict::Agrees);
}

/// A machine with 300 of 1,000 threads, and a group on it without a pids controller.
fn machine_with_ids() -> Machine {
    let machine = Machine::new(V2, 0);
    machine.write("sys/fs/cgroup/cgroup.controllers", "memory pids\n");
    machine.group_v2("/node");
    machine.write("proc/loadavg", "0.1 0.2 0.3 1/300 4242\n");
    machine.write("proc/sys/kernel/pid_max", "4194304\n");
    machine.write("proc/sys/kernel/threads-max", "1000\n");
    machine
}

/// Available process ids and how many there may be, after the limits were read again.
fn ids(files: &mut NodeFiles) -> Option<(i64, i64)> {
    files.refresh().unwrap();
    let seen = files.read(Moment::START).unwrap().pids?;
    Some((seen.available, seen.capacity))
}

#[test]
fn a_group_with_a_limit_of_tasks_has_what_that_and_the_machine_leave() {
    let machine = machine_with_ids();
    let mut of_machine = machine.open(&NodePlan::default());
    let mut without = machine.open(&group("/node"));
    assert_eq!(ids(&mut of_machine), Some((700, 1000)));
    assert_eq!(ids(&mut without), Some((700, 1000)), "no pids controller");
    machine.write("sys/fs/cgroup/node/pids.max", "max\n");
    machine.write("sys/fs/cgroup/node/pids.current", "40\n");
    let mut files = machine.open(&group("/node"));
    assert_eq!(ids(&mut files), Some((700, 1000)), "no limit");
    assert!(files.ids().counter().is_none());
    machine.write("sys/fs/cgroup/node/pids.max", "2000\n");
    assert_eq!(ids(&mut files), Some((700, 1000)), "the machine has less");
    assert!(files.ids().counter().is_none());
    machine.write("sys/fs/cgroup/node/pids.max", "500\n");
    assert_eq!(ids(&mut files), Some((460, 500)));
    assert_eq!(files.ids().machines(), Some(300));
    assert!(files.ids().counter().is_some());
    assert_eq!(
        (files.ids().most(), files.ids().count()),
        (Some(500), Some(40))
    );
    machine.write("sys/fs/cgroup/node/pids.current", "490\n");
    let left = |files: &NodeFiles| {
        let seen = files.read(Moment::START).unwrap().pids?;
        Some((seen.available, seen.capacity))
    };
    assert_eq!(left(&files), Some((10, 500)));
    machine.write("proc/loadavg", "0.1 0.2 0.3 1/995 4242\n");
    assert_eq!(left(&files), Some((5, 1000)), "by others meanwhile");
    machine.write("proc/loadavg", "0.1 0.2 0.3 1/300 4242\n");
    assert_eq!(ids(&mut of_machine), Some((700, 1000)));
    fs::remove_dir_all(machine.0.path().join("sys/fs/cgroup/node")).unwrap();
    assert!(files.refresh().is_err(), "it has gone");
}

/// Gives a group a limit of tasks, and so many of them.
fn tasks(machine: &Machine, group: &str, most: &str, current: &str) {
    let file = |name: &str| format!("sys/fs/cgroup{group}/pids.{name}");
    machine.write(&file("max"), most);
    machine.write(&file("current"), current);
}

/// The group that is counted.
fn counted(files: &NodeFiles) -> Option<&str> {
    files.ids().counter().map(|(dir, _)| dir.group())
}

#[test]
fn a_group_below_others_has_what_the_tightest_of_them_leaves() {
    let machine = machine_with_ids();
    machine.group_v2("/a/b");
    let mut files = machine.open(&group("/a/b"));
    // Most of those that count in `a` are no part of the node.
    tasks(&machine, "/a/b", "max\n", "10\n");
    tasks(&machine, "/a", "600\n", "100\n");
    assert_eq!(ids(&mut files), Some((500, 600)));
    assert_eq!(counted(&files), Some("/a"));
    assert_eq!(
        (files.ids().most(), files.ids().count()),
        (Some(600), Some(100))
    );
    tasks(&machine, "/a/b", "400\n", "10\n");
    assert_eq!(ids(&mut files), Some((390, 400)));
    assert_eq!(counted(&files), Some("/a/b"));
    tasks(&machine, "/a", "490\n", "100\n");
    assert_eq!(ids(&mut files), Some((390, 400)), "both leave as much");
    assert_eq!(counted(&files), Some("/a/b"));
    assert!(!files.ids().is_counted_elsewhere());

    let left = |files: &NodeFiles| {
        let seen = files.read(Moment::START).unwrap().pids?;
        Some((seen.available, seen.capacity))
    };
    machine.write("sys/fs/cgroup/a/pids.current", "480\n");
    assert_eq!(left(&files), Some((10, 490)), "by others meanwhile");
    assert_eq!(counted(&files), Some("/a/b"));
    assert!(files.ids().is_counted_elsewhere());
    assert_eq!(ids(&mut files), Some((10, 490)));
    assert_eq!(counted(&files), Some("/a"));
    assert!(!files.ids().is_counted_elsewhere());
    machine.write("proc/loadavg", "0.1 0.2 0.3 1/995 4242\n");
    assert_eq!(left(&files), Some((5, 1000)), "the machine has less");
    assert!(files.ids().is_counted_elsewhere());
    assert_eq!(ids(&mut files), Some((5, 1000)));
    assert_eq!(counted(&files), None);
    assert!(!files.ids().is_counted_elsewhere());
}

#[test]
fn a_limit_above_a_group_that_no_controller_counts_is_met_all_the_same() {
    let machine = machine_with_ids();
    machine.group_v2("/a/b");
    let mut files = machine.open(&group("/a/b"));
    assert_eq!(ids(&mut files), Some((700, 1000)), "no limit anywhere");
    tasks(&machine, "/a", "200\n", "150\n");
    assert_eq!(ids(&mut files), Some((50, 200)));
    assert_eq!(counted(&files), Some("/a"));
    // A part of a tree that is mounted as a whole has limits at what is its root here.
    tasks(&machine, "", "300\n", "290\n");
    assert_eq!(ids(&mut files), Some((10, 300)));
    assert_eq!(counted(&files), Some("/"));
    tasks(&machine, "", "300\n", "many\n");
    assert_eq!(ids(&mut files), None, "it may be that one that is full");
}

#[test]
fn a_pids_controller_that_was_off_counts_anew() {
    let machine = machine_with_ids();
    let mut files = machine.open(&group("/node"));
    let switch_on = |tasks: &str| {
        machine.write("sys/fs/cgroup/node/pids.max", "500\n");
        machine.write("sys/fs/cgroup/node/pids.current", tasks);
    };
    let counter = |files: &NodeFiles| files.ids().counter().map(|(_, number)| number);
    switch_on("40\n");
    assert_eq!(ids(&mut files), Some((460, 500)), "on only now");
    let before = counter(&files);
    let file = machine.0.path().join("sys/fs/cgroup/node/pids.current");
    fs::rename(&file, file.with_extension("old")).unwrap();
    assert_eq!(ids(&mut files), Some((700, 1000)), "off");
    assert_eq!(counter(&files), None);
    switch_on("60\n");
    assert_eq!(ids(&mut files), Some((440, 500)));
    assert!(counter(&files).is_some() && counter(&files) != before);
}

//! The kernel, rights and control groups: one thing wrong at a time.

use brink::doctor::State::{Failed, Note, Ok, Unknown, Warning};

use crate::machine::{Machine, expect};

#[test]
fn a_whole_machine_has_nothing_wrong_but_its_missing_type_description() {
    // The disk that the test runs on may be nearly full.
    let report = Machine::whole()
        .configured("workloads: {cgroups: []}")
        .configured("evictionHard: {memory.available: 100Mi, nodefs.available: 1}")
        .report();
    let bad: Vec<&str> = report
        .checks
        .iter()
        .filter(|check| check.state < Note)
        .map(|check| check.id.as_str())
        .collect();
    let not_tried = [
        "programs.reclaim",
        "programs.oom",
        "programs.process",
        "programs.cgroup",
        "programs.forensics",
        "programs.recorder",
        "scheduling.fifo",
        "scheduling.nice",
        "scheduling.oom-score",
    ];
    // Files in a folder are no cgroup file system, so it looks as if something else were mounted there.
    let fake = [
        "kernel.btf",
        "kernel.tracefs",
        "programs.sampler",
        "cgroups.layout",
    ];
    let expected: Vec<&str> = fake.into_iter().chain(not_tried).collect();
    assert_eq!(bad, expected, "{report:?}");
    assert_eq!((report.counts.failed, report.counts.warning), (0, 4));
    assert_eq!(report.machine.host.as_deref(), Some("node-7"));
    assert_eq!(
        (report.machine.cpus, report.machine.memory_bytes),
        (Some(4), Some(8 << 30))
    );
}

#[test]
fn the_kernel() {
    let with = |path: &str, text: &str, id: &str| Machine::whole().with(path, text).check(id);
    let release = |text: &str| with("proc/sys/kernel/osrelease", text, "kernel.release");
    expect(&release("6.18.3-cloud\n"), Ok, &["tests run on"]);
    expect(
        &release("5.19.0-40-amd64\n"),
        Note,
        &["5.19.0-40-amd64", "6.18"],
    );
    expect(&release("5.15.0\n"), Note, &[]);
    expect(&release("5.14.21\n"), Failed, &["5.15", "process_mrelease"]);
    expect(&release("four\n"), Unknown, &["four"]);
    let lockdown = |text: &str| with("sys/kernel/security/lockdown", text, "kernel.lockdown");
    expect(
        &lockdown("none [integrity] confidentiality"),
        Ok,
        &["integrity"],
    );
    expect(
        &lockdown("none integrity [confidentiality]"),
        Warning,
        &["lockdown=integrity"],
    );
    expect(
        &with("proc/sys/net/core/bpf_jit_enable", "0\n", "kernel.bpf"),
        Note,
        &["sysctl net.core.bpf_jit_enable=1"],
    );
    expect(
        &Machine::whole().check("kernel.tracefs"),
        Warning,
        &["mount -t tracefs tracefs /sys/kernel/tracing"],
    );
    expect(
        &Machine::whole().check("kernel.btf"),
        Warning,
        &["CONFIG_DEBUG_INFO_BTF"],
    );
    expect(
        &with("sys/kernel/btf/vmlinux", "no BTF at all", "kernel.btf"),
        Warning,
        &["not BTF"],
    );
    expect(
        &Machine::whole().check("kernel.machine"),
        Ok,
        &["4 CPUs, 1 memory node, 8.0Gi"],
    );
}

#[test]
fn lockdown_is_known_to_be_none_only_where_it_would_be_seen() {
    let machine = Machine::whole();
    std::fs::remove_file(machine.path("sys/kernel/security/lockdown")).unwrap();
    expect(&machine.check("kernel.lockdown"), Ok, &["has none"]);
    machine.write("proc/self/mounts", "");
    expect(
        &machine.check("kernel.lockdown"),
        Unknown,
        &["mount -t securityfs"],
    );
}

#[test]
fn rights_that_are_missing_are_named_with_every_way_to_get_them() {
    let status = |effective: &str, bounding: &str| {
        format!("Uid:\t0\t0\t0\t0\nNSpid:\t1\nCapEff:\t{effective}\nCapBnd:\t{bounding}\n")
    };
    let rights = |effective: &str, bounding: &str, mode: &str| {
        let machine = Machine::whole().with("proc/self/status", &status(effective, bounding));
        machine
            .configured(&format!("mode: {mode}"))
            .check("rights.capabilities")
    };
    let all = "000001ffffffffff";
    expect(&rights(all, all, "enforce"), Ok, &[]);
    // Without CAP_SYS_NICE.
    let words = [
        "setcap cap_sys_nice+ep",
        "AmbientCapabilities=CAP_SYS_NICE",
        "add: [SYS_NICE]",
    ];
    expect(&rights("000001ffff7fffff", all, "enforce"), Note, &words);
    let barred = rights("000001ffff7fffff", "000001ffff7fffff", "enforce");
    expect(&barred, Note, &["CAP_SYS_NICE is outside the bounding set"]);
    assert!(!format!("{barred:?}").contains("setcap"), "{barred:?}");
    // Without CAP_KILL an agent that enforces cannot do what it is told.
    expect(
        &rights("000001ffffffffdf", all, "enforce"),
        Failed,
        &["CAP_KILL for killing"],
    );
    expect(
        &rights("000001ffffffffdf", all, "observe"),
        Warning,
        &["CAP_KILL"],
    );
    // Nothing at all: every name is there once.
    let none = rights("0000000000000000", all, "observe");
    let found = &none.found;
    for name in [
        "CAP_BPF and CAP_PERFMON",
        "CAP_KILL",
        "CAP_SYS_NICE",
        "CAP_IPC_LOCK",
        "CAP_SYS_RESOURCE",
        "CAP_SYS_PTRACE",
    ] {
        assert_eq!(found.matches(name).count(), 1, "{found}");
    }
}

#[test]
fn a_container_is_told_from_the_machine() {
    for (name, word) in [
        ("pid", "hostPID"),
        ("cgroup", "--cgroupns=host"),
        ("user", "hostUsers"),
    ] {
        let machine = Machine::whole();
        machine.link(
            &format!("proc/self/ns/{name}"),
            &format!("{name}:[4026532999]"),
        );
        expect(&machine.check("rights.namespaces"), Warning, &[word]);
    }
    let machine = Machine::whole();
    machine.link("proc/self/ns/pid", "nonsense");
    expect(
        &machine.check("rights.namespaces"),
        Unknown,
        &["process ids"],
    );
}

#[test]
fn from_a_cgroup_namespace_those_outside_are_seen_where_the_machines_groups_are_mounted() {
    let mounts = "30 23 0:28 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    let listed = format!("{}\n", std::process::id());
    let machine = Machine::whole()
        .with("proc/self/mountinfo", mounts)
        .with("proc/self/cgroup", "0::/\n")
        .with("sys/fs/cgroup/kubepods/own/cgroup.procs", &listed);
    machine.link("proc/self/ns/cgroup", "cgroup:[4026532999]");
    let found = machine.check("rights.namespaces");
    expect(&found, Ok, &["those outside are seen"]);
    // A fake tree counts as hidden by something else.
    let found = machine.check("cgroups.layout");
    expect(&found, Warning, &["begins at /kubepods/own"]);
    machine.write("sys/fs/cgroup/kubepods/own/cgroup.procs", "1\n");
    expect(&machine.check("cgroups.layout"), Failed, &["privileged"]);
    let found = machine.check("rights.namespaces");
    expect(&found, Warning, &["--cgroupns=host"]);
}

#[test]
fn a_part_of_the_machines_groups_is_not_taken_for_all_of_them() {
    let mounted =
        |root: &str| format!("30 23 0:28 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    let machine = |root: &str| Machine::whole().with("proc/self/mountinfo", &mounted(root));
    let below_root = ("sys/fs/cgroup/cgroup.type", "domain\n");
    let words = ["watched over", "hostPath", "--volume"];
    let bound = machine("/docker/abc").check("cgroups.layout");
    expect(&bound, Warning, &words);
    expect(&bound, Warning, &["the group /docker/abc alone"]);
    let inside = || machine("/").with(below_root.0, below_root.1);
    let found = inside().check("cgroups.layout");
    expect(&found, Warning, &words);
    expect(&found, Warning, &["below the machine's root alone"]);
    let group = inside().configured("node: {cgroup: /guests}");
    let found = group.check("cgroups.layout");
    assert!(!found.found.contains("alone"), "{found:?}");

    // From a namespace inside of a container: what is mounted is the container's.
    let listed = format!("{}\n", std::process::id());
    let nested = machine("/../..")
        .with("proc/self/cgroup", "0::/\n")
        .with("sys/fs/cgroup/kubepods/own/cgroup.procs", &listed);
    nested.link("proc/self/ns/cgroup", "cgroup:[4026532999]");
    expect(&nested.check("rights.namespaces"), Ok, &["are seen"]);
    nested.write(below_root.0, below_root.1);
    let found = nested.check("rights.namespaces");
    expect(&found, Warning, &["control groups outside are not seen"]);
    expect(&nested.check("cgroups.layout"), Warning, &["hostPath"]);
}

#[test]
fn the_throttle_on_real_time() {
    let throttle = |runtime: &str| {
        let machine = Machine::whole().with("proc/sys/kernel/sched_rt_runtime_us", runtime);
        machine.check("scheduling.throttle")
    };
    expect(&throttle("950000"), Ok, &["95 %"]);
    expect(&throttle("-1"), Ok, &["none"]);
    expect(&throttle("0"), Warning, &["sched_rt_runtime_us=950000"]);
    expect(&throttle("20000"), Warning, &["2 %"]);
    expect(&throttle("x"), Unknown, &[]);
}

#[test]
fn switches_of_the_configuration_are_told_as_such() {
    let machine = || Machine::whole().configured("realtime: {priority: 0, lockMemory: false}");
    expect(
        &machine().check("scheduling.fifo"),
        Note,
        &["realtime.priority: 0"],
    );
    expect(
        &machine().check("scheduling.memory-lock"),
        Note,
        &["lockMemory: false"],
    );
    assert_eq!(machine().report().rung, "poll");
}

#[test]
fn control_groups() {
    let with = |path: &str, text: &str, id: &str| Machine::whole().with(path, text).check(id);
    let whole = Machine::whole();
    // A fake tree is no cgroup file system, so it counts as hidden by something else; the controllers are told all the same.
    expect(
        &whole.check("cgroups.layout"),
        Warning,
        &["v2: memory on v2, pids on v2, freezer on v2"],
    );
    expect(&whole.check("cgroups.memory"), Ok, &["handed on"]);
    expect(&whole.check("cgroups.kill"), Ok, &["cgroup.kill"]);
    expect(&whole.check("cgroups.oom-group"), Ok, &["memory.oom.group"]);
    let control = "sys/fs/cgroup/cgroup.subtree_control";
    expect(
        &with(control, "pids\n", "cgroups.memory"),
        Failed,
        &["echo +memory | sudo tee"],
    );
    let controllers = "sys/fs/cgroup/cgroup.controllers";
    expect(
        &with(controllers, "cpu pids\n", "cgroups.memory"),
        Failed,
        &["cgroup_enable=memory"],
    );
    let none = "24 1 0:22 / /proc rw - proc proc rw\n";
    expect(
        &with("proc/self/mountinfo", none, "cgroups.layout"),
        Failed,
        &["mount -t cgroup2"],
    );
    let old = Machine::whole();
    std::fs::remove_file(old.path("sys/fs/cgroup/system.slice/cgroup.kill")).unwrap();
    expect(&old.check("cgroups.kill"), Warning, &["no cgroup.kill"]);
}

#[test]
fn groups_of_version_one() {
    let machine = || {
        let machine = Machine::whole().with(
            "proc/self/mountinfo",
            "32 30 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             33 30 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n",
        );
        machine.with("sys/fs/cgroup/memory/memory.limit_in_bytes", "max\n")
    };
    expect(&machine().check("cgroups.memory"), Ok, &["v1, at"]);
    expect(&machine().check("cgroups.kill"), Ok, &["freeze"]);
    let mounts = std::fs::read_to_string(machine().path("proc/self/mountinfo")).unwrap();
    let unified = "34 30 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let hybrid = machine()
        .with("proc/self/mountinfo", &format!("{mounts}{unified}"))
        .with("sys/fs/cgroup/unified/cgroup.controllers", "")
        .with("sys/fs/cgroup/unified/pods/cgroup.kill", "");
    expect(
        &hybrid.check("cgroups.kill"),
        Ok,
        &["the same group in the v2 tree", "freeze"],
    );
    expect(
        &machine().check("cgroups.oom-group"),
        Note,
        &["v1 has no memory.oom.group"],
    );
    expect(
        &machine().check("cgroups.layout"),
        Warning,
        &["memory on v1, pids nowhere"],
    );
}

#[test]
fn a_node_that_is_a_group_needs_a_limit_and_hands_its_controller_on() {
    let group = "sys/fs/cgroup/guests";
    let machine = |limit: &str, handed_on: &str| {
        let machine = Machine::whole()
            .with(&format!("{group}/memory.max"), limit)
            .with(&format!("{group}/memory.current"), "1048576\n")
            .with(
                &format!("{group}/memory.stat"),
                "anon 1048576\nfile 0\ninactive_file 0\nactive_file 0\n",
            )
            .with(&format!("{group}/cgroup.subtree_control"), handed_on);
        machine.configured("node: {cgroup: /guests}")
    };
    expect(
        &machine("1073741824\n", "memory\n").check("cgroups.node"),
        Ok,
        &["/guests"],
    );
    expect(
        &machine("max\n", "memory\n").check("cgroups.node"),
        Failed,
        &["no memory limit"],
    );
    expect(
        &machine("1073741824\n", "\n").check("cgroups.node"),
        Warning,
        &["guests/cgroup.subtree_control"],
    );
    let missing = Machine::whole().configured("node: {cgroup: /elsewhere}");
    expect(&missing.check("cgroups.node"), Failed, &["elsewhere"]);
    // The machine's watermarks say nothing about a group.
    let report = machine("1073741824\n", "memory\n").report();
    assert!(
        !report
            .checks
            .iter()
            .any(|check| check.id == "memory.watermarks")
    );
    assert!(
        Machine::whole()
            .report()
            .checks
            .iter()
            .all(|check| check.id != "cgroups.node")
    );
}

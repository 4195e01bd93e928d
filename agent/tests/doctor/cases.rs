//! One thing wrong at a time: what is said, and what it advises.

use brink::doctor::State::{Failed, Note, Ok, Unknown, Warning};

use crate::machine::{Machine, expect};

const EARLYOOM: &str = "/usr/bin/earlyoom\0-m\05\0";

#[test]
fn a_whole_machine_has_nothing_wrong_but_its_missing_type_description() {
    let report = Machine::whole()
        .configured("workloads: {cgroups: []}")
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
        &release("6.1.0-40-amd64\n"),
        Note,
        &["6.1.0-40-amd64", "6.18"],
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

#[test]
fn both_signals_and_what_the_first_does_not_see() {
    // available: 8192 − (1664 + 2112 − 1024) = 5440 MiB; headroom: 4096 − 64 + 2048 + 192 = 6272 MiB.
    expect(
        &Machine::whole().check("memory.signals"),
        Ok,
        &["5.3Gi", "6.1Gi of 8.0Gi", "832Mi too pessimistic"],
    );
    let full = std::fs::read_to_string(Machine::whole().path("proc/meminfo")).unwrap();
    let full = full
        .replace("4194304 kB", "1048576 kB")
        .replace("2097152 kB", "65536 kB")
        .replace("(file):    1048576", "(file):          0")
        .replace("(file):  1048576", "(file):        0");
    // available: 8192 − (1664 + 128); headroom: 1024 − 64 + 192.
    expect(
        &Machine::whole()
            .with("proc/meminfo", &full)
            .check("memory.signals"),
        Note,
        &["6.2Gi", "1.1Gi of 8.0Gi", "5.1Gi too optimistic"],
    );
    // Not seen: 8192 − 1664 − 2112 − (4096 − 64) − 192 = 192 MiB, above the threshold of 100 MiB.
    expect(
        &Machine::whole().check("memory.unseen"),
        Note,
        &["192Mi", "memory.headroom (below 50.0Mi)"],
    );
    let off = Machine::whole().configured("headroomHard: 0%");
    expect(&off.check("memory.unseen"), Failed, &["headroomHard: 50Mi"]);
    let high = Machine::whole().configured("evictionHard: {memory.available: 200Mi}");
    expect(&high.check("memory.unseen"), Ok, &["above that"]);
    let zoneinfo = std::fs::read_to_string(Machine::whole().path("proc/zoneinfo")).unwrap();
    let cached = format!("{zoneinfo}  pagesets\n    cpu: 0\n              count: 25600\n");
    let machine = Machine::whole().with("proc/zoneinfo", &cached);
    expect(&machine.check("memory.unseen"), Ok, &["92.0Mi"]);
    let met = Machine::whole().configured("evictionHard: {memory.available: 6Gi}");
    expect(
        &met.check("memory.signals"),
        Warning,
        &["met now: ", "memory.available<6Gi"],
    );
}

#[test]
fn thresholds_under_the_kernels_watermarks_come_too_late() {
    // low is at 80 MiB; headroom counts from min, 64 MiB.
    let check = |config: &str| {
        Machine::whole()
            .configured(config)
            .check("memory.watermarks")
    };
    expect(&check(""), Ok, &["80.0Mi", "64.0Mi", "114Mi"]);
    expect(
        &check("evictionHard: {memory.available: 60Mi}\nheadroomHard: 0%"),
        Warning,
        &["60.0Mi", "above 96.0Mi"],
    );
    expect(
        &check("evictionHard: {memory.available: 60Mi}\nheadroomHard: 10Mi"),
        Warning,
        &["74.0Mi"],
    );
    expect(
        &check("evictionHard: {memory.available: 81Mi}\nheadroomHard: 0%"),
        Ok,
        &["81.0Mi"],
    );
    expect(
        &check("evictionHard: {pid.available: 5%}\nheadroomHard: 0%"),
        Warning,
        &["no hard memory threshold"],
    );
}

#[test]
fn swap_and_what_follows_for_decisions() {
    let swaps = |areas: &str, policy: &str| {
        let text = format!("Filename Type Size Used Priority\n{areas}");
        let machine = Machine::whole().with("proc/swaps", &text);
        machine
            .configured(&format!("memoryPolicy: {policy}"))
            .check("memory.swap")
    };
    let (disk, zram) = (
        "/dev/sda2 partition 1048576 0 -2\n",
        "/dev/zram0 partition 1048576 0 100\n",
    );
    expect(&swaps("", "kubelet"), Ok, &["none"]);
    expect(
        &swaps(disk, "confirmed"),
        Note,
        &["1.0Gi free of 1.0Gi", "on disk"],
    );
    expect(
        &swaps(zram, "confirmed"),
        Note,
        &["zram", "512Mi of it count"],
    );
    expect(
        &swaps(&format!("{disk}{zram}"), "confirmed"),
        Note,
        &["2 areas, 1 of them zram", "1.5Gi of it count"],
    );
    expect(
        &swaps(disk, "kubelet"),
        Warning,
        &["memoryPolicy: confirmed"],
    );
    expect(&swaps("broken\n", "confirmed"), Unknown, &["swap area"]);
}

#[test]
fn settings_of_the_kernel_for_shortage() {
    let with = |path: &str, text: &str, id: &str| Machine::whole().with(path, text).check(id);
    expect(
        &with("proc/sys/vm/overcommit_memory", "2", "memory.overcommit"),
        Note,
        &["CommitLimit", ""][1..],
    );
    expect(
        &with("proc/sys/vm/panic_on_oom", "1", "memory.panic-on-oom"),
        Warning,
        &["vm.panic_on_oom=0"],
    );
    let huge = "sys/kernel/mm/transparent_hugepage/enabled";
    expect(
        &with(huge, "[always] madvise never", "memory.huge-pages"),
        Note,
        &["20 GiB"],
    );
    expect(&Machine::whole().check("memory.pressure"), Ok, &["1.50 %"]);
    let blind = Machine::whole();
    std::fs::remove_file(blind.path("proc/pressure/memory")).unwrap();
    expect(&blind.check("memory.pressure"), Note, &["psi=1"]);
}

#[test]
fn other_killers_and_whose_threshold_is_higher() {
    let killers = |config: &str, name: &str, command_line: &str| {
        let machine = Machine::whole().configured(config);
        machine.process(900, name, command_line);
        machine.check(&format!("killers.{name}"))
    };
    // 5 % of MemAvailable + AnonPages: 390 MiB.
    expect(
        &killers("", "earlyoom", EARLYOOM),
        Warning,
        &["less than 390Mi", "shoots first", "disable --now earlyoom"],
    );
    let higher = "evictionHard: {memory.available: 1Gi}";
    expect(
        &killers(higher, "earlyoom", EARLYOOM),
        Note,
        &["acts first"],
    );
    expect(
        &killers("", "earlyoom", "earlyoom\0--dryrun\0"),
        Note,
        &["only says"],
    );
    expect(
        &killers("", "systemd-oomd", "/lib/systemd/systemd-oomd\0"),
        Note,
        &["ManagedOOMSwap", "oomctl"],
    );
    expect(&killers("", "oomd", "oomd\0"), Warning, &["not known"]);
    expect(&Machine::whole().check("killers"), Ok, &["earlyoom"]);
}

#[test]
fn doubtful_thresholds_and_those_nobody_measures() {
    let doubtful = "evictionHard: {memory.available: 2Gi}\nevictionSoft: {memory.available: 1Gi}\n\
                    evictionSoftGracePeriod: {memory.available: 90s}\nevictionMinimumReclaim: {memory.available: 9Gi}";
    let check = Machine::whole()
        .configured(doubtful)
        .check("config.thresholds");
    expect(
        &check,
        Warning,
        &[
            "brink.yaml",
            "evictionHard.memory.available",
            "evictionMinimumReclaim",
            "config check",
        ],
    );
    expect(
        &Machine::whole().check("config.thresholds"),
        Ok,
        &["memory.available<100Mi, memory.headroom<50Mi"],
    );
    expect(
        &Machine::whole().check("config.unmeasured"),
        Note,
        &["imagefs.available<15%", "podsCgroup"],
    );
    let disk = "evictionHard: {nodefs.available: 10%}\nheadroomHard: 0%";
    expect(
        &Machine::whole().configured(disk).check("config.thresholds"),
        Failed,
        &["nothing is ever evicted"],
    );
}

#[test]
fn workloads_manifests_and_daemon_sets() {
    let pod = |name: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, ownerReferences: [{{kind: DaemonSet, name: net}}]}}\n\
             spec: {{{spec}, containers: [{{name: c}}]}}\n"
        )
    };
    let machine = |file: &str, text: &str| {
        let machine = Machine::whole().with(&format!("pods/{file}"), text);
        let folder = machine.path("pods");
        machine.configured(&format!("workloads: {{manifests: {}}}", folder.display()))
    };
    let loose = machine("a.yaml", &pod("a", "priority: 5"));
    expect(
        &loose.check("workloads.daemonsets"),
        Warning,
        &["default/a (of net, priority 5)", "system-node-critical"],
    );
    expect(&loose.check("workloads.manifests"), Ok, &["1 pod read"]);
    let kept = machine(
        "a.yaml",
        &pod("a", "priorityClassName: system-cluster-critical"),
    );
    expect(
        &kept.check("workloads.daemonsets"),
        Ok,
        &["all with a priority"],
    );
    expect(
        &machine("a.yaml", "metadata: [\n").check("workloads.manifests"),
        Failed,
        &["a.yaml"],
    );
    let none = Machine::whole().configured("workloads: {manifests: /nonexistent/pods}");
    expect(
        &none.check("workloads.manifests"),
        Failed,
        &["/nonexistent/pods"],
    );
    expect(
        &Machine::whole().check("workloads.bound"),
        Note,
        &["none", "workloads: {manifests:"],
    );
    expect(
        &Machine::whole()
            .configured("mode: enforce")
            .check("workloads.bound"),
        Warning,
        &["nobody to evict"],
    );
}

#[test]
fn a_kubelet_its_lead_and_its_reserves() {
    let kubelet = |config: &str, file: &str, arguments: &str| {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let machine = Machine::whole()
            .with("var/lib/kubelet/config.yaml", &format!("{head}{file}\n"))
            .configured(config);
        machine.process(700, "kubelet", &format!("/usr/bin/kubelet\0{arguments}"));
        machine
    };
    let plain = kubelet("", "", "--config=/var/lib/kubelet/config.yaml\0");
    expect(&plain.check("kubelet.process"), Ok, &["pid 700"]);
    expect(
        &plain.check("kubelet.configuration"),
        Ok,
        &["var/lib/kubelet/config.yaml, named on its command line"],
    );
    expect(
        &plain.check("kubelet.lead"),
        Warning,
        &[
            "Brink below 100Mi, the kubelet below 100Mi",
            "--kubelet-config",
        ],
    );
    expect(
        &plain.check("kubelet.reserves"),
        Warning,
        &["0B", "kubeReserved"],
    );
    let ahead = "evictionHard: {memory.available: 200Mi}";
    expect(
        &kubelet(ahead, "", "").check("kubelet.lead"),
        Ok,
        &["leads by 100Mi"],
    );
    expect(
        &kubelet("evictionHard: {memory.available: 110Mi}", "", "").check("kubelet.lead"),
        Note,
        &["less than leadMargin"],
    );
    expect(
        &kubelet("evictionHard: {pid.available: 5%}", "", "").check("kubelet.lead"),
        Warning,
        &["acts alone"],
    );
    let reserved = "kubeReserved: {memory: 512Mi}\nsystemReserved: {memory: 512Mi}";
    expect(
        &kubelet("", reserved, "").check("kubelet.reserves"),
        Ok,
        &["1.1Gi kept from pods"],
    );
    expect(
        &kubelet("evictionHard: {memory.available: 2Gi}", reserved, "").check("kubelet.reserves"),
        Warning,
        &["less than the threshold of 2.0Gi"],
    );
    let flags = "--eviction-hard=memory.available<1Gi\0";
    let overruled = kubelet(ahead, "", flags);
    expect(
        &overruled.check("kubelet.lead"),
        Warning,
        &["the kubelet below 1.0Gi"],
    );
    expect(
        &overruled.check("kubelet.configuration"),
        Ok,
        &["overruled by --eviction-hard"],
    );
    let doubtful = "evictionHard: {memory.available: 2Gi}\nevictionSoft: {memory.available: 1Gi}\n\
                    evictionSoftGracePeriod: {memory.available: 1m}";
    expect(
        &kubelet("", doubtful, "").check("kubelet.configuration"),
        Warning,
        &["evictionHard.memory.available"],
    );
    let no_grace = "evictionSoft: {memory.available: 1Gi}";
    expect(
        &kubelet("", no_grace, "").check("kubelet.configuration"),
        Failed,
        &["evictionSoft"],
    );
    let notified = kubelet("", "kernelMemcgNotification: true", "");
    expect(
        &notified.check("kubelet.notification"),
        Note,
        &["without effect on cgroup v2"],
    );
    assert!(
        plain
            .report()
            .checks
            .iter()
            .all(|check| check.id != "kubelet.notification")
    );
}

#[test]
fn reserves_are_held_against_what_the_system_uses() {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let machine = |reserved: &str| {
        let group = "sys/fs/cgroup/kubepods.slice";
        Machine::whole()
            .with(
                "var/lib/kubelet/config.yaml",
                &format!("{head}systemReserved: {{memory: {reserved}}}\n"),
            )
            .with(&format!("{group}/memory.current"), "1073741824\n")
            .with(
                &format!("{group}/memory.stat"),
                "anon 1073741824\nfile 0\ninactive_file 0\n",
            )
    };
    // The node's working set is 2752 MiB, that of the pods 1024 MiB.
    expect(
        &machine("1Gi").check("kubelet.reserves"),
        Warning,
        &["1.7Gi in use by what is no pod", "1.7Gi memory together"],
    );
    expect(
        &machine("2Gi").check("kubelet.reserves"),
        Ok,
        &["2.1Gi kept from pods"],
    );
    expect(
        &machine("2Gi").check("kubelet.process"),
        Note,
        &["none runs here, though"],
    );
}

#[test]
fn the_agents_own_files() {
    let machine = Machine::whole();
    expect(&machine.check("state.ledger"), Ok, &["none yet"]);
    expect(&machine.check("state.socket"), Ok, &["no agent runs"]);
    expect(&machine.check("state.enforcer"), Ok, &["nobody"]);
    expect(&machine.check("state.stop-button"), Ok, &["not pressed"]);
    assert!(!machine.path("run").exists(), "looking makes nothing");
    machine.write("run/brink/ledger", "something else");
    expect(&machine.check("state.ledger"), Note, &["ledger.aside"]);
    machine.write("run/brink/pause", "");
    expect(&machine.check("state.stop-button"), Note, &["brink resume"]);
    machine.write("run/brink/brink.sock", "");
    expect(&machine.check("state.socket"), Failed, &["something else"]);
    let blocked = Machine::whole().with("run", "a file");
    expect(
        &blocked.check("state.folder"),
        Failed,
        &["is no folder", "does not start"],
    );
    expect(
        &blocked.check("state.socket"),
        Unknown,
        &["see state.folder"],
    );
    let hooks = Machine::whole().configured("hooks: {beforeKill: /nonexistent/hook}");
    expect(
        &hooks.check("state.hooks"),
        Failed,
        &["beforeKill /nonexistent/hook"],
    );
}

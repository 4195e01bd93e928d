//! What runs on the node: other killers, workloads, the kubelet, and the agent's own files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use brink::doctor::Check;
use brink::doctor::State::{Failed, Note, Ok, Unknown, Warning};

use crate::machine::{Machine, expect, find};

const EARLYOOM: &str = "/usr/bin/earlyoom\x00-m\x005\x00";

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
    assert_eq!(check.parts.len(), 2, "{check:?}");
    expect(
        &Machine::whole().check("config.thresholds"),
        Ok,
        &["memory.available<100Mi, memory.headroom<50Mi"],
    );
    expect(
        &Machine::whole().check("config.unmeasured"),
        Note,
        &["podsCgroup"],
    );
    let disk = "evictionHard: {nodefs.available: 10%}\nheadroomHard: 0%";
    expect(
        &Machine::whole().configured(disk).check("config.thresholds"),
        Ok,
        &["nodefs.available<10%"],
    );
    let none = "evictionHard: {allocatableMemory.available: 10%}\nheadroomHard: 0%";
    expect(
        &Machine::whole().configured(none).check("config.thresholds"),
        Failed,
        &["nothing is ever evicted"],
    );
}

#[test]
fn the_group_of_all_pods_is_the_kubelets_unless_one_is_named() {
    const PODS: &str = "cgroups.pods";
    let of_cluster = || Machine::whole().configured("kubernetes: {enabled: true}");
    let with_group = |machine: Machine, group: &str, populated: u8| {
        let file = |name: &str| format!("sys/fs/cgroup/{group}/{name}");
        machine
            .with(&file("memory.max"), "6442450944\n")
            .with(&file("memory.current"), "1073741824\n")
            .with(&file("memory.stat"), "inactive_file 0\n")
            .with(&file("cgroup.subtree_control"), "memory pids\n")
            .with(&file("cgroup.events"), &format!("populated {populated}\n"))
    };
    let none = of_cluster().report();
    let words = ["/kubepods.slice, /kubepods", "--cgroup-root"];
    expect(find(&none, "config.unmeasured"), Note, &words);
    assert!(none.checks.iter().all(|check| check.id != PODS), "{none:?}");

    let one = with_group(of_cluster(), "kubepods", 0);
    let report = one.report();
    expect(find(&report, PODS), Ok, &["/kubepods, the kubelet's"]);
    let words = ["allocatableMemory.available<100Mi"];
    expect(find(&report, "config.thresholds"), Ok, &words);
    let is_unmeasured = |check: &Check| check.id == "config.unmeasured";
    assert!(!report.checks.iter().any(is_unmeasured), "{report:?}");

    let both = with_group(with_group(of_cluster(), "kubepods", 1), "kubepods.slice", 0);
    let words = ["/kubepods, as", "/kubepods.slice is there too"];
    expect(&both.check(PODS), Note, &words);
    let named = both.configured("podsCgroup: /kubepods.slice");
    let named = named.check(PODS);
    assert_eq!((named.state, named.found.as_str()), (Ok, "/kubepods.slice"));

    let off = one.configured("enforceNodeAllocatable: []");
    let thresholds = off.check("config.thresholds");
    assert!(
        !thresholds.found.contains("allocatableMemory"),
        "{thresholds:?}"
    );
    let unread = of_cluster().with("sys/fs/cgroup/kubepods/cgroup.procs", "");
    expect(&unread.check(PODS), Warning, &["is not measured"]);
}

#[test]
fn who_acts_first_is_held_against_what_the_pods_may_use_too() {
    let config = "kubernetes: {enabled: true}\nevictionHard: {memory.available: 2%}";
    let lead = |of_pods: &str| {
        let group = "sys/fs/cgroup/kubepods.slice";
        kubelet(config, "evictionHard: {memory.available: 64Mi}", "")
            .with(&format!("{group}/memory.max"), of_pods)
            .with(&format!("{group}/memory.current"), "4096\n")
            .with(&format!("{group}/memory.stat"), "inactive_file 0\n")
            .check("kubelet.lead")
    };
    // 2 % of 8 GiB are 163.8 MiB, of 4 GiB 81.9.
    expect(
        &lead("8589934592\n"),
        Ok,
        &["memory.available: Brink below 164Mi"],
    );
    let words = [
        "allocatableMemory.available: Brink below 81.9Mi, the kubelet below 64.0Mi",
        "less than leadMargin",
    ];
    expect(&lead("4294967296\n"), Note, &words);
    // No limit, no capacity: there is nothing to hold against each other.
    expect(&lead("max\n"), Ok, &["memory.available: Brink below 164Mi"]);
}

#[test]
fn disks_are_looked_at_where_a_threshold_is_on_them() {
    const SPACE: &str = "disks.filesystems";
    let disk = "evictionHard: {nodefs.available: 10%}";
    let machine = || Machine::whole().configured(disk);
    expect(&machine().check(SPACE), Ok, &["nodefs", "inodes left"]);
    expect(
        &machine().check("disks.runtime"),
        Note,
        &["none was found", "before pods"],
    );
    let missing = "filesystems: {nodefs: /not/here}";
    expect(
        &machine().configured(missing).check(SPACE),
        Warning,
        &["not/here", "never met", "component disks"],
    );
    let large = Machine::whole().configured("evictionHard: {nodefs.available: 500Pi}");
    let large = large.report();
    let words = ["evictionHard.nodefs.available", "above the capacity"];
    expect(find(&large, "config.thresholds"), Warning, &words);
    let words = ["nodefs.available<500Pi is met", "rank --signal nodefs"];
    expect(find(&large, "disks.signals"), Warning, &words);
    let small = Machine::whole().configured("evictionHard: {nodefs.available: 1}");
    expect(&small.check("disks.signals"), Ok, &["none is met"]);
    let nobody = machine().configured("runtime: {endpoint: /not/here/cri.sock}");
    expect(
        &nobody.check("disks.runtime"),
        Warning,
        &["not/here/cri.sock", "before pods", "is the runtime running"],
    );
    let memory = Machine::whole().configured("evictionHard: {memory.available: 100Mi}");
    let memory = memory.report();
    let is_of_disks = |check: &Check| check.id.starts_with("disks.");
    assert!(!memory.checks.iter().any(is_of_disks), "{memory:?}");
}

#[test]
fn disk_orders_that_are_held_beside_a_kubelet_are_a_warning_where_no_runtime_is_reached() {
    let disk = "evictionHard: {nodefs.available: 10%}";
    let runtime = |settings: &str| {
        let machine = Machine::whole().configured(disk).configured(settings);
        machine.process(700, "kubelet", "/usr/bin/kubelet\0--v=2\0");
        machine.check("disks.runtime")
    };
    let words = [
        "none was found",
        "disk orders are held",
        "runtime.reclaim: always",
    ];
    expect(&runtime(""), Warning, &words);
    expect(&runtime("runtime: {reclaim: dryRun}"), Warning, &words);
    // Who has moved the folder follows no kubelet, and is held all the same.
    expect(&runtime("filesystems: {nodefs: /}"), Warning, &words);
    let nobody = runtime("runtime: {endpoint: /not/here/cri.sock}");
    expect(&nobody, Warning, &["not/here/cri.sock", words[1], words[2]]);
    expect(
        &runtime("runtime: {reclaim: always}"),
        Note,
        &["none was found", "before pods"],
    );
}

#[test]
fn workloads_that_run_that_are_kept_and_that_are_idle() {
    let unit = |machine: Machine, name: &str, processes: &str| {
        let group = format!("sys/fs/cgroup/system.slice/{name}.service");
        machine
            .with(&format!("{group}/memory.current"), "4096\n")
            .with(
                &format!("{group}/memory.stat"),
                "anon 4096\ninactive_file 0\n",
            )
            .with(&format!("{group}/cgroup.procs"), processes)
    };
    let machine = || {
        Machine::whole().configured(
            "mode: enforce\nworkloads: {cgroups: [{glob: /system.slice/*.service}]}\nprotect: [/system.slice/kept.service]",
        )
    };
    let one = unit(machine(), "web", "901\n");
    expect(
        &one.check("workloads.bound"),
        Ok,
        &["1 workload: 1 may be evicted"],
    );
    let all = unit(
        unit(unit(machine(), "web", "901\n"), "kept", "902\n"),
        "idle",
        "",
    );
    let words = ["3 workloads: 1 may be evicted, 1 never, nothing runs in 1"];
    expect(&all.check("workloads.bound"), Ok, &words);
    let words = ["2 workloads: 0 may be evicted", "nobody to evict"];
    let none = unit(unit(machine(), "kept", "902\n"), "idle", "");
    expect(&none.check("workloads.bound"), Warning, &words);
}

#[test]
fn control_groups_that_are_named_and_not_there_are_told_and_not_asked_for_again() {
    let bound = |config: &str| Machine::whole().configured(config).check("workloads.bound");
    let two = "{cgroups: [{glob: /stranger/a}, {glob: '/stranger/b*'}]}";
    let check = bound(&format!("mode: enforce\nworkloads: {two}"));
    let words = [
        "none: 2 entries of workloads.cgroups, and no group matches /stranger/a, /stranger/b*",
        "correct the globs",
        "workloads: {manifests:",
    ];
    expect(&check, Warning, &words);
    assert!(
        !format!("{check:?}").contains("name control groups"),
        "{check:?}"
    );
    let below = "node: {cgroup: /system.slice}\nworkloads: {cgroups: [{glob: /a}]}";
    let words = ["1 entry of workloads.cgroups, and no group below /system.slice matches /a"];
    expect(&bound(below), Note, &words);
    expect(&bound(""), Note, &["none", "name control groups"]);
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
fn what_pods_ask_for_by_annotation_is_heard_or_told() {
    const ASKED: &str = "workloads.annotations";
    let machine = |config: &str, word: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a, namespace: shop, annotations: {{brink.dev/eviction: {word}}}}}\n\
             spec: {{containers: [{{name: c}}]}}\n"
        );
        let machine = Machine::whole().with("pods/a.yaml", &text);
        let folder = machine.path("pods");
        let workloads = format!("workloads: {{manifests: {}}}", folder.display());
        machine.configured(&workloads).configured(config)
    };
    let allowed = "annotationNamespaces: [shop]";
    for word in ["first", "last", "never"] {
        let heard = machine(allowed, word).check(ASKED);
        expect(&heard, Ok, &["1 workload heard"]);
    }
    expect(
        &machine("", "never").check(ASKED),
        Note,
        &["namespace shop", "does not name it", allowed],
    );
    expect(
        &machine(allowed, "please").check(ASKED),
        Note,
        &["namespace shop: none of first, last and never"],
    );
    let nobody = Machine::whole().report();
    assert!(nobody.checks.iter().all(|check| check.id != ASKED));
}

/// A machine with a kubelet: the agent's configuration, the kubelet's, and the kubelet's command line.
pub(crate) fn kubelet(config: &str, file: &str, arguments: &str) -> Machine {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let machine = Machine::whole()
        .with("var/lib/kubelet/config.yaml", &format!("{head}{file}\n"))
        .configured(config);
    machine.process(700, "kubelet", &format!("/usr/bin/kubelet\0{arguments}"));
    machine
}

const AHEAD: &str = "evictionHard: {memory.available: 200Mi}";

#[test]
fn a_kubelet_is_found_with_its_file() {
    let plain = kubelet("", "", "--config=/var/lib/kubelet/config.yaml\0");
    expect(&plain.check("kubelet.process"), Ok, &["pid 700"]);
    let words = ["var/lib/kubelet/config.yaml, named on its command line"];
    expect(&plain.check("kubelet.configuration"), Ok, &words);
    let words = ["found in its usual place"];
    let unnamed = kubelet("", "", "");
    expect(&unnamed.check("kubelet.configuration"), Ok, &words);
    // A distribution in one program: its own --config is not the kubelet's.
    let k3s = Machine::whole();
    k3s.process(
        700,
        "k3s-server",
        "/usr/bin/k3s\0server\0--config=/etc/k3s.yaml\0",
    );
    let check = k3s.check("kubelet.process");
    expect(&check, Warning, &["k3s-server", "kubeletConfig: FILE"]);
}

#[test]
fn a_kubelets_file_is_looked_for_in_its_own_file_system_and_unknown_where_it_is_not_seen() {
    let machine = Machine::whole();
    let line = "/usr/bin/kubelet\0--config=/var/lib/kubelet/config.yaml\0";
    machine.process(700, "kubelet", line);
    let words = ["config.yaml: No such file", "kubeletConfig: FILE"];
    expect(&machine.check("kubelet.configuration"), Unknown, &words);
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                evictionHard: {memory.available: 1Gi}\n";
    machine.write("proc/700/root/var/lib/kubelet/config.yaml", text);
    let words = ["proc/700/root/var/lib/kubelet/config.yaml, named"];
    expect(&machine.check("kubelet.configuration"), Ok, &words);
    let words = ["the kubelet below 1.0Gi", "component kubelet-config"];
    expect(&machine.check("kubelet.lead"), Warning, &words);
    // What is in our own counts, where it is there.
    let text = text.replace("1Gi", "2Gi");
    machine.write("var/lib/kubelet/config.yaml", &text);
    let words = ["the kubelet below 2.0Gi", "--kubelet-config"];
    expect(&machine.check("kubelet.lead"), Warning, &words);
}

#[test]
fn who_acts_first() {
    let lead = |config: &str, arguments: &str| kubelet(config, "", arguments).check("kubelet.lead");
    let waits = "; Brink waits until headroom is short too";
    let words = [
        "Brink below 100Mi, the kubelet below 100Mi; Brink waits",
        waits,
        "--kubelet-config",
    ];
    expect(&lead("", ""), Warning, &words);
    expect(&lead(AHEAD, ""), Ok, &["leads by 100Mi", waits]);
    let near = "evictionHard: {memory.available: 110Mi}";
    let words = ["less than leadMargin", waits, "; Brink only observes"];
    expect(&lead(near, ""), Note, &words);
    let never = "evictionHard: {pid.available: 5%}";
    expect(&lead(never, ""), Warning, &["acts alone"]);
    let flags = "--eviction-hard=memory.available<1Gi\0";
    expect(&lead(AHEAD, flags), Warning, &["the kubelet below 1.0Gi"]);
    let overruled = kubelet(AHEAD, "", flags).check("kubelet.configuration");
    expect(&overruled, Ok, &["overruled by --eviction-hard"]);
}

#[test]
fn what_a_kubelet_would_refuse_or_hardly_means() {
    let file = |text: &str| kubelet("", text, "").check("kubelet.configuration");
    let doubtful = "evictionHard: {memory.available: 2Gi}\nevictionSoft: {memory.available: 1Gi}\n\
                    evictionSoftGracePeriod: {memory.available: 1m}";
    expect(&file(doubtful), Warning, &["evictionHard.memory.available"]);
    let no_grace = "evictionSoft: {memory.available: 1Gi}";
    expect(&file(no_grace), Failed, &["evictionSoft"]);
    let notified = kubelet("", "kernelMemcgNotification: true", "");
    let words = ["without effect on cgroup v2"];
    expect(&notified.check("kubelet.notification"), Note, &words);
    let checks = kubelet("", "", "").report().checks;
    assert!(
        checks
            .iter()
            .all(|check| check.id != "kubelet.notification")
    );
}

#[test]
fn reserves_cover_the_threshold_or_not() {
    let reserves = |config: &str, file: &str| kubelet(config, file, "").check("kubelet.reserves");
    expect(&reserves("", ""), Warning, &["0B", "kubeReserved"]);
    let both = "kubeReserved: {memory: 512Mi}\nsystemReserved: {memory: 512Mi}";
    expect(&reserves("", both), Ok, &["1.1Gi kept from pods"]);
    let high = "evictionHard: {memory.available: 2Gi}";
    let words = ["less than the threshold of 2.0Gi"];
    expect(&reserves(high, both), Warning, &words);
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
    let open = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(machine.path("run/brink"), open).expect("a folder of ours");
    expect(
        &machine.check("state.folder"),
        Warning,
        &["everybody may write", "chmod o-w"],
    );
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
    let told = "events: {enabled: true}";
    let event_journal = |machine: Machine| machine.configured(told).check("state.event-journal");
    expect(&event_journal(Machine::whole()), Ok, &["events"]);
    expect(
        &event_journal(Machine::whole().with("run", "a file")),
        Warning,
        &["is no folder", "not kept over a restart"],
    );
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("events: {{listen: '{}'}}", other.local_addr().unwrap());
    let port = || {
        let machine = Machine::whole().configured(&listen);
        machine.check("state.event-port")
    };
    expect(&port(), Warning, &["cannot be had", "ss -ltnp"]);
    drop(other);
    expect(&port(), Ok, &["free"]);
    let hooks = Machine::whole().configured("hooks: {beforeKill: /nonexistent/hook}");
    expect(
        &hooks.check("state.hooks"),
        Failed,
        &["beforeKill /nonexistent/hook"],
    );
}

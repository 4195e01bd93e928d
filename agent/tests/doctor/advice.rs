//! The rest of the kubelet's advice: `oom_score_adj`.

use brink::doctor::State::{Ok, Warning};

use crate::machine::{Machine, expect};

const SCORES: &str = "workloads.oom-scores";

/// A control group with one process, which has this as `oom_score_adj`.
fn group(machine: Machine, group: &str, score: &str) -> Machine {
    let path = format!("sys/fs/cgroup{group}");
    machine.process(901, "web", "web\0");
    machine
        .with("proc/901/oom_score_adj", score)
        .with("proc/901/cgroup", &format!("0::{group}\n"))
        .with(&format!("{path}/memory.current"), "4096\n")
        .with(
            &format!("{path}/memory.stat"),
            "anon 4096\ninactive_file 0\n",
        )
        .with(&format!("{path}/cgroup.procs"), "901\n")
}

fn service(config: &str, score: &str) -> Machine {
    group(
        Machine::whole().configured(config),
        "/system.slice/web.service",
        score,
    )
}

#[test]
fn a_group_with_requests_has_a_value_and_one_without_only_where_it_is_set() {
    let asked =
        "workloads: {cgroups: [{glob: /system.slice/*.service, requests: {memory: 800Mi}}]}";
    expect(
        &service(asked, "0\n").check(SCORES),
        Warning,
        &[
            "1 of 1 container differ",
            "/system.slice/web.service has 0 and should have 903",
            "oomScoreAdj: set",
        ],
    );
    expect(
        &service(asked, "903\n").check(SCORES),
        Ok,
        &["1 container as a kubelet sets it"],
    );
    let plain = "workloads: {cgroups: [{glob: /system.slice/*.service}]}";
    expect(
        &service(plain, "0\n").check(SCORES),
        Ok,
        &["no container to look at"],
    );
    let set = "workloads: {oomScoreAdj: set, cgroups: [{glob: /system.slice/*.service}]}";
    let words = [
        "has 0 and should have 1000",
        "in mode observe nothing is changed",
    ];
    expect(&service(set, "0\n").check(SCORES), Warning, &words);
    let kept = format!("{set}\nprotect: [/system.slice/web.service]");
    expect(
        &service(&kept, "0\n").check(SCORES),
        Ok,
        &["no container to look at"],
    );
    let off = asked.replace("{cgroups", "{oomScoreAdj: off, cgroups");
    let report = service(&off, "0\n").report();
    assert!(report.checks.iter().all(|check| check.id != SCORES));
}

/// A machine with one pod of this specification in the folder of manifests.
fn with_pod(config: &str, metadata: &str, rest: &str) -> Machine {
    let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a, {metadata}}}\n{rest}\n");
    let machine = Machine::whole().with("pods/a.yaml", &text);
    let folder = machine.path("pods");
    let workloads = format!("workloads: {{manifests: {}{config}}}", folder.display());
    machine.configured(&workloads)
}

#[test]
fn who_may_not_lower_it_is_told_how_to_get_the_right() {
    let machine = |status: &str| {
        let kept = "spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}";
        let bound = "annotations: {brink.dev/cgroup: /work}";
        let machine = with_pod(", oomScoreAdj: set", bound, kept);
        let machine = group(machine.configured("mode: enforce"), "/work", "0\n");
        let text = std::fs::read_to_string(machine.path("proc/self/status")).unwrap();
        machine.with(
            "proc/self/status",
            &text.replace("CapEff:\t000001ffff", status),
        )
    };
    let words = [
        "default/a has 0 and should have -997",
        "an agent that runs sets it",
    ];
    let may = machine("CapEff:\t000001ffff").check(SCORES);
    expect(&may, Warning, &words);
    assert!(!format!("{may:?}").contains("CAP_SYS_RESOURCE"), "{may:?}");
    let without = machine("CapEff:\t000001fffe").check(SCORES);
    expect(
        &without,
        Warning,
        &["refused without CAP_SYS_RESOURCE", "setcap"],
    );
}

#[test]
fn a_container_of_a_kubelets_pod_goes_by_its_own_request() {
    let id = "ab".repeat(32);
    let machine = |score: &str| {
        let rest = format!(
            "spec: {{containers: [{{name: c, resources: {{requests: {{memory: 800Mi}}}}}}, {{name: d, resources: {{requests: {{memory: 4Gi}}}}}}]}}\n\
             status: {{phase: Running, containerStatuses: [{{name: c, containerID: 'containerd://{id}'}}]}}"
        );
        let machine = with_pod("", "uid: 0a1b", &rest);
        let machine = group(machine, "/kubepods/burstable/pod0a1b", score);
        let machine = machine.with("sys/fs/cgroup/kubepods/burstable/pod0a1b/cgroup.procs", "");
        group(machine, &format!("/kubepods/burstable/pod0a1b/{id}"), score)
    };
    expect(
        &machine("0\n").check(SCORES),
        Warning,
        &[
            "default/a (container c) has 0 and should have 903",
            "restrict_oom_score_adj",
        ],
    );
    expect(&machine("903\n").check(SCORES), Ok, &["1 container"]);
}

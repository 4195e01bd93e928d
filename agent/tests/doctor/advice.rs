//! The rest of the kubelet's advice: `oom_score_adj`, reserves that cover thresholds, minimum reclaims, and thresholds that swing.

use std::path::Path;

use brink::doctor::State::{Note, Ok, Warning};
use brink::doctor::facts::crossings::Crossings;
use brink::doctor::{advice_on, checks};
use brink_core::base::Moment;
use brink_core::node::signal::Signal;
use brink_stream::hub::{self, Hub, Identity};
use brink_stream::journal::{self, Journal, Surroundings};
use brink_stream::model::data::Threshold;
use brink_stream::model::event::{Draft, Time};
use brink_stream::model::kind::Kind;

use crate::machine::{Machine, expect};
use crate::node::kubelet;

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

#[test]
fn soft_thresholds_and_process_ids_have_to_be_in_the_reserves() {
    const ID: &str = "kubelet.coverage";
    let check = |file: &str| kubelet("", file, "").check(ID);
    expect(&check(""), Ok, &["none"]);
    let soft = "evictionHard: {memory.available: 200Mi}\nevictionSoft: {memory.available: 1Gi}\n\
                evictionSoftGracePeriod: {memory.available: 2m}";
    expect(
        &check(soft),
        Warning,
        &[
            "memory.available<1Gi for 2m0s wants 1.0Gi left, and 200Mi of memory are kept",
            "kubeReserved and systemReserved of 824Mi memory together",
        ],
    );
    let covered =
        format!("{soft}\nkubeReserved: {{memory: 500Mi}}\nsystemReserved: {{memory: 324Mi}}");
    expect(&check(&covered), Ok, &["all 1"]);
    let ids = "evictionHard: {pid.available: 1000}\nsystemReserved: {pid: '600'}";
    expect(
        &check(ids),
        Warning,
        &["pid.available<1k wants 1000 left, and 600 of pid"],
    );
    expect(&check(&ids.replace("600", "1000")), Ok, &["all 1"]);
    let disk = "evictionHard: {nodefs.available: 1Gi}\nevictionSoft: {nodefs.available: 5Gi}\n\
                evictionSoftGracePeriod: {nodefs.available: 2m}\nsystemReserved: {ephemeral-storage: 3Gi}";
    expect(
        &check(disk),
        Warning,
        &["4.0Gi of ephemeral-storage are kept"],
    );
    let flag = "--system-reserved=ephemeral-storage=4Gi\0";
    expect(&kubelet("", disk, flag).check(ID), Ok, &["all 1"]);
}

#[test]
fn a_minimum_reclaim_beyond_what_workloads_hold_is_told() {
    const ID: &str = "workloads.minimum-reclaim";
    let machine = |reclaim: &str, held: &str| {
        let config = format!(
            "evictionHard: {{memory.available: 1Gi}}\nevictionMinimumReclaim: {{memory.available: {reclaim}}}\n\
             workloads: {{cgroups: [{{glob: /system.slice/*.service}}]}}"
        );
        service(&config, "0\n").with(
            "sys/fs/cgroup/system.slice/web.service/memory.current",
            held,
        )
    };
    // 5440 MiB are available.
    expect(
        &machine("4Gi", "4096\n").check(ID),
        Ok,
        &["would be enough"],
    );
    expect(
        &machine("6Gi", "4096\n").check(ID),
        Warning,
        &[
            "Brink's memory.available<1Gi lets go at 7.0Gi",
            "5.3Gi would be available",
            "until nobody is left",
        ],
    );
    // With two more of a workload it can be had.
    expect(
        &machine("6Gi", "2147483648\n").check(ID),
        Ok,
        &["would be enough"],
    );
    let theirs = kubelet(
        "",
        "evictionMinimumReclaim: {memory.available: 6Gi}",
        "--config=/var/lib/kubelet/config.yaml\0",
    );
    let theirs = theirs
        .with("sys/fs/cgroup/kubepods.slice/memory.current", "4096\n")
        .with(
            "sys/fs/cgroup/kubepods.slice/memory.stat",
            "anon 4096\nfile 0\ninactive_file 0\n",
        );
    expect(
        &theirs.check(ID),
        Warning,
        &["the kubelet's memory.available<100Mi lets go at 6.1Gi"],
    );
    let none = Machine::whole().report();
    assert!(none.checks.iter().all(|check| check.id != ID));
}

#[test]
fn a_minimum_reclaim_of_process_ids_is_held_to_the_tasks_of_workloads() {
    const ID: &str = "workloads.minimum-reclaim";
    let machine = |tasks: &str| {
        let config = "evictionHard: {pid.available: 1000}\nevictionMinimumReclaim: {pid.available: 62000}\n\
                      workloads: {cgroups: [{glob: /system.slice/*.service}]}";
        let group = "sys/fs/cgroup/system.slice/web.service/pids.current";
        service(config, "0\n").with(group, tasks)
    };
    // 62,900 are left.
    expect(
        &machine("50\n").check(ID),
        Warning,
        &[
            "Brink's pid.available<1k lets go at 63000",
            "62950 would be available",
        ],
    );
    expect(&machine("100\n").check(ID), Ok, &["would be enough"]);
}

#[test]
fn a_minimum_reclaim_on_a_filesystem_is_held_to_the_files_of_workloads() {
    const ID: &str = "workloads.minimum-reclaim";
    let machine = |more: &str| {
        let config = format!(
            "evictionHard: {{nodefs.available: 1Ki, nodefs.inodesFree: 1}}\n\
             evictionMinimumReclaim: {{nodefs.available: {more}}}\nfilesystems: {{nodefs: /data}}\n\
             workloads: {{cgroups: [{{glob: /system.slice/*.service, directories: [/data/web]}}]}}"
        );
        service(&config, "0\n").with("data/web/file", "of a few bytes\n")
    };
    expect(&machine("1Ki").check(ID), Ok, &["would be enough"]);
    // Nobody's disk is as large, and a small file does not make up for it.
    expect(
        &machine("7000Pi").check(ID),
        Warning,
        &[
            "Brink's nodefs.available<1Ki lets go at",
            "unused images aside, would be available",
        ],
    );
}

const SOFT: &str =
    "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 2m}";

#[test]
fn a_soft_threshold_that_swings_has_a_transition_period_that_calms_it() {
    let check = |calms: &[i64]| {
        let mut facts = Machine::whole().configured(SOFT).facts();
        let mut at = Moment::START;
        let mut changes = vec![(at, true)];
        for calm in calms {
            changes.push((at, false));
            at = at + brink_core::base::Span::from_secs(*calm);
            changes.push((at, true));
        }
        let soft = [(("memory.available".to_owned(), 120), changes)].into();
        facts.crossings = Some(Result::Ok(Crossings {
            soft,
            is_cut: false,
        }));
        let all = checks(&facts);
        all.into_iter()
            .find(|check| check.id == "memory.swings")
            .unwrap()
    };
    expect(&check(&[10, 20]), Ok, &["none in the last six hours"]);
    expect(
        &check(&[10, 20, 250]),
        Note,
        &["memory.available (grace 2m0s) was met again after 3 calms, of at most 4m10s"],
    );
    expect(
        &check(&[310, 400, 20, 500]),
        Warning,
        &[
            "after 4 calms",
            "had gone in 3",
            "evictionPressureTransitionPeriod: 9m0s",
        ],
    );
    let hard = Machine::whole().report();
    assert!(hard.checks.iter().all(|check| check.id != "memory.swings"));
}

/// Now, seconds since 1970.
const NOW: i64 = 1_000_000;

/// A journal with these changes of thresholds: seconds since 1970, whether it was met, whether it is a hard one.
fn write_journal(path: &Path, changes: &[(i64, bool, bool)]) {
    const BOOT: &str = "3f2a9d0c-5b1e-4c7a-9d55-0a1b2c3d4e5f";
    let around = Surroundings {
        boot_id: BOOT,
        clock: || NOW * 1_000_000,
        on_loss: Box::new(|_, _| ()),
    };
    let (journal, _) = Journal::open(path, journal::Limits::default(), around).unwrap();
    let identity = Identity {
        node: "node-7".to_owned(),
        boot_id: BOOT.to_owned(),
    };
    let hub = Hub::new(identity, 20, hub::Limits::default());
    journal.attach(&hub);
    for (seconds, is_met, hard) in changes {
        let data = Threshold {
            signal: "memory.available".to_owned(),
            hard: *hard,
            grace_seconds: 120,
            quantity: None,
            available: None,
            capacity: None,
        };
        let of = if *is_met {
            Kind::ThresholdCrossed
        } else {
            Kind::ThresholdCleared
        };
        let at = Time::new(seconds * 1_000_000, 1);
        hub.tell(Draft::new(of, at, None, &data).unwrap());
    }
}

#[test]
fn crossings_are_read_from_the_journal_as_far_back_as_they_count() {
    let folder = tempfile::tempdir().unwrap();
    let read = || Crossings::read(folder.path(), NOW * 1_000_000).unwrap();
    assert_eq!(read(), Crossings::default(), "there is none yet");
    let changes = [
        (NOW - 7 * 3600, true, false),
        (NOW - 300, true, false),
        (NOW - 200, true, true),
        (NOW - 100, false, false),
    ];
    write_journal(folder.path(), &changes);
    let found = read();
    let key = ("memory.available".to_owned(), 120);
    let expected = [(NOW - 300, true), (NOW - 100, false)];
    let expected = expected.map(|(at, is_met)| (Moment::from_secs(at), is_met));
    assert_eq!(found.soft[&key], expected);
    assert!(!found.is_cut);
    let missing = Crossings::read(&folder.path().join("none"), NOW);
    assert_eq!(missing, Result::Ok(Crossings::default()));
}

/// What `brink explain` says of the settings on a signal, where the kubelet's disk has so many bytes.
fn advised(machine: &Machine, signal: Signal, disk: Option<i64>) -> Vec<String> {
    advice_on(&machine.checked().config, signal, disk, NOW * 1_000_000)
}

/// Asserts that one thing is said, and that it has these words in it.
#[track_caller]
fn expect_one(said: &[String], words: &[&str]) {
    assert_eq!(said.len(), 1, "{said:?}");
    for word in words {
        assert!(said[0].contains(word), "{word:?} is not in {said:?}");
    }
}

#[test]
fn an_explanation_has_the_doctors_advice_on_reserves_for_its_own_signal() {
    let soft = "evictionHard: {memory.available: 200Mi, pid.available: 1000}\nevictionSoft: {memory.available: 1Gi}\n\
                evictionSoftGracePeriod: {memory.available: 2m}\nsystemReserved: {pid: '600'}";
    let machine = kubelet("", soft, "");
    expect_one(
        &advised(&machine, Signal::MemoryAvailable, None),
        &[
            "memory.available<1Gi for 2m0s wants 1.0Gi left, and 200Mi of memory are kept",
            "pods that all keep to what they request",
            "kubeReserved and systemReserved of 824Mi memory together",
        ],
    );
    expect_one(
        &advised(&machine, Signal::PidAvailable, None),
        &["pid.available<1k wants 1000 left, and 600 of pid"],
    );
    let none = Vec::<String>::new();
    for signal in [Signal::MemoryHeadroom, Signal::NodefsInodesFree] {
        assert_eq!(advised(&machine, signal, None), none);
    }
    // Brink acts at more than the kubelet keeps from pods.
    let machine = kubelet(
        "evictionHard: {memory.available: 300Mi}",
        "evictionHard: {memory.available: 200Mi}",
        "",
    );
    expect_one(
        &advised(&machine, Signal::MemoryAvailable, None),
        &[
            "200Mi kept from pods (kubeReserved and systemReserved 0B, evictionHard 200Mi)",
            "less than the threshold of 300Mi",
            "kubeReserved and systemReserved of 100Mi memory together",
        ],
    );
    let whole = Machine::whole();
    assert_eq!(advised(&whole, Signal::MemoryAvailable, None), none);
    // A share of what nobody knows is no advice.
    let share = "evictionHard: {nodefs.available: 1Gi}\nevictionSoft: {nodefs.available: 10%}\n\
                 evictionSoftGracePeriod: {nodefs.available: 2m}";
    let machine = kubelet("", share, "");
    assert_eq!(advised(&machine, Signal::NodefsAvailable, None), none);
    expect_one(
        &advised(&machine, Signal::NodefsAvailable, Some(100 << 30)),
        &[
            "nodefs.available<10% for 2m0s wants 10.0Gi left, and 1.0Gi of ephemeral-storage are kept",
        ],
    );
}

#[test]
fn an_explanation_has_the_swings_that_the_journal_tells_and_what_calms_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let config = |thresholds: &str| {
        let journal = format!(
            "events: {{enabled: true, journal: {{path: {}}}}}",
            path.display()
        );
        Machine::whole().configured(&format!("{journal}\n{thresholds}"))
    };
    let (soft, hard) = (
        config(SOFT),
        config("evictionHard: {memory.available: 1Gi}"),
    );
    let none = Vec::<String>::new();
    let said = advised(&soft, Signal::MemoryAvailable, None);
    assert_eq!(said, none, "there is no journal yet");
    // Met every ten minutes or so, with calms of 400, 500 and 400 seconds.
    let changes = [
        (NOW - 3000, true, false),
        (NOW - 2900, false, false),
        (NOW - 2500, true, false),
        (NOW - 2400, false, false),
        (NOW - 1900, true, false),
        (NOW - 1800, false, false),
        (NOW - 1400, true, false),
    ];
    write_journal(path, &changes);
    expect_one(
        &advised(&soft, Signal::MemoryAvailable, None),
        &[
            "memory.available (grace 2m0s) was met again after 3 calms, of at most 8m20s",
            "had gone in 3; the transition period is 5m0s",
            "pods are scheduled here while it is calm",
            "evictionPressureTransitionPeriod: 9m0s",
        ],
    );
    assert_eq!(advised(&soft, Signal::PidAvailable, None), none);
    assert_eq!(advised(&hard, Signal::MemoryAvailable, None), none);
    // The doctor reads the same six hours by its own clock, in which there is nothing.
    expect(&soft.check("memory.swings"), Ok, &["none"]);
}

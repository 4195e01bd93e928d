//! What follows from trials: real time and its refusals, kernel programs, and the verdict over all of it.

use std::fs::File;
use std::path::PathBuf;

use brink::doctor::State::{Failed, Note, Ok as Fine, Warning};
use brink::doctor::facts::trials::{Agreement, Fifo, Load, Nice, ProgramState, Programs, Trials};
use brink::doctor::{Facts, Report, checks};
use brink::pod::{Manifest, read_file};
use brink::runtime::cluster::{Answered, Obstacle, Unsaid};
use brink_host::probe::calibrate::Numbers;
use brink_host::probe::programs::PROGRAMS;
use brink_host::realtime::FifoRefusal;
use brink_host::realtime::oom_score::OomScore;

use crate::machine::{Machine, expect, find};

/// Everything granted.
fn granted() -> Trials {
    Trials {
        fifo: Ok(fifo(None, None)),
        nice: Ok(Nice {
            value: -20,
            refused: None,
        }),
        oom_score: Ok(OomScore::Set(-999)),
        programs: Load::Done(loaded(&[])),
        api: None,
        configz: None,
    }
}

fn fifo(refused: Option<FifoRefusal>, after_move: Option<Result<(), String>>) -> Fifo {
    Fifo {
        priority: 49,
        refused,
        after_move,
    }
}

/// All programs but some, with numbers that agree.
fn loaded(absent: &[(&str, &str)]) -> Programs {
    let states = PROGRAMS.iter().map(|program| ProgramState {
        name: program.name,
        family: program.family,
        absent: absent
            .iter()
            .find(|(name, _)| *name == program.name)
            .map(|(_, why)| (*why).to_owned()),
    });
    Programs {
        states: states.collect(),
        memory: Ok(1 << 20),
        agreement: Ok(reading(5 << 30, 5 << 30)),
    }
}

fn reading(sampler: i64, files: i64) -> Agreement {
    let numbers = |available| Numbers {
        available: Some(available),
        headroom: None,
    };
    Agreement {
        before: numbers(files),
        sampler: numbers(sampler),
        after: numbers(files),
    }
}

fn report(machine: &Machine, trials: Trials) -> Report {
    let facts = Facts::gather(&machine.checked(), |_| trials);
    Report::new(&facts, checks(&facts))
}

#[test]
fn a_machine_that_grants_everything_stands_on_the_highest_rung() {
    let report = report(&Machine::whole(), granted());
    assert_eq!(
        (report.rung, report.scheduling.as_deref(), report.mode),
        ("kernel-sampler", Some("SCHED_FIFO 49"), "observing")
    );
    assert_eq!(report.rung_reasons, Vec::<String>::new());
    expect(
        find(&report, "programs.sampler"),
        Fine,
        &["1 program, loaded"],
    );
    expect(find(&report, "programs.memory"), Fine, &["1.0Mi"]);
    expect(
        find(&report, "programs.agreement"),
        Fine,
        &["5.0Gi; 0B apart, 5.0Mi allowed"],
    );
    expect(find(&report, "scheduling.oom-score"), Fine, &["-999"]);
}

#[test]
fn every_refusal_of_real_time_has_its_own_advice() {
    fn check(
        config: &str,
        refused: FifoRefusal,
        after_move: Option<Result<(), String>>,
        words: &[&str],
    ) {
        let machine = Machine::whole().configured(config);
        let trials = Trials {
            fifo: Ok(fifo(Some(refused), after_move)),
            ..granted()
        };
        let report = report(&machine, trials);
        expect(find(&report, "scheduling.fifo"), Warning, words);
        assert_eq!(report.rung, "kernel-sampler");
        assert_eq!(report.scheduling.as_deref(), Some("nice -20"));
        assert!(
            report.rung_reasons[0].starts_with("no real time: "),
            "{:?}",
            report.rung_reasons
        );
    }
    let group = || FifoRefusal::NoGroupRuntime {
        group: PathBuf::from("/sys/fs/cgroup/cpu/x"),
    };
    let errno = File::open("/nonexistent").map(drop).unwrap_err();
    check(
        "",
        FifoRefusal::MissingCapability,
        None,
        &["CAP_SYS_NICE", "LimitRTPRIO=49"],
    );
    check(
        "",
        FifoRefusal::PriorityLimit {
            limit: 10,
            asked: 49,
        },
        None,
        &["LimitRTPRIO=49", "realtime.priority: 10"],
    );
    check(
        "",
        group(),
        Some(Ok(())),
        &[
            "/sys/fs/cgroup/cpu/x",
            "--move-guard-to-root-cpu-group true",
        ],
    );
    check(
        "",
        group(),
        Some(Err(errno.to_string())),
        &["would not help: No such file", "cpu.rt_runtime_us"],
    );
    let moving = "realtime: {moveGuardToRootCpuGroup: true}";
    check(
        moving,
        group(),
        Some(Err("EBUSY".into())),
        &[
            "was tried and does not help: EBUSY",
            "give the group run time",
        ],
    );
}

#[test]
fn a_move_that_is_configured_and_helps_is_all_right() {
    let machine =
        Machine::whole().configured("realtime: {moveGuardToRootCpuGroup: true, priority: 30}");
    let group = PathBuf::from("/x");
    let trials = Trials {
        fifo: Ok(fifo(
            Some(FifoRefusal::NoGroupRuntime { group }),
            Some(Ok(())),
        )),
        ..granted()
    };
    let report = report(&machine, trials);
    expect(
        find(&report, "scheduling.fifo"),
        Fine,
        &["moved to the root cpu group"],
    );
    assert_eq!(report.scheduling.as_deref(), Some("SCHED_FIFO 30"));
}

#[test]
fn programs_that_are_absent_lower_the_rung_only_if_the_sampler_needs_them() {
    fn check(programs: Programs, rung: &str, id: &str, words: &[&str]) {
        let trials = Trials {
            programs: Load::Done(programs),
            ..granted()
        };
        let report = report(&Machine::whole(), trials);
        assert_eq!(report.rung, rung, "{:?}", report.rung_reasons);
        expect(find(&report, id), Warning, words);
    }
    check(
        loaded(&[("mark_victim", "no tracefs")]),
        "kernel-sampler",
        "programs.oom",
        &["mark_victim: no tracefs", "are not counted"],
    );
    check(
        loaded(&[("command", "refused by the verifier")]),
        "realtime-poll",
        "programs.sampler",
        &["refused by the verifier"],
    );
    let apart = Programs {
        agreement: Ok(reading(5 << 30, 6 << 30)),
        ..loaded(&[])
    };
    check(
        apart,
        "realtime-poll",
        "programs.agreement",
        &["1.0Gi apart", "5.0Mi allowed"],
    );
    let unarmed = Programs {
        agreement: Err("the node's counters were not found".into()),
        ..loaded(&[])
    };
    check(
        unarmed,
        "realtime-poll",
        "programs.agreement",
        &["counters were not found", "see memory.signals"],
    );
}

#[test]
fn one_reason_for_all_programs_is_told_once() {
    let trials = Trials {
        programs: Load::Failed("failed to create map: EPERM".into()),
        ..granted()
    };
    let report = report(&Machine::whole(), trials);
    let told = report
        .checks
        .iter()
        .filter(|check| check.found.contains("failed to create map"));
    assert_eq!(told.count(), 1);
    assert_eq!(
        report.rung_reasons,
        ["no sampler: failed to create map: EPERM"]
    );
    assert!(
        report
            .checks
            .iter()
            .all(|check| check.id != "programs.memory")
    );
}

#[test]
fn the_lowest_rung_says_everything_that_keeps_it_there() {
    let trials = Trials {
        fifo: Ok(fifo(Some(FifoRefusal::MissingCapability), None)),
        nice: Ok(Nice {
            value: 0,
            refused: Some("EACCES".into()),
        }),
        oom_score: Ok(OomScore::Kept {
            current: 0,
            why: "EACCES".into(),
        }),
        programs: Load::NotTried("CAP_BPF is missing".into()),
        api: None,
        configz: None,
    };
    let report = report(&Machine::whole(), trials);
    assert_eq!(
        (report.rung, report.scheduling.as_deref()),
        ("poll", Some("nice 0"))
    );
    assert_eq!(report.rung_reasons.len(), 2, "{:?}", report.rung_reasons);
    expect(
        find(&report, "scheduling.nice"),
        Warning,
        &["nice stays 0", "Nice=-20"],
    );
    expect(
        find(&report, "scheduling.oom-score"),
        Warning,
        &["OOMScoreAdjust=-999"],
    );
}

#[test]
fn the_mode_is_what_would_become_of_orders() {
    fn check(machine: &Machine, mode: &str, configured: &str) {
        let report = report(machine, granted());
        assert_eq!((report.mode, report.configured_mode), (mode, configured));
    }
    check(&Machine::whole(), "observing", "observe");
    let enforcing = || Machine::whole().configured("mode: enforce");
    check(&enforcing(), "enforcing", "enforce");
    check(
        &enforcing().with("run/brink/pause", ""),
        "paused",
        "enforce",
    );
    // A lock in the kernel's list, on the very file.
    let machine = enforcing().with("run/brink/enforcer.lock", "812\n");
    let inode = std::os::unix::fs::MetadataExt::ino(
        &machine.path("run/brink/enforcer.lock").metadata().unwrap(),
    );
    machine.write(
        "proc/locks",
        &format!("1: FLOCK  ADVISORY  WRITE 812 00:00:{inode} 0 EOF\n"),
    );
    check(&machine, "standby", "enforce");
    expect(
        find(&report(&machine, granted()), "state.enforcer"),
        Note,
        &["812"],
    );
}

/// So many pods.
fn pods_of(machine: &Machine, count: usize) -> Vec<Manifest> {
    let one = |number| format!("---\nkind: Pod\nmetadata: {{name: p{number}, uid: u{number}}}\n");
    machine.write("pods.yaml", &(0..count).map(one).collect::<String>());
    read_file(&machine.path("pods.yaml")).unwrap().pods
}

#[test]
fn an_api_that_is_not_reached_or_knows_no_pod_is_told() {
    let machine = Machine::whole();
    let look = |api| {
        let trials = Trials { api, ..granted() };
        report(&machine, trials)
    };
    let answered = |pods: usize| Answered {
        node: "node-7".to_owned(),
        by: "the kubeconfig /k".to_owned(),
        pods: pods_of(&machine, pods),
    };
    let nowhere = look(None);
    assert!(
        nowhere
            .checks
            .iter()
            .all(|check| check.id != "kubernetes.api")
    );
    let refused = look(Some(Err("by the kubeconfig /k: no (HTTP 403)".to_owned())));
    let check = find(&refused, "kubernetes.api");
    assert_eq!(check.state, Failed);
    assert!(check.found.contains("403"), "{}", check.found);
    let none = look(Some(Ok(answered(0))));
    assert_eq!(find(&none, "kubernetes.api").state, Warning);
    let some = look(Some(Ok(answered(2))));
    let check = find(&some, "kubernetes.api");
    assert_eq!(
        (check.state, check.found.as_str()),
        (Fine, "2 pods of node node-7, by the kubeconfig /k")
    );
}

#[test]
fn a_kubelet_that_was_asked_is_gone_by_and_one_that_says_nothing_is_told() {
    let machine = Machine::whole().configured("kubernetes: {enabled: true, configz: true}");
    let line = "/usr/bin/kubelet\0--eviction-hard=memory.available<1Gi\0";
    machine.process(700, "kubelet", line);
    let look = |said: Option<&str>, configz| {
        let trials = Trials {
            configz: Some(configz),
            ..granted()
        };
        let facts = Facts::gather(&machine.checked_by(said), |_| trials);
        Report::new(&facts, checks(&facts))
    };
    let said =
        r#"{"evictionHard": {"memory.available": "500Mi"}, "systemReserved": {"memory": "2Gi"}}"#;
    let report = look(Some(said), Ok(()));
    expect(find(&report, "kubelet.configz"), Fine, &["API server"]);
    let words = ["/configz, thresholds are inherited"];
    expect(find(&report, "kubelet.configuration"), Fine, &words);
    let words = [
        "Brink below 564Mi, the kubelet below 500Mi",
        "leads by 64.0Mi; Brink only observes",
    ];
    expect(find(&report, "kubelet.lead"), Fine, &words);
    let words = ["2.5Gi kept from pods"];
    expect(find(&report, "kubelet.reserves"), Fine, &words);
    let refused = |why: &str, obstacle| {
        let why = why.to_owned();
        look(None, Err(Unsaid { why, obstacle }))
    };
    for (why, obstacle, advice) in [
        (
            "no kubeconfig",
            Obstacle::NoWay,
            "kubeconfig: FILE, nodeName: NAME",
        ),
        ("(HTTP 401)", Obstacle::Stranger, "token or certificate"),
        ("(HTTP 404)", Obstacle::NotServed, "enableDebuggingHandlers"),
        ("no answer", Obstacle::Away, "port 10250"),
        ("larger than", Obstacle::Strange, "kubectl get --raw"),
        (
            "cannot be taken",
            Obstacle::Refused,
            "put right what it names",
        ),
    ] {
        let report = refused(why, obstacle);
        let check = find(&report, "kubelet.configz");
        expect(check, Warning, &[why, advice, "kubeletConfig: FILE"]);
        let rights = check
            .next
            .iter()
            .any(|step| step.text.contains("nodes/proxy,"));
        assert!(!rights, "{obstacle:?}: {check:?}");
    }
    let report = refused("nodes is forbidden (HTTP 403)", Obstacle::NoRight);
    let words = ["HTTP 403", "get on nodes/proxy", "kubelet-configz"];
    expect(find(&report, "kubelet.configz"), Warning, &words);
    let words = ["Brink below 164Mi, the kubelet below 1.0Gi"];
    expect(find(&report, "kubelet.lead"), Warning, &words);
}

#[test]
fn a_lead_by_percentages_is_held_against_the_margin_for_percentages() {
    let machine = |threshold: &str| {
        let hard = format!("evictionHard: {{memory.available: {threshold}}}");
        crate::node::kubelet(&hard, "evictionHard: {memory.available: 5%}", "")
    };
    // One point of 8 GiB is 82 MiB, and more than the quantity of the margin.
    expect(&machine("6%").check("kubelet.lead"), Fine, &["leads by"]);
    let near = machine("5.9%").check("kubelet.lead");
    expect(&near, Note, &["less than leadMargin"]);
}

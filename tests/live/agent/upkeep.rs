//! What goes on around the guard, on the real kernel: hooks, graces over a restart, and the stop button whatever became of its folder.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::control::protocol::{Answer, Question, Status};
use brink_host::cgroup::Controller;
use brink_host::clock::monotonic_ns;
use brink_host::hog::Load;
use brink_tests::{is_slow, lacks, skip, slowed, wait_until};
use rustix::process::Signal;

const HARD: &str = "evictionHard: {memory.available: 60Mi}";

/// A program that writes down what it was told, once the agent has had time to make it an ordinary process.
fn hooks(node: &Node) -> String {
    let script = node.path("hook");
    let text = format!(
        "#!/bin/sh\nsleep 0.3\n{{ env; echo score=$(cat /proc/self/oom_score_adj); echo group=$(cut -d' ' -f5 /proc/$$/stat) pid=$$; }} > {}-$BRINK_HOOK.new\nmv {0}-$BRINK_HOOK.new {0}-$BRINK_HOOK\n",
        node.path("told").display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    format!(
        "hooks: {{beforeKill: ['{0}'], afterKill: ['{0}']}}",
        script.display()
    )
}

#[test]
fn hooks_are_told_of_a_kill() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", &format!("{HARD}\n{}", hooks(&node)));
    node.start(&[]);
    gone_after(&node.load(leaker, Load::Anon, 280 * MIB));
    for occasion in ["before-kill", "after-kill"] {
        let path = node.path(&format!("told-{occasion}"));
        let told = wait_until(PATIENCE, || fs::read_to_string(&path).ok());
        let told = told.unwrap_or_else(|| panic!("{occasion}: {}", node.log()));
        let has = |line: &str| told.lines().any(|told| told == line);
        for line in [
            &format!("BRINK_HOOK={occasion}"),
            "BRINK_ORDER=1",
            "BRINK_NAMESPACE=test",
            "BRINK_NAME=leaker",
            "BRINK_UID=uid-leaker",
            "BRINK_SIGNAL=memory.available",
            "BRINK_DECISION_MODE=enforcing",
            "score=0",
        ] {
            assert!(has(line), "{line} in\n{told}");
        }
        assert!(!told.contains("BRINK_MODE="), "{told}");
        let of = |name: &str| told.split(name).nth(1)?.split_whitespace().next();
        assert_eq!(of("group="), of(" pid="), "a group of its own: {told}");
        assert_eq!(has("BRINK_END="), occasion == "before-kill", "{told}");
    }
}

#[test]
fn hooks_are_not_called_for_what_is_only_observed() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("observe", &format!("{HARD}\n{}", hooks(&node)));
    node.start(&[]);
    let leak = node.holding(leaker, 260);
    wait_until(PATIENCE, || node.decisions().pop()).expect("it was observed");
    std::thread::sleep(Duration::from_secs(1));
    assert!(lives(&leak) && !node.path("told-before-kill").exists());
}

#[test]
fn a_grace_goes_on_over_a_restart_and_not_over_an_absence() {
    let mut node = Node::new(300);
    let holder = node.workload("holder", "containers: [{name: c}]");
    let soft = "evictionHard: {memory.available: 20Mi}\nevictionSoft: {memory.available: 150Mi}\nevictionSoftGracePeriod: {memory.available: 10m}\nhousekeepingInterval: 5s";
    node.configure("enforce", soft);
    node.start(&[]);
    let _held = node.holding(holder, 200);
    let began = Instant::now();
    let met_for = |node: &Node| {
        let of = |status: Status| {
            let mut thresholds = status.thresholds.into_iter();
            let soft = thresholds.find(|threshold| !threshold.hard && threshold.met)?;
            u64::try_from(soft.met_for_ms?).ok()
        };
        let met = wait_until(PATIENCE, || node.status().and_then(of));
        Duration::from_millis(met.unwrap_or_else(|| panic!("not met: {}", node.log())))
    };
    met_for(&node);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(1));
        let before = began.elapsed();
        node.stop(Signal::KILL);
        node.launch(&[]);
        let goes_on = met_for(&node);
        assert!(goes_on >= before, "{goes_on:?} of {before:?}");
    }
    node.stop(Signal::KILL);
    std::thread::sleep(Duration::from_secs(6));
    let anew = Instant::now();
    node.launch(&[]);
    let met = met_for(&node);
    assert!(met <= anew.elapsed(), "{met:?} of {:?}", began.elapsed());
}

/// Whether a workload is protected.
fn is_protected(node: &Node, name: &str) -> bool {
    let ranking = match node.ask(&Question::Rank { signal: None }) {
        Ok(Answer::Ranking(ranking)) => ranking,
        other => panic!("{other:?}\n{}", node.log()),
    };
    let mut workloads = ranking.workloads.iter();
    let found = workloads.find(|one| one.name == name).expect("ranked");
    found.refusal.as_deref() == Some("protected")
}

#[test]
fn an_essential_process_that_is_started_where_a_workload_is_known_protects_it_soon() {
    const SOON: Duration = Duration::from_secs(5);
    let mut node = Node::new(300);
    let runtime = node.workload("runtime", "containers: [{name: c}]");
    node.configure("observe", HARD);
    let program = node.path("dockerd");
    fs::copy(env!("CARGO_BIN_EXE_brink-hog"), &program).unwrap();
    // It is in the cgroup already, and only becomes another program there.
    let script = "echo 0 > \"$1\"; read go; exec \"$2\" --load anon --bytes 1048576 --deadline-ms 60000 --hold";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&node.groups[runtime].entrances()[0])
        .arg(&program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let inside = || {
        node.groups[runtime]
            .processes()
            .ok()
            .filter(|found| !found.is_empty())
    };
    assert!(wait_until(PATIENCE, inside).is_some(), "it came in");
    let status = node.start(&[]);
    let mut programs = status.programs.iter();
    if !programs.any(|program| program.name == "exec" && program.running) {
        child.kill().unwrap();
        child.wait().unwrap();
        lacks!("needs the kernel to tell of programs that are started");
    }
    // What its coming in has led to is over.
    std::thread::sleep(slowed(Duration::from_secs(3)));
    assert!(!is_protected(&node, "runtime"));
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let protected = wait_until(SOON, || is_protected(&node, "runtime").then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(protected.is_some(), "{}", node.log());
}

#[test]
fn a_victim_whose_manifest_is_taken_away_during_its_grace_holds_nobody_up() {
    let mut node = Node::new(300);
    let [first, other] =
        ["first", "other"].map(|name| node.workload(name, "containers: [{name: c}]"));
    let soft = "evictionSoft: {memory.available: 150Mi}\nevictionSoftGracePeriod: {memory.available: 200ms}\nevictionMaxPodGracePeriod: 30";
    node.configure("enforce", &format!("{HARD}\n{soft}"));
    node.start(&[]);
    let kept = node.going_deaf(first, Load::Anon, 200);
    let asked = wait_until(PATIENCE, || node.decisions().pop());
    assert_eq!(asked.expect("SIGTERM").victim_name(), "test/first");
    fs::remove_file(node.path("manifests/first.yaml")).unwrap();
    assert_eq!(node.finished(1).end.as_deref(), Some("stopped"));
    let leak = node.load(other, Load::Anon, 280 * MIB);
    gone_after(&leak);
    assert_eq!(node.finished(2).victim_name(), "test/other");
    assert!(lives(&kept), "nobody's victim now");
}

#[test]
fn the_stop_button_is_seen_in_a_folder_that_was_made_anew() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", HARD);
    node.start(&[]);
    let state = node.path("state");
    fs::rename(&state, node.path("old")).unwrap();
    fs::create_dir(&state).unwrap();
    fs::write(state.join("pause"), "").unwrap();
    let seen = wait_until(PATIENCE, || {
        node.log().contains("until it is lifted").then_some(())
    });
    assert!(seen.is_some(), "{}", node.log());
    let leak = node.holding(leaker, 260);
    std::thread::sleep(Duration::from_millis(300));
    assert!(lives(&leak));
    // It is watched again: nothing else happens in there.
    fs::remove_file(state.join("pause")).unwrap();
    gone_after(&leak);
}

#[test]
fn a_file_in_the_place_of_the_socket_is_left_alone() {
    let node = Node::new(300);
    let precious = node.path("precious");
    fs::write(&precious, "precious").unwrap();
    node.configure("observe", HARD);
    let config = fs::read_to_string(node.path("config.yaml")).unwrap();
    let socket = format!("paths: {{socket: '{}', ", precious.display());
    fs::write(
        node.path("config.yaml"),
        config.replace("paths: {", &socket),
    )
    .unwrap();
    let refused = Command::new(brink_tests::agent_binary().unwrap())
        .args(["run", "--config"])
        .arg(node.path("config.yaml"))
        .output()
        .unwrap();
    let talk = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{talk}");
    assert!(talk.contains("is no socket"), "{talk}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn reloads_that_follow_each_other_are_all_taken_over_and_replayed() {
    let mut node = Node::new(300);
    node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", HARD);
    node.start(&[]);
    for mib in [70, 80, 90] {
        let before = node.log().matches("was read again").count();
        node.configure(
            "enforce",
            &format!("evictionHard: {{memory.available: {mib}Mi}}"),
        );
        node.signal(Signal::HUP);
        // As fast as the agent reads them, and without a look at whether the guard has the one before.
        let read = || (node.log().matches("was read again").count() > before).then_some(());
        wait_until(PATIENCE, read).unwrap();
    }
    let newest = |status: &Status| status.thresholds[0].value == "90Mi";
    let status = wait_until(PATIENCE, || node.status().filter(newest));
    assert!(status.is_some(), "{}", node.log());
    node.stop(Signal::TERM);
    let text = node.replay();
    assert!(text.contains("the same answers"), "{text}");
}

#[test]
fn a_node_that_was_removed_and_made_anew_is_watched_again() {
    let mut node = Node::new(300);
    node.configure(
        "enforce",
        "evictionHard: {memory.available: 60Mi}\nhousekeepingInterval: 1s",
    );
    node.start(&[]);
    let group = &node.sandbox.group;
    let path = group
        .dir(&node.sandbox.layout, Controller::Memory)
        .unwrap()
        .path()
        .to_path_buf();
    fs::remove_dir(&path).unwrap();
    fs::create_dir(&path).unwrap();
    group.limit_memory(&node.sandbox.layout, 200 * MIB).unwrap();
    let seen = wait_until(PATIENCE, || {
        let status = node.status()?;
        let memory = status
            .signals
            .iter()
            .find(|each| each.signal == "memory.available")?;
        (memory.capacity == 200 << 20).then_some(())
    });
    assert!(seen.is_some(), "{}", node.log());
}

/// Whether a line of a journal is of figures that were evaluated at that time or later.
fn is_sample_since(line: &str, since: u64) -> bool {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let at = line["at"].as_u64();
    line["kind"] == "sample" && at.is_some_and(|at| at >= since)
}

#[test]
fn a_node_of_which_there_is_nothing_to_say_is_evaluated_now_and_then_and_when_somebody_asks() {
    const LENGTH: Duration = Duration::from_secs(8);
    if is_slow() {
        skip!("needs a machine on which the guard wakes in time");
    }
    let mut node = Node::new(300);
    node.workload("idle", "containers: [{name: c}]");
    node.configure_machine(
        "observe",
        "evictionHard: {memory.available: 60Mi}\nhousekeepingInterval: 1h",
    );
    let status = node.start(&[]);
    if status.rung.as_deref() != Some("kernel-sampler") {
        lacks!("the sampler does not run here: {:?}", status.rung_reasons);
    }
    if fs::read_to_string("/proc/swaps").unwrap().lines().count() > 1 {
        skip!("needs a machine without swap, which would have to be looked at");
    }
    // What the guard read while the programs were loaded is over.
    std::thread::sleep(Duration::from_secs(2));
    let began = monotonic_ns();
    std::thread::sleep(LENGTH);
    let asked = node.status().unwrap();
    assert!(asked.figures_age_ms.unwrap() < 1_000, "{asked:?}");
    node.stop(Signal::TERM);
    let journal = fs::read_to_string(node.path("journal")).unwrap();
    let samples = journal.lines().filter(|line| is_sample_since(line, began));
    // One when it was asked, and one in five seconds; a guard that is late looks for itself.
    let count = samples.count();
    assert!((2..=6).contains(&count), "{count} of {journal}");
    let replayed = node.replay();
    assert!(replayed.contains("the same answers"), "{replayed}");
}

#[test]
fn an_agent_whose_log_nobody_reads_goes_on() {
    let mut node = Node::new(300);
    node.configure("observe", "evictionHard: {memory.available: 60Mi}");
    node.launch_logging_to(Path::new("/dev/full"), &[]);
    let up = wait_until(PATIENCE, || node.status());
    assert!(up.is_some());
    let paused = node.ask(&Question::Pause { seconds: Some(60) });
    assert!(paused.is_ok(), "{paused:?}");
    std::thread::sleep(Duration::from_millis(200));
    assert!(node.status().is_some(), "it lives on");
}

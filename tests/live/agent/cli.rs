//! The command line against a running agent: every question in both forms, who is answered at all, and how it is stopped.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink_host::hog::Load;
use brink_tests::schema::assert_keeps_to;
use brink_tests::{agent_binary, in_guest, slowed, wait_until};
use rustix::process::Signal;
use serde_json::Value;

const HARD: &str = "evictionHard: {memory.available: 60Mi}";
/// The user nobody.
const NOBODY: u32 = 65534;

/// A node of two workloads, and an agent that enforces on it.
fn node() -> Node {
    let mut node = Node::new(300);
    node.workload("web", "priority: 7, containers: [{name: c}]");
    node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", HARD);
    node.start(&[]);
    node
}

/// `brink` with its arguments, about this node's agent.
fn brink(node: &Node, arguments: &[&str]) -> Command {
    let mut command = Command::new(agent_binary().unwrap());
    command
        .args(arguments)
        .env("BRINK_SOCKET", node.socket())
        .stdin(Stdio::null());
    command
}

fn run(node: &Node, arguments: &[&str]) -> Output {
    brink(node, arguments).output().unwrap()
}

/// What it prints when all is well.
#[track_caller]
fn said(node: &Node, arguments: &[&str]) -> String {
    let output = run(node, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Its words contain these, and its JSON keeps to the schema.
#[track_caller]
fn check(node: &Node, arguments: &[&str], schema: &str, words: &[&str]) -> Value {
    let text = said(node, arguments);
    for word in words {
        assert!(text.contains(word), "{word:?} in {arguments:?}:\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe: {text:?}");
    let json = said(node, &[arguments, &["-o", "json"]].concat());
    assert_keeps_to(schema, &json);
    serde_json::from_str(&json).unwrap()
}

/// It ends with this code, says nothing as data and these words as talk.
#[track_caller]
fn check_refusal(output: &Output, code: i32, words: &[&str]) {
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{talk}");
    assert!(output.stdout.is_empty(), "{output:?}");
    for word in words {
        assert!(talk.contains(word), "{word:?} in {talk}");
    }
}

fn after_a_kill(node: &Node) {
    let leak = node.load(1, Load::Anon, 280 * MIB);
    gone_after(&leak);
    node.finished(1);
}

#[test]
fn every_question_has_its_answer_in_both_forms() {
    let node = node();
    let _web = node.holding(0, 20);
    after_a_kill(&node);
    let title = format!("brink {} (pid ", env!("CARGO_PKG_VERSION"));
    let status = check(
        &node,
        &["status"],
        "status",
        &[
            &title,
            "enforcing: orders are carried out",
            "memory.available",
            "order 1, test/leaker",
            "monotonic",
        ],
    );
    assert_eq!(status["decisions"], 1);
    let ranking = check(
        &node,
        &["rank"],
        "ranking",
        &["2 candidates", "test/web would go first"],
    );
    assert_eq!(ranking["workloads"].as_array().unwrap().len(), 2);
    check(
        &node,
        &["rank", "--signal", "pid.available", "-n", "1"],
        "ranking",
        &["the first 1 of 2"],
    );
    check(&node, &["pause"], "mode", &["paused until `brink resume`"]);
    check(
        &node,
        &["status"],
        "status",
        &["paused until `brink resume`"],
    );
    check(&node, &["resume"], "mode", &["enforcing"]);
}

#[test]
fn workloads_and_decisions_are_explained_in_both_forms() {
    let node = node();
    let _web = node.holding(0, 20);
    after_a_kill(&node);
    let group = node.groups[0].group().to_string();
    for name in ["web", "test/web", "uid-web", group.as_str()] {
        let explained = check(
            &node,
            &["explain", name],
            "explanation",
            &["test/web: place", &group],
        );
        assert_eq!(explained["cgroups"], serde_json::json!([group]), "{name}");
    }
    let against = ["explain", "leaker", "--against", "web"];
    let explained = check(
        &node,
        &against,
        "explanation",
        &["test/leaker", "Orders against it"],
    );
    assert_eq!(explained["orders"][0]["order"], 1);
    for decision in [&["explain"][..], &["explain", "1"]] {
        let parts = [
            "Order 1: evicted test/leaker",
            "first SIGKILL sent",
            "goes before test/web",
        ];
        check(&node, decision, "decision", &parts);
    }
    check(
        &node,
        &["explain", "--list"],
        "decision-list",
        &["test/leaker"],
    );
}

#[test]
fn what_is_not_known_is_refused_with_what_is() {
    let node = node();
    check_refusal(
        &run(&node, &["explain", "wbe"]),
        1,
        &["no workload is called \"wbe\"", "did you mean test/web?"],
    );
    check_refusal(
        &run(&node, &["explain", "web", "--against", "leakr"]),
        1,
        &["did you mean test/leaker?"],
    );
    check_refusal(
        &run(&node, &["explain", "7"]),
        1,
        &["decision 7 is not known", "nothing has been decided"],
    );
    check_refusal(
        &run(&node, &["explain"]),
        1,
        &["nothing has been decided", "brink rank"],
    );
    check_refusal(
        &run(&node, &["rank", "--signal", "memory"]),
        2,
        &["'memory'", "no such signal", "memory.headroom"],
    );
    check_refusal(
        &run(&node, &["pause", "--for", "soon"]),
        2,
        &["--for \"soon\"", "10m"],
    );
    let steering = run(&node, &["explain", "a\x1b[2J\u{202e}b"]);
    check_refusal(&steering, 1, &["a\\u{1b}[2J\\u{202e}b"]);
    assert!(!steering.stderr.contains(&0x1b));
}

#[test]
fn another_agent_explains_what_the_one_before_it_did() {
    let mut node = node();
    after_a_kill(&node);
    let before = node.decisions();
    node.stop(Signal::KILL);
    check_refusal(
        &run(&node, &["status"]),
        4,
        &["no agent listens on", "brink run"],
    );
    node.start(&[]);
    assert!(before.iter().all(|record| record.kubelet.is_some()));
    assert_eq!(node.decisions(), before);
    check(
        &node,
        &["explain", "1"],
        "decision",
        &["Order 1: evicted test/leaker"],
    );
    check(
        &node,
        &["explain", "leaker"],
        "explanation",
        &["Orders against it"],
    );
    check(&node, &["status"], "status", &["order 1, test/leaker"]);
}

#[test]
fn one_that_is_gone_is_explained_by_the_latest_decision_against_it() {
    let node = node();
    after_a_kill(&node);
    fs::remove_file(node.path("manifests/leaker.yaml")).unwrap();
    let gone = wait_until(PATIENCE, || {
        let output = run(&node, &["explain", "leaker"]);
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        talk.contains("is no workload now").then_some(output)
    });
    let gone = gone.expect("the roster follows the manifests");
    assert!(gone.status.success());
    let page = String::from_utf8_lossy(&gone.stdout).into_owned();
    assert!(page.contains("Order 1: evicted test/leaker"), "{page}");
}

#[test]
fn nobody_but_root_is_answered() {
    let node = node();
    let socket = fs::metadata(node.socket()).unwrap();
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o7777, 0o600);
    let binary = node.path("brink");
    fs::copy(agent_binary().unwrap(), &binary).unwrap();
    let allow = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(&binary, 0o755);
    allow(node.folder.path(), 0o755);
    let as_nobody = || {
        let mut command = Command::new(&binary);
        command.arg("pause").env("BRINK_SOCKET", node.socket());
        command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
        command.output().unwrap()
    };
    let refused = "not allowed to talk to the agent";
    allow(&node.path("state"), 0o700);
    check_refusal(
        &as_nobody(),
        5,
        &[refused, "uid 65534 may not look into its folder", "sudo"],
    );
    allow(&node.path("state"), 0o755);
    let whose = "the socket is of uid 0 with mode 0600, and this is uid 65534";
    check_refusal(&as_nobody(), 5, &[refused, whose, "sudo"]);
    // Even if somebody opens it to everyone, the agent looks who asks.
    allow(&node.socket(), 0o666);
    check_refusal(&as_nobody(), 5, &["uid 65534 asked, and only root", "sudo"]);
    assert_eq!(node.status().unwrap().mode, "enforcing");
}

#[test]
fn without_root_an_agent_says_which_capabilities_are_missing() {
    let node = Node::new(64);
    let binary = node.path("brink");
    fs::copy(agent_binary().unwrap(), &binary).unwrap();
    for (path, mode) in [(&binary, 0o755), (&node.folder.path().to_owned(), 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let as_nobody = |folder: &str, mode: &str| {
        let mut command = Command::new(&binary);
        command.args(["run", "--state-dir", folder, "--mode", mode]);
        command.uid(NOBODY).gid(NOBODY).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let missing = [
        "CAP_KILL",
        "CAP_BPF",
        "CAP_SYS_NICE",
        "sudo setcap cap_",
        "AmbientCapabilities=",
    ];
    let enforcing = as_nobody("/run/brink-of-nobody", "enforce")
        .output()
        .unwrap();
    check_refusal(&enforcing, 5, &missing);
    let observing = as_nobody("/run/brink-of-nobody", "observe")
        .output()
        .unwrap();
    check_refusal(
        &observing,
        5,
        &[
            &missing[..],
            &["cannot create /run/brink-of-nobody", "--state-dir"],
        ]
        .concat(),
    );
    // With a folder of its own it observes all the same.
    let folder = node.path("state").display().to_string();
    let mut child = as_nobody(&folder, "observe").spawn().unwrap();
    let up = wait_until(PATIENCE, || node.status());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let status = up.expect("it came up");
    assert_eq!(
        (status.mode.as_str(), status.rung.as_deref()),
        ("observing", Some("poll"))
    );
}

#[test]
fn a_second_agent_on_the_same_socket_ends_with_six() {
    let node = node();
    let config = node.path("config.yaml").display().to_string();
    let journal = || fs::metadata(node.path("journal")).unwrap().ino();
    let before = journal();
    let second = run(&node, &["run", "--config", &config]);
    check_refusal(&second, 6, &["another agent listens on", "brink status"]);
    assert_eq!(journal(), before, "the first one's journal is where it was");
    assert_eq!(node.status().unwrap().mode, "enforcing");
}

#[test]
fn a_watched_status_goes_on_until_its_reader_leaves() {
    let node = node();
    let mut child = brink(&node, &["status", "--watch", "-o", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut times = Vec::new();
    for _ in 0..3 {
        let line = lines.next().unwrap().unwrap();
        assert_keeps_to("status", &line);
        let status: Value = serde_json::from_str(&line).unwrap();
        times.push(status["now"]["monotonicNs"].as_i64().unwrap());
    }
    let furthest = i64::try_from(slowed(Duration::from_secs(3)).as_nanos()).unwrap();
    for pair in times.windows(2) {
        let apart = pair[1] - pair[0];
        assert!((900_000_000..furthest).contains(&apart), "{times:?}");
    }
    drop(lines);
    let began = Instant::now();
    let ended = wait_until(PATIENCE, || child.try_wait().unwrap()).unwrap();
    assert!(ended.success(), "a reader that leaves is no error: {ended}");
    assert!(began.elapsed() < slowed(Duration::from_secs(5)));
}

#[test]
fn a_check_of_the_status_ends_with_three_while_a_threshold_is_met() {
    let node = node();
    let code = || run(&node, &["status", "--check"]).status.code();
    assert_eq!(code(), Some(0));
    said(&node, &["pause"]);
    let _leak = node.holding(1, 260);
    assert_eq!(
        wait_until(PATIENCE, || code().filter(|&code| code != 0)),
        Some(3)
    );
}

#[test]
fn a_pause_holds_for_its_time_and_no_longer() {
    let node = node();
    // Longer than it takes to touch what crosses the threshold.
    let time = if in_guest() { "15s" } else { "4s" };
    let told = check(
        &node,
        &["pause", "--for", time],
        "mode",
        &["paused until 2"],
    );
    let until = told["pause"]["until"]["monotonicNs"].as_i64().unwrap();
    let leak = node.holding(1, 260);
    let status = node.status().unwrap();
    let shown = status.pause.unwrap().until.unwrap();
    assert!(
        (shown.monotonic_ns - until).abs() < 50_000_000,
        "{shown:?} {until}"
    );
    let held = wait_until(PATIENCE, || {
        let held = said(&node, &["status"]).contains("held: ");
        let dry = node
            .decisions()
            .last()
            .is_some_and(|record| record.mode == "paused");
        (held || dry).then_some(())
    });
    assert!(held.is_some() && lives(&leak), "{}", node.log());
    gone_after(&leak);
    let record = node
        .decisions()
        .into_iter()
        .find(|record| record.mode == "enforcing")
        .unwrap();
    let late = record.decided.monotonic_ns - until;
    let latest = i64::try_from(slowed(Duration::from_millis(500)).as_nanos()).unwrap();
    assert!(
        (-50_000_000..latest).contains(&late),
        "{late} ns after the end of the pause"
    );
    assert!(node.status().unwrap().pause.is_none());
}

#[test]
fn a_file_is_a_stop_button_too_and_says_until_when() {
    let node = node();
    let button = node.path("state/pause");
    fs::write(&button, "").unwrap();
    let mode = |wanted: &str| {
        let began = Instant::now();
        let found = wait_until(PATIENCE, || {
            node.status().filter(|status| status.mode == wanted)
        });
        assert!(found.is_some(), "not {wanted}: {}", node.log());
        began.elapsed()
    };
    assert!(mode("paused") < slowed(Duration::from_millis(500)));
    check(
        &node,
        &["status"],
        "status",
        &["paused until `brink resume`"],
    );
    fs::remove_file(&button).unwrap();
    mode("enforcing");
    fs::write(&button, "2199-01-01T00:00:00Z\n").unwrap();
    mode("paused");
    check(
        &node,
        &["status"],
        "status",
        &["paused until 2199-01-01T00:00:00"],
    );
    check(&node, &["resume"], "mode", &["enforcing"]);
    assert!(!button.exists());
}

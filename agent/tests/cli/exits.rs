//! Exit codes, and who says what where.

use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{brink, run, scenario, stderr, stdout};

#[track_caller]
fn check(args: &[&str], code: i32, out: &str, err: &str) {
    let output = run(args, "");
    assert_eq!(
        output.status.code(),
        Some(code),
        "{args:?}: {}",
        stderr(&output)
    );
    let (said, talked) = (stdout(&output), stderr(&output));
    assert!(
        said.contains(out) && said.is_empty() == out.is_empty(),
        "{args:?}: {said}"
    );
    assert!(
        talked.contains(err) && talked.is_empty() == err.is_empty(),
        "{args:?}: {talked}"
    );
}

#[test]
fn success_is_zero() {
    check(&["--help"], 0, "Exit codes:", "");
    check(&["--version"], 0, "brink 0.", "");
    check(&["help", "simulate"], 0, "--live", "");
    check(&["completion", "bash"], 0, "complete -F _brink", "");
    check(&["man"], 0, ".TH brink", "");
    check(
        &["config", "show", "--config", "/dev/null"],
        0,
        "mode: observe",
        "apiVersion is missing",
    );
}

#[test]
fn a_wrong_command_line_or_file_is_two() {
    check(&[], 2, "", "Usage: brink");
    check(&["simulat"], 2, "", "simulate");
    check(&["simulate"], 2, "", "<FILE>");
    check(&["simulate", "--alive", "x"], 2, "", "--live");
    let once = "standard input is named more than once";
    check(&["simulate", "-", "-"], 2, "", once);
    check(
        &["simulate", "/nonexistent.yaml"],
        2,
        "",
        "/nonexistent.yaml: cannot be read: No such file",
    );
    check(&["simulate", "/"], 2, "", "Is a directory");
    for count in ["x", "0", "-1"] {
        check(&["rank", "-n", count], 2, "", "not a whole number");
    }
    check(
        &["rank", "--limit", "-1"],
        2,
        "",
        "'-1' for '--limit <COUNT>'",
    );
    check(&["pause", "--for", "-1s"], 2, "", "--for \"-1s\": ");
    check(&["demo", "--size", "-5"], 2, "", "--size \"-5\" is not");
    check(&["top", "--interval", "-1s"], 2, "", "from 200ms to 1m");
    check(&["events", "--since", "-1"], 2, "", "give an age");
    check(
        &["events", "--limit", "-1"],
        2,
        "",
        "'-1' for '--limit <COUNT>'",
    );
    check(
        &["replay", "/nonexistent"],
        2,
        "",
        "name a file that `brink run` of this version wrote",
    );
    check(
        &["explain", "17", "--against", "shop/web"],
        2,
        "",
        "leave --against and --signal out, or name a workload",
    );
    check(
        &["config", "check", "/nonexistent"],
        2,
        "",
        "cannot be read",
    );
    check(
        &["config", "check", "--config", "/none", "/dev/null"],
        2,
        "",
        "cannot be used with",
    );
    check(
        &["config", "check", "--mode", "x", "/dev/null"],
        2,
        "",
        "--mode: mode: \"x\": unknown word",
    );
    check(
        &[
            "config",
            "check",
            "--config-dir",
            "/nonexistent",
            "/dev/null",
        ],
        2,
        "",
        "cannot be listed",
    );
    check(
        &["config", "show", "--config", "/nonexistent"],
        2,
        "",
        "cannot be read",
    );
    check(
        &["run", "--config", "/nonexistent"],
        2,
        "",
        "cannot be read",
    );
}

#[test]
fn a_signal_or_a_length_of_time_that_there_is_none_of_is_two() {
    check(
        &["events", "--since", "1000000d"],
        2,
        "",
        "of at most a century",
    );
    for command in [&["rank"][..], &["top"], &["explain", "shop/web"]] {
        let args = [command, &["--signal", "foo"]].concat();
        check(
            &args,
            2,
            "",
            "no such signal; the signals are memory.available, ",
        );
    }
    check(
        &["rank", "--signal", "nodefs.availabel"],
        2,
        "",
        "no such signal; did you mean nodefs.available? The signals are memory.available, ",
    );
    for command in [&["rank"][..], &["top"], &["explain", "shop/web"]] {
        let args = [command, &["nodefs.availabel"]].concat();
        check(
            &args,
            2,
            "",
            "tip: a signal is named by '--signal nodefs.available'",
        );
    }
    let stranger = run(&["rank", "shop/web"], "");
    let said = stderr(&stranger);
    assert!(
        said.contains("unexpected argument") && !said.contains("tip:"),
        "{said}"
    );
    check(
        &["pause", "--for", "9999999h"],
        2,
        "",
        "the longest is 292 years (2562047h)",
    );
}

#[test]
fn what_cannot_be_started_is_told_by_the_key() {
    check(
        &["run", "--state-dir", "/dev/null/brink"],
        2,
        "",
        "paths.stateDir (--state-dir): ",
    );
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    check(
        &["run", "--state-dir", state, "--host-root", "/nonexistent"],
        2,
        "",
        "paths.root (--host-root): ",
    );
    for (flag, key) in [
        ("--node-cgroup", "node.cgroup"),
        ("--pods-cgroup", "podsCgroup"),
    ] {
        let group = [flag, "/brink-no-such-group"];
        let args = [&["run", "--state-dir", state][..], &group].concat();
        let output = run(&args, "");
        let said = stderr(&output);
        // A machine without any cgroups says that instead.
        if !said.contains("no control groups") {
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(&format!("{key} ({flag}): ")), "{said}");
        }
    }
}

#[test]
fn no_agent_is_four() {
    for args in [
        &["status"][..],
        &["status", "--check"],
        &["rank"],
        &["top"],
        &["top", "--once"],
        &["explain", "shop/web"],
        &["pause"],
        &["resume"],
    ] {
        let args = [args, &["--socket", "/nonexistent/brink.sock"]].concat();
        check(&args, 4, "", "/nonexistent/brink.sock");
    }
}

#[test]
fn a_missing_right_is_five() {
    let folder = tempfile::tempdir().unwrap();
    let open_to = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    open_to(folder.path(), 0o755);
    // A copy that nobody is kept from: the one that was built can lie in a folder of root's.
    let program = folder.path().join("brink");
    std::fs::copy(env!("CARGO_BIN_EXE_brink"), &program).unwrap();
    let hidden = folder.path().join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    open_to(&hidden, 0);
    let file = hidden.join("x");
    let (file, dir) = (file.to_str().unwrap(), hidden.to_str().unwrap());
    for args in [
        &["config", "check", file][..],
        &["config", "check", "-o", "json", file],
        &["config", "check", "--config-dir", dir],
        &["config", "migrate", file],
        &["simulate", file],
        &["replay", file],
        &["man", "--dir", dir],
    ] {
        let mut command = Command::new(&program);
        command.args(args).env_clear();
        // Nothing is hidden from root.
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let output = command.output().unwrap();
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {said}");
        assert!(
            said.contains("put sudo in front of the command"),
            "{args:?}: {said}"
        );
    }
    open_to(&hidden, 0o700);
}

/// A variable that is set to nothing counts as not set, and one that is set does not conflict with a flag.
#[test]
fn variables_are_no_flags() {
    let told = |variable: &str, value: &str, args: &[&str]| {
        let output = brink().args(args).env(variable, value).output().unwrap();
        (output.status.code().unwrap(), stderr(&output))
    };
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    for (variable, args) in [
        (
            "BRINK_CONFIG",
            &["config", "check", "--config-dir", empty][..],
        ),
        (
            "BRINK_CONFIG_DIR",
            &["config", "check", "--config", "/dev/null"],
        ),
        (
            "BRINK_MODE",
            &[
                "config",
                "show",
                "--config",
                "/dev/null",
                "--config-dir",
                empty,
            ],
        ),
        // Whether an agent answers there or not.
        ("BRINK_SOCKET", &["status"]),
        ("BRINK_EVENTS_SOCKET", &["events"]),
        ("BRINK_EVENTS_SOCKET", &["top", "--socket", "/nonexistent"]),
    ] {
        let (code, said) = told(variable, "", args);
        assert_ne!(code, 2, "{variable} {args:?}: {said}");
    }
    let journal = ["incident", "--journal", folder.path().to_str().unwrap()];
    let (_, said) = told("BRINK_EVENTS_SOCKET", "/run/x.sock", &journal);
    assert!(!said.contains("cannot be used"), "{said}");
    let both = [&journal[..], &["--socket", "/run/x.sock"]].concat();
    let (code, said) = told("BRINK_MODE", "", &both);
    let conflict = "the argument '--journal <DIR>' cannot be used with '--socket <PATH>'";
    assert!(code == 2 && said.contains(conflict), "{said}");
    let (code, said) = told("BRINK_MODE", "", &["status", "--socket="]);
    assert!(code == 2 && said.contains("--socket <PATH>"), "{said}");
}

#[test]
fn what_cannot_be_written_is_one() {
    for args in [
        &["config", "show", "-o", "json"][..],
        &["--help"],
        &["--version"],
        &["rank", "--help"],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = brink().args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = stderr(&output);
        assert!(
            said.contains("error: cannot write to standard output: No space left on device")
                && said.contains("make room"),
            "{args:?}: {said}"
        );
    }
    check(
        &["man", "--dir", "/nonexistent"],
        1,
        "",
        "cannot write /nonexistent/brink.1",
    );
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let steps: Vec<_> = (0..5000).map(|at| json!({"at": at})).collect();
    let text = scenario(&json!({}), "single", &json!([]), &json!(steps)).to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.json");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    for args in [
        &["simulate", path][..],
        &["man"],
        &["--help"],
        &["completion", "zsh"],
    ] {
        let mut child = brink()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut some = [0; 16];
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut some).unwrap();
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}",
            stderr(&output)
        );
        assert_eq!(stderr(&output), "", "{args:?}");
    }
}

#[test]
fn colours_are_for_terminals() {
    let output = run(&["config", "check", "-"], "mode: x\nlog: {}\n");
    assert!(!stderr(&output).contains('\u{1b}'), "{}", stderr(&output));
    assert!(!stdout(&run(&["--help"], "")).contains('\u{1b}'));
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let output = run(&["simulate", "-"], "a: \u{0}\u{1}");
    assert_eq!(output.status.code(), Some(2));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, b"apiVersion: \xff\n").unwrap();
    let output = run(&["simulate", path.to_str().unwrap()], "");
    assert!(
        stderr(&output).contains("x:1:13: not YAML or JSON: not UTF-8"),
        "{}",
        stderr(&output)
    );
}

//! `kubectl brink`, with a kubectl that only plays one: whom it asks, and how the answers of several nodes are told apart.
//!
//! On a real cluster it is asked by the test of the manifests.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{stderr, stdout};

/// A kubectl that knows the pods of `pods.json` beside it, writes down what it is asked for, and answers for each of them with the
/// script of its name.
const KUBECTL: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/asked"
case "$*" in
*" get pods "*) cat "$here/pods.json" ;;
*" exec "*)
  while [ "$1" != exec ]; do shift; done
  . "$here/$2"
  ;;
*) exit 9 ;;
esac
"#;

struct Fake(tempfile::TempDir);

impl Fake {
    /// One that knows these agents: name of the node, and what its pod does.
    fn new(agents: &[(&str, &str)]) -> Self {
        let pods: Vec<[String; 3]> = agents
            .iter()
            .map(|&(node, script)| [node.to_owned(), format!("pod-{node}"), script.to_owned()])
            .collect();
        Self::with(&pods)
    }

    /// One that knows these pods: name of the node, its own, and what it does.
    fn with(pods: &[[String; 3]]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("kubectl"), KUBECTL).unwrap();
        fs::set_permissions(path("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(env!("CARGO_BIN_EXE_brink"), path("kubectl-brink")).unwrap();
        let pods: Vec<Value> = pods
            .iter()
            .map(|[node, name, script]| {
                fs::write(path(name), script).unwrap();
                json!({
                    "metadata": { "name": name },
                    "spec": { "nodeName": node },
                    "status": { "phase": "Running", "conditions": [] },
                })
            })
            .collect();
        fs::write(path("pods.json"), json!({ "items": pods }).to_string()).unwrap();
        Self(folder)
    }

    fn command(&self, args: &[&str]) -> Command {
        let folder = self.0.path().display();
        let mut command = Command::new(self.0.path().join("kubectl-brink"));
        command
            .args(args)
            .env("PATH", format!("{folder}:/usr/bin:/bin"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// What kubectl was asked for.
    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("asked"));
        text.map_or_else(
            |_| Vec::new(),
            |text| text.lines().map(str::to_owned).collect(),
        )
    }
}

#[test]
fn one_node_answers_itself_with_its_own_code() {
    let fake = Fake::new(&[("a", "echo of a; exit 3"), ("b", "echo of b")]);
    let output = fake.run(&[
        "--context",
        "c",
        "--agents-in",
        "ns",
        "--node",
        "a",
        "rank",
        "-n",
        "3",
    ]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(3), "of a\n")
    );
    assert_eq!(
        fake.asked(),
        [
            "--namespace ns --context c get pods --selector \
             app.kubernetes.io/name=brink,app.kubernetes.io/component=agent --output json \
             --request-timeout=30s",
            "--namespace ns --context c exec pod-a --container brink -- brink rank -n 3",
        ]
    );
}

#[test]
fn several_answer_under_their_names_and_the_highest_code_counts() {
    let fake = Fake::new(&[("b", "echo of b"), ("a", "echo of a; echo odd >&2; exit 3")]);
    let output = fake.run(&["rank"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stdout(&output), "== a\nof a\n\n== b\nof b\n");
    assert_eq!(stderr(&output), "a: odd\n");
}

/// A pod whose status says this mode, and that names itself by it when it is asked for anything else.
fn standing(mode: &str) -> String {
    format!(
        r#"case "$*" in *" status -o json") echo '{{"mode":"{mode}"}}' ;; *) echo "of {mode}" ;; esac"#
    )
}

#[test]
fn of_two_agents_on_a_node_the_one_that_does_not_stand_by_is_asked() {
    let (silent, standby) = ("exit 1".to_owned(), standing("standby"));
    let enforcing = standing("enforcing");
    for (first, second, expected) in [
        (&standby, &enforcing, "of enforcing\n"),
        (&enforcing, &standby, "of enforcing\n"),
        (&silent, &standby, "of standby\n"),
    ] {
        let [one, other] = [("one", first), ("other", second)]
            .map(|(name, script)| ["a".to_owned(), name.to_owned(), script.clone()]);
        let fake = Fake::with(&[one, other]);
        let output = fake.run(&["rank"]);
        assert_eq!(stdout(&output), expected, "{first}, {second}");
        assert!(output.status.success() && stderr(&output).is_empty());
        assert_eq!(
            fake.asked().len(),
            4,
            "a list, two for a status, one for the rest"
        );
    }
}

#[test]
fn json_has_its_node_beside_it() {
    let fake = Fake::new(&[
        ("a", r#"echo '{"rank":1}'"#),
        ("b", "echo away >&2; exit 4"),
    ]);
    let output = fake.run(&["rank", "-o", "json"]);
    let said = stdout(&output);
    let values: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let expected = [
        json!({ "node": "a", "value": { "rank": 1 } }),
        json!({ "node": "b", "value": null }),
    ];
    assert_eq!(
        (values.as_slice(), output.status.code()),
        (&expected[..], Some(4))
    );
}

/// An answer in the middle of a letter, half a one, and a whole one.
const ANSWERS: [(&str, &str); 3] = [
    ("a", r#"printf '{"a":"\377"}'"#),
    ("b", r#"echo '{"b":1'"#),
    ("c", r#"echo '{"c":1}'"#),
];

#[test]
fn rubbish_of_one_node_is_its_own() {
    let fake = Fake::new(&ANSWERS);
    let output = fake.run(&["rank", "-o", "json"]);
    assert_eq!(
        stdout(&output),
        r#"{"node":"a","value":null}
{"node":"b","value":null}
{"node":"c","value":{"c":1}}
"#
    );
    let talked = stderr(&output);
    let talked: Vec<&str> = talked.lines().collect();
    assert!(
        talked.len() == 2
            && talked[0].starts_with("a: its answer is no JSON: no UTF-8")
            && talked[1].starts_with("b: its answer breaks off"),
        "{talked:?}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn one_node_hands_on_whole_values_and_nothing_else() {
    let fake = Fake::new(&ANSWERS);
    for (node, code, expected, said) in [
        ("a", 1, "", "a: its answer is no JSON"),
        ("b", 1, "", "b: its answer breaks off"),
        ("c", 0, "{\"c\":1}\n", ""),
    ] {
        let output = fake.run(&["--node", node, "rank", "-o", "json"]);
        assert_eq!(stdout(&output), expected);
        assert!(stderr(&output).starts_with(said), "{}", stderr(&output));
        assert_eq!(stderr(&output).is_empty(), said.is_empty(), "{node}");
        assert_eq!(output.status.code(), Some(code), "{node}");
    }
}

#[test]
fn of_events_the_whole_ones_are_handed_on_and_those_that_are_none_counted() {
    let half = r#"echo '{"n":1}'; printf '{"n":'"#;
    let one = Fake::new(&[("a", half)]).run(&["events", "-o", "json"]);
    assert_eq!(stdout(&one), "{\"n\":1}\n");
    let cut = format!("{half}; exit 4");
    let both = Fake::new(&[("a", half), ("b", cut.as_str())]);
    let several = both.run(&["events", "-o", "json"]);
    assert_eq!(
        stdout(&several),
        r#"{"node":"a","value":{"n":1}}
{"node":"a","value":null}
{"node":"b","value":{"n":1}}
{"node":"b","value":null}
{"node":"b","value":null}
"#
    );
    let followed = both.run(&["events", "-f", "-o", "json"]);
    let said = stdout(&followed);
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            r#"{"node":"a","value":null}"#,
            r#"{"node":"a","value":{"n":1}}"#,
            r#"{"node":"b","value":null}"#,
            r#"{"node":"b","value":{"n":1}}"#,
        ]
    );
    let alone = Fake::new(&[("a", half)]).run(&["events", "-f", "-o", "json"]);
    assert_eq!(stdout(&alone), "{\"n\":1}\n");
    for (output, code) in [(one, 1), (several, 4), (followed, 4), (alone, 1)] {
        let talked = stderr(&output);
        assert!(
            talked.contains("a: no JSON in its answer: 1 line"),
            "{talked}"
        );
        assert_eq!(output.status.code(), Some(code));
    }
}

#[test]
fn how_kubectl_ended_is_told_where_nobody_else_does() {
    for (script, end) in [
        ("exit 137", "a: kubectl has ended with code 137"),
        ("kill -9 $$", "a: kubectl was killed by signal 9"),
    ] {
        let fake = Fake::new(&[("a", script), ("b", "echo of b")]);
        for args in [
            &["rank"][..],
            &["--node", "a", "rank"],
            &["--node", "a", "rank", "-o", "json"],
            &["--node", "a", "events", "-f"],
        ] {
            let output = fake.run(args);
            let talked = stderr(&output);
            assert!(
                talked.starts_with(end) && talked.contains("kubectl describe pod pod-a"),
                "{args:?}: {talked}"
            );
            assert_eq!(output.status.code(), Some(1), "{args:?}");
        }
    }
}

#[test]
fn what_goes_on_is_told_line_by_line_until_all_have_ended() {
    let fake = Fake::new(&[
        ("long-name", "echo one; echo two"),
        ("b", r#"echo "three $*""#),
    ]);
    let output = fake.run(&["events", "-f", "--kind", "loss"]);
    let said = stdout(&output);
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(
        lines[0].starts_with("b          three")
            && lines[0].ends_with("brink events -f --kind loss"),
        "{said}"
    );
    assert_eq!(lines[1..], ["long-name  one", "long-name  two"]);
    assert!(
        stderr(&output).contains("long-name is not followed any more"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn that_one_has_ended_is_told_while_others_go_on() {
    // The other one goes on until that was told, and says so then.
    let waits = r#"for _ in $(seq 600); do grep -q 'a is not followed any more' "$here/talked" && echo heard && exit; sleep 0.05; done"#;
    let fake = Fake::new(&[("a", "echo one"), ("b", waits)]);
    let talked = fs::File::create(fake.0.path().join("talked")).unwrap();
    let mut command = fake.command(&["events", "-f"]);
    let output = command.stderr(talked).output().unwrap();
    let said = stdout(&output);
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a  one", "b  heard"]);
}

#[track_caller]
fn check_refused(fake: &Fake, args: &[&str], code: i32, said: &str) {
    check_failed(&fake.run(args), code, said);
}

#[track_caller]
fn check_failed(output: &Output, code: i32, said: &str) {
    let talked = stderr(output);
    assert!(talked.contains(said), "{talked}");
    assert_eq!(output.status.code(), Some(code), "{talked}");
}

#[test]
fn what_cannot_be_asked_is_told_with_what_to_do() {
    let two = Fake::new(&[("a", ""), ("b", "")]);
    check_refused(&two, &["--node", "z", "rank"], 4, "agents run on a, b");
    check_refused(&two, &["top"], 2, "name one with --node: a, b");
    check_refused(&two, &["rank", "--wrong"], 2, "--wrong");
    check_refused(
        &two,
        &["rank", "-o", "json", "--node", "a"],
        2,
        "stands before the command",
    );
    check_refused(&two, &["pause"], 2, "pause");
    let none = Fake::new(&[]);
    check_refused(
        &none,
        &["rank"],
        4,
        "no agent runs in the namespace brink-system",
    );
    fs::write(none.0.path().join("pods.json"), "{}").unwrap();
    check_refused(&none, &["rank"], 1, "kubectl's list of pods cannot be read");
    for rubbish in ["", "garbage", r#"{"items":[{"#] {
        fs::write(none.0.path().join("pods.json"), rubbish).unwrap();
        check_refused(&none, &["rank"], 1, "look at what `kubectl get pods");
    }
    fs::write(
        none.0.path().join("kubectl"),
        "#!/bin/sh\necho no rights >&2; exit 1\n",
    )
    .unwrap();
    check_refused(&none, &["rank"], 1, "kubectl cannot list the agents");
}

#[test]
fn without_kubectl_it_is_said_what_is_missing() {
    let fake = Fake::new(&[]);
    let output = Command::new(fake.0.path().join("kubectl-brink"))
        .arg("rank")
        .env("PATH", Path::new("/nonexistent"))
        .output()
        .unwrap();
    check_failed(&output, 1, "install kubectl");
}

#[test]
fn a_kubectl_that_may_not_be_run_is_told_as_one() {
    let fake = Fake::new(&[("a", "echo of a")]);
    let (folder, kubectl) = (fake.0.path(), fake.0.path().join("kubectl"));
    fs::set_permissions(kubectl, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = fake.command(&["rank"]);
    let output = command.env("PATH", folder).output().unwrap();
    check_failed(&output, 5, "make it executable");
}

#[test]
fn where_no_answer_can_be_kept_the_folder_is_named() {
    let fake = Fake::new(&[("a", "echo of a"), ("b", "echo of b")]);
    for args in [&["rank"][..], &["--node", "a", "rank"]] {
        let mut command = fake.command(args);
        let output = command.env("TMPDIR", "/no/such").output().unwrap();
        check_failed(&output, 1, "no file can be made in /no/such");
        check_failed(&output, 1, "TMPDIR");
    }
}

#[test]
fn its_help_is_its_own() {
    let output = Fake::new(&[]).run(&["--help"]);
    let said = stdout(&output);
    assert!(
        output.status.success() && said.contains("kubectl brink incident"),
        "{said}"
    );
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(
        words.join(" ").contains("that of one node comes bare"),
        "{said}"
    );
}

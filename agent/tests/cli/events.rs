//! `brink events` and an agent that answers as it is told: forms, refusals, and readers that leave.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use super::{brink, run, stderr, stdout};

/// A place where an agent that answers with these bytes, each time once, is listening.
pub(super) struct Agent {
    folder: tempfile::TempDir,
    asked: thread::JoinHandle<Vec<(String, UnixStream)>>,
}

impl Agent {
    pub(super) fn new(answer: &str) -> Self {
        Self::of(&[answer.to_owned()])
    }

    /// One that is asked as often as there are answers.
    pub(super) fn of(answers: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("events.sock")).unwrap();
        let answers = answers.to_vec();
        let answer = move |answer: String| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            lines.read_line(&mut asked).unwrap();
            // A client that has seen enough does not take it all.
            let _gone = stream.write_all(answer.as_bytes());
            (asked, stream)
        };
        let asked = thread::spawn(move || answers.into_iter().map(answer).collect());
        Self { folder, asked }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("events.sock")
    }

    /// What was asked; hangs up.
    pub(super) fn asked(self) -> String {
        let asked = self.asked.join().unwrap();
        asked.into_iter().map(|(asked, _)| asked).collect()
    }
}

fn event(seq: u64, of: &str, data: &str) -> String {
    format!(
        "{{\"apiVersion\":\"brink.dev/v1alpha1\",\"kind\":\"Event\",\"type\":\"{of}\",\"node\":\"n\",\"bootId\":\"3f2a\",\"seq\":{seq},\
         \"at\":{{\"wall\":\"2026-11-20T09:36:31.250877Z\",\"monotonicNs\":1}},\
         \"subject\":{{\"namespace\":\"shop\",\"name\":\"web\",\"uid\":\"u\"}},\"data\":{data}}}\n"
    )
}

pub(super) fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn events(socket: &Path, args: &[&str]) -> std::process::Output {
    let socket = socket.to_str().unwrap();
    run(&[&["events", "--socket", socket], args].concat(), "")
}

#[test]
fn each_event_is_a_line_and_what_was_asked_is_what_was_meant() {
    let body = event(7, "pressure", "{\"conditions\":[\"MemoryPressure\"]}")
        + &event(
            8,
            "loss",
            "{\"place\":\"\\u001b[31mring\",\"count\":2,\"total\":9}",
        )
        + &event(9, "loss", "{\"of a later\":\"version\"}");
    let agent = Agent::new(&answer("200 OK", &body));
    let flags = [
        "-f",
        "--since",
        "10m",
        "--kind",
        "pressure,loss",
        "-n",
        "a b",
        "-p",
        "web",
        "--limit",
        "3",
    ];
    let output = events(&agent.socket(), &flags);
    assert_eq!(
        stdout(&output),
        "2026-11-20T09:36:31.250Z pressure              shop/web: MemoryPressure holds\n\
         2026-11-20T09:36:31.250Z loss                  shop/web: 2 lost at \\u{1b}[31mring, 9 in this run\n\
         2026-11-20T09:36:31.250Z loss                  shop/web: {\"of a later\":\"version\"}\n"
    );
    assert_eq!(
        (stderr(&output).as_str(), output.status.code()),
        ("", Some(0))
    );
    let query = "since=10m&follow=1&kind=pressure,loss&namespace=a%20b&pod=web&limit=3";
    assert_eq!(
        agent.asked(),
        format!("GET /v1/events?{query} HTTP/1.1\r\n")
    );

    let agent = Agent::new(&answer("200 OK", &body));
    let output = events(&agent.socket(), &["-o", "json"]);
    assert_eq!(stdout(&output), body);
    assert_eq!(agent.asked(), "GET /v1/events HTTP/1.1\r\n");
}

/// Whoever restarts it can go on without loss or repetition.
#[test]
fn the_end_of_an_agent_that_is_followed_is_told_with_where_to_go_on() {
    let agent = Agent::new(&answer(
        "200 OK",
        &event(7, "pressure", "{\"conditions\":[]}"),
    ));
    let output = events(&agent.socket(), &["-f", "--limit", "2"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("the agent has ended"), "{said}");
    assert!(said.contains(":7` goes on"), "{said}");
    assert!(stdout(&output).contains("no condition holds any more"));
    agent.asked();
    let agent = Agent::new(&answer("200 OK", ""));
    let output = events(&agent.socket(), &["-f"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(
        said.contains("`brink events -f --since 10m` goes on"),
        "{said}"
    );
    assert!(!said.contains("is remembered"), "{said}");
    agent.asked();
}

#[test]
fn what_goes_wrong_has_a_code_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = folder.path().join("events.sock");
    let check = |output: std::process::Output, code: i32, says: &[&str]| {
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(stdout(&output), "");
        for wanted in says {
            assert!(said.contains(wanted), "{said}");
        }
    };
    check(events(&nobody, &[]), 4, &["no agent", "brink run"]);
    check(
        events(&nobody, &["--since", "yesterday"]),
        2,
        &["10m", "BOOT:NUMBER"],
    );
    let refusal = |status, next: &str| {
        let body = format!("{{\"error\":\"it is \\u001b[31mso\",\"next\":\"{next}\"}}\n");
        Agent::new(&answer(status, &body))
    };
    for (status, code) in [
        ("403 Forbidden", 5),
        ("400 Bad Request", 2),
        ("503 Service Unavailable", 4),
        ("500 x", 1),
    ] {
        let agent = refusal(status, "do that");
        check(
            events(&agent.socket(), &[]),
            code,
            &["it is \\u{1b}[31mso", "do that"],
        );
        agent.asked();
    }
    for (nonsense, code, next) in [
        ("{\"answer\":\"refused\"}\n".to_owned(), 2, "events.socket"),
        (
            answer("200 OK", "{\"apiVersion\":\"brink.dev/v2\"}\n"),
            1,
            "same version",
        ),
        (
            answer("200 OK", "{\"kind\":\"Status\"}\n"),
            2,
            "events.sock is not the agent's socket of events: no event",
        ),
        (answer("200 OK", "no\n"), 2, "events.socket"),
        (
            answer("404 Not Found", "{\"error\":\"nothing\"}\n"),
            2,
            "not the agent's socket of events: it answers with status 404",
        ),
    ] {
        let agent = Agent::new(&nonsense);
        check(events(&agent.socket(), &[]), code, &[next]);
        agent.asked();
    }
}

#[test]
fn kinds_and_names_that_there_are_none_of_are_refused_before_anybody_is_asked() {
    let check = |args: &[&str], says: &[&str]| {
        let output = events(Path::new("/nonexistent/events.sock"), args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        for wanted in says {
            assert!(said.contains(wanted), "{args:?}: {said}");
        }
    };
    check(
        &["--kind", "oom-kil,loss"],
        &[
            "invalid value 'oom-kil' for '--kind <KIND>'",
            "agent-started, pressure, ",
            "a similar value exists: 'oom-kill'",
        ],
    );
    check(
        &["--kind", "oom-kill,"],
        &["a value is required for '--kind <KIND>'", "oom-kill, "],
    );
    for option in ["--namespace", "--pod"] {
        let none = "give a name, or leave the option out for all";
        check(&[option, ""], &[option, none]);
        check(
            &[option, "a\nb"],
            &[option, "a name has no control characters"],
        );
    }
}

/// A place where everybody is told these bytes at once and nobody is listened to, as long as the tests run.
fn deaf(answer: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("events.sock")).unwrap();
    let answer = answer.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // Whoever asked may be gone already.
            let _gone = stream.unwrap().write_all(answer.as_bytes());
        }
    });
    folder
}

/// Asks each way several times: whether the question gets through before the end is a matter of chance.
fn ask_the_deaf(answer: &str, says: &[&str]) {
    let folder = deaf(answer);
    let socket = folder.path().join("events.sock");
    let socket = ["--socket", socket.to_str().unwrap()];
    for args in [
        &["events"][..],
        &["events", "-f"],
        &["events", "-o", "json"],
        &["incident"],
        &["incident", "3f2a-23"],
    ] {
        for _ in 0..8 {
            let output = run(&[args, &socket].concat(), "");
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(4), "{args:?}: {said}");
            assert_eq!(stdout(&output), "");
            for wanted in says {
                assert!(said.contains(wanted), "{args:?}: {said}");
            }
        }
    }
}

/// It is no reader of the output that has left, whatever the kernel calls it.
#[test]
fn an_agent_that_hangs_up_at_once_has_broken_off() {
    ask_the_deaf("", &["events.sock has broken off: "]);
}

#[test]
fn a_refusal_is_told_though_the_question_was_not_heard() {
    let refusal = "{\"error\":\"there are too many readers\",\"next\":\"wait a while\"}\n";
    let says = ["there are too many readers", "wait a while"];
    ask_the_deaf(&answer("503 Service Unavailable", refusal), &says);
    let without_length = format!("HTTP/1.1 503 Service Unavailable\r\n\r\n{refusal}");
    ask_the_deaf(&without_length, &says);
}

/// However long nothing happens: the stream is not closed, and nothing more is told.
#[test]
fn whoever_follows_ends_with_his_reader() {
    let chunk = event(7, "pressure", "{\"conditions\":[]}");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let agent = Agent::new(&format!("{head}{:x}\r\n{chunk}\r\n", chunk.len()));
    let mut command = brink();
    command
        .args(["events", "-f", "--socket"])
        .arg(agent.socket());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("no condition holds any more"), "{line}");
    drop(lines);
    let status = child.wait().unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
    agent.asked();
}

#[test]
fn the_other_socket_and_what_is_no_socket_are_told_as_such() {
    let check = |command: &str, socket: &str, says: &str| {
        let output = run(&[command, "--socket", socket], "");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command} {socket}: {said}");
        assert!(said.contains(says), "{command} {socket}: {said}");
    };
    let control = Agent::new("{\"answer\":\"refused\"}\n");
    let socket = control.socket();
    let says = "is not the agent's socket of events";
    check("events", socket.to_str().unwrap(), says);
    let of_events = Agent::new(&answer("400 Bad Request", ""));
    let socket = of_events.socket();
    let says = "is not the agent's control socket";
    check("status", socket.to_str().unwrap(), says);
    let long = format!("/{}", "x".repeat(107));
    for command in ["status", "events"] {
        check(command, "/dev/null", "/dev/null is no socket");
        check(command, &long, "has at most 107 bytes");
    }
}

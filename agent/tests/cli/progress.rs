//! Words about an export that takes a while: on a terminal beside the file, over one another, and gone at the end.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use brink_tests::{Terminal, seen, skip, wait_until};

use super::{brink, tests_folder};

/// Longest wait for words that come after half a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// So long an agent says nothing where nobody is to be told of that.
const SILENCE: Duration = Duration::from_millis(1200);

/// A sample of an event of that kind, as a line.
fn sample(kind: &str) -> String {
    let path = tests_folder("events/v1alpha1").join(format!("{kind}.json"));
    fs::read_to_string(path).unwrap()
}

/// What an agent sends: before it says nothing for a while, and after.
struct Answer {
    head: String,
    rest: String,
}

impl Answer {
    /// Events, of which so many come at once.
    fn events(first: usize) -> Self {
        let kinds = ["pressure", "oom-kill", "incident-closed", "workload-ended"];
        let chunk = |line: String| format!("{:x}\r\n{line}\r\n", line.len());
        let chunks = kinds.map(|kind| chunk(sample(kind)));
        let (now, later) = chunks.split_at(first);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        Self {
            head: format!("{head}{}", now.concat()),
            rest: format!("{}0\r\n\r\n", later.concat()),
        }
    }

    /// One incident.
    fn incident() -> Self {
        let event: serde_json::Value = serde_json::from_str(&sample("incident-closed")).unwrap();
        let text = event["data"].to_string();
        let (first, rest) = text.split_at(100);
        Self {
            head: format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{first}",
                text.len()
            ),
            rest: rest.to_owned(),
        }
    }
}

/// A command that waits for an agent which has said all but the rest.
struct Export {
    child: Child,
    stream: UnixStream,
    _folder: tempfile::TempDir,
}

impl Export {
    fn begin(
        args: &[&str],
        answer: &Answer,
        out: impl Into<Stdio>,
        talk: impl Into<Stdio>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("events.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut command = brink();
        command.args(args).arg("--socket").arg(&socket);
        command.env("NO_COLOR", "1").stdin(Stdio::null());
        let child = command.stdout(out).stderr(talk).spawn().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = String::new();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        lines.read_line(&mut asked).unwrap();
        assert!(asked.starts_with("GET /v1/"), "{asked}");
        stream.write_all(answer.head.as_bytes()).unwrap();
        Self {
            child,
            stream,
            _folder: folder,
        }
    }

    /// Says the rest, hangs up, and waits for the end of the command: its code.
    fn end(mut self, rest: &str) -> Option<i32> {
        self.stream.write_all(rest.as_bytes()).unwrap();
        drop(self.stream);
        self.child.wait().unwrap().code()
    }
}

/// What the same command writes into a file when nobody looks at a terminal.
fn alone(args: &[&str], answer: &Answer, folder: &Path) -> String {
    let path = folder.join("alone");
    let export = Export::begin(args, answer, File::create(&path).unwrap(), Stdio::null());
    assert_eq!(export.end(&answer.rest), Some(0));
    fs::read_to_string(path).unwrap()
}

#[test]
fn an_export_that_waits_says_how_far_it_is_and_takes_it_back() {
    let cases: [(&[&str], Answer, &str); 7] = [
        (
            &["events", "-o", "json"],
            Answer::events(3),
            "reading: 3 events, 37",
        ),
        (&["events"], Answer::events(1), "reading: 1 event, 2"),
        (
            &["events", "-o", "json"],
            Answer::events(0),
            "reading: nothing yet",
        ),
        (
            &["incident", "-o", "json"],
            Answer::events(3),
            "reading: 3 events, 37",
        ),
        (
            &["incident", "3f2a", "--html"],
            Answer::events(3),
            "reading: 3 events, 37",
        ),
        (
            &["incident", "3f2a-23", "--html"],
            Answer::incident(),
            "reading: nothing yet",
        ),
        (
            &["incident", "3f2a-23", "-o", "json"],
            Answer::incident(),
            "reading: nothing yet",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export");
    for (args, answer, words) in cases {
        let terminal = match Terminal::open() {
            Ok(terminal) => terminal,
            Err(why) => skip!("no pseudo-terminal here: {why}"),
        };
        let (out, talk) = (File::create(&path).unwrap(), terminal.side().unwrap());
        let export = Export::begin(args, &answer, out, talk);
        // Twice, so that the second stands over the first.
        let told = wait_until(PATIENCE, || {
            let written = terminal.written();
            (written.matches(&format!("\r{words}")).count() > 1).then_some(written)
        });
        let told = told.unwrap_or_else(|| panic!("{args:?}: {:?}", terminal.written()));
        let lines = seen(&told);
        assert!(
            lines.len() == 1 && lines[0].starts_with(words),
            "{args:?}: {lines:?}"
        );
        assert_eq!(export.end(&answer.rest), Some(0), "{args:?}");
        let written = terminal.end();
        assert_eq!(seen(&written), [""], "{args:?}: {written:?}");
        assert!(written.ends_with(" \r"), "{args:?}: {written:?}");
        let exported = fs::read_to_string(&path).unwrap();
        assert!(!exported.is_empty(), "{args:?}");
        assert_eq!(exported, alone(args, &answer, folder.path()), "{args:?}");
    }
}

/// What goes wrong is said on a line of its own, and not behind the words.
#[test]
fn an_export_that_fails_takes_its_words_back_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export");
    for args in [["events", "-ojson"], ["incident", "3f2a"]] {
        let terminal = match Terminal::open() {
            Ok(terminal) => terminal,
            Err(why) => skip!("no pseudo-terminal here: {why}"),
        };
        let (out, talk) = (File::create(&path).unwrap(), terminal.side().unwrap());
        let export = Export::begin(&args, &Answer::events(2), out, talk);
        let told = || {
            terminal
                .written()
                .contains("reading: 2 events")
                .then_some(())
        };
        assert!(
            wait_until(PATIENCE, told).is_some(),
            "{args:?}: {:?}",
            terminal.written()
        );
        assert_eq!(export.end(""), Some(4), "{args:?}");
        let written = terminal.end();
        let lines = seen(&written);
        assert!(lines[0].starts_with("error: "), "{args:?}: {lines:?}");
        assert!(
            !lines.iter().any(|line| line.contains("reading")),
            "{args:?}: {lines:?}"
        );
    }
}

/// Words would be among the data, or nobody would read them, or there is no end to be near to.
#[test]
fn who_waits_elsewhere_is_told_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name| File::create(folder.path().join(name)).unwrap();
    let Ok(terminal) = Terminal::open() else {
        skip!("no pseudo-terminal here");
    };
    let side = || Stdio::from(terminal.side().unwrap());
    let answer = Answer::events(2);
    let plain: &[&str] = &["events", "-o", "json"];
    let cases: [(&[&str], Stdio, Stdio); 4] = [
        (plain, side(), side()),
        (plain, Stdio::null(), side()),
        (plain, file("out").into(), file("talk").into()),
        (
            &["events", "-f", "-o", "json"],
            file("follow").into(),
            side(),
        ),
    ];
    let begin = |(args, out, talk)| Export::begin(args, &answer, out, talk);
    let exports = cases.map(begin);
    sleep(SILENCE);
    let codes = exports.map(|export| export.end(&answer.rest));
    // Who follows is told that there is nothing to follow any more.
    assert_eq!(codes, [Some(0), Some(0), Some(0), Some(4)]);
    let written = terminal.end();
    assert!(!written.contains("reading"), "{written:?}");
    assert!(written.contains("the agent has ended"), "{written:?}");
    assert_eq!(fs::read_to_string(folder.path().join("talk")).unwrap(), "");
    let out = fs::read_to_string(folder.path().join("out")).unwrap();
    assert_eq!(out.lines().count(), 4, "{out}");
    assert_eq!(
        out,
        fs::read_to_string(folder.path().join("follow")).unwrap()
    );
}

//! The socket against those who misuse it: nonsense, half questions, clients that never read, and many at once.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::support::{MIB, Node, PATIENCE, gone_after};
use brink::control::protocol::{Answer, LONGEST_QUESTION, Question, RefusalReason};
use brink_host::hog::Load;
use brink_tests::{slowed, wait_until};
use rustix::process::Signal;

/// What an answer may take at most while others misbehave.
const PROMPT: Duration = Duration::from_secs(1);
/// Many times more than the agent talks to at a time.
const CROWD: usize = 300;

fn node() -> Node {
    let mut node = Node::new(300);
    node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", "evictionHard: {memory.available: 60Mi}");
    node.start(&[]);
    node
}

fn connect(node: &Node) -> UnixStream {
    let stream = UnixStream::connect(node.socket()).unwrap();
    stream
        .set_read_timeout(Some(slowed(Duration::from_secs(15))))
        .unwrap();
    stream
}

/// What is answered to these bytes, as text.
fn answered(node: &Node, bytes: &[u8]) -> String {
    let mut stream = connect(node);
    // It does not listen to the end of what is too long.
    let _sent = stream.write_all(bytes);
    let _sent = stream.shutdown(Shutdown::Write);
    let mut text = String::new();
    // What it had not read yet ends the connection with a reset, behind the answer.
    let mut buffer = [0_u8; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    text
}

#[track_caller]
fn check_prompt(node: &Node) {
    let began = Instant::now();
    assert!(node.status().is_some(), "{}", node.log());
    let took = began.elapsed();
    assert!(took < slowed(PROMPT), "{took:?}");
}

#[test]
fn nonsense_is_refused_and_harms_nobody() {
    let node = node();
    let pid = node.status().unwrap().pid;
    let deep = [vec![b'['; 60_000], b"\n".to_vec()].concat();
    let long = vec![b'x'; LONGEST_QUESTION + 2];
    let huge = vec![b'"'; 8 << 20];
    let almost = format!(
        "{}{}\n",
        r#"{"ask":"status"}"#,
        " ".repeat(LONGEST_QUESTION - 20)
    );
    for (bytes, refused) in [
        (&b"\n"[..], true),
        (b"{}\n", true),
        (b"\0\0\0\0\n", true),
        (b"\xff\xfe\x80\n", true),
        (b"GET / HTTP/1.1\r\n\r\n", true),
        (br#"{"ask":"status""#, true),
        (br#"{"ask":"reboot"}"#, true),
        (b"{\"ask\":\"pause\",\"seconds\":-1}\n", true),
        (b"{\"ask\":\"pause\",\"seconds\":1e99}\n", true),
        (b"{\"ask\":\"pause\",\"body\":{\"seconds\":-1}}\n", true),
        (b"{\"ask\":\"resume\",\"seconds\":1}\n", true),
        (
            b"{\"ask\":\"decision\",\"order\":99999999999999999999999}\n",
            true,
        ),
        (&deep, true),
        (&long, true),
        (&huge, true),
        (almost.as_bytes(), false),
        // A line that is not ended, and all there is, is a question all the same.
        (br#"{"ask":"status"}"#, false),
        // What is not asked yet is not looked for.
        (b"{\"ask\":\"status\"}\n{\"ask\":\"pause\"}\n", false),
    ] {
        let text = answered(&node, bytes);
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        let answer: Answer = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{start:?}: {error}: {text:?}"));
        match answer {
            Answer::Refused(refusal) => {
                assert!(refused, "{start:?}: {refusal:?}");
                assert_eq!(refusal.reason, RefusalReason::NotUnderstood, "{start:?}");
            }
            Answer::Status(status) => assert!(!refused && status.mode == "enforcing", "{start:?}"),
            other => panic!("{start:?}: {other:?}"),
        }
    }
    assert_eq!(answered(&node, b""), "", "who says nothing hears nothing");
    check_prompt(&node);
    assert_eq!(node.status().unwrap().pid, pid);
}

#[test]
fn whoever_never_reads_or_never_ends_keeps_nobody_waiting() {
    let node = node();
    // Answers of some size, so that a socket that nobody reads fills up.
    let slow: Vec<UnixStream> = (0..10)
        .map(|_| {
            let mut stream = connect(&node);
            stream.write_all(b"{\"ask\":\"status\"}\n").unwrap();
            stream
        })
        .collect();
    check_prompt(&node);
    let half: Vec<UnixStream> = (0..10)
        .map(|_| {
            let mut stream = connect(&node);
            stream.write_all(b"{\"ask\":").unwrap();
            stream
        })
        .collect();
    check_prompt(&node);
    let leak = node.load(0, Load::Anon, 280 * MIB);
    assert!(gone_after(&leak) < slowed(Duration::from_secs(5)));
    drop((slow, half));
    node.finished(1);
}

#[test]
fn a_crowd_that_says_nothing_delays_questions_but_no_kill() {
    let node = node();
    let crowd: Vec<UnixStream> = (0..CROWD).map(|_| connect(&node)).collect();
    let leak = node.load(0, Load::Anon, 280 * MIB);
    assert!(gone_after(&leak) < slowed(Duration::from_secs(5)));
    // Silent ones are let go after a moment, and whoever waits has its turn.
    check_prompt(&node);
    let again: Vec<UnixStream> = (0..CROWD).map(|_| connect(&node)).collect();
    check_prompt(&node);
    drop(again);
    drop(crowd);
    check_prompt(&node);
}

#[test]
fn who_has_hung_up_pauses_nobody() {
    let node = node();
    let stat = format!("/proc/{}/stat", node.status().unwrap().pid);
    node.signal(Signal::STOP);
    let is_stopped = || {
        let stat = std::fs::read_to_string(&stat).unwrap();
        stat.contains(") T ").then_some(())
    };
    assert_eq!(wait_until(PATIENCE, is_stopped), Some(()));
    let mut hasty = connect(&node);
    hasty.write_all(b"{\"ask\":\"pause\"}\n").unwrap();
    drop(hasty);
    node.signal(Signal::CONT);
    // It is answered behind the other one.
    assert_eq!(node.status().unwrap().mode, "enforcing");
    assert!(!node.path("state/pause").exists(), "{}", node.log());
}

#[test]
fn many_ask_at_once() {
    let node = node();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let node = &node;
            scope.spawn(move || {
                for turn in 0..20 {
                    let question = match (number + turn) % 3 {
                        0 => Question::Status,
                        1 => Question::Rank { signal: None },
                        _ => Question::Decisions,
                    };
                    let answer = node.ask(&question).unwrap();
                    let fits = matches!(
                        (&question, &answer),
                        (Question::Status, Answer::Status(_))
                            | (Question::Rank { .. }, Answer::Ranking(_))
                            | (Question::Decisions, Answer::Decisions(_))
                    );
                    assert!(fits, "{question:?}: {answer:?}");
                }
            });
        }
    });
    check_prompt(&node);
}

//! The rotated file, standard output and OTLP of a real `brink run`: whole lines in both formats, every number, full files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use brink::control::http;
use brink_host::hog::Load;
use brink_stream::model::event::Event;
use brink_stream::model::kind::Kind;
use brink_tests::{lacks, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::collector::Collector;
use crate::support::{MIB, Node, PATIENCE, gone_after};

/// The least that a file may be bounded to.
const SIZE: u64 = MIB;
/// Kills until there is enough to rotate. An incident is told twice: with a brief recording, as many kills in a row have it, in some
/// 15 KiB.
const MOST: usize = 400;

/// A node whose agent tells by a file and by its standard output, and a workload in it that may take 32 MiB.
fn bounded(outlets: &str) -> Result<(Node, usize), String> {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let group = &node.groups[leaker];
    group.limit_memory(&node.sandbox.layout, 32 * MIB).unwrap();
    node.stdout = Some(node.path("stdout"));
    let events = outlets.replace("FILE", &node.path("out/events.jsonl").display().to_string());
    let hard = "evictionHard: {memory.available: 8Mi}";
    node.configure(
        "enforce",
        &format!("{hard}\nevents: {{enabled: true, {events}}}"),
    );
    let status = node.start(&[]);
    let mut programs = status.programs.iter();
    if programs.any(|program| program.name == "oom_victim" && program.running) {
        Ok((node, leaker))
    } else {
        Err(format!("nobody tells of OOMs: {:?}", status.rung_reasons))
    }
}

/// The file with that number, 0 for the one that is written.
fn numbered(node: &Node, number: u32) -> PathBuf {
    let name = match number {
        0 => "out/events.jsonl".to_owned(),
        number => format!("out/events.jsonl.{number}"),
    };
    node.path(&name)
}

/// Has the kernel kill one process after another until there is enough to see.
#[track_caller]
fn kill_until(node: &Node, workload: usize, is_enough: impl Fn() -> bool) {
    for _ in 0..MOST {
        if is_enough() {
            return;
        }
        gone_after(&node.load(workload, Load::Anon, 100 * MIB));
    }
    let files = fs::read_dir(node.path("out")).map(Iterator::count);
    let told = fs::metadata(node.path("stdout")).map(|found| found.len());
    panic!(
        "{MOST} kills, {files:?} files and {told:?} bytes: {}",
        node.log()
    );
}

/// Every line, which must be whole and JSON.
#[track_caller]
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(
        text.ends_with('\n'),
        "{} ends within a line",
        path.display()
    );
    let line = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    text.lines().map(line).collect()
}

/// Events of the last moment of a run.
const LAST: usize = 16;

/// The event itself, out of its envelope if it has one.
fn bare(line: &Value) -> &Value {
    line.get("specversion").map_or(line, |_| &line["data"])
}

/// Every event of a run, from its first on, without a gap.
#[track_caller]
fn check_whole(lines: &[Value]) {
    let first: Event = serde_json::from_value(bare(&lines[0]).clone()).unwrap();
    assert_eq!(first.of, Kind::AgentStarted);
    for (number, line) in (first.seq..).zip(lines) {
        let event: Event = serde_json::from_value(bare(line).clone()).unwrap();
        assert_eq!((event.seq, &*event.kind), (number, "Event"), "{line}");
        assert_eq!(event.boot_id, first.boot_id);
        // What others lose on a busy machine is told here as well.
        let place = &bare(line)["data"]["place"];
        assert!(place != "file" && place != "stdout", "{line}");
    }
}

/// A name as a part of a URI: a guest is called `(none)`.
fn segment(name: &str) -> String {
    let part = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || "-._~".contains(letter) => letter.to_string(),
        letter => format!("%{:02X}", u32::from(letter)),
    };
    name.chars().map(part).collect()
}

/// An envelope says what its event says.
#[track_caller]
fn check_envelope(line: &Value) {
    let event = &line["data"];
    let seq = event["seq"].as_u64().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut expected = json!({
        "specversion": "1.0",
        "id": seq.to_string(),
        "source": format!("/brink/{}/{}", segment(&text(&event["node"])), text(&event["bootId"])),
        "type": format!("dev.brink.{}", text(&event["type"])),
        "time": event["at"]["wall"],
        "datacontenttype": "application/json",
        "sequence": format!("{seq:020}"),
        "data": event,
    });
    if let Some(subject) = event.get("subject") {
        let (namespace, name) = (text(&subject["namespace"]), text(&subject["name"]));
        expected["subject"] = json!(format!("{namespace}/{name}"));
    }
    assert_eq!(*line, expected);
}

/// Files that were left are full: the next line would not have gone in. Nobody but their owner reads them.
#[track_caller]
fn check_files(node: &Node, count: u32) {
    let mut next = 0;
    for number in 0..count {
        let path = numbered(node, number);
        let found = fs::metadata(&path).unwrap();
        assert_eq!(
            found.permissions().mode() & 0o777,
            0o600,
            "{}",
            path.display()
        );
        assert!(found.len() <= SIZE, "{number}: {}", found.len());
        assert!(
            number == 0 || found.len() + next > SIZE,
            "{number}: {} and {next}",
            found.len()
        );
        let text = fs::read_to_string(&path).unwrap();
        next = text.split_inclusive('\n').next().unwrap().len() as u64;
    }
    assert!(!numbered(node, count).exists());
}

#[test]
fn a_rotated_file_and_envelopes_on_stdout_have_every_event_of_a_run() {
    let outlets = "file: {path: FILE, maxSize: 1Mi, maxFiles: 20}, stdout: cloudevents";
    let (mut node, leaker) = match bounded(outlets) {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    kill_until(&node, leaker, || numbered(&node, 1).exists());
    // The stream's own envelopes are the same ones, to the letter.
    let target = "/v1/events?since=0&format=cloudevents";
    let answer = http::get(&node.path("state/events.sock"), target).unwrap();
    let served = answer.text().unwrap();
    node.stop(Signal::TERM);
    let out = fs::read_to_string(node.path("stdout")).unwrap();
    let mut written = out.lines();
    for line in served.lines() {
        assert!(
            written.any(|written| written == line),
            "not on stdout, or not in order: {line}"
        );
    }
    assert!(served.lines().count() > 4, "{served}");

    let enveloped = lines(&node.path("stdout"));
    enveloped.iter().for_each(check_envelope);
    check_whole(&enveloped);
    let mut numbers = 0..=20;
    let count = numbers.find(|number| !numbered(&node, *number).exists());
    let count = count.expect("fewer than are kept");
    let in_files = (0..count)
        .rev()
        .flat_map(|number| lines(&numbered(&node, number)));
    let in_files: Vec<Value> = in_files.collect();
    check_whole(&in_files);
    let unwrapped: Vec<&Value> = enveloped.iter().map(bare).collect();
    // An agent that is told to stop gives each way out a moment: on a busy machine one may end before the other.
    let both = in_files.len().min(unwrapped.len());
    assert!(
        in_files[..both]
            .iter()
            .eq(unwrapped[..both].iter().copied()),
        "the two ways out differ"
    );
    assert!(
        in_files.len().abs_diff(unwrapped.len()) <= LAST,
        "{} in files, {} on stdout",
        in_files.len(),
        unwrapped.len()
    );
    check_files(&node, count);
}

/// The oldest files go; what stays ends with the newest event. The next run goes on in the same file.
#[test]
fn a_file_of_envelopes_keeps_the_newest_and_is_gone_on_with_by_the_next_run() {
    let outlets =
        "file: {path: FILE, maxSize: 1Mi, maxFiles: 1, format: cloudevents}, stdout: json";
    let (mut node, leaker) = match bounded(outlets) {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let told = |node: &Node| fs::metadata(node.path("stdout")).unwrap().len();
    kill_until(&node, leaker, || told(&node) > 9 * SIZE / 4);
    node.stop(Signal::TERM);
    let plain = lines(&node.path("stdout"));
    check_whole(&plain);
    check_files(&node, 2);
    let kept: Vec<Value> = [1, 0]
        .iter()
        .flat_map(|number| lines(&numbered(&node, *number)))
        .collect();
    kept.iter().for_each(check_envelope);
    assert!(kept.len() < plain.len(), "nothing was given up");
    assert!(kept.iter().map(bare).eq(&plain[plain.len() - kept.len()..]));

    node.stdout = Some(node.path("second"));
    node.start(&[]);
    gone_after(&node.load(leaker, Load::Anon, 100 * MIB));
    node.stop(Signal::TERM);
    let second = lines(&node.path("second"));
    check_whole(&second);
    let last = plain.last().unwrap()["seq"].as_u64().unwrap();
    let after = second[0]["data"]["after"].as_u64().unwrap();
    assert!(
        after >= last && second[0]["seq"].as_u64().unwrap() > after,
        "{after}, and {last} was told"
    );
    let kept: Vec<Value> = [1, 0]
        .iter()
        .flat_map(|number| lines(&numbered(&node, *number)))
        .collect();
    assert!(
        kept[kept.len() - second.len()..]
            .iter()
            .map(bare)
            .eq(&second)
    );
    let before = &kept[kept.len() - second.len() - 1];
    assert_eq!(
        bare(before),
        plain.last().unwrap(),
        "the runs follow one another"
    );
}

/// A collector that is not ready at first gets every event all the same, and each is the line that everybody gets.
#[test]
fn a_collector_gets_every_event_of_a_run() {
    let collector = Collector::start();
    let outlets = format!("otlp: \"http://{}\", stdout: json", collector.address);
    let (mut node, leaker) = match bounded(&outlets) {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    gone_after(&node.load(leaker, Load::Anon, 100 * MIB));
    let mut records = Vec::new();
    let named = |records: &[Value], name: &str| {
        let mut records = records.iter();
        records.any(|record| record["eventName"] == format!("brink.{name}"))
    };
    let told = wait_until(PATIENCE, || {
        records.extend(collector.taken());
        named(&records, Kind::IncidentClosed.word()).then_some(())
    });
    assert!(told.is_some(), "{records:#?}\n{}", node.log());
    node.stop(Signal::TERM);
    records.extend(collector.taken());
    let body = |record: &Value| -> Value {
        serde_json::from_str(record["body"]["stringValue"].as_str().unwrap()).unwrap()
    };
    let bodies: Vec<Value> = records.iter().map(body).collect();
    check_whole(&bodies);
    let plain = lines(&node.path("stdout"));
    assert!(plain.len().abs_diff(bodies.len()) <= LAST);
    assert!(plain.iter().zip(&bodies).all(|(line, body)| line == body));
    assert!(named(&records, Kind::OomKill.word()), "{records:#?}");
}

//! An event journal that somebody has damaged, as the next run of a real agent finds it.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use brink_stream::hub::{Past as _, Position};
use brink_stream::journal::past::JournalPast;
use brink_stream::model::data::Loss;
use brink_stream::model::kind::Kind;
use brink_tests::wait_until;
use rustix::process::Signal;

use crate::journal::{Presser, data, events, in_state};
use crate::support::{Node, PATIENCE};

/// Of so small a journal a segment has 64 KiB.
const SMALL: &str =
    "evictionHard: {memory.available: 8Mi}\nevents: {enabled: true, journal: {maxSize: 1Mi}}";
/// Segments before anything is damaged.
const SEGMENTS: usize = 4;

/// A segment, and the numbers of its events.
type Segment = (PathBuf, BTreeSet<u64>);

/// The segments in order, by their bytes alone.
fn segments(node: &Node) -> Vec<Segment> {
    let entries = fs::read_dir(node.path("state/events")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
    let mut paths: Vec<PathBuf> = paths.filter(is_segment).collect();
    paths.sort();
    let numbered = |path: PathBuf| {
        // One may just have gone for want of room.
        let bytes = fs::read(&path).unwrap_or_default();
        (path, numbers(&String::from_utf8_lossy(&bytes)))
    };
    paths.into_iter().map(numbered).collect()
}

fn numbers(text: &str) -> BTreeSet<u64> {
    let after = text.split("\"seq\":").skip(1);
    let number = |rest: &str| {
        let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
        rest.get(..end)?.parse().ok()
    };
    after.filter_map(number).collect()
}

/// The first event that a reader gets behind those of a segment, and whether it is told that others before it are missing.
fn behind(node: &Node, boot: &str, (_, numbers): &Segment) -> (u64, bool) {
    let journal = JournalPast::open(&node.path("state/events")).unwrap();
    let position = Position {
        boot: boot.into(),
        seq: *numbers.last().unwrap(),
    };
    let page = journal.after(Some(&position), 1).unwrap();
    (page.lines[0].seq, page.is_cut)
}

#[test]
fn a_damaged_and_a_foreign_segment_cost_what_was_in_them_and_the_agent_says_so() {
    let mut node = Node::new(300);
    node.workload("anybody", "containers: [{name: c}]");
    node.configure("enforce", SMALL);
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let presser = Presser::start(&node);
    let are_there = || (segments(&node).len() >= SEGMENTS).then_some(());
    assert!(wait_until(PATIENCE, are_there).is_some(), "{}", node.log());
    drop(presser);
    node.stop(Signal::TERM);
    let before = segments(&node);
    let (foreign, hidden) = &before[before.len() - 3];
    let theirs = "somebody's notes\n".repeat(1000);
    fs::write(foreign, &theirs).unwrap();
    let (flipped, _) = before.last().unwrap();
    let mut bytes = fs::read(flipped).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(flipped, &bytes).unwrap();
    let said = node.log().len();
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let log = node.log().split_off(said);
    let aside = format!("{}.damaged", foreign.file_name().unwrap().display());
    for word in [
        &*aside,
        "put aside",
        "a part of the event journal cannot be read",
    ] {
        assert!(log.contains(word), "{word}: {log}");
    }
    assert!(!log.contains("panicked"), "{log}");
    let kept = fs::read_to_string(foreign.with_file_name(&aside)).unwrap();
    assert!(kept == theirs, "what is somebody's stays as it was");
    let told = events(&node, "since=1d");
    let losses = told.iter().filter(|event| event.of == Kind::Loss);
    let losses: Vec<Loss> = losses.map(data).collect();
    let of_the_journal = |loss: &Loss| loss.place == "reader" && loss.uncounted;
    assert!(losses.iter().any(of_the_journal), "{losses:?}");
    // The flipped byte is told of too: what the foreign one cost by itself shows between its neighbours.
    let [whole, _, next, _] = &before[before.len() - 4..] else {
        panic!("{SEGMENTS} segments at least");
    };
    let first = *next.1.first().unwrap();
    assert_eq!(behind(&node, &told[0].boot_id, whole), (first, true));
    let seen: BTreeSet<u64> = told
        .iter()
        .filter(|event| event.of != Kind::Loss)
        .map(|event| event.seq)
        .collect();
    for (path, numbers) in &before {
        let missing: BTreeSet<u64> = numbers.difference(&seen).copied().collect();
        if path == foreign {
            assert_eq!(&missing, hidden, "nobody can know of them");
        } else if path == flipped {
            assert_eq!(missing.len(), 1, "{missing:?} of {numbers:?}");
        } else {
            assert_eq!(missing, BTreeSet::new(), "{}", path.display());
        }
    }
    // And it goes on behind all that.
    let last = before.iter().flat_map(|(_, numbers)| numbers).max();
    let starts = told
        .iter()
        .rev()
        .filter(|event| event.of == Kind::AgentStarted);
    let newest = starts.map(|event| event.seq).next();
    assert!(newest > last.copied(), "{newest:?} {last:?}");
    node.stop(Signal::KILL);
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let again = events(&node, "since=1d&kind=agent-started");
    assert!(
        again.iter().any(|event| Some(event.seq) == newest),
        "{again:?}"
    );
}

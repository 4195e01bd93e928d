//! The event journal of a real agent: over kills of it, on a full disk, and beside another agent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use brink::control::client::ask;
use brink::control::http;
use brink::control::protocol::{Answer, EventJournalView, Question, Status};
use brink_host::hog::Load;
use brink_stream::model::data::{AgentStarted, Configuration, Loss};
use brink_stream::model::event::Event;
use brink_stream::model::field::Field;
use brink_stream::model::incident::{Cause, Incident};
use brink_stream::model::kind::Kind;
use brink_tests::{lacks, wait_until};
use rustix::process::Signal;
use serde::de::DeserializeOwned;

use crate::soak::disk::SmallDisk;
use crate::standby::two_agents;
use crate::support::{MIB, Node, PATIENCE, gone_after};

const CALM: &str = "evictionHard: {memory.available: 8Mi}\nevents: {enabled: true}";
const HARD: &str = "evictionHard: {memory.available: 60Mi}\nevents: {enabled: true}";

/// Reads events until the answer ends or breaks off, and hands each to `take`.
fn read(socket: &Path, query: &str, mut take: impl FnMut(Event)) {
    let target = format!("/v1/events?{query}");
    let answer = wait_until(PATIENCE, || http::get(socket, &target).ok());
    let mut answer = answer.expect("the events are served");
    assert_eq!(answer.status, 200, "{query}");
    while let Ok(Some(line)) = answer.next_line() {
        take(serde_json::from_slice(&line).unwrap());
    }
}

pub(crate) fn events(node: &Node, query: &str) -> Vec<Event> {
    let mut found = Vec::new();
    read(&node.path("state/events.sock"), query, |event| {
        found.push(event);
    });
    found
}

pub(crate) fn data<T: DeserializeOwned>(event: &Event) -> T {
    serde_json::from_str(event.data.get()).unwrap()
}

fn journal(status: &Status) -> &EventJournalView {
    status.events.as_ref().unwrap().journal.as_ref().unwrap()
}

#[track_caller]
pub(crate) fn in_state(node: &Node, socket: &str, wanted: &str) -> EventJournalView {
    let socket = node.path(socket);
    let found = || match ask(&socket, &Question::Status) {
        Ok(Answer::Status(status)) => Some(journal(&status).clone()),
        _ => None,
    };
    let stands = wait_until(PATIENCE, || found().filter(|view| view.state == wanted));
    stands.unwrap_or_else(|| panic!("not {wanted}: {:?}\n{}", found(), node.log()))
}

/// Somebody who presses the stop button and lifts it again, without a rest: each time is an event that is journalled.
pub(crate) struct Presser {
    is_over: Arc<AtomicBool>,
    presses: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Presser {
    pub(crate) fn start(node: &Node) -> Self {
        let (is_over, presses): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let (over, count, socket) = (Arc::clone(&is_over), Arc::clone(&presses), node.socket());
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for question in [Question::Pause { seconds: None }, Question::Resume] {
                    let is_done = matches!(ask(&socket, &question), Ok(Answer::Mode(_)));
                    count.fetch_add(u64::from(is_done), Ordering::Relaxed);
                }
            }
        });
        Self {
            is_over,
            presses,
            thread: Some(thread),
        }
    }

    #[track_caller]
    fn wait_for(&self, presses: u64, node: &Node) {
        let done = || (self.presses.load(Ordering::Relaxed) >= presses).then_some(());
        assert!(wait_until(PATIENCE, done).is_some(), "{}", node.log());
    }
}

impl Drop for Presser {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // One that has panicked has said so.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Reads from a place on, and stays until the stream breaks off.
fn follow(node: &Node, since: &str) -> JoinHandle<Vec<Event>> {
    let (socket, query) = (
        node.path("state/events.sock"),
        format!("follow=1&since={since}"),
    );
    thread::spawn(move || {
        let mut found = Vec::new();
        read(&socket, &query, |event| found.push(event));
        found
    })
}

fn place(event: &Event) -> String {
    format!("{}:{}", event.boot_id, event.seq)
}

/// What a run told, up to the next run's first event: nothing in its middle is missing.
#[track_caller]
fn check_run(run: &[&Event], before: Option<u64>) {
    let first: AgentStarted = data(run[0]);
    assert!(first.after >= before, "{:?} after {before:?}", first.after);
    let modes = run
        .iter()
        .filter(|event| event.of == Kind::ConfigurationChanged);
    let modes: Vec<String> = modes
        .map(|event| data::<Configuration>(event).mode)
        .collect();
    // Each is another one than that before it.
    let same = modes.windows(2).position(|pair| pair[0] == pair[1]);
    assert_eq!(same, None, "of {} in {}", modes.len(), place(run[0]));
    assert!(modes.len() > 50, "{}", modes.len());
}

#[test]
fn who_resumes_after_a_kill_of_the_agent_misses_and_repeats_nothing() {
    const RUNS: usize = 3;
    let mut node = Node::new(300);
    node.workload("anybody", "containers: [{name: c}]");
    node.configure("enforce", CALM);
    let mut seen: Vec<Event> = Vec::new();
    for _ in 0..RUNS {
        node.start(&[]);
        let since = seen.last().map_or_else(|| "0".to_owned(), place);
        let presser = Presser::start(&node);
        let follower = follow(&node, &since);
        presser.wait_for(200, &node);
        node.stop(Signal::KILL);
        drop(presser);
        seen.append(&mut follower.join().unwrap());
    }
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let rest = events(&node, &format!("since={}", place(seen.last().unwrap())));
    assert!(!rest.is_empty(), "the last run has begun");
    seen.extend(rest);
    let numbers: Vec<u64> = seen.iter().map(|event| event.seq).collect();
    let rises = numbers.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(rises, "nothing comes twice, and all in order: {numbers:?}");
    // What a busy machine loses on the way to the stream is another matter.
    let losses = seen.iter().filter(|event| event.of == Kind::Loss);
    let losses: Vec<Loss> = losses.map(data).collect();
    let of_the_stream = |loss: &&Loss| ["journal", "reader"].contains(&loss.place.as_str());
    let missing: Vec<&Loss> = losses.iter().filter(of_the_stream).collect();
    assert!(missing.is_empty(), "nothing is missing: {missing:?}");
    // All that is kept had come to the reader.
    let kept = events(&node, "since=1d");
    let seen_numbers: BTreeSet<u64> = numbers.into_iter().collect();
    let missed: Vec<u64> = kept
        .iter()
        .map(|event| event.seq)
        .filter(|seq| !seen_numbers.contains(seq))
        .collect();
    assert_eq!(missed, Vec::<u64>::new());
    // And what is kept of each run is whole.
    let starts = kept.iter().enumerate();
    let starts = starts.filter(|(_, event)| event.of == Kind::AgentStarted);
    let starts: Vec<usize> = starts.map(|(index, _)| index).collect();
    assert_eq!(starts.len(), RUNS + 1);
    let mut before = None;
    for pair in starts.windows(2) {
        let run: Vec<&Event> = kept[pair[0]..pair[1]].iter().collect();
        check_run(&run, before);
        before = run.last().map(|event| event.seq);
    }
}

#[test]
fn an_eviction_is_told_as_it_is_ordered_and_whole_when_it_is_over() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.configure("enforce", HARD);
    let status = node.start(&[]);
    gone_after(&node.load(leaker, Load::Anon, 280 * MIB));
    node.finished(1);
    let kinds = "kind=threshold-crossed,eviction-ordered,eviction-completed&since=0";
    let told = wait_until(PATIENCE, || {
        let told = events(&node, kinds);
        told.iter()
            .any(|event| event.of == Kind::EvictionCompleted)
            .then_some(told)
    });
    let told = told.unwrap_or_else(|| panic!("{}", node.log()));
    let of: Vec<Kind> = told.iter().map(|event| event.of).collect();
    let expected = [
        Kind::ThresholdCrossed,
        Kind::EvictionOrdered,
        Kind::EvictionCompleted,
    ];
    assert_eq!(of, expected);
    let (ordered, completed): (Incident, Incident) = (data(&told[1]), data(&told[2]));
    assert_eq!(ordered.id, completed.id);
    assert_eq!(
        (ordered.cause, ordered.is_final, ordered.revision),
        (Cause::Eviction, false, 1)
    );
    assert!(completed.is_final && completed.revision > 1);
    let subject = told[2].subject.as_ref().unwrap();
    assert_eq!((&*subject.namespace, &*subject.name), ("test", "leaker"));
    assert_eq!(subject.incident.as_ref(), Some(&completed.id));
    let text = told[2].data.get();
    assert!(!text.contains("\"pending\""), "{text}");
    let decision = completed.decision.value().unwrap();
    assert_eq!(decision["order"], 1);
    let course = &completed.course;
    assert!(
        course.killed.value().is_some() && course.exited.value().is_some(),
        "{course:?}"
    );
    assert!(
        course.freed.value().is_some_and(|freed| *freed > 100 * MIB),
        "{course:?}"
    );
    let node_state = completed.node.value().unwrap();
    assert!(node_state.meminfo.value().is_some() && node_state.vmstat.value().is_some());
    assert!(node_state.zones.value().is_some());
    let table = completed.top_of_node.value();
    // Where the processors are others', it may have been made too late, and its place says so.
    assert!(table.is_none_or(|lines| !lines.is_empty()), "{table:?}");
    let recording = completed.recording.value();
    assert!(
        recording.is_some_and(|recording| !recording.node.is_empty()),
        "{text}"
    );
    // Who was killed is told by the kernel as it happens; without its programs the files of the dead are gone.
    let mut programs = status.programs.iter();
    let told_by = programs.find(|program| program.name == "sigkill_sent");
    let told_by = told_by.unwrap_or_else(|| panic!("not listed: {:?}", status.programs));
    if told_by.running {
        let victim = completed
            .victims
            .first()
            .unwrap_or_else(|| panic!("{text}"));
        assert!(
            victim.anon.value().is_some_and(|anon| *anon > 100 * MIB),
            "{victim:?}"
        );
        assert!(victim.exited.value().is_some(), "{victim:?}");
        assert!(matches!(completed.memory_stat, Field::Value(_)), "{text}");
    }
    let cgroups = completed
        .cgroups
        .value()
        .unwrap_or_else(|| panic!("{text}"));
    let own = node.groups[leaker].group();
    let paths: Vec<&str> = cgroups.iter().map(|state| &*state.path).collect();
    assert_eq!((paths.first(), paths.last()), (Some(&own), Some(&"/")));
    assert!(
        paths.windows(2).all(|two| two[0].starts_with(two[1])),
        "{paths:?}"
    );
    let top = completed.top_of_cgroup.value();
    let top = top.unwrap_or_else(|| panic!("{text}"));
    assert!(top.iter().any(|line| line.comm == "brink-hog"), "{top:?}");
    let whole = http::get(
        &node.path("state/events.sock"),
        &format!("/v1/incidents/{}", completed.id),
    );
    let whole: Incident = serde_json::from_str(&whole.unwrap().text().unwrap()).unwrap();
    assert_eq!(whole, completed);
}

/// A node whose journal's disk is full, and an eviction on it: nobody is spared for it, and the incident waits for room.
fn evicted_on_a_full_disk() -> Result<(Node, SmallDisk), String> {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let disk = SmallDisk::mount(&node.path("disk"), 4 << 10)?;
    let settings = format!(
        "evictionHard: {{memory.available: 60Mi}}\nevents: {{enabled: true, journal: {{path: \"{}\"}}}}",
        node.path("disk/events").display()
    );
    node.configure("enforce", &settings);
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    disk.fill();
    gone_after(&node.load(leaker, Load::Anon, 280 * MIB));
    node.finished(1);
    Ok((node, disk))
}

#[test]
fn a_full_disk_is_told_and_what_it_cost_and_the_journal_goes_on() {
    let (mut node, disk) = match evicted_on_a_full_disk() {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let stands = in_state(&node, "state/brink.sock", "full");
    assert!(stands.why.is_some_and(|why| why.contains("No space")));
    let doctor = node.doctor();
    let checks = doctor["checks"].as_array().unwrap().iter();
    let mut checks = checks.filter(|check| check["id"] == "state.event-journal");
    assert_eq!(checks.next().unwrap()["state"], "warning", "{doctor:#}");
    let page = http::get(&node.path("state/events.sock"), "/metrics");
    let page = page.unwrap().text().unwrap();
    assert!(
        page.contains("brink_event_journal{state=\"full\"} 1\n"),
        "{page}"
    );
    // More than can wait.
    let presser = Presser::start(&node);
    let lost = || node.status().filter(|status| journal(status).lost > 100);
    assert!(
        wait_until(3 * PATIENCE, lost).is_some(),
        "{:?}",
        node.status()
    );
    drop(presser);
    disk.free();
    in_state(&node, "state/brink.sock", "writing");
    let told = wait_until(PATIENCE, || {
        let losses = events(&node, "kind=loss&since=0");
        let lost: Vec<Loss> = losses.iter().map(data).collect();
        let of_journal = lost.iter().filter(|loss| loss.place == "journal");
        let counted: u64 = of_journal.map(|loss| loss.count).sum();
        let status = node.status()?;
        let is_told = counted > 100 && counted == journal(&status).lost;
        (is_told && journal(&status).waiting == 0).then_some(counted)
    });
    assert!(told.is_some(), "{:?}\n{}", node.status(), node.log());
    // What waited is there for the next run.
    node.stop(Signal::KILL);
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let kept = events(&node, "since=1d&kind=eviction-completed,loss");
    let of: Vec<Kind> = kept.iter().map(|event| event.of).collect();
    assert!(
        of.contains(&Kind::EvictionCompleted) && of.contains(&Kind::Loss),
        "{of:?}"
    );
    node.stop(Signal::TERM);
    drop(disk);
}

#[test]
fn what_waits_for_a_full_disk_at_the_end_is_told_by_the_next_run() {
    let (mut node, disk) = match evicted_on_a_full_disk() {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    in_state(&node, "state/brink.sock", "full");
    let kept = || {
        let bytes = fs::read(node.path("disk/events/unwritten")).ok()?;
        // Behind its mark.
        let count = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
        let waiting = journal(&node.status()?).waiting;
        (count > 0 && count == waiting).then_some(count)
    };
    let waiting = wait_until(PATIENCE, kept).unwrap_or_else(|| panic!("{:?}", node.status()));
    node.stop(Signal::KILL);
    disk.free();
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let told = wait_until(PATIENCE, || {
        let losses = events(&node, "kind=loss&since=1d");
        let mut losses = losses.iter().map(data::<Loss>);
        losses.find(|loss| loss.place == "journal" && loss.uncounted)
    });
    let told = told.unwrap_or_else(|| panic!("{}", node.log()));
    assert!(told.count >= waiting, "{told:?}, not {waiting}");
    node.stop(Signal::TERM);
    drop(disk);
}

/// The state directory is in memory, and the journal on a disk: one may go without the other.
#[test]
fn numbers_rise_within_a_boot_although_the_state_directory_is_lost() {
    let mut node = Node::new(300);
    node.workload("anybody", "containers: [{name: c}]");
    node.configure("enforce", CALM);
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let before = events(&node, "since=0");
    let last = before.last().unwrap();
    node.stop(Signal::TERM);
    fs::remove_file(node.path("state/events.numbers")).unwrap();
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let rest = events(&node, &format!("since={}", place(last)));
    assert!(rest.iter().all(|event| event.seq > last.seq), "{rest:?}");
    let is_start = |event: &Event| event.of == Kind::AgentStarted;
    assert!(rest.iter().any(is_start), "{rest:?}");
}

#[test]
fn who_takes_over_takes_the_journal_and_the_numbers_over() {
    let mut node = Node::new(300);
    node.workload("anybody", "containers: [{name: c}]");
    two_agents(&mut node, CALM);
    let stands = in_state(&node, "other.sock", "unopened");
    assert!(stands.why.is_some_and(|why| why.contains("another agent")));
    node.stop_first(Signal::KILL);
    in_state(&node, "other.sock", "writing");
    let starts = |node: &Node| events(node, "since=1d&kind=agent-started");
    let both = wait_until(PATIENCE, || {
        Some(starts(&node)).filter(|told| told.len() == 2)
    });
    let both = both.unwrap_or_else(|| panic!("{:?}\n{}", starts(&node), node.log()));
    assert!(both[0].seq < both[1].seq, "{both:?}");
    node.stop(Signal::TERM);
    node.launch(&[]);
    let all = wait_until(PATIENCE, || {
        Some(starts(&node)).filter(|told| told.len() == 3)
    });
    let all = all.unwrap_or_else(|| panic!("{:?}\n{}", starts(&node), node.log()));
    assert!(all[1].seq < all[2].seq, "numbers go on: {all:?}");
}

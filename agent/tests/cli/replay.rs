//! `brink replay` of a journal that an engine has written here: the same answers, other answers, and what is no journal.

use std::fs;
use std::sync::Arc;

use brink::guard::step::Step;
use brink::runtime::journal::Journal;
use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::action::Actions;
use brink_core::node::engine::{Engine, LiveSettings, MemoryPolicy};
use brink_core::node::input::{Confirmation, Control, Input, Sample};
use brink_core::node::observe::{Layout, Observation, Observations};
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};
use brink_core::node::workload::{PodUsage, Workload, WorkloadTable};

use super::{run, stderr, stdout};

/// An engine that writes down what it is told and what it answers.
struct Node {
    engine: Engine,
    actions: Actions,
    journal: Journal,
    table: Arc<WorkloadTable>,
}

impl Node {
    fn tell(&mut self, at: i64, input: &Input<'_>) {
        let now = Moment::from_secs(at);
        self.actions.clear();
        self.engine.step(now, input.clone(), &mut self.actions);
        let mut step = Step::with_room(8);
        step.generation = 1;
        assert!(step.fill(now, input, self.actions.as_slice()));
        self.journal.step(&step, Some(&self.table));
    }

    fn sample(&mut self, at: i64, available: i64) {
        let mut observations = Observations::default();
        observations[Signal::MemoryAvailable] = Some(Observation {
            available: available << 20,
            capacity: 1 << 30,
            at: Some(Moment::from_secs(at)),
        });
        let usage = PodUsage {
            memory: Some(500 << 20),
            processes: Some(1),
            ..PodUsage::default()
        };
        self.tell(
            at,
            &Input::Sample(&Sample {
                observations,
                confirmation: Confirmation::default(),
                usage: &[Some(usage)],
            }),
        );
    }
}

/// A journal of one pause, one crossing and one kill.
pub(super) fn journal(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("journal");
    let threshold = Threshold {
        signal: Signal::MemoryAvailable,
        grace: Span::ZERO,
        value: Value::Quantity(Quantity::from_bytes(100 << 20)),
        min_reclaim: None,
    };
    let policy = Policy::new(vec![threshold], Layout::Single, Settings::default());
    let live = LiveSettings {
        enforce: true,
        memory: MemoryPolicy::Kubelet,
        ..LiveSettings::default()
    };
    let victim = Workload {
        namespace: "shop".to_owned(),
        name: "leak\x1b[2J".to_owned(),
        ..Workload::default()
    };
    let start = Moment::from_secs(1);
    let mut node = Node {
        engine: Engine::new(policy.clone(), live, start),
        actions: Actions::default(),
        journal: Journal::create(&path, start, policy, live).unwrap(),
        table: Arc::new(WorkloadTable::new(vec![victim], 1)),
    };
    node.tell(1, &Input::Workloads(Arc::clone(&node.table.clone())));
    node.tell(
        2,
        &Input::Control(Control::Pause(Some(Span::from_secs(60)))),
    );
    node.tell(3, &Input::Control(Control::Resume));
    node.sample(4, 500);
    node.sample(5, 50);
    path.to_str().unwrap().to_owned()
}

/// What it prints of the journal, told to have been changed so: code, data and talk.
fn replayed(change: impl FnOnce(String) -> String, flags: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = journal(&folder);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, change(text)).unwrap();
    let output = run(&[&["replay", &path], flags].concat(), "");
    (
        output.status.code().unwrap(),
        stdout(&output),
        stderr(&output),
    )
}

#[track_caller]
fn check(change: impl FnOnce(String) -> String, code: i32, parts: &[&str]) {
    let (found, data, talk) = replayed(change, &[]);
    assert_eq!(found, code, "{data}{talk}");
    for part in parts {
        assert!(
            data.contains(part) || talk.contains(part),
            "{part:?} in\n{data}{talk}"
        );
    }
}

#[test]
fn each_answer_is_told_with_names_and_times() {
    let parts = [
        "monotonic 2.000000 s): paused for 1 min\n  orders are observed only: paused by the stop button\n",
        "monotonic 3.000000 s): resumed\n  orders are carried out from now on\n",
        "monotonic 5.000000 s): sample\n  hard memory.available<100Mi is crossed\n  conditions MemoryPressure\n  order 1: kill shop/leak\\u{1b}[2J\n",
        "\n5 steps, 0 decisions: the same answers\n",
    ];
    check(|text| text, 0, &parts);
}

#[test]
fn another_answer_than_was_recorded_is_told_and_code_three() {
    let other = |text: String| text.replace("\"order\":1", "\"order\":7");
    let parts = [
        "order 1: kill shop/leak",
        "order 7: kill shop/leak",
        "5 steps, 0 decisions: 1 step answers differently\n",
    ];
    check(other, 3, &parts);
    let (code, data, _) = replayed(other, &["-o", "json"]);
    let differing = data
        .lines()
        .filter(|line| line.contains("\"differs\":true"));
    assert_eq!((code, differing.count()), (3, 1), "{data}");
}

#[test]
fn a_last_line_that_is_not_finished_is_left_out() {
    let cut = |text: String| text[..text.len() - 9].to_owned();
    check(
        cut,
        0,
        &[
            ":7: the last line is not finished",
            "4 steps, 0 decisions: the same answers\n",
        ],
    );
}

#[test]
fn a_journal_that_continues_another_says_so_and_knows_its_table() {
    let later = |text: String| {
        let begun = text.replacen("\"at\":", "\"continues\":true,\"at\":", 1);
        let kept = begun
            .split_inclusive('\n')
            .filter(|line| !line.contains("\"kind\":\"workloads\""));
        kept.collect()
    };
    let parts = [
        "order 1: kill shop/leak",
        "4 steps, 0 decisions: the same answers\nit continues a journal that was put aside",
    ];
    check(later, 0, &parts);
    let (_, data, _) = replayed(later, &["-o", "json"]);
    let last = data.lines().last().unwrap();
    assert!(last.contains("\"continues\":true"), "{last}");
}

#[test]
fn a_journal_that_was_changed_since_is_damaged() {
    let lines = |text: &str| {
        text.split_inclusive('\n')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let cut = |text: String| {
        let mut lines = lines(&text);
        lines.remove(5);
        lines.concat()
    };
    let damage = "the journal is damaged, first at line 6: 1 step taken out; what the answers say";
    check(cut, 3, &["4 steps, 0 decisions: ", damage]);
    let (_, data, _) = replayed(cut, &["-o", "json"]);
    let last = data.lines().last().unwrap();
    assert!(
        last.contains("\"cut\":1,\"misplaced\":0,\"damagedLine\":6"),
        "{last}"
    );
    let turned = |text: String| {
        let mut lines = lines(&text);
        lines[4..].reverse();
        lines.concat()
    };
    check(
        turned,
        3,
        &["first at line 5: 2 steps out of order; what the answers"],
    );
}

#[test]
fn a_journal_can_come_from_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(journal(&folder)).unwrap();
    let output = run(&["replay", "-"], &text);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        said.contains("\n5 steps, 0 decisions: the same answers\n"),
        "{said}"
    );
    let output = run(&["replay", "-"], "{}\n");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said.contains("<stdin>:1: not a line of a journal"),
        "{said}"
    );
}

#[test]
fn what_is_no_journal_is_code_two() {
    check(
        |_| "{}\n".to_owned(),
        2,
        &[":1: not a line of a journal: missing field `line`"],
    );
    check(
        |text| text.replace("{\"line\":\"step\"", "{\"line\""),
        2,
        &[":3: not a line of a journal"],
    );
    let without_start = |text: String| text.split_once('\n').unwrap().1.to_owned();
    check(
        without_start,
        2,
        &["journal:2: a step comes before the start"],
    );
    let output = run(&["replay", "/nonexistent"], "");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let output = run(&["replay", pipe.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("this is a pipe"),
        "{}",
        stderr(&output)
    );
}

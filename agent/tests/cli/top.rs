//! `brink top`: its picture at every size, its page for scripts, and what it says where there is nothing to show.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use brink::control::protocol::{Ranking, Status};
use brink::top::draw::draw;
use brink::top::look::{IncidentRow, Look};
use brink::top::state::{Key, Manner, News, State};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use super::events::answer;
use super::{run, stderr, stdout};

const STATUS: &str = include_str!("../page/status.json");
const RANKING: &str = include_str!("../page/ranking.json");
const SECOND_NS: i64 = 1_000_000_000;
const MANNER: Manner = Manner {
    colour: true,
    unicode: true,
};
/// A name that would move the cursor, set the title, and turn the direction of writing.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\r\n\u{9b}1A\u{202e}a\u{200b}";

fn status(second: i64) -> Value {
    let mut status: Value = serde_json::from_str(STATUS).unwrap();
    status["pressure"] = json!([
        {"resource": "memory", "some": 1.25, "full": 0.5}, {"resource": "cpu", "some": 40.0, "full": null}]);
    status["now"]["monotonicNs"] = json!(second * SECOND_NS);
    status
}

/// A ranking in which the first grows by a mebibyte a second.
fn ranking(second: i64) -> Value {
    let mut ranking: Value = serde_json::from_str(RANKING).unwrap();
    ranking["now"]["monotonicNs"] = json!(second * SECOND_NS);
    ranking["workloads"][0]["usage"] = json!(262_144_000 + (second << 20));
    ranking
}

fn incident(id: &str, wall: &str, is_final: bool) -> Value {
    json!({"id": id, "cause": "memcgOom", "revision": 1, "isFinal": is_final, "at": {"wall": wall, "monotonicNs": 1},
        "namespace": "shop", "name": "web-5d9c7", "victims": [{"pid": 4711, "comm": "java"}, {"pid": 4712, "comm": "sh"}], "moreVictims": 1})
}

fn incidents() -> Value {
    json!([
        incident("3f2a-23", "2026-11-20T09:36:31.250877Z", false),
        incident("3f2a-21", "2026-11-20T09:30:01.000000Z", true)
    ])
}

fn look(second: i64) -> Look {
    Look {
        signal: "memory.available".to_owned(),
        status: serde_json::from_value(status(second)).unwrap(),
        ranking: Ok(serde_json::from_value(ranking(second)).unwrap()),
    }
}

fn state() -> State {
    let mut state = State::new(look(0), MANNER);
    state.hear(News::Look(Box::new(look(1))));
    let rows: Vec<IncidentRow> = serde_json::from_value(incidents()).unwrap();
    state.hear(News::Incidents(rows));
    state
}

fn drawn(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(state, frame.area(), frame.buffer_mut()))
        .unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let row = |y| {
        let cells = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..buffer.area.height).map(row).collect()
}

/// Compares with what is committed; `BRINK_BLESS=1` writes it, to be read before it is committed.
#[track_caller]
fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/golden/{name}.txt"));
    if std::env::var_os("BRINK_BLESS").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{}", path.display());
}

#[test]
fn the_picture_at_three_sizes() {
    for (width, height) in [(80, 24), (120, 40), (40, 10)] {
        let text = lines(&drawn(&state(), width, height)).join("\n") + "\n";
        golden(&format!("top-{width}x{height}"), &text);
    }
}

#[test]
fn help_and_the_other_list_have_their_pictures() {
    let mut state = state();
    state.press(Key::Help);
    golden(
        "top-help",
        &(lines(&drawn(&state, 80, 24)).join("\n") + "\n"),
    );
    let narrow = lines(&drawn(&state, 40, 10)).join("\n");
    assert!(
        narrow.contains("q, Ctrl-C") && narrow.contains("? back"),
        "{narrow}"
    );
    state.press(Key::Help);
    state.press(Key::Pane);
    let narrow = lines(&drawn(&state, 40, 10)).join("\n");
    assert!(
        narrow.contains("Last incidents: 1 of 2") && !narrow.contains("WORKLOAD"),
        "{narrow}"
    );
}

#[track_caller]
fn check(change: impl FnOnce(&mut State), expected: &[&str]) {
    let mut state = state();
    change(&mut state);
    let text = lines(&drawn(&state, 80, 24)).join("\n");
    for part in expected {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

/// The last look, changed.
fn seen(state: &mut State, change: impl FnOnce(&mut Status, &mut Ranking)) {
    let mut look = look(2);
    let mut ranking = look.ranking.unwrap();
    change(&mut look.status, &mut ranking);
    look.ranking = Ok(ranking);
    state.hear(News::Look(Box::new(look)));
}

#[test]
fn what_is_wrong_is_said() {
    check(
        |state| state.hear(News::Lost("no agent listens on /run/x".to_owned())),
        &[
            "LOST, figures of 23:14:40 UTC, trying again: no agent listens on /run/x",
            "shop/cart",
        ],
    );
    check(
        |state| {
            state.hear(News::Incidents(Vec::new()));
            state.hear(News::Deaf("no agent tells events on /run/e".to_owned()));
        },
        &["Last incidents\n  no agent tells events on /run/e"],
    );
    check(
        |state| state.hear(News::Deaf("broken off".to_owned())),
        &["not heard of any more: broken off", "shop/web-5d9c7"],
    );
    check(
        |state| {
            seen(state, |status, ranking| {
                status.conditions = vec!["MemoryPressure".to_owned()];
                status.thresholds[1].met = true;
                status.pressure.clear();
                ranking.workloads.clear();
                ranking.why.clear();
            });
        },
        &[
            "observing  MemoryPressure",
            "MET hard 256Mi",
            "not told by this kernel (PSI)",
            "Nobody: no workload is watched over.",
        ],
    );
    check(
        |state| {
            let mut look = look(2);
            look.status.signals.clear();
            look.ranking = Err(serde_json::from_value(json!({"reason": "notPossible", "message": "the guard has not read the node yet", "next": "try again in a moment"})).unwrap());
            state.hear(News::Look(Box::new(look)));
        },
        &[
            "The guard has not read the node yet.",
            "the guard has not read the node yet; try again in a moment",
        ],
    );
    check(
        |state| drop(state.press(Key::Freeze)),
        &["23:14:40 UTC STOPPED"],
    );
}

/// So many workloads, and the last of them is chosen.
fn many(count: usize) -> State {
    let mut state = state();
    seen(&mut state, |_, ranking| {
        let one = ranking.workloads[0].clone();
        ranking.workloads = (0..count)
            .map(|index| {
                let mut one = one.clone();
                (one.name, one.uid) = (format!("pod-{index}"), format!("u{index}"));
                one
            })
            .collect();
    });
    state
}

#[test]
fn the_chosen_one_is_in_the_picture_however_many_there_are() {
    for (width, height) in [(80, 24), (40, 10), (120, 40)] {
        let mut state = many(1000);
        state.press(Key::Last);
        let text = lines(&drawn(&state, width, height)).join("\n");
        assert!(
            text.contains("shop/pod-999") && !text.contains("shop/pod-0 "),
            "{text}"
        );
        state.press(Key::First);
        let text = lines(&drawn(&state, width, height)).join("\n");
        assert!(
            text.contains("shop/pod-0 ") && !text.contains("shop/pod-999"),
            "{text}"
        );
    }
}

/// One that has lost its end would be another one.
#[test]
fn a_figure_or_an_id_is_whole_or_not_there() {
    const IDS: [&str; 2] = ["4960f8e8-2631", "4960f8e8-2632"];
    let long = format!("web-{}-end", "x".repeat(60));
    let mut state = state();
    seen(&mut state, |status, ranking| {
        status.signals[0].signal = "allocatableMemory.available".to_owned();
        ranking.workloads[0].name.clone_from(&long);
    });
    let rows = IDS.map(|id| {
        let mut row = incident(id, "2026-11-20T09:36:31.250877Z", true);
        row["name"] = json!(long);
        serde_json::from_value::<IncidentRow>(row).unwrap()
    });
    state.hear(News::Incidents(Vec::from(rows)));
    for width in 40..=130 {
        let lines = lines(&drawn(&state, width, 24));
        let text = lines.join("\n");
        for line in &lines {
            assert!(
                !line.contains("hard 1") || line.contains("hard 128Mi"),
                "{width}: {line}"
            );
            // What the first one uses, of what it requested.
            let is_first = line.contains("252Mi");
            assert!(
                !is_first || !line.contains("19") || line.contains("196%"),
                "{width}: {line}"
            );
        }
        assert!(text.contains("hard 128Mi"), "{width}\n{text}");
        for id in IDS {
            assert_eq!(text.contains(id), width >= 64, "{width}\n{text}");
        }
        let mut told = lines.iter().filter(|line| line.contains(IDS[0]));
        assert!(told.all(|line| line.contains('…')), "{text}");
    }
}

/// Too narrow for anything: that is seen.
#[test]
fn what_is_cut_at_the_edge_is_marked() {
    let state = state();
    for (width, height) in [(20, 24), (30, 10)] {
        let picture = lines(&drawn(&state, width, height));
        let headroom = picture.iter().find(|line| line.contains("memory.head"));
        let headroom = headroom.unwrap();
        assert!(
            headroom.ends_with('…') && headroom.chars().count() == usize::from(width),
            "{headroom}"
        );
    }
    let mut plain = State::new(
        look(0),
        Manner {
            colour: false,
            unicode: false,
        },
    );
    plain.hear(News::Lost("x".repeat(200)));
    assert!(lines(&drawn(&plain, 80, 24))[0].ends_with("xx~"));
}

#[test]
fn without_colours_there_are_none() {
    let mut plain = State::new(
        look(0),
        Manner {
            colour: false,
            unicode: false,
        },
    );
    plain.hear(News::Lost("gone".to_owned()));
    let buffer = drawn(&plain, 80, 24);
    let none = ratatui::style::Color::Reset;
    assert!(
        buffer
            .content
            .iter()
            .all(|cell| cell.fg == none && cell.bg == none)
    );
    assert!(buffer.content.iter().all(|cell| cell.symbol().is_ascii()));
    let buffer = drawn(&state(), 80, 24);
    assert!(buffer.content.iter().any(|cell| cell.fg != none));
}

/// Every text that comes from outside is an attack.
fn hostile() -> State {
    let mut look = look(0);
    let name = || HOSTILE.to_owned();
    let status = &mut look.status;
    (status.version, status.mode, status.rung) = (name(), name(), Some(name()));
    status.conditions = vec![name()];
    status.signals[0].signal = name();
    status.thresholds[1].value = name();
    status.pressure[0].resource = name();
    let ranking = look.ranking.as_mut().unwrap();
    for workload in &mut ranking.workloads {
        (workload.namespace, workload.name, workload.refusal) = (name(), name(), Some(name()));
    }
    ranking.why[0].sentence = name();
    let mut state = State::new(look, MANNER);
    let mut row = incident(HOSTILE, HOSTILE, false);
    row["name"] = json!(HOSTILE);
    row["victims"][0]["comm"] = json!(HOSTILE);
    let row: IncidentRow = serde_json::from_value(row).unwrap();
    state.hear(News::Incident(Box::new(row)));
    state
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_size_is_drawn_and_nothing_that_steers_is_in_it(
        width in 0_u16..250, height in 0_u16..80, keys in proptest::collection::vec(0..9_usize, 0..6), lost in any::<bool>()
    ) {
        const KEYS: [Key; 9] = [Key::Up, Key::Down, Key::PageDown, Key::Last, Key::First, Key::Pane, Key::Help, Key::Freeze, Key::PageUp];
        for mut state in [state(), hostile(), many(50)] {
            for key in &keys {
                let _drawn_anyhow = state.press(KEYS[*key]);
            }
            if lost {
                state.hear(News::Lost(HOSTILE.to_owned()));
                state.hear(News::Deaf(HOSTILE.to_owned()));
            }
            let area = Rect::new(0, 0, width, height);
            let mut buffer = Buffer::empty(area);
            draw(&state, area, &mut buffer);
            for cell in &buffer.content {
                prop_assert!(!cell.symbol().chars().any(|letter| letter.is_control() || letter == '\u{202e}'), "{cell:?}");
            }
        }
    }
}

/// An agent that answers every question from these figures, each look a second after the one before.
struct Agent(tempfile::TempDir);

impl Agent {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("brink.sock")).unwrap();
        let looks = AtomicI64::new(0);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = String::new();
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                lines.read_line(&mut asked).unwrap();
                let said = if asked.contains("\"status\"") {
                    json!({"answer": "status", "body": status(looks.load(Ordering::Relaxed))})
                } else if asked.contains("memory.available") {
                    let second = looks.fetch_add(1, Ordering::Relaxed);
                    json!({"answer": "ranking", "body": ranking(second)})
                } else {
                    json!({"answer": "refused", "body": {"reason": "notFound", "message": "there is no signal \"x\"", "next": "name one of a, b"}})
                };
                // A client that has seen enough is gone.
                let _gone = stream.write_all(format!("{said}\n").as_bytes());
            }
        });
        Self(folder)
    }

    fn tells_incidents(self) -> Self {
        let listener = UnixListener::bind(self.0.path().join("events.sock")).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = String::new();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            lines.read_line(&mut asked).unwrap();
            assert_eq!(asked, "GET /v1/incidents?limit=100 HTTP/1.1\r\n");
            let list = json!({"apiVersion": "brink.dev/v1alpha1", "kind": "IncidentList", "items": incidents()});
            let _gone = stream.write_all(answer("200 OK", &list.to_string()).as_bytes());
        });
        self
    }

    fn top(&self, flags: &[&str]) -> Output {
        let socket = self.0.path().join("brink.sock");
        let args = [
            "top",
            "--interval",
            "200ms",
            "--socket",
            socket.to_str().unwrap(),
        ];
        run(&[&args[..], flags].concat(), "")
    }
}

#[test]
fn once_is_a_page_of_plain_text() {
    let output = Agent::new().tells_incidents().top(&["--once"]);
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );
    golden("top-once", &stdout(&output));
    // A pipe is no terminal, and an agent without events is one all the same.
    let output = Agent::new().top(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("+1.0Mi/s") && text.contains("no agent tells events on "),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn a_signal_that_is_none_is_refused() {
    let output = Agent::new().top(&["--signal", "x"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("no such signal; the signals are memory.available, "),
        "{text}"
    );
    assert_eq!(stdout(&output), "");
}

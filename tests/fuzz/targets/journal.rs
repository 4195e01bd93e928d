//! Journals, replayed: each line, what the engine makes of it, and what is told of that.

use brink::replay::{self, Replay};
use brink::runtime::journal::Line;
use brink::terminal::Style;

use crate::Taken;

/// Lines of one input that are replayed.
const MOST: usize = 64;

/// Lines of JSON.
pub(crate) fn journal(bytes: &[u8]) -> Taken {
    let mut lines = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').take(MOST) {
        match serde_json::from_slice::<Line>(line) {
            Ok(line) => lines.push(line),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    for line in &lines {
        check_written(line);
    }
    let told = replayed(&lines);
    assert_eq!(told, replayed(&lines), "two replays differ");
    Taken::from_accepted(lines.len() > 1)
}

/// A line can be written again, and is the same line.
fn check_written(line: &Line) {
    let written = serde_json::to_string(line).unwrap_or_default();
    let back = serde_json::from_str::<Line>(&written);
    let again = back.map(|line| serde_json::to_string(&line).unwrap_or_default());
    // Of numbers with a fraction, the last digit can be read as its neighbour.
    let is_whole = !written.contains("afterSeconds") && !written.contains("Fraction");
    assert!(
        again.is_ok_and(|again| !is_whole || again == written),
        "{written}"
    );
}

/// What is printed of every line, errors included.
fn replayed(lines: &[Line]) -> Vec<String> {
    let style = Style::default();
    let mut replay = Replay::default();
    let mut told = Vec::new();
    for (number, line) in (1..).zip(lines) {
        match replay.take(line.clone(), number) {
            Ok(Some(step)) => {
                told.push(serde_json::to_string(&step).unwrap_or_default());
                told.push(replay::step(&step, style));
            }
            Ok(None) => {}
            Err(error) => told.push(format!("{error:#}")),
        }
    }
    told.push(replay::summary(&replay.summary(), style));
    assert!(told.iter().all(|text| !text.is_empty()));
    told
}

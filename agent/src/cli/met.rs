//! Thresholds that are met now, told beside a ranking or an explanation: since when, and why one is held.

use std::iter;
use std::path::Path;

use super::asking::{put, unexpected};
use super::exit::CliError;
use super::output::Talk;
use super::status_page::state;
use crate::control::protocol::{Answer, Question, ThresholdState};
use crate::record::text::hardness;
use crate::terminal::{Paint, Screen};

/// A line for each, behind one label.
pub(super) fn met(screen: &mut Screen, label: &str, thresholds: &[ThresholdState]) {
    let blank = " ".repeat(label.len());
    let labels = iter::once(label).chain(iter::repeat(blank.as_str()));
    for (label, threshold) in labels.zip(thresholds) {
        screen.paragraph(label, &words(threshold), Some(Paint::Warning));
    }
}

/// Asks which are met, and says so on stderr: a decision is of another moment, and there may be none.
///
/// # Errors
/// When no agent answers.
pub(super) fn tell_met(socket: &Path) -> Result<(), CliError> {
    let Answer::Status(status) = put(socket, &Question::Status)? else {
        return Err(unexpected());
    };
    for threshold in status.thresholds.iter().filter(|one| one.met) {
        Talk::new().say(&words(threshold));
    }
    Ok(())
}

/// Which it is, and how it stands, as in the status.
fn words(threshold: &ThresholdState) -> String {
    format!(
        "{} {} below {}: {}",
        hardness(threshold.hard),
        threshold.signal,
        threshold.value,
        state(threshold)
    )
}

/// A threshold that is met now, for tests.
#[cfg(test)]
pub(super) fn met_now(held: Option<&str>) -> ThresholdState {
    ThresholdState {
        signal: "nodefs.available".to_owned(),
        value: "500Ti".to_owned(),
        hard: true,
        grace_seconds: 0,
        quantity: Some(500 << 40),
        observed: true,
        met: true,
        met_for_ms: Some(8000),
        held: held.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    #[test]
    fn each_is_told_in_a_line_with_what_it_waits_for() {
        let mut screen = Screen::new(Style::default());
        let mut soft = met_now(None);
        soft.hard = false;
        met(&mut screen, "  met ", &[met_now(Some("waiting")), soft]);
        let expected = "  met hard nodefs.available below 500Ti: MET for 8.0 s, held: an order is still open (waiting)
      soft nodefs.available below 500Ti: MET for 8.0 s, acts when its grace is over
";
        assert_eq!(screen.into_text(), expected);
        let mut screen = Screen::new(Style::default());
        met(&mut screen, "  met ", &[]);
        assert_eq!(screen.into_text(), "");
    }
}

//! `brink pause` and `brink resume`: the stop button.

use std::path::Path;

use brink_core::base::Span;
use brink_core::base::duration::DurationError;

use super::asking::{failed, unexpected};
use super::exit::{CliError, Exit};
use super::options::{FormatArgs, SocketArgs};
use super::output::{Data, Format};
use crate::control::client::{AskError, ask};
use crate::control::protocol::{Answer, ModeView, PauseView, Question};
use crate::record::text::{mode_words, moment};
use crate::runtime::stop_button::Presser;
use crate::terminal::{Screen, Style};

/// Options of `brink pause`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink pause
  brink pause --for 10m

Enforcement ends within a tenth of a second; everything is still decided and told.")]
pub struct PauseArgs {
    /// Resume by itself after this time
    #[arg(long = "for", value_name = "DURATION", allow_hyphen_values = true)]
    pub duration: Option<String>,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Options of `brink resume`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink resume

A pause is lifted, and so is the stop that follows from too many kills (limits in the configuration). What the \
configuration says stays: an agent that only observes goes on observing.")]
pub struct ResumeArgs {
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// The cluster's way to pause.
const ANNOTATION: &str = "the node's annotation brink.dev/pause";

/// Ends enforcement.
///
/// # Errors
/// When no agent answers.
pub(super) fn run_pause(args: &PauseArgs) -> Result<Exit, CliError> {
    let seconds = args.duration.as_deref().map(seconds).transpose()?;
    say_mode(
        &args.socket.socket,
        &Question::Pause { seconds },
        args.format.output,
    )
}

/// Lifts a pause, and a guard that has tripped.
///
/// # Errors
/// When no agent answers.
pub(super) fn run_resume(args: &ResumeArgs) -> Result<Exit, CliError> {
    say_mode(&args.socket.socket, &Question::Resume, args.format.output)
}

fn say_mode(socket: &Path, question: &Question, format: Format) -> Result<Exit, CliError> {
    let answer = ask(socket, question).map_err(|error| match error {
        // It was heard, perhaps, and is still on its way to the guard.
        AskError::Broken { .. } => CliError::new(Exit::NoAgent, error)
            .advise("it may have been carried out all the same: `brink status` tells"),
        error => failed(socket, error),
    })?;
    let Answer::Mode(view) = answer else {
        return Err(unexpected());
    };
    let mut data = Data::new();
    match format {
        Format::Json => data.json(&view)?,
        Format::Text => data.print(&page(&view, data.style()))?,
    }
    data.flush()?;
    Ok(Exit::Success)
}

/// How orders stand now, for people.
pub(super) fn page(view: &ModeView, style: Style) -> String {
    let mut screen = Screen::new(style);
    screen.line("", &sentence(view));
    screen.into_text()
}

/// The same in a sentence.
fn sentence(view: &ModeView) -> String {
    match (view.mode.as_str(), &view.pause) {
        ("enforcing", _) => "enforcing".to_owned(),
        ("paused", Some(pause)) => format!("paused {}", pause_end(pause)),
        (mode, Some(pause)) => format!(
            "paused {}; without the pause orders would be observed only all the same: {}",
            pause_end(pause),
            mode_words(mode)
        ),
        (mode, None) => format!("observing only: {}", mode_words(mode)),
    }
}

/// How a pause ends, and by what it goes on where `brink resume` alone does not end it.
pub(super) fn pause_end(pause: &PauseView) -> String {
    let is_by = |presser: Presser| pause.pressed_by.iter().any(|by| by == presser.word());
    let (is_file, is_annotation) = (is_by(Presser::File), is_by(Presser::Annotation));
    match &pause.until {
        Some(until) if is_annotation => {
            let file = if is_file { "`brink pause` and " } else { "" };
            format!("until {}, by {file}{ANNOTATION}", moment(until))
        }
        Some(until) => format!("until {}", moment(until)),
        None if is_annotation => {
            let file = if is_file {
                "`brink resume`, and until "
            } else {
                ""
            };
            format!("until {file}{ANNOTATION} is taken away")
        }
        None => "until `brink resume`".to_owned(),
    }
}

/// A length of time that is worth pausing for, in whole seconds.
fn seconds(text: &str) -> Result<u64, CliError> {
    let wrong = |problem: String| {
        let error = anyhow::anyhow!("--for {text:?}: {problem}");
        CliError::new(Exit::Usage, error).advise("write it as 30s, 10m or 1h30m")
    };
    let span: Span = text
        .parse()
        .map_err(|error: DurationError| wrong(error.to_string()))?;
    let seconds = span.as_nanos().div_euclid(1_000_000_000);
    match u64::try_from(seconds) {
        Ok(seconds @ 1..) => Ok(seconds),
        _ => Err(wrong("at least one second".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::wire::Time;

    #[test]
    fn how_orders_stand_in_a_line() {
        let time = Time {
            wall: "2026-01-01T00:00:00.000000Z".to_owned(),
            monotonic_ns: 5_000_000_000,
        };
        let pressed = |until: Option<&Time>, by: &[&str]| {
            Some(PauseView {
                until: until.cloned(),
                pressed_by: by.iter().map(|&by| by.to_owned()).collect(),
            })
        };
        for (mode, pause, expected) in [
            ("enforcing", None, "enforcing"),
            (
                "observing",
                None,
                "observing only: the configuration says to observe",
            ),
            (
                "paused",
                pressed(Some(&time), &["file"]),
                "paused until 2026-01-01T00:00:00.000000Z (monotonic 5.000000 s)",
            ),
            (
                "paused",
                pressed(Some(&time), &["annotation"]),
                "paused until 2026-01-01T00:00:00.000000Z (monotonic 5.000000 s), by the node's annotation brink.dev/pause",
            ),
            (
                "paused",
                pressed(None, &["annotation"]),
                "paused until the node's annotation brink.dev/pause is taken away",
            ),
            (
                "paused",
                pressed(None, &["file", "annotation"]),
                "paused until `brink resume`, and until the node's annotation brink.dev/pause is taken away",
            ),
            ("paused", pressed(None, &[]), "paused until `brink resume`"),
            (
                "standby",
                pressed(None, &["file"]),
                "paused until `brink resume`; without the pause orders would be observed only all the same: standby, because another agent enforces on this node",
            ),
        ] {
            let view = ModeView {
                api_version: String::new(),
                kind: String::new(),
                now: time.clone(),
                mode: mode.to_owned(),
                pause,
            };
            assert_eq!(sentence(&view), expected);
        }
    }
}

//! A replayed step for people: when, what came in, and each answer in words.

use std::fmt;

use super::wire::{ActionView, InputView, ReplayedStep, Summary, ThresholdName};
use crate::record::text::{
    counted, end_words, hardness, held_words, mode_words, moment, stretch, unsigned,
};
use crate::terminal::{Paint, Screen, Style};

/// The step on a page: a line for the input, one for each answer.
pub fn step(step: &ReplayedStep, style: Style) -> String {
    let mut screen = Screen::new(style);
    let head = format!("line {}, {}: {}", step.line, moment(&step.at), step.input);
    screen.heading(&head);
    for action in &step.actions {
        screen.line("  ", &action.to_string());
    }
    if step.actions.is_empty() {
        screen.line("  ", "nothing follows");
    }
    if step.differs {
        let recorded: Vec<String> = step.recorded.iter().map(ToString::to_string).collect();
        let recorded = match recorded.as_slice() {
            [] => "nothing followed".to_owned(),
            all => all.join("; "),
        };
        screen.paragraph("  DIFFERS, recorded: ", &recorded, Some(Paint::Error));
    }
    screen.into_text()
}

/// What came of the journal.
pub fn summary(summary: &Summary, style: Style) -> String {
    let mut screen = Screen::new(style);
    let (answers, paint) = match summary.differing {
        0 => ("the same answers".to_owned(), None),
        1 => ("1 step answers differently".to_owned(), Some(Paint::Error)),
        some => (
            format!("{some} steps answer differently"),
            Some(Paint::Error),
        ),
    };
    let lost = match summary.lost {
        0 => String::new(),
        some => format!("; {} missing in the journal", counted(some, "step")),
    };
    let text = format!(
        "{}, {}: {answers}{lost}",
        counted(summary.steps, "step"),
        counted(summary.decisions, "decision")
    );
    screen.paragraph("", &text, paint);
    screen.into_text()
}

fn named(workload: Option<&String>) -> &str {
    workload.map_or("a workload the journal does not know", String::as_str)
}

fn crossed(threshold: Option<&ThresholdName>) -> String {
    threshold.map_or_else(
        || "a threshold the journal does not know".to_owned(),
        ToString::to_string,
    )
}

impl fmt::Display for ThresholdName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = hardness(self.hard);
        write!(f, "{kind} {}<{}", self.signal, self.value)?;
        if self.hard {
            return Ok(());
        }
        let grace = stretch(self.grace_seconds.saturating_mul(1000));
        write!(f, " for {grace}")
    }
}

impl fmt::Display for InputView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tick => f.write_str("time went by"),
            Self::Workloads => f.write_str("new table of workloads"),
            Self::Sample => f.write_str("sample"),
            Self::Gone { workload } => {
                write!(
                    f,
                    "the last process of {} is gone",
                    named(workload.as_ref())
                )
            }
            Self::Dying {
                workload,
                charged_bytes,
            } => write!(
                f,
                "somebody else killed {} in {}",
                unsigned(*charged_bytes),
                named(workload.as_ref())
            ),
            Self::Outcome {
                order,
                delivered,
                processes,
            } => match *delivered {
                "done" => write!(
                    f,
                    "order {order} reached {}",
                    counted(u64::from(*processes), "process")
                ),
                "empty" => write!(f, "order {order} found nobody left"),
                _ => write!(f, "order {order} could not be carried out"),
            },
            Self::Reclaimed => f.write_str("reclaim on the node has run"),
            Self::Pause { for_ms: None } => f.write_str("paused until further notice"),
            Self::Pause { for_ms: Some(ms) } => write!(f, "paused for {}", stretch(*ms)),
            Self::Unpause => f.write_str("no pause"),
            Self::Resume => f.write_str("resumed"),
            Self::Standby { on: true } => f.write_str("another agent enforces"),
            Self::Standby { on: false } => f.write_str("no other agent enforces"),
            Self::Enforce { on: true } => f.write_str("configured to enforce"),
            Self::Enforce { on: false } => f.write_str("configured to observe"),
            Self::Reconfigure => f.write_str("new configuration"),
            Self::RecallOrder { order } => write!(f, "recalled: orders up to {order} are given"),
            Self::RecallMet { threshold, since } => write!(
                f,
                "recalled: {} met since {}",
                crossed(threshold.as_ref()),
                moment(since)
            ),
        }
    }
}

impl fmt::Display for ActionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill { order, workload } => {
                write!(f, "order {order}: kill {}", named(workload.as_ref()))
            }
            Self::Ask {
                order,
                workload,
                until,
            } => write!(
                f,
                "order {order}: ask {} to end, kill it at {}",
                named(workload.as_ref()),
                moment(until)
            ),
            Self::WouldEvict { order, workload } => {
                let name = named(workload.as_ref());
                write!(f, "order {order}: would evict {name}, observed only")
            }
            Self::Ended { order, end } => write!(f, "order {order} is over: {}", end_words(end)),
            Self::Reclaim { threshold } => {
                write!(f, "reclaim on the node for {}", crossed(threshold.as_ref()))
            }
            Self::Crossed { threshold } => write!(f, "{} is crossed", crossed(threshold.as_ref())),
            Self::Cleared { threshold } => {
                write!(f, "{} is clear again", crossed(threshold.as_ref()))
            }
            Self::Held { threshold, reason } => write!(
                f,
                "{} is held: {} ({reason})",
                crossed(threshold.as_ref()),
                held_words(reason)
            ),
            Self::Conditions { conditions } if conditions.is_empty() => f.write_str("no condition"),
            Self::Conditions { conditions } => write!(f, "conditions {}", conditions.join(", ")),
            Self::Mode { mode: "enforcing" } => f.write_str("orders are carried out from now on"),
            Self::Mode { mode } => write!(f, "orders are observed only: {}", mode_words(mode)),
        }
    }
}

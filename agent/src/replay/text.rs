//! A replayed step for people: when, what came in, and each answer in words.

use std::fmt;

use super::wire::{ActionView, InputView, ReplayedStep, Summary, ThresholdName};
use crate::record::text::{
    bytes, counted, end_words, hardness, held_words, mode_words, moment, stretch, unsigned,
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
    if let Some(text) = damage(summary) {
        screen.paragraph("", &text, Some(Paint::Error));
    }
    if summary.continues {
        let text = "it continues a journal that was put aside or interrupted: answers may differ for want of what came before";
        screen.paragraph("", text, Some(Paint::Warning));
    }
    screen.into_text()
}

/// What somebody has done to the journal since it was written.
fn damage(summary: &Summary) -> Option<String> {
    let line = summary.damaged_line?;
    let cut = (summary.cut > 0).then(|| format!("{} taken out", counted(summary.cut, "step")));
    let misplaced = (summary.misplaced > 0)
        .then(|| format!("{} out of order", counted(summary.misplaced, "step")));
    let parts: Vec<String> = cut.into_iter().chain(misplaced).collect();
    Some(format!(
        "the journal is damaged, first at line {line}: {}; what the answers say is not what happened",
        parts.join(", ")
    ))
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
        let text = match self {
            Self::Tick => "time went by".to_owned(),
            Self::Workloads => "new table of workloads".to_owned(),
            Self::Sample => "sample".to_owned(),
            Self::Gone {
                workload,
                kept_bytes,
                unseen_bytes,
            } => gone(workload.as_ref(), *kept_bytes, *unseen_bytes),
            Self::Dying {
                workload,
                charged_bytes,
            } => format!(
                "somebody else killed {} in {}",
                unsigned(*charged_bytes),
                named(workload.as_ref())
            ),
            Self::Outcome {
                order,
                delivered,
                processes,
            } => format!("order {order} {}", delivery(delivered, *processes)),
            Self::Reclaimed => "reclaim on the node has run".to_owned(),
            Self::ReclaimedInPart => "reclaim on the node ran out of time".to_owned(),
            Self::WouldReclaim { said_bytes } => {
                format!("reclaim would bring {}", unsigned(*said_bytes))
            }
            Self::Exceeded {
                workload,
                limit,
                limit_bytes,
                used_bytes,
            } => format!(
                "{limit}: {} uses {} of {}",
                named(workload.as_ref()),
                unsigned(*used_bytes),
                bytes(*limit_bytes)
            ),
            Self::Kubelet { on: true } => "a kubelet owns the container runtime".to_owned(),
            Self::Kubelet { on: false } => "no kubelet owns the container runtime".to_owned(),
            Self::Measuring { on: true } => {
                "what workloads hold of disks is being measured".to_owned()
            }
            Self::Measuring { on: false } => {
                "what workloads hold of disks is not waited for any more".to_owned()
            }
            Self::Pause { for_ms: None } => "paused until further notice".to_owned(),
            Self::Pause { for_ms: Some(ms) } => format!("paused for {}", stretch(*ms)),
            Self::Unpause => "no pause".to_owned(),
            Self::Resume => "resumed".to_owned(),
            Self::Standby { on: true } => "another agent enforces".to_owned(),
            Self::Standby { on: false } => "no other agent enforces".to_owned(),
            Self::Enforce { on: true } => "configured to enforce".to_owned(),
            Self::Enforce { on: false } => "configured to observe".to_owned(),
            Self::Reconfigure => "new configuration".to_owned(),
            Self::RecallMissed { millis } => {
                format!("nobody looked for {}", stretch(*millis))
            }
            Self::RecallKill { at, .. } => format!("recalled: a kill at {}", moment(at)),
            Self::RecallEvicted {
                order,
                workload,
                at,
            } => format!(
                "recalled: order {order} evicted {} at {}",
                named(workload.as_ref()),
                moment(at)
            ),
            Self::RecallOpen {
                order,
                workload,
                until,
                killed,
                ..
            } => {
                let workload = named(workload.as_ref());
                let how_far = match (until, killed) {
                    (Some(until), _) => format!("asked to end until {}", moment(until)),
                    (None, Some(at)) => format!("killed at {}", moment(at)),
                    (None, None) => "not yet asked".to_owned(),
                };
                format!("recalled: order {order} is not over, {workload} {how_far}")
            }
            Self::RecallOrder { order } => format!("recalled: orders up to {order} are given"),
            Self::RecallMet { threshold, since } => {
                let threshold = crossed(threshold.as_ref());
                format!("recalled: {threshold} met since {}", moment(since))
            }
        };
        f.write_str(&text)
    }
}

fn gone(workload: Option<&String>, kept: Option<u64>, unseen: Option<u64>) -> String {
    let gone = format!("the last process of {} is gone", named(workload));
    let kept = kept.map(|kept| format!(", {} stay in its volumes", unsigned(kept)));
    let unseen = unseen.map(|unseen| {
        let unseen = unsigned(unseen);
        format!(", {unseen} were not seen to come back before its cgroups were removed")
    });
    let more: String = kept.into_iter().chain(unseen).collect();
    gone + &more
}

fn delivery(delivered: &str, processes: u32) -> String {
    match delivered {
        "done" => format!("reached {}", counted(u64::from(processes), "process")),
        "empty" => "found nobody left".to_owned(),
        _ => "could not be carried out".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_gone_have_left_is_named() {
        let name = "test/leaker".to_owned();
        let told = |kept, unseen| gone(Some(&name), kept, unseen);
        assert_eq!(told(None, None), "the last process of test/leaker is gone");
        assert_eq!(
            told(Some(1 << 20), Some(3 << 20)),
            "the last process of test/leaker is gone, 1.0Mi stay in its volumes, \
             3.0Mi were not seen to come back before its cgroups were removed"
        );
    }
}

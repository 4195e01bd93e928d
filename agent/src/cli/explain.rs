//! `brink explain`: why this one, and why not that one.

use super::asking::{put, unexpected};
use super::exit::{CliError, Exit};
use super::met::{met, tell_met};
use super::options::{FormatArgs, SocketArgs, signal};
use super::output::{Data, Format, Talk};
use super::status_storage::used;
use crate::control::protocol::{Answer, DecisionList, Explanation, Question};
use crate::record::text::{amount_or_unknown, end_words, hardness, moment, requested, stretch};
use crate::record::wire::{API_VERSION, OrderView};
use crate::record::{DecisionRecord, page};
use crate::terminal::{Column, Screen, Style};

/// Options of `brink explain`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink explain shop/web                    its place now, and what would change it
  brink explain shop/web --against shop/db  which of the two goes first, and why
  brink explain 17                          decision 17: why its victim, nobody else
  brink explain --list                      the decisions that can be asked for

A workload is called by namespace/name, by a name that only one has, by its uid, or by its cgroup. One that is gone is \
explained by the latest decision against it.")]
pub struct Args {
    /// A workload, or the number of a decision; the latest decision if not given
    #[arg(value_name = "WORKLOAD|DECISION")]
    pub subject: Option<String>,
    /// Another workload to compare it with
    #[arg(long, value_name = "WORKLOAD", requires = "subject")]
    pub against: Option<String>,
    /// The signal to rank for; memory.available if not given
    #[arg(long, value_name = "SIGNAL", requires = "subject", value_parser = signal)]
    pub signal: Option<String>,
    /// List the decisions that are remembered, newest last
    #[arg(short, long, conflicts_with_all = ["subject", "against", "signal"])]
    pub list: bool,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Asks the agent and prints its answer.
///
/// # Errors
/// When no agent answers, or it knows no such workload or decision.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let question = question(args)?;
    if matches!(question, Question::Decision { order: None }) {
        tell_met(&args.socket.socket)?;
    }
    let answer = put(&args.socket.socket, &question)?;
    let mut data = Data::new();
    let style = data.style();
    match (answer, args.format.output) {
        (Answer::Decision(record), format) => {
            if let Question::ExplainWorkload { workload, .. } = &question {
                Talk::new().say(&format!(
                    "{workload} is no workload now; this is the latest decision against it"
                ));
            }
            match format {
                Format::Json => data.json(&record)?,
                Format::Text => data.print(&page(&record, style))?,
            }
        }
        (Answer::Explanation(why), Format::Json) => data.json(&why)?,
        (Answer::Explanation(why), Format::Text) => data.print(&place(&why, style))?,
        (Answer::Decisions(decisions), Format::Json) => data.json(&DecisionList {
            api_version: API_VERSION.to_owned(),
            kind: "DecisionList".to_owned(),
            decisions,
        })?,
        (Answer::Decisions(decisions), Format::Text) => data.print(&list(&decisions, style))?,
        _ => return Err(unexpected()),
    }
    data.flush()?;
    Ok(Exit::Success)
}

/// What is asked: a number is a decision, anything else a workload.
fn question(args: &Args) -> Result<Question, CliError> {
    let Some(subject) = args.subject.as_deref() else {
        return Ok(if args.list {
            Question::Decisions
        } else {
            Question::Decision { order: None }
        });
    };
    match subject.parse::<u64>() {
        Ok(_) if args.against.is_some() || args.signal.is_some() => {
            let error = anyhow::anyhow!(
                "{subject} is a decision: --against and --signal are for workloads"
            );
            Err(CliError::new(Exit::Usage, error).advise(
                "leave --against and --signal out, or name a workload: brink explain WORKLOAD --against OTHER",
            ))
        }
        Ok(order) => Ok(Question::Decision { order: Some(order) }),
        Err(_) => Ok(Question::ExplainWorkload {
            workload: subject.to_owned(),
            signal: args.signal.clone(),
            against: args.against.clone(),
        }),
    }
}

/// A workload's place for people.
pub(super) fn place(why: &Explanation, style: Style) -> String {
    let mut screen = Screen::new(style);
    let workload = &why.workload;
    let place = why.place.map_or_else(
        || "no candidate".to_owned(),
        |place| format!("place {place} of {} for {}", why.candidates, why.signal),
    );
    screen.heading(&format!("{}: {place}", workload.full_name()));
    screen.line("  now       ", &moment(&why.now));
    screen.line(
        "  figures   ",
        &format!(
            "uses {}{}, priority {}{}; {} old",
            amount_or_unknown(&why.signal, workload.usage),
            requested(&why.signal, workload.request)
                .map_or_else(String::new, |request| format!(", requested {request}")),
            workload.priority,
            match workload.preference.as_str() {
                "normal" => String::new(),
                _ => format!(", preference {}", workload.preference_words()),
            },
            stretch(why.figures_age_ms)
        ),
    );
    met(&mut screen, "  met       ", &why.met);
    screen.line("  uid       ", &workload.uid);
    let cgroups = match why.cgroups.as_slice() {
        [] => "none: nothing is bound to it".to_owned(),
        cgroups => cgroups.join(", "),
    };
    screen.line("  cgroups   ", &cgroups);
    if let Some(disk) = &why.storage {
        screen.line("  disks     ", &used(disk));
    }
    screen.gap();
    for reason in &why.reasons {
        screen.line("- ", reason);
    }
    if !why.advice.is_empty() {
        screen.gap();
        screen.heading(&format!("Advice on thresholds of {}", why.signal));
        for advice in &why.advice {
            screen.line("- ", advice);
        }
    }
    if !why.orders.is_empty() {
        screen.gap();
        screen.heading("Orders against it");
        orders(&mut screen, &why.orders);
    }
    screen.into_text()
}

/// The remembered decisions for people.
pub(super) fn list(decisions: &[DecisionRecord], style: Style) -> String {
    let mut screen = Screen::new(style);
    if decisions.is_empty() {
        screen.line(
            "",
            "Nothing has been decided since the machine was started.",
        );
        return screen.into_text();
    }
    let views: Vec<OrderView> = decisions.iter().map(OrderView::of).collect();
    orders(&mut screen, &views);
    screen.into_text()
}

fn orders(screen: &mut Screen, orders: &[OrderView]) {
    let row = |order: &OrderView| {
        let millis = order.decided.monotonic_ns / 1_000_000;
        let end = order.end.as_deref().map_or("still open", end_words);
        let state = match order.mode.as_str() {
            "enforcing" => end.to_owned(),
            mode => format!("observed only ({mode})"),
        };
        vec![
            order.order.to_string(),
            to_millis(&order.decided.wall),
            format!("{}.{:03}", millis / 1000, millis % 1000),
            order.victim.clone(),
            format!("{} {}: {state}", hardness(order.hard), order.signal),
        ]
    };
    let columns = [
        Column::Right("#"),
        Column::Left("DECIDED"),
        Column::Right("MONOTONIC"),
        Column::Name("VICTIM"),
        Column::Text("WHY, AND HOW IT ENDED"),
    ];
    let rows: Vec<Vec<String>> = orders.iter().map(row).collect();
    screen.table(&columns, &rows);
}

/// `2026-11-20T09:47:55.145Z` of a time to the microsecond.
fn to_millis(wall: &str) -> String {
    let cut = wall
        .strip_suffix('Z')
        .and_then(|wall| wall.get(..wall.len().checked_sub(3)?));
    cut.map_or_else(|| wall.to_owned(), |wall| format!("{wall}Z"))
}

#[cfg(test)]
mod tests {
    use super::super::met::met_now;
    use super::*;

    /// An explanation as an agent gives it, with this advice.
    fn explanation(advice: &[&str]) -> Explanation {
        let said = include_str!("../../../tests/fuzz/corpus/answers/explanation");
        let Answer::Explanation(mut why) = serde_json::from_str(said).unwrap() else {
            panic!("{said}");
        };
        why.advice = advice.iter().map(|&one| one.to_owned()).collect();
        *why
    }

    #[test]
    fn a_threshold_that_is_met_stands_below_the_figures() {
        let mut why = explanation(&[]);
        assert!(!place(&why, Style::default()).contains("  met "));
        why.met = vec![met_now(Some("nobody"))];
        let told = place(&why, Style::default());
        let line = "\n  met       hard nodefs.available below 500Ti: MET for 8.0 s, held: nobody can be evicted (nobody)\n  uid ";
        assert!(told.contains(line), "{told}");
    }

    #[test]
    fn process_ids_have_no_request_and_inodes_the_one_for_bytes() {
        let mut why = explanation(&[]);
        let told = place(&why, Style::default());
        assert!(told.contains("uses 1073741824, priority 3"), "{told}");
        why.signal = "nodefs.inodesFree".to_owned();
        let told = place(&why, Style::default());
        let figures = "uses 1073741824, requested 1.0Mi, priority 3";
        assert!(told.contains(figures), "{told}");
    }

    #[test]
    fn advice_stands_behind_the_reasons_and_where_there_is_none_nothing_does() {
        let told = |advice: &[&str]| place(&explanation(advice), Style::default());
        let with = told(&["It swings.", "It is\u{1b}[2J small."]);
        let part = "- its priority 3 is lower than 4\n\nAdvice on thresholds of pid.available\n- It swings.\n\
                    - It is\\u{1b}[2J small.\n\nOrders against it\n";
        assert!(with.contains(part), "{with}");
        let without = told(&[]);
        let part = "- its priority 3 is lower than 4\n\nOrders against it\n";
        assert!(without.contains(part), "{without}");
        let written = serde_json::to_string(&explanation(&[])).unwrap();
        assert!(!written.contains("advice"), "{written}");
    }
}

//! `brink rank`: who would go now, and why.

use super::asking::{put, unexpected};
use super::exit::{CliError, Exit};
use super::met::met;
use super::options::{FormatArgs, SocketArgs, signal};
use super::output::{Data, Format};
use crate::control::protocol::{Answer, Question, Ranking};
use crate::record::page::preference;
use crate::record::text::{amount_or_unknown, counted, decider_words, moment, requested, stretch};
use crate::record::wire::RankedWorkload;
use crate::terminal::{Column, Paint, Screen, Style};

/// Options of `brink rank`.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(after_help = "\
Examples:
  brink rank
  brink rank --signal pid.available
  brink rank -o json | jq -r '.workloads[0].name'")]
pub struct Args {
    /// The signal to rank for
    #[arg(long, default_value = "memory.available", value_name = "SIGNAL", value_parser = signal)]
    pub signal: String,
    /// Places to show; all if not given
    #[arg(
        short = 'n',
        long,
        value_name = "COUNT",
        value_parser = count,
        allow_hyphen_values = true
    )]
    pub limit: Option<usize>,
    /// Form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
    /// The agent.
    #[command(flatten)]
    pub socket: SocketArgs,
}

/// Asks the agent and prints its ranking.
///
/// # Errors
/// When no agent answers.
pub(super) fn run(args: &Args) -> Result<Exit, CliError> {
    let question = Question::Rank {
        signal: Some(args.signal.clone()),
    };
    let Answer::Ranking(mut ranking) = put(&args.socket.socket, &question)? else {
        return Err(unexpected());
    };
    let all = ranking.workloads.len();
    if let Some(limit) = args.limit {
        ranking.workloads.truncate(limit);
        ranking.why.truncate(limit.saturating_sub(1));
    }
    let mut data = Data::new();
    match args.format.output {
        Format::Json => data.json(&ranking)?,
        Format::Text => data.print(&page(&ranking, all, data.style()))?,
    }
    data.flush()?;
    Ok(Exit::Success)
}

fn count(text: &str) -> Result<usize, String> {
    let count = text.parse::<usize>().ok().filter(|&count| count > 0);
    count.ok_or_else(|| "not a whole number of at least 1, such as 5".to_owned())
}

/// The ranking for people: what decides each place in a word, and about the first one in a sentence.
pub(super) fn page(ranking: &Ranking, all: usize, style: Style) -> String {
    let mut screen = Screen::new(style);
    let shown = ranking.workloads.len();
    let count = if shown == all {
        counted(u64::try_from(all).unwrap_or(u64::MAX), "candidate")
    } else {
        format!("the first {shown} of {all} candidates")
    };
    screen.heading(&format!("Who would go now for {}: {count}", ranking.signal));
    screen.line("  now      ", &moment(&ranking.now));
    screen.line(
        "  figures  ",
        &format!("{} old", stretch(ranking.figures_age_ms)),
    );
    met(&mut screen, "  met      ", &ranking.met);
    if all == 0 {
        screen.gap();
        screen.line("", "Nobody: no workload is watched over. `brink doctor` tells what is bound to which cgroup.");
        return screen.into_text();
    }
    screen.gap();
    let places = ranking.workloads.iter().enumerate();
    let rows: Vec<Vec<String>> = places
        .map(|(place, workload)| row(ranking, place, workload))
        .collect();
    screen.table(&columns(&ranking.signal), &rows);
    verdict(&mut screen, ranking, shown == all);
    screen.into_text()
}

/// What the ranking for a signal has: nothing of requests where there are none.
fn columns(signal: &str) -> Vec<Column> {
    let mut columns = vec![
        Column::Right("#"),
        Column::Name("WORKLOAD"),
        Column::Right("USES"),
    ];
    columns.extend(requested(signal, 0).map(|_| Column::Right("REQUESTED")));
    columns.extend([
        Column::Right("PRIORITY"),
        Column::Left("PREFERENCE"),
        Column::Left("BEFORE NEXT BY"),
        Column::Left("REFUSES"),
    ]);
    columns
}

fn row(ranking: &Ranking, place: usize, workload: &RankedWorkload) -> Vec<String> {
    let signal = &ranking.signal;
    let by = ranking.why.get(place).map_or("", |why| why.by.as_str());
    let mut cells = vec![
        (place + 1).to_string(),
        workload.full_name(),
        amount_or_unknown(signal, workload.usage),
    ];
    cells.extend(requested(signal, workload.request));
    cells.extend([
        workload.priority.to_string(),
        preference(workload),
        decider_words(by).to_owned(),
        workload.refusal.clone().unwrap_or_default(),
    ]);
    cells
}

/// Who goes, and why before the next one.
fn verdict(screen: &mut Screen, ranking: &Ranking, is_whole: bool) {
    let goes = |workload: &RankedWorkload| workload.refusal.is_none();
    screen.gap();
    let Some(first) = ranking.workloads.iter().position(goes) else {
        if is_whole {
            let text = "Nobody would go: all of them refuse.";
            screen.paragraph("", text, Some(Paint::Warning));
        }
        return;
    };
    let name = ranking.workloads[first].full_name();
    screen.heading(&format!("{name} would go first."));
    if let Some(why) = ranking.why.get(first) {
        screen.line("", &why.sentence);
    }
}

#[cfg(test)]
mod tests {
    use super::super::met::met_now;
    use super::*;
    use crate::control::protocol::Why;
    use crate::record::wire::Time;

    fn ranking(names: &[&str]) -> Ranking {
        let workload = |name: &&str| RankedWorkload {
            namespace: "shop".to_owned(),
            name: (*name).to_owned(),
            uid: String::new(),
            preference: "normal".to_owned(),
            preference_by: None,
            usage_to_request: "over".to_owned(),
            priority: 0,
            usage: None,
            request: 1 << 20,
            processes: None,
            refusal: (*name == "critical").then(|| "critical".to_owned()),
        };
        let why = |pair: &[&str]| Why {
            by: "statistics".to_owned(),
            sentence: format!("shop/{} goes before shop/{}: so.", pair[0], pair[1]),
        };
        Ranking {
            api_version: String::new(),
            kind: String::new(),
            signal: "memory.available".to_owned(),
            now: Time {
                wall: "2026-01-01T00:00:00.000000Z".to_owned(),
                monotonic_ns: 0,
            },
            figures_age_ms: 3,
            workloads: names.iter().map(workload).collect(),
            why: names.windows(2).map(why).collect(),
            met: Vec::new(),
        }
    }

    #[track_caller]
    fn check(names: &[&str], all: usize, expected: &[&str]) {
        let text = page(&ranking(names), all, Style::default());
        for part in expected {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }

    #[test]
    fn whoever_goes_first_is_named_even_if_others_stand_before_it() {
        check(
            &["critical", "web", "db"],
            3,
            &[
                ": 3 candidates\n",
                "  1  shop/critical  unknown      1.0Mi         0  no statistics   critical\n",
                "  3  shop/db        unknown      1.0Mi         0\n",
                "\nshop/web would go first.\nshop/web goes before shop/db: so.\n",
            ],
        );
        check(
            &["critical"],
            1,
            &[": 1 candidate\n", "Nobody would go: all of them refuse.\n"],
        );
        check(&["critical"], 5, &[": the first 1 of 5 candidates\n"]);
        check(&[], 0, &[": 0 candidates\n", "no workload is watched over"]);
    }

    #[test]
    fn requests_are_bytes_for_inodes_too_and_process_ids_have_none() {
        let mut ranking = ranking(&["web"]);
        for (signal, expected) in [
            (
                "nodefs.inodesFree",
                "  #  WORKLOAD     USES  REQUESTED  PRIORITY\n  1  shop/web  unknown      1.0Mi         0\n",
            ),
            (
                "pid.available",
                "  #  WORKLOAD     USES  PRIORITY\n  1  shop/web  unknown         0\n",
            ),
        ] {
            ranking.signal = signal.to_owned();
            let text = page(&ranking, 1, Style::default());
            assert!(text.contains(expected), "{expected:?} in\n{text}");
        }
    }

    #[test]
    fn a_threshold_that_is_met_is_told_before_the_places() {
        let mut ranking = ranking(&["web"]);
        ranking.met = vec![met_now(Some("nobody"))];
        let text = page(&ranking, 1, Style::default());
        let line = "  met      hard nodefs.available below 500Ti: MET for 8.0 s, held: nobody can be evicted \
                    (nobody)\n\n  #  WORKLOAD";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        check(
            &["a\x1b]0;x\x07b\u{202e}c"],
            1,
            &["shop/a\\u{1b}]0;x\\u{7}b\\u{202e}c"],
        );
    }
}

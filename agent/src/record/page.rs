//! A decision as a page of text: what happened, on which figures, who and why, when each stage was, and what else could have been.

use super::root::fork_root_or_why;
use super::text::{
    amount, amount_or_unknown, bytes, counted, end_words, hardness, is_count, means_words, millis,
    mode_words, moment, monotonic, requested, stage_words, time_of_day, unsigned,
};
use super::wire::{AgainFacts, DecisionRecord, KillFacts, LimitView, MemoryFacts, RankedWorkload};
use crate::ledger::entry::ReclaimCost;
use crate::terminal::{Column, Paint, Screen, Style};

/// Places of the ranking that are printed.
const PLACES: usize = 10;
/// From here on the time in which the agent did not run is told, in nanoseconds.
const WORTH_TELLING: u64 = 200_000;

/// The record of one decision, for people.
pub fn page(record: &DecisionRecord, style: Style) -> String {
    let mut screen = Screen::new(style);
    headline(&mut screen, record);
    figures(&mut screen, record);
    ranking(&mut screen, record);
    why(&mut screen, record);
    if let Some(root) = &record.fork_root {
        fork_root_or_why(&mut screen, root);
    }
    timeline(&mut screen, record);
    outcome(&mut screen, record);
    screen.into_text()
}

fn headline(screen: &mut Screen, record: &DecisionRecord) {
    let is_enforcing = record.mode == "enforcing";
    let verb = if is_enforcing {
        "evicted"
    } else {
        "would have evicted"
    };
    let victim = record.victim_name();
    screen.heading(&format!("Order {}: {verb} {victim}", record.order));
    screen.line("  decided    ", &moment(&record.decided));
    let threshold = &record.threshold;
    let of = |value| amount(&threshold.signal, value);
    let short = threshold.quantity.saturating_sub(threshold.available);
    let crossed = match &record.limit {
        Some(limit) => exceeded(&threshold.signal, limit),
        None => format!(
            "{} {}: {} available of {}, {} less than the threshold of {}",
            hardness(threshold.hard),
            threshold.signal,
            of(threshold.available),
            of(threshold.capacity),
            of(short),
            of(threshold.quantity)
        ),
    };
    screen.line("  crossed    ", &crossed);
    if !is_enforcing {
        let text = format!("nobody was killed: {}", mode_words(&record.mode));
        screen.paragraph("  observed   ", &text, Some(Paint::Warning));
    }
    let text = format!("{}; memory policy {}", record.rung, record.memory_policy);
    screen.line("  signal by  ", &text);
}

/// A limit of local storage and how much is used against it.
fn exceeded(name: &str, limit: &LimitView) -> String {
    let of = match limit.part.as_str() {
        "" => "the pod".to_owned(),
        part => part.to_owned(),
    };
    let most = bytes(limit.limit_bytes);
    format!(
        "{name}: {} used of {most} by {of}",
        unsigned(limit.used_bytes)
    )
}

fn figures(screen: &mut Screen, record: &DecisionRecord) {
    screen.gap();
    screen.heading("Figures it was decided on");
    let signals = record.signals.iter().map(|seen| {
        let of = |value| amount(&seen.signal, value);
        let capacity = format!("of {}", of(seen.capacity));
        vec![seen.signal.clone(), of(seen.available), capacity]
    });
    let rows: Vec<Vec<String>> = signals.chain(memory(&record.memory)).collect();
    let columns = [
        Column::Left("FIGURE"),
        Column::Right("VALUE"),
        Column::Text(""),
    ];
    screen.table(&columns, &rows);
}

/// What was known of memory beside the signals.
fn memory(memory: &MemoryFacts) -> Vec<Vec<String>> {
    let row = |name: &str, value: String, remark: String| vec![name.to_owned(), value, remark];
    let headroom = memory.headroom_bytes;
    let mut rows = vec![row(
        "headroom without swap",
        headroom.map_or_else(|| "unknown".to_owned(), bytes),
        format!(
            "kernel's reserve {}, usable swap {}",
            unsigned(memory.reserve_bytes),
            unsigned(memory.usable_swap_bytes)
        ),
    )];
    if let Some(headroom) = memory.pods_headroom_bytes {
        let swap = unsigned(memory.pods_usable_swap_bytes);
        let remark = format!("usable swap {swap}");
        rows.push(row("headroom of all pods", bytes(headroom), remark));
    }
    if memory.credit_bytes > 0 {
        let credit = unsigned(memory.credit_bytes);
        let remark = "memory on its way back".to_owned();
        rows.push(row("credit for the dying", credit, remark));
    }
    rows
}

fn ranking(screen: &mut Screen, record: &DecisionRecord) {
    let shown = record.ranking.len().min(PLACES);
    let candidates = counted(u64::from(record.candidates), "candidate");
    screen.gap();
    screen.heading(&format!("Ranking ({shown} of {candidates})"));
    let places = record.ranking.iter().zip(1..).take(PLACES);
    let rows: Vec<Vec<String>> = places
        .map(|(place, number)| row(place, number, record))
        .collect();
    screen.table(&columns(&record.threshold.signal), &rows);
}

/// What a ranking for a signal has: nothing of requests where there are none, and not how usage stands to one where it is no
/// request for the same.
fn columns(signal: &str) -> Vec<Column> {
    let mut columns = vec![
        Column::Right("#"),
        Column::Name("WORKLOAD"),
        Column::Right("USES"),
    ];
    columns.extend(requested(signal, 0).map(|_| Column::Right("REQUESTED")));
    columns.extend((!is_count(signal)).then_some(Column::Left("USAGE IS")));
    columns.extend([
        Column::Right("PRIORITY"),
        Column::Left("PREFERENCE"),
        Column::Text(""),
    ]);
    columns
}

fn row(place: &RankedWorkload, number: usize, record: &DecisionRecord) -> Vec<String> {
    let signal = &record.threshold.signal;
    let is_victim = place.uid == record.victim.uid && place.name == record.victim.name;
    let remark = match (&place.refusal, is_victim) {
        (Some(refusal), _) => format!("refuses: {refusal}"),
        (None, true) => "goes".to_owned(),
        (None, false) => String::new(),
    };
    let mut cells = vec![
        number.to_string(),
        place.full_name(),
        amount_or_unknown(signal, place.usage),
    ];
    cells.extend(requested(signal, place.request));
    cells.extend((!is_count(signal)).then(|| place.usage_to_request.clone()));
    cells.extend([place.priority.to_string(), preference(place), remark]);
    cells
}

/// A preference, unless it is the usual one.
pub fn preference(place: &RankedWorkload) -> String {
    match place.preference.as_str() {
        "normal" => String::new(),
        _ => place.preference_words(),
    }
}

fn why(screen: &mut Screen, record: &DecisionRecord) {
    if record.why.is_empty() {
        return;
    }
    screen.gap();
    screen.heading("Why");
    for sentence in &record.why {
        screen.line("  ", sentence);
    }
}

fn timeline(screen: &mut Screen, record: &DecisionRecord) {
    screen.gap();
    screen.heading("Timeline, in ms after the sample that was below the threshold");
    let rows: Vec<Vec<String>> = record
        .stages
        .iter()
        .map(|stage| {
            #[expect(clippy::cast_precision_loss, reason = "milliseconds for people")]
            let millis = |nanos: i64| format!("{:.3}", nanos as f64 / 1e6);
            vec![
                stage
                    .since_sample_ns
                    .map_or_else(|| "unknown".to_owned(), millis),
                time_of_day(&stage.at.wall).to_owned(),
                monotonic(stage.at.monotonic_ns),
                stage_words(&stage.stage).to_owned(),
            ]
        })
        .collect();
    let columns = [
        Column::Right("MS"),
        Column::Left("UTC"),
        Column::Right("MONOTONIC"),
        Column::Text("STAGE"),
    ];
    screen.table(&columns, &rows);
}

fn outcome(screen: &mut Screen, record: &DecisionRecord) {
    screen.gap();
    screen.heading("Outcome");
    if let Some(kill) = &record.kill {
        screen.line("  killed     ", &killed(kill, record.freed_bytes));
    }
    let end = record.end.as_deref().map_or("not yet", end_words);
    screen.line("  over       ", end);
    if let Some(cost) = record
        .reclaim
        .filter(|cost| cost.node > 0 || cost.cgroup > 0)
    {
        screen.line("  reclaim    ", &reclaimed(&cost));
    }
    if let Some(again) = &record.again {
        screen.line("  again      ", &killed_again(again));
    }
    for path in &record.left_alone {
        let text = format!("{path}: nobody knows what runs there");
        screen.line("  left alone ", &text);
    }
    if let Some(kubelet) = &record.kubelet {
        screen.line("  kubelet    ", &format!("alone, {}", kubelet.sentence()));
    }
    if let Some(told) = &record.kubernetes {
        screen.paragraph("  cluster    ", &told.sentence(), None);
    }
}

fn killed(kill: &KillFacts, freed: u64) -> String {
    let signalled = counted(u64::from(kill.signalled), "process");
    let mut parts = vec![format!("{signalled} with {}", means_words(&kill.means))];
    for (number, what) in [
        (kill.refused, "refused by the kernel"),
        (kill.spared, "spared, because protected"),
    ] {
        if number > 0 {
            parts.push(format!("{number} {what}"));
        }
    }
    if let Some(errno) = kill.errno {
        let error = std::io::Error::from_raw_os_error(errno);
        parts.push(format!("first error {error}"));
    }
    let waited = kill.waited_ns.filter(|&waited| waited >= WORTH_TELLING);
    let without = waited.map_or_else(String::new, |waited| {
        format!(
            "; the agent did not run for {} of the time to the first signal: it waited for its processor, a lock or the disk",
            millis(waited)
        )
    });
    format!(
        "{}; {} given back{without}",
        parts.join(", "),
        unsigned(freed)
    )
}

fn killed_again(again: &AgainFacts) -> String {
    format!(
        "what a kubelet started in it was killed {}, {}, the last time at {}",
        counted(u64::from(again.kills), "time"),
        counted(u64::from(again.processes), "process"),
        moment(&again.last)
    )
}

fn reclaimed(cost: &ReclaimCost) -> String {
    format!(
        "the victim's tasks had spent {} in {} for the node and {} in {} for a limit; {} came back",
        millis(cost.node_ns),
        counted(cost.node, "reclaim"),
        millis(cost.cgroup_ns),
        counted(cost.cgroup, "reclaim"),
        counted(cost.pages, "page")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::wire::Time;

    #[test]
    fn kills_of_what_came_back_are_summed_up() {
        let again = AgainFacts {
            kills: 2,
            processes: 5,
            last: Time {
                wall: "two".to_owned(),
                monotonic_ns: 1_000_000_000,
            },
        };
        let text = killed_again(&again);
        assert!(text.contains("killed 2 times, 5 processes"), "{text}");
        assert!(text.contains("two"), "{text}");
    }

    #[test]
    fn a_ranking_says_of_requests_only_what_means_something_for_its_signal() {
        let parts = [Column::Right("REQUESTED"), Column::Left("USAGE IS")];
        for (signal, expected) in [
            ("memory.available", [true, true]),
            ("nodefs.available", [true, true]),
            ("nodefs.inodesFree", [true, false]),
            ("pid.available", [false, false]),
        ] {
            let columns = columns(signal);
            let found = parts.map(|part| columns.contains(&part));
            assert_eq!(found, expected, "{signal}");
        }
    }

    #[test]
    fn a_wait_is_told_and_a_moment_is_not() {
        let facts = |waited_ns| KillFacts {
            means: "signals".to_owned(),
            passes: 1,
            signalled: 2,
            refused: 0,
            spared: 0,
            releasing: 0,
            errno: None,
            waited_ns,
        };
        assert!(killed(&facts(Some(7_600_000)), 0).contains("did not run for 7.6 ms"));
        for waited in [None, Some(0), Some(199_999)] {
            assert!(!killed(&facts(waited), 0).contains("did not run"));
        }
    }
}

//! The words of `brink top`: rows for tables, the same in a terminal and in a pipe. Whoever shows them escapes them.

use brink_core::node::workload::full_name;

use super::look::IncidentRow;
use super::state::State;
use crate::control::protocol::{Ranking, Status, ThresholdState};
use crate::record::page::preference;
use crate::record::text::{
    amount, amount_or_unknown, bytes, counts_processes, decider_words, hardness, is_count,
    requested, stretch,
};
use crate::record::wire::{RankedWorkload, SignalValue};
use crate::story::headline::cause_words;
use crate::terminal::{Column, table_lines};

/// Signals in the order of their weight for a node's memory; any other comes after them.
const ORDER: [&str; 4] = [
    "memory.available",
    "memory.headroom",
    "allocatableMemory.available",
    "pid.available",
];

/// The columns of a table, and its rows.
pub(super) type Table = (&'static [Column], Vec<Vec<String>>);

/// A signal that is observed, with its thresholds, the first to be reached in front.
pub(super) struct Room<'a> {
    pub(super) seen: &'a SignalValue,
    pub(super) thresholds: Vec<&'a ThresholdState>,
}

impl Room<'_> {
    /// Whether one of its thresholds is met.
    pub(super) fn is_met(&self) -> bool {
        self.thresholds.iter().any(|one| one.met)
    }
}

/// Every signal that is observed; what is short comes first.
pub(super) fn rooms(status: &Status) -> Vec<Room<'_>> {
    let seen = status.signals.iter();
    let mut rooms: Vec<Room<'_>> = seen.map(|seen| room(status, seen)).collect();
    let place = |room: &Room<'_>| {
        let known = ORDER.iter().position(|name| *name == room.seen.signal);
        (!room.is_met(), known.unwrap_or(ORDER.len()))
    };
    rooms.sort_by_key(place);
    rooms
}

fn room<'a>(status: &'a Status, seen: &'a SignalValue) -> Room<'a> {
    let thresholds = status.thresholds.iter();
    let own = thresholds.filter(|one| one.signal == seen.signal);
    let mut thresholds: Vec<_> = own.collect();
    thresholds.sort_by_key(|one| std::cmp::Reverse(one.quantity));
    Room { seen, thresholds }
}

/// The order that is open, and for how long; nothing without one.
pub(super) fn open_order(status: &Status) -> Option<String> {
    let order = status.open_order.as_ref()?;
    let since = status.now.monotonic_ns;
    let since = since.saturating_sub(order.decided.monotonic_ns) / 1_000_000;
    Some(format!(
        "{}, open for {}: {} for {} {}",
        order.order,
        stretch(since),
        order.victim,
        hardness(order.hard),
        order.signal
    ))
}

/// Leaves columns out, one after the other, until the rest has room on a terminal: a figure or an id without its end would be
/// another one.
fn fit(table: Table, width: Option<usize>, can_go: &[usize]) -> Table {
    let (columns, mut rows) = table;
    let Some(width) = width else {
        return (columns, rows);
    };
    for &column in can_go.iter().filter(|column| **column < columns.len()) {
        if has_room(columns, &rows, width) {
            break;
        }
        // A column that says nothing is not shown.
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            cell.clear();
        }
    }
    (columns, rows)
}

fn has_room(columns: &[Column], rows: &[Vec<String>], width: usize) -> bool {
    let (head, lines) = table_lines(columns, rows, Some(width));
    let mut lines = head.iter().chain(lines.iter().flatten());
    lines.all(|line| line.chars().count() <= width)
}

/// The table of rooms. In a pipe, which has no width, nothing is left out of any table.
pub(super) fn room_table(rooms: &[Room<'_>], width: Option<usize>) -> Table {
    // The share of the capacity, then the capacity.
    const CAN_GO: [usize; 2] = [3, 2];
    let columns = width.unwrap_or(WIDE);
    let rows = rooms.iter().map(|room| room_row(room, columns)).collect();
    let can_go: &[usize] = if columns < NARROW { &[] } else { &CAN_GO };
    fit((room_columns(columns), rows), width, can_go)
}

/// The table of workloads in eviction order.
pub(super) fn workload_table(state: &State, ranking: &Ranking, width: Option<usize>) -> Table {
    // From the end on; who refuses is told as long as there is room for it at all.
    const CAN_GO: [usize; 6] = [10, 9, 8, 7, 6, 3];
    let places = 0..ranking.workloads.len();
    let rows = places.map(|place| workload_row(state, ranking, place));
    let columns = workload_columns(width.unwrap_or(WIDE));
    fit((columns, rows.collect()), width, &CAN_GO)
}

/// The table of incidents.
pub(super) fn incident_table(rows: &[IncidentRow], width: Option<usize>) -> Table {
    // The first victim, then whether it is over.
    const CAN_GO: [usize; 2] = [3, 4];
    let columns = width.unwrap_or(WIDE);
    let cells = rows.iter().map(|row| incident_row(row, columns)).collect();
    fit((incident_columns(columns), cells), width, &CAN_GO)
}

/// Columns of rooms; a narrow terminal has fewer.
fn room_columns(width: usize) -> &'static [Column] {
    const ALL: [Column; 5] = [
        Column::Left("SIGNAL"),
        Column::Right("AVAILABLE"),
        Column::Right("OF"),
        Column::Right("SHARE"),
        Column::Left("THRESHOLDS"),
    ];
    const FEW: [Column; 3] = [
        Column::Name("SIGNAL"),
        Column::Right("LEFT"),
        Column::Left("THRESHOLD"),
    ];
    if width < NARROW { &FEW } else { &ALL }
}

/// Below so many columns a terminal is narrow, and from so many on it is wide.
pub(super) const NARROW: usize = 64;
const WIDE: usize = 100;

fn room_row(room: &Room<'_>, width: usize) -> Vec<String> {
    let seen = room.seen;
    let of = |value| amount(&seen.signal, value);
    let is_narrow = width < NARROW;
    let words = |one: &&ThresholdState| match (one.met, hardness(one.hard)) {
        (true, _) if is_narrow => format!("MET {}", one.value),
        (true, hardness) => format!("MET {hardness} {}", one.value),
        (false, hardness) => format!("{hardness} {}", one.value),
    };
    let mut thresholds = room.thresholds.iter().map(words);
    if is_narrow {
        let first = thresholds.next().unwrap_or_default();
        return vec![seen.signal.clone(), of(seen.available), first];
    }
    let thresholds: Vec<String> = thresholds.collect();
    vec![
        seen.signal.clone(),
        of(seen.available),
        of(seen.capacity),
        percent(seen.available, seen.capacity),
        thresholds.join(", "),
    ]
}

/// Columns of workloads; a narrow terminal has fewer, a wide one all.
fn workload_columns(width: usize) -> &'static [Column] {
    static ALL: [Column; 11] = [
        Column::Right("#"),
        Column::Name("WORKLOAD"),
        Column::Right("USES"),
        Column::Right("OF REQUEST"),
        Column::Right("GROWTH"),
        Column::Left("REFUSES"),
        Column::Right("REQUESTED"),
        Column::Right("PROCESSES"),
        Column::Right("PRIORITY"),
        Column::Left("PREFERENCE"),
        Column::Left("BEFORE NEXT BY"),
    ];
    match width {
        ..NARROW => ALL.split_at(4).0,
        NARROW..WIDE => ALL.split_at(7).0,
        _ => &ALL,
    }
}

/// One workload at its place, counted from zero, in all columns.
fn workload_row(state: &State, ranking: &Ranking, place: usize) -> Vec<String> {
    let Some(workload) = ranking.workloads.get(place) else {
        return Vec::new();
    };
    let signal = &ranking.signal;
    vec![
        (place + 1).to_string(),
        workload.full_name(),
        amount_or_unknown(signal, workload.usage),
        of_request(signal, workload),
        growth(signal, state.growth(workload)),
        workload.refusal.clone().unwrap_or_default(),
        requested(signal, workload.request).unwrap_or_else(|| amount(signal, workload.request)),
        workload
            .processes
            .map_or_else(String::new, |count| count.to_string()),
        workload.priority.to_string(),
        preference(workload),
        ranking
            .why
            .get(place)
            .map_or_else(String::new, |why| decider_words(&why.by).to_owned()),
    ]
}

fn of_request(signal: &str, workload: &RankedWorkload) -> String {
    match workload.usage {
        None => "unknown".to_owned(),
        Some(_) if workload.request <= 0 || is_count(signal) => "no request".to_owned(),
        Some(usage) => percent(usage, workload.request),
    }
}

/// Bytes or processes in one second.
fn growth(signal: &str, growth: Option<i64>) -> String {
    let Some(growth) = growth else {
        return "unknown".to_owned();
    };
    let sign = if growth > 0 { "+" } else { "" };
    if counts_processes(signal) {
        return format!("{sign}{growth}/s");
    }
    format!("{sign}{}/s", bytes(growth))
}

fn percent(part: i64, whole: i64) -> String {
    let share = i128::from(part) * 100;
    let share = share.checked_div(i128::from(whole));
    share.map_or_else(String::new, |share| format!("{share}%"))
}

/// Columns of incidents; a narrow terminal has fewer.
fn incident_columns(width: usize) -> &'static [Column] {
    const ALL: [Column; 6] = [
        Column::Left("WHEN (UTC)"),
        Column::Left("WHAT"),
        Column::Name("WHO"),
        Column::Name("FIRST VICTIM"),
        Column::Left("STATE"),
        Column::Left("ID"),
    ];
    const FEW: [Column; 3] = [
        Column::Left("WHEN"),
        Column::Left("WHAT"),
        Column::Name("WHO"),
    ];
    if width < NARROW { &FEW } else { &ALL }
}

fn incident_row(row: &IncidentRow, width: usize) -> Vec<String> {
    let victim = row.victims.first();
    let process = victim.map_or_else(String::new, |victim| {
        format!("{} ({})", victim.comm, victim.pid)
    });
    let who = match (row.namespace.as_str(), row.name.as_str()) {
        ("", "") => process.clone(),
        ("", name) => name.to_owned(),
        (namespace, name) => full_name(namespace, name),
    };
    let what = cause_words(row.cause).to_owned();
    if width < NARROW {
        return vec![clock(&row.at.wall).to_owned(), what, who];
    }
    let more = row.victims.len().saturating_sub(1) as u64 + u64::from(row.more_victims);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let state = if row.is_final { "closed" } else { "open" };
    vec![
        day_and_clock(&row.at.wall),
        what,
        who,
        process + &more,
        state.to_owned(),
        row.id.clone(),
    ]
}

/// `09:36:31` of `2026-11-20T09:36:31.250877Z`.
pub(super) fn clock(wall: &str) -> &str {
    wall.get(11..19).unwrap_or(wall)
}

/// `11-20 09:36:31` of the same.
fn day_and_clock(wall: &str) -> String {
    let day = wall.get(5..10).unwrap_or_default();
    format!("{day} {}", clock(wall))
}

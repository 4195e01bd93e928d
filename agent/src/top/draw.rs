//! The picture: a pure function of what is known, for any size of terminal.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::picture::{Picture, Tint};
use super::rows::{
    NARROW, Room, clock, incident_table, open_order, room_table, rooms, workload_table,
};
use super::state::{Pane, State};
use crate::control::protocol::Status;
use crate::record::text::{pressure, refusal_words};
use crate::record::wire::RankedWorkload;
use crate::terminal::{fitted, plain, table_lines, wrapped};

/// Lines that the incidents take beside the workloads, their title with them.
const INCIDENTS: usize = 6;
/// From so many lines on both lists have room.
const TALL: usize = 18;
/// From so many lines on there are titles.
const MIDDLE: usize = 12;
/// A bar that is shorter says nothing.
const SHORTEST_BAR: usize = 8;

/// Keys, short enough for a narrow terminal.
const KEYS: [&str; 8] = [
    "Keys",
    "  q, Ctrl-C    end",
    "  ?, h         this help, and back",
    "  up, down     choose (also k and j)",
    "  PgUp, PgDn   further; Home, End",
    "  Tab          workloads or incidents",
    "  s            rank for the next signal",
    "  space        stop the figures, go on",
];
/// What is seen.
const MEANING: &str = "Workloads stand in eviction order, the first to go in front. OF REQUEST is what they use against what \
they requested; GROWTH is over the last 10 s. In a bar a threshold is a mark; MET is one that is crossed. `brink explain \
WORKLOAD` and `brink incident ID` tell the whole story of one.";

/// Draws everything into a part of a buffer.
pub fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    let mut picture = Picture::new(area, buffer, state.manner);
    let height = picture.height();
    head(&mut picture, state);
    let end = if height >= 4 {
        foot(&mut picture, state, height - 1);
        height - 1
    } else {
        height
    };
    if state.is_help {
        let meaning = wrapped(MEANING, picture.width().clamp(1, 100));
        let keys = KEYS.map(str::to_owned).into_iter();
        let lines = keys.chain([String::new()]).chain(meaning);
        for (row, line) in (1..end).zip(lines) {
            picture.line(row, &line, Tint::Plain);
        }
        return;
    }
    let rows = node(&mut picture, state, 1, end);
    let both = height >= TALL;
    let (upper, lower) = if both {
        (end.saturating_sub(INCIDENTS), end)
    } else {
        (end, end)
    };
    match state.pane {
        Pane::Incidents if !both => incidents(&mut picture, state, rows, end),
        _ => workloads(&mut picture, state, rows, upper),
    }
    if both {
        incidents(&mut picture, state, upper, lower);
    }
}

/// Who answers, and whether it still does.
fn head(picture: &mut Picture<'_>, state: &State) {
    let status = &state.look.status;
    let now = clock(&status.now.wall);
    if let Some(why) = &state.lost {
        let text = format!("LOST, figures of {now} UTC, trying again: {why}");
        picture.line(0, &text, Tint::Alarm);
        return;
    }
    let rung = status.rung.as_deref().unwrap_or("no rung yet");
    let conditions = match status.conditions.as_slice() {
        [] => "no condition".to_owned(),
        some => some.join(", "),
    };
    let tint = if status.conditions.is_empty() {
        Tint::Strong
    } else {
        Tint::Alarm
    };
    let live = if state.is_frozen { "STOPPED" } else { "live" };
    // On few columns the mode must not be cut.
    let (text, end) = if picture.width() < NARROW {
        let text = format!("{}  {}", status.mode, status.conditions.join(", "));
        (text, format!("  {now} {live}"))
    } else {
        let text = format!(
            "brink {}  {}  {conditions}  {rung}",
            status.version, status.mode
        );
        (text, format!("  {now} UTC {live}"))
    };
    let room = picture.at_end(0, &end, Tint::Strong);
    picture.between(0, (0, room), &text, tint);
}

fn foot(picture: &mut Picture<'_>, state: &State, row: usize) {
    let text = if picture.width() < NARROW {
        "q end  ? help  tab list  s signal"
    } else {
        "q end   ? help   up/down choose   tab other list   s next signal   space stop"
    };
    let text = if state.is_help {
        "? back   q end"
    } else {
        text
    };
    picture.line(row, text, Tint::Faint);
}

/// The room of the node, its pressure, and the order that is open; the row behind them.
fn node(picture: &mut Picture<'_>, state: &State, from: usize, end: usize) -> usize {
    let status = &state.look.status;
    let (height, width) = (picture.height(), picture.width());
    let mut rooms = rooms(status);
    rooms.truncate(match height {
        0..6 => 1,
        6..MIDDLE => 2,
        _ => 5,
    });
    let (columns, rows) = room_table(&rooms, Some(width));
    let (head, lines) = table_lines(columns, &rows, Some(width));
    let mut row = from;
    if height >= MIDDLE {
        picture.line(row, head.first().map_or("", String::as_str), Tint::Title);
        row += 1;
    }
    let lines = lines.iter().map(|lines| lines.concat());
    let lines: Vec<String> = lines.collect();
    let widest = lines.iter().map(|line| line.chars().count()).max();
    for (room, line) in rooms.iter().zip(&lines).take(end.saturating_sub(row)) {
        let tint = if room.is_met() {
            Tint::Alarm
        } else {
            Tint::Plain
        };
        picture.line(row, line, tint);
        bar(picture, (row, widest.unwrap_or(0) + 2), room, tint);
        row += 1;
    }
    if rooms.is_empty() && row < end {
        picture.line(row, "  The guard has not read the node yet.", Tint::Plain);
        row += 1;
    }
    if height >= 9 && row < end {
        picture.line(row, &pressure_line(status, width), Tint::Plain);
        row += 1;
    }
    if let Some(order) = open_order(status).filter(|_| row < end) {
        picture.line(row, &format!("  order {order}"), Tint::Alarm);
        row += 1;
    }
    row
}

/// Pressure of as many resources as the line has room for.
fn pressure_line(status: &Status, width: usize) -> String {
    let label = if width < NARROW {
        "  PSI "
    } else {
        "  pressure, 10 s: "
    };
    let of = |count: usize| format!("{label}{}", pressure(&status.pressure[..count]));
    let fits = |count: &usize| of(*count).chars().count() <= width;
    let most = (1..=status.pressure.len()).rev().find(fits);
    of(most.unwrap_or(status.pressure.len().min(1)))
}

/// What is left, as far as the line has room for it.
fn bar(picture: &mut Picture<'_>, (row, column): (usize, usize), room: &Room<'_>, tint: Tint) {
    let width = picture.width().saturating_sub(column + 1).min(60);
    if width < SHORTEST_BAR {
        return;
    }
    let marks: Vec<i64> = room
        .thresholds
        .iter()
        .filter_map(|one| one.quantity)
        .collect();
    let of = (room.seen.available, room.seen.capacity);
    let text = picture.bar(width, of, &marks);
    picture.text(row, column, &text, tint);
}

fn workloads(picture: &mut Picture<'_>, state: &State, from: usize, end: usize) {
    let width = picture.width();
    let ranking = match &state.look.ranking {
        Ok(ranking) => ranking,
        Err(refusal) => {
            let text = format!("  {}; {}", refusal.message, refusal.next);
            picture.line(from, &text, Tint::Plain);
            return;
        }
    };
    let all = ranking.workloads.len();
    let is_titled = picture.height() >= MIDDLE;
    let title = is_titled.then(|| {
        format!(
            "Who would go now for {}: {}",
            ranking.signal,
            place_of(state, Pane::Workloads)
        )
    });
    if all == 0 {
        let text = "  Nobody: no workload is watched over.";
        picture.line(from, text, Tint::Plain);
        return;
    }
    let why = if is_titled {
        sentence(state, width)
    } else {
        Vec::new()
    };
    let why_at = end.saturating_sub(why.len());
    let (columns, rows) = workload_table(state, ranking, Some(width));
    let table = table_lines(columns, &rows, Some(width));
    let tint = |place: usize| {
        let refuses = |one: &RankedWorkload| one.refusal.is_some();
        if ranking.workloads.get(place).is_some_and(refuses) {
            Tint::Faint
        } else {
            Tint::Plain
        }
    };
    let list = List {
        pane: Pane::Workloads,
        title,
        table,
    };
    list.draw(picture, state, (from, why_at), tint);
    for (row, line) in (why_at..end).zip(why) {
        picture.line(row, &line, Tint::Plain);
    }
}

/// Why the chosen workload goes before the next, in at most two lines.
fn sentence(state: &State, width: usize) -> Vec<String> {
    let Ok(ranking) = &state.look.ranking else {
        return Vec::new();
    };
    let place = state.place(Pane::Workloads);
    let refusal = ranking.workloads.get(place).and_then(|one| {
        let refusal = one.refusal.as_deref()?;
        Some(format!("It refuses: {}. ", refusal_words(refusal)))
    });
    let why = ranking.why.get(place).map_or("", |why| &why.sentence);
    let text = refusal.unwrap_or_default() + why;
    let mut lines = wrapped(&fitted(&plain(&text), width), width.max(1));
    let goes_on = lines.len() > 2;
    lines.truncate(2);
    if let Some(last) = lines.last_mut().filter(|_| goes_on) {
        last.push(' ');
        last.push(state.manner.mark());
    }
    lines.resize(2, String::new());
    lines
}

fn incidents(picture: &mut Picture<'_>, state: &State, from: usize, end: usize) {
    let width = picture.width();
    let title = format!("Last incidents: {}", place_of(state, Pane::Incidents));
    if state.incidents.is_empty() {
        picture.line(from, "Last incidents", Tint::Title);
        let text = state.deaf.as_deref().unwrap_or("none is remembered");
        let lines = wrapped(&plain(text), width.saturating_sub(2).max(1));
        for (row, line) in (from + 1..end).zip(lines) {
            picture.text(row, 2, &line, Tint::Plain);
        }
        return;
    }
    let (columns, rows) = incident_table(&state.incidents, Some(width));
    let table = table_lines(columns, &rows, Some(width));
    let is_open = |place: usize| state.incidents.get(place).is_some_and(|row| !row.is_final);
    let tint = |place| {
        if is_open(place) {
            Tint::Strong
        } else {
            Tint::Plain
        }
    };
    let title = match &state.deaf {
        None => title,
        Some(why) => format!("Last incidents, not heard of any more: {why}"),
    };
    let list = List {
        pane: Pane::Incidents,
        title: Some(title),
        table,
    };
    list.draw(picture, state, (from, end), tint);
}

/// `3 of 17`, or that there is none.
fn place_of(state: &State, pane: Pane) -> String {
    let all = match pane {
        Pane::Workloads => state.workloads().len(),
        Pane::Incidents => state.incidents.len(),
    };
    if all == 0 {
        return "none".to_owned();
    }
    format!("{} of {all}", state.place(pane) + 1)
}

/// A table of which so many rows are shown as there is room for, the chosen one among them.
struct List {
    pane: Pane,
    title: Option<String>,
    table: (Vec<String>, Vec<Vec<String>>),
}

impl List {
    fn draw(
        &self,
        picture: &mut Picture<'_>,
        state: &State,
        (from, end): (usize, usize),
        tint: impl Fn(usize) -> Tint,
    ) {
        let (head, rows) = &self.table;
        let mut row = from;
        if let Some(title) = self.title.as_ref().filter(|_| row < end) {
            picture.line(row, title, Tint::Title);
            row += 1;
        }
        if row + 1 < end {
            picture.line(row, head.first().map_or("", String::as_str), Tint::Strong);
            row += 1;
        }
        let room = end.saturating_sub(row);
        let chosen = state.place(self.pane);
        let first = (chosen + 1).saturating_sub(room);
        for ((place, lines), row) in rows.iter().enumerate().skip(first).zip(row..end) {
            let is_chosen = place == chosen && state.pane == self.pane;
            let tint = if is_chosen { Tint::Chosen } else { tint(place) };
            picture.line(row, &lines.concat(), tint);
        }
    }
}

//! The same as one page of text, for scripts and for whoever has no terminal.

use super::rows::{incident_table, open_order, room_table, rooms, workload_table};
use super::state::State;
use crate::record::text::{counted, mode_words, moment, pressure};
use crate::terminal::{Screen, Style};

/// The page; nothing of it steers a terminal.
pub fn page(state: &State, width: Option<usize>) -> String {
    let style = Style {
        width,
        colour: false,
    };
    let mut screen = Screen::new(style);
    node(&mut screen, state, width);
    workloads(&mut screen, state, width);
    incidents(&mut screen, state, width);
    screen.into_text()
}

fn node(screen: &mut Screen, state: &State, width: Option<usize>) {
    let status = &state.look.status;
    let title = format!(
        "brink {} (pid {}), {}",
        status.version,
        status.pid,
        mode_words(&status.mode)
    );
    screen.heading(&title);
    screen.line("  now        ", &moment(&status.now));
    let conditions = match status.conditions.as_slice() {
        [] => "none".to_owned(),
        some => some.join(", "),
    };
    screen.line("  conditions ", &conditions);
    screen.line("  pressure   ", &pressure(&status.pressure));
    if let Some(order) = open_order(status) {
        screen.line("  order      ", &order);
    }
    screen.gap();
    let rooms = rooms(status);
    if rooms.is_empty() {
        screen.line("", "The guard has not read the node yet.");
        return;
    }
    let (columns, rows) = room_table(&rooms, width);
    screen.table(columns, &rows);
}

fn workloads(screen: &mut Screen, state: &State, width: Option<usize>) {
    screen.gap();
    let ranking = match &state.look.ranking {
        Ok(ranking) => ranking,
        Err(refusal) => {
            screen.line("", &format!("{}; {}", refusal.message, refusal.next));
            return;
        }
    };
    let all = ranking.workloads.len();
    let count = counted(u64::try_from(all).unwrap_or(u64::MAX), "candidate");
    screen.heading(&format!("Who would go now for {}: {count}", ranking.signal));
    if all == 0 {
        screen.line("", "Nobody: no workload is watched over.");
        return;
    }
    let (columns, rows) = workload_table(state, ranking, width);
    screen.table(columns, &rows);
}

fn incidents(screen: &mut Screen, state: &State, width: Option<usize>) {
    screen.gap();
    screen.heading("Last incidents");
    if let Some(why) = &state.deaf {
        screen.line("  ", why);
    } else if state.incidents.is_empty() {
        screen.line("  ", "none is remembered");
    } else {
        let (columns, rows) = incident_table(&state.incidents, width);
        screen.table(columns, &rows);
    }
}

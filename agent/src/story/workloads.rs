//! The table of the node's workloads: who would have gone first, had a threshold been crossed.

use brink_core::node::workload::full_name;
use brink_stream::model::incident::Incident;
use brink_stream::model::workloads::{WorkloadLine, Workloads};

use crate::record::text::{bytes, counted, stretch, unsigned};
use crate::terminal::{Column, Paint, Screen};

/// Workloads that are printed.
const LINES: usize = 16;

/// The workloads, whoever would have gone first in front.
pub(super) fn workloads(screen: &mut Screen, incident: &Incident) {
    let Some(table) = incident.workloads.value() else {
        return;
    };
    if table.lines.is_empty() {
        return;
    }
    screen.gap();
    screen.heading("The node's workloads, in the order of memory.available");
    let shown = table.lines.iter().take(LINES);
    let rows: Vec<Vec<String>> = shown.map(|line| row(line, incident)).collect();
    let columns = [
        Column::Name("WORKLOAD"),
        Column::Left("QOS"),
        Column::Right("PRIORITY"),
        Column::Right("REQUEST"),
        Column::Right("USED"),
        Column::Text(""),
    ];
    screen.table(&columns, &rows);
    let more = u64::try_from(table.lines.len().saturating_sub(LINES)).unwrap_or(u64::MAX);
    let more = more.saturating_add(u64::from(table.more));
    if more > 0 {
        screen.line("  ", &format!("and {more} more"));
    }
    if let Some(text) = ages(table) {
        screen.paragraph("  ", &text, Some(Paint::Faint));
    }
}

fn row(line: &WorkloadLine, incident: &Incident) -> Vec<String> {
    let victim = incident.workload.value();
    let is_victim = victim.is_some_and(|victim| victim.uid == line.uid && victim.name == line.name);
    let refusal = line.refusal.as_ref();
    let refusal = refusal.map(|refusal| format!("refuses: {refusal}"));
    let by = line.preference_by.as_ref();
    let asked = by.map(|by| format!("{} ({by})", line.preference));
    let said: Vec<String> = is_victim
        .then(|| "killed".to_owned())
        .into_iter()
        .chain(asked)
        .chain(refusal)
        .collect();
    vec![
        full_name(&line.namespace, &line.name),
        line.qos.clone(),
        line.priority.to_string(),
        bytes(line.request),
        line.usage
            .value()
            .map_or_else(String::new, |used| unsigned(*used)),
        said.join(", "),
    ]
}

/// From when the figures are; nothing where all are from the kill.
fn ages(table: &Workloads) -> Option<String> {
    let ages = table.lines.iter().filter_map(|line| line.usage_age_ms);
    let oldest = ages.max().unwrap_or(0);
    let unread = table
        .lines
        .iter()
        .filter(|line| line.usage.value().is_none());
    let unread = u64::try_from(unread.count()).unwrap_or(u64::MAX);
    let oldest = i64::try_from(oldest).unwrap_or(i64::MAX);
    let parts = [
        (oldest > 0).then(|| format!("what they used was read up to {} before", stretch(oldest))),
        (unread > 0).then(|| format!("{} had not been read", counted(unread, "workload"))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

//! The tables of an incident's page: victims, kills by others, cgroups, memory.stat, processes, the node and the configuration.

use std::collections::BTreeMap;

use brink_stream::model::field::Field;
use brink_stream::model::incident::{
    Cause, CgroupState, Incident, NodeState, OtherKill, ProcessLine, Victim,
};

use crate::record::text::{bytes, stretch, time_of_day, unsigned};
use crate::terminal::{Column, Screen};

/// Entries of memory.stat that are printed.
const STAT_ENTRIES: usize = 12;
/// Processes of a table that are printed.
const PROCESSES: usize = 10;

/// Who was killed.
pub(super) fn victims(screen: &mut Screen, incident: &Incident) {
    if incident.victims.is_empty() {
        return;
    }
    screen.gap();
    screen.heading(if incident.cause == Cause::WouldEvict {
        "Would have been killed"
    } else {
        "Killed"
    });
    let rows: Vec<Vec<String>> = incident.victims.iter().map(victim).collect();
    let columns = [
        Column::Right("PID"),
        Column::Name("NAME"),
        Column::Right("ANON"),
        Column::Right("FILE"),
        Column::Right("SHMEM"),
        Column::Right("SWAP"),
        Column::Right("TABLES"),
        Column::Right("ADJ"),
        Column::Right("AGE"),
    ];
    screen.table(&columns, &rows);
    for victim in &incident.victims {
        let uid = victim.uid.value().map(|uid| format!("uid {uid}"));
        let argv = victim.argv.value().map(|argv| argv.join(" "));
        let parts: Vec<String> = uid.into_iter().chain(argv).collect();
        if !parts.is_empty() {
            screen.line(&format!("  {}  ", victim.pid), &parts.join(": "));
        }
    }
}

fn victim(victim: &Victim) -> Vec<String> {
    let amount = |field: &Field<u64>| {
        field
            .value()
            .map_or_else(String::new, |value| unsigned(*value))
    };
    let age = victim
        .age_ns
        .value()
        .map(|nanos| i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX));
    vec![
        victim.pid.to_string(),
        victim.comm.clone(),
        amount(&victim.anon),
        amount(&victim.file),
        amount(&victim.shmem),
        amount(&victim.swap),
        amount(&victim.page_tables),
        number(&victim.oom_score_adj),
        age.map_or_else(String::new, stretch),
    ]
}

/// Whom somebody else killed while our order for their workload was open.
pub(super) fn other_kills(screen: &mut Screen, incident: &Incident) {
    if incident.other_kills.is_empty() {
        return;
    }
    screen.gap();
    screen.heading("Killed by others meanwhile");
    let rows: Vec<Vec<String>> = incident.other_kills.iter().map(other_kill).collect();
    let columns = [
        Column::Right("PID"),
        Column::Name("NAME"),
        Column::Left("UTC"),
        Column::Right("BY PID"),
        Column::Name("BY"),
        Column::Right("SIGNAL CODE"),
    ];
    screen.table(&columns, &rows);
    if let Some(more) = incident.more_other_kills {
        screen.line("  ", &format!("and {more} more"));
    }
}

fn other_kill(kill: &OtherKill) -> Vec<String> {
    vec![
        kill.pid.to_string(),
        kill.comm.clone(),
        time_of_day(&kill.at.wall).to_owned(),
        kill.sender_pid.to_string(),
        kill.sender_comm.clone(),
        kill.signal_code.to_string(),
    ]
}

fn number<T: ToString>(field: &Field<T>) -> String {
    field.value().map_or_else(String::new, ToString::to_string)
}

/// The victim's cgroup and those above it.
pub(super) fn cgroups(screen: &mut Screen, incident: &Incident) {
    let Some(groups) = incident.cgroups.value().filter(|groups| !groups.is_empty()) else {
        return;
    };
    screen.gap();
    screen.heading("Its cgroup, and those above");
    let limit = incident.limit.value().map(|limit| limit.cgroup.as_str());
    let rows: Vec<Vec<String>> = groups.iter().map(|group| cgroup(group, limit)).collect();
    let columns = [
        Column::Name("CGROUP"),
        Column::Right("USED"),
        Column::Right("MAX"),
        Column::Right("HIGH"),
        Column::Right("SWAP"),
        Column::Left(""),
        Column::Text("EVENTS"),
    ];
    screen.table(&columns, &rows);
}

fn cgroup(group: &CgroupState, limit: Option<&str>) -> Vec<String> {
    let limited = |field: &Field<Option<u64>>| match field.value() {
        Some(Some(value)) => unsigned(*value),
        Some(None) => "none".to_owned(),
        None => String::new(),
    };
    let amount = |field: &Field<u64>| {
        field
            .value()
            .map_or_else(String::new, |value| unsigned(*value))
    };
    let events = group.events.value().into_iter().flatten();
    let events = events
        .filter(|(_, count)| **count > 0)
        .map(|(name, count)| format!("{name} {count}"));
    let mark = if limit == Some(group.path.as_str()) {
        "limit"
    } else {
        ""
    };
    vec![
        group.path.clone(),
        amount(&group.usage),
        limited(&group.max),
        limited(&group.high),
        amount(&group.swap),
        mark.to_owned(),
        events.collect::<Vec<_>>().join(", "),
    ]
}

/// What the victim's cgroup consisted of, largest first: amounts in bytes only.
pub(super) fn memory_stat(screen: &mut Screen, incident: &Incident) {
    let Some(stat) = incident.memory_stat.value() else {
        return;
    };
    let mut entries: Vec<(&String, u64)> = stat
        .iter()
        .filter(|(name, value)| **value > 0 && is_amount(name, stat))
        .map(|(name, value)| (name, *value))
        .collect();
    entries.sort_by_key(|(name, value)| (std::cmp::Reverse(*value), *name));
    if entries.is_empty() {
        return;
    }
    screen.gap();
    screen.heading("memory.stat of its cgroup, largest first");
    let rows: Vec<Vec<String>> = entries
        .chunks(2)
        .take(STAT_ENTRIES / 2)
        .map(|pair| {
            pair.iter()
                .flat_map(|(name, value)| [(*name).clone(), unsigned(*value)])
                .collect()
        })
        .collect();
    let columns = [
        Column::Left("ENTRY"),
        Column::Right("BYTES"),
        Column::Left("ENTRY"),
        Column::Right("BYTES"),
    ];
    screen.table(&columns, &rows);
}

/// Counters stand among the amounts, and totals over everything below beside those of the cgroup alone.
fn is_amount(name: &str, stat: &BTreeMap<String, u64>) -> bool {
    const COUNTERS: [&str; 8] = [
        "pg",
        "workingset_",
        "thp_",
        "zswp",
        "swpin",
        "swpout",
        "numa_",
        "hierarchical_",
    ];
    let is_total = name
        .strip_prefix("total_")
        .is_some_and(|own| stat.contains_key(own));
    !is_total && !COUNTERS.iter().any(|start| name.starts_with(start))
}

/// Who held most, in its cgroup and on the node.
pub(super) fn processes(screen: &mut Screen, incident: &Incident) {
    let lists = [
        ("Largest processes of its cgroup", &incident.top_of_cgroup),
        ("Largest processes of the node", &incident.top_of_node),
    ];
    for (title, list) in lists {
        if let Some(list) = list.value().filter(|list| !list.is_empty()) {
            screen.gap();
            screen.heading(title);
            process_table(screen, list);
        }
    }
}

/// A cell of what is not known; the reason stands at the end of the page.
fn unknown() -> String {
    "unknown".to_owned()
}

fn process_table(screen: &mut Screen, list: &[ProcessLine]) {
    let rows: Vec<Vec<String>> = list
        .iter()
        .take(PROCESSES)
        .map(|line| {
            vec![
                line.pid.to_string(),
                line.comm.clone(),
                unsigned(line.rss),
                line.swap.map_or_else(unknown, unsigned),
                line.oom_score_adj
                    .map_or_else(unknown, |adj| adj.to_string()),
            ]
        })
        .collect();
    let columns = [
        Column::Right("PID"),
        Column::Name("NAME"),
        Column::Right("RSS"),
        Column::Right("SWAP"),
        Column::Right("ADJ"),
    ];
    screen.table(&columns, &rows);
}

/// How the node was.
pub(super) fn node(screen: &mut Screen, incident: &Incident) {
    let Some(node) = incident.node.value() else {
        return;
    };
    screen.gap();
    screen.heading("The node");
    let mut parts = Vec::new();
    parts.extend(
        node.available
            .value()
            .map(|value| format!("memory.available {}", bytes(*value))),
    );
    parts.extend(
        node.headroom
            .value()
            .map(|value| format!("headroom {}", bytes(*value))),
    );
    if let Some(meminfo) = node.meminfo.value() {
        let shown = ["MemTotal", "MemFree", "MemAvailable", "SwapFree"].into_iter();
        parts.extend(
            shown.filter_map(|name| Some(format!("{name} {}", unsigned(*meminfo.get(name)?)))),
        );
    }
    if !parts.is_empty() {
        screen.line("  memory     ", &parts.join(", "));
    }
    if let Some(pressure) = node.pressure.value() {
        let full = pressure.full.map(|full| format!("{full:.1} % full"));
        let full = full.as_deref().unwrap_or("full unknown");
        let text = format!("{:.1} % some, {full}, over 10 s", pressure.some);
        screen.line("  pressure   ", &text);
    }
    if let Some(nanos) = node.reclaim_ns.value() {
        let text = format!(
            "the victim's tasks had spent {} in it",
            crate::record::text::millis(*nanos)
        );
        screen.line("  reclaim    ", &text);
    }
    if let Some(vmstat) = node.vmstat.value() {
        screen.line("  since boot ", &since_boot(vmstat));
    }
    zones(screen, node);
}

/// What reclaim has done, in pages and events. Kernels count scans by who scans and again by what is scanned.
fn since_boot(vmstat: &BTreeMap<String, u64>) -> String {
    let of = |name: &str| vmstat.get(name).copied().unwrap_or_default();
    let stalls = vmstat
        .iter()
        .filter(|(name, _)| name.starts_with("allocstall_"));
    let stalls: u64 = stalls.map(|(_, count)| *count).fold(0, u64::saturating_add);
    format!(
        "kswapd took {} of {} scanned pages, allocations {} of {}; {stalls} allocations stalled, {} OOM kills",
        of("pgsteal_kswapd"),
        of("pgscan_kswapd"),
        of("pgsteal_direct"),
        of("pgscan_direct"),
        of("oom_kill")
    )
}

fn zones(screen: &mut Screen, node: &NodeState) {
    let Some(zones) = node.zones.value().filter(|zones| !zones.is_empty()) else {
        return;
    };
    let rows: Vec<Vec<String>> = zones
        .iter()
        .map(|zone| {
            let marks = [zone.free, zone.min, zone.low, zone.high];
            let names = [zone.node.to_string(), zone.zone.clone()];
            names
                .into_iter()
                .chain(marks.map(|pages| pages.to_string()))
                .collect()
        })
        .collect();
    let columns = [
        Column::Right("NUMA"),
        Column::Left("ZONE"),
        Column::Right("FREE PAGES"),
        Column::Right("MIN"),
        Column::Right("LOW"),
        Column::Right("HIGH"),
    ];
    screen.table(&columns, &rows);
}

/// What the agent was configured with.
pub(super) fn configuration(screen: &mut Screen, incident: &Incident) {
    let Some(found) = incident.configuration.value() else {
        return;
    };
    screen.gap();
    screen.heading("What was configured");
    let mode = format!("{}, memory policy {}", found.mode, found.memory_policy);
    screen.line("  mode       ", &mode);
    if let Some(period) = &found.pressure_transition {
        screen.line("  transition ", &format!("conditions hold {period} longer"));
    }
    if let Some(seconds) = found.max_pod_grace_seconds {
        let text = format!("{seconds} s at most, of a soft eviction");
        screen.line("  grace      ", &text);
    }
    if found.thresholds.is_empty() {
        screen.line("  thresholds ", "none");
        return;
    }
    let of = |index: usize| found.parts.get(index)?.min_reclaim.clone();
    let thresholds = found.thresholds.iter().enumerate();
    let rows: Vec<Vec<String>> = thresholds
        .map(|(index, written)| vec![written.clone(), of(index).unwrap_or_default()])
        .collect();
    let columns = [Column::Name("THRESHOLD"), Column::Right("MINIMUM RECLAIM")];
    screen.table(&columns, &rows);
}

//! The page of `brink status`: mode, order, rung, signals, thresholds, and what was lost.

use brink_host::probe::programs::is_spare;

use super::pause::pause_end;
use super::status_disks::{self, disks};
use super::status_kubernetes::kubernetes;
use super::status_recorder::recorder;
use super::status_storage::storage;
use crate::control::protocol::{EventJournalView, EventsView, OomView, Status, ThresholdState};
use crate::record::text::{
    amount, bytes, counted, end_words, hardness, held_words, mode_words, moment, pressure, stretch,
    unsigned,
};
use crate::record::wire::OrderView;
use crate::terminal::{Column, Paint, Screen, Style};

/// The page, one step for each part of it.
pub(super) fn page(status: &Status, style: Style) -> String {
    let mut screen = Screen::new(style);
    agent(&mut screen, status);
    order(&mut screen, status);
    rung(&mut screen, status);
    signals(&mut screen, status);
    thresholds(&mut screen, status);
    node(&mut screen, status);
    if let Some(view) = &status.kubernetes {
        kubernetes(&mut screen, view);
    }
    if let Some(view) = &status.storage {
        storage(&mut screen, view);
        screen.gap();
    }
    if let Some(view) = &status.disks {
        disks(&mut screen, view);
    }
    if let Some(told) = &status.events {
        events(&mut screen, told);
    }
    if let Some(view) = &status.recorder {
        recorder(&mut screen, view);
    }
    losses(&mut screen, status);
    screen.into_text()
}

/// Who answers, whether it acts, and since when.
fn agent(screen: &mut Screen, status: &Status) {
    let title = format!("brink {} (pid {})", status.version, status.pid);
    screen.heading(&title);
    let is_enforcing = status.mode == "enforcing";
    let paint = (!is_enforcing).then_some(Paint::Warning);
    screen.paragraph(LABEL_MODE, &mode(status), paint);
    if let Some(pause) = status.pause.as_ref().filter(|_| status.mode != "paused") {
        let text = format!("the stop button is pressed as well, {}", pause_end(pause));
        screen.line("            ", &text);
    }
    if let Some(refused) = &status.refused_configuration {
        let text = format!(
            "refused {}; the one before is in force",
            moment(&refused.at)
        );
        screen.paragraph("  config    ", &text, Some(Paint::Error));
        for finding in refused.why.lines() {
            screen.paragraph("            ", finding, None);
        }
    }
    manifests(screen, status);
    screen.line("  policy    ", &policy(&status.memory_policy));
    screen.line("  started   ", &moment(&status.started));
    screen.line("  now       ", &moment(&status.now));
}

/// Manifest files that are not in order, and what becomes of their pods.
fn manifests(screen: &mut Screen, status: &Status) {
    let mut label = "  manifests ";
    for broken in &status.broken_manifests {
        let pods = if broken.pods_stand {
            "the pods it had stand until it is in order again or gone"
        } else {
            "its pods are unknown"
        };
        let text = format!("{} is not in order: {pods}", broken.file);
        screen.paragraph(label, &text, Some(Paint::Error));
        for finding in broken.why.lines() {
            screen.paragraph("            ", finding, None);
        }
        label = "            ";
    }
    if status.more_broken_manifests > 0 {
        let more = u64::from(status.more_broken_manifests);
        let text = format!("and {}", counted(more, "more file"));
        screen.paragraph(label, &text, Some(Paint::Error));
    }
}

const LABEL_MODE: &str = "  mode      ";

/// What becomes of orders, and how that ends.
fn mode(status: &Status) -> String {
    match (status.mode.as_str(), &status.pause, status.other_enforcer) {
        ("enforcing", ..) => "enforcing: orders are carried out".to_owned(),
        ("observing", ..) => {
            "observing: orders are told and not carried out (`mode: enforce` would)".to_owned()
        }
        ("paused", Some(pause), _) => format!("paused {}", pause_end(pause)),
        ("paused", None, _) => "paused".to_owned(),
        ("standby", _, Some(pid)) => format!(
            "standby: pid {pid} enforces on this node; this agent observes, and takes over when that one ends"
        ),
        ("standby", _, None) => "standby: another agent enforces on this node; this one observes, and takes over when that one ends".to_owned(),
        ("throttled" | "exhausted", ..) => format!(
            "{}: orders are told and not carried out; `brink resume` enforces again",
            mode_words(&status.mode)
        ),
        (other, ..) => other.to_owned(),
    }
}

fn policy(policy: &str) -> String {
    match policy {
        "confirmed" => "confirmed: memory.available kills only if headroom is short too".to_owned(),
        "kubelet" => "kubelet: memory.available kills alone".to_owned(),
        other => other.to_owned(),
    }
}

/// The order that is open, or the last one.
fn order(screen: &mut Screen, status: &Status) {
    let line = |order: &OrderView| {
        let observed = if order.mode == "enforcing" {
            ""
        } else {
            ", observed only"
        };
        format!(
            "{}, {} for {} {}{observed}",
            order.order,
            order.victim,
            hardness(order.hard),
            order.signal
        )
    };
    if let Some(open) = &status.open_order {
        let now = status.now.monotonic_ns;
        let since = now.saturating_sub(open.decided.monotonic_ns);
        let text = format!("{}, open for {}", line(open), stretch(since / 1_000_000));
        screen.paragraph("  order     ", &text, Some(Paint::Error));
        screen.line("            ", &moment(&open.decided));
    } else if let Some(last) = &status.last_order {
        let end = last.end.as_deref().map_or("", end_words);
        screen.line("  last      ", &format!("order {}: {end}", line(last)));
        screen.line("            ", &moment(&last.decided));
    }
}

/// What carries the signals, and what keeps it from being better.
fn rung(screen: &mut Screen, status: &Status) {
    let unknown = "not known yet";
    let rung = status.rung.as_deref().unwrap_or(unknown);
    let scheduling = status.scheduling.as_deref().unwrap_or(unknown);
    screen.line(
        "  rung      ",
        &format!("{rung}, guard thread {scheduling}"),
    );
    for reason in &status.rung_reasons {
        screen.paragraph(
            "            ",
            &format!("not higher: {reason}"),
            Some(Paint::Warning),
        );
    }
    let absent = status.programs.iter().filter(|program| !program.running);
    for program in absent {
        let why = program.why.as_deref().unwrap_or("no reason given");
        let (but, paint) = if is_spare(&program.name) {
            (", and nothing depends on it", Paint::Faint)
        } else {
            ("", Paint::Warning)
        };
        let text = format!(
            "{} ({}) does not run{but}: {why}",
            program.name, program.family
        );
        screen.paragraph("            ", &text, Some(paint));
    }
    let skipped = status.programs.iter().filter_map(|program| {
        let count = program.skipped.filter(|count| *count > 0)?;
        Some(format!("{} {}", program.name, counted(count, "time")))
    });
    let skipped: Vec<String> = skipped.collect();
    if !skipped.is_empty() {
        let text = format!(
            "left out by the kernel, which does not run a program twice on a processor: {}",
            skipped.join(", ")
        );
        screen.paragraph("            ", &text, Some(Paint::Warning));
    }
}

/// What is measured.
fn signals(screen: &mut Screen, status: &Status) {
    screen.gap();
    let Some(age) = status.figures_age_ms else {
        screen.heading("Signals: the guard has not read the node yet");
        return;
    };
    screen.heading(&format!("Signals, {} old", stretch(age)));
    let mut rows: Vec<Vec<String>> = status
        .signals
        .iter()
        .map(|signal| {
            let of = |value| amount(&signal.signal, value);
            let share = share(signal.available, signal.capacity);
            vec![
                signal.signal.clone(),
                of(signal.available),
                of(signal.capacity),
                share,
            ]
        })
        .collect();
    // With swap the signal counts what swap can take; without it both are the same.
    if status.usable_swap_bytes > 0 {
        let headroom = status
            .headroom_bytes
            .map_or_else(|| "unknown".to_owned(), bytes);
        rows.push(vec!["  without swap".to_owned(), headroom]);
        let swap = unsigned(status.usable_swap_bytes);
        rows.push(vec!["  usable swap".to_owned(), swap]);
    }
    let columns = [
        Column::Left("SIGNAL"),
        Column::Right("AVAILABLE"),
        Column::Right("OF"),
        Column::Right("SHARE"),
    ];
    screen.table(&columns, &rows);
    if let Some(group) = &status.pods_cgroup {
        let text = format!("allocatable memory is what the pods may use: {group}");
        screen.paragraph("  ", &text, Some(Paint::Faint));
    }
}

/// Percent of a capacity, cut to whole ones.
fn share(available: i64, capacity: i64) -> String {
    let percent = i128::from(available) * 100;
    percent
        .checked_div(i128::from(capacity))
        .map_or_else(String::new, |percent| format!("{percent}%"))
}

/// Each threshold and how far it is.
fn thresholds(screen: &mut Screen, status: &Status) {
    screen.gap();
    if status.thresholds.is_empty() {
        screen.heading("No thresholds are set");
        return;
    }
    screen.heading("Thresholds");
    let rows: Vec<Vec<String>> = status.thresholds.iter().map(row).collect();
    let columns = [
        Column::Left("SIGNAL"),
        Column::Right("BELOW"),
        Column::Right("AT"),
        Column::Left("KIND"),
        Column::Text("STATE"),
    ];
    screen.table(&columns, &rows);
    unmeasured(screen, status);
}

/// Thresholds on what is not observed here, a line for each reason.
fn unmeasured(screen: &mut Screen, status: &Status) {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for threshold in status.thresholds.iter().filter(|one| !one.observed) {
        let signal = threshold.signal.as_str();
        let why = why_unmeasured(status, signal);
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, signals)) if signals.contains(&signal) => {}
            Some((_, signals)) => signals.push(signal),
            None => groups.push((why, vec![signal])),
        }
    }
    for (why, signals) in groups {
        let text = format!(
            "not measured here, so never met: {}{why}",
            signals.join(", ")
        );
        screen.paragraph("  ", &text, Some(Paint::Faint));
    }
}

fn row(threshold: &ThresholdState) -> Vec<String> {
    let quantity = threshold
        .quantity
        .filter(|_| threshold.value.ends_with('%'));
    let grace = threshold.grace_seconds.saturating_mul(1000);
    let kind = hardness(threshold.hard);
    vec![
        threshold.signal.clone(),
        threshold.value.clone(),
        quantity.map_or_else(String::new, |quantity| amount(&threshold.signal, quantity)),
        if threshold.hard {
            kind.to_owned()
        } else {
            format!("{kind}, {}", stretch(grace))
        },
        state(threshold),
    ]
}

/// How a threshold stands.
pub(super) fn state(threshold: &ThresholdState) -> String {
    if !threshold.observed {
        return "not measured".to_owned();
    }
    if !threshold.met {
        return "clear".to_owned();
    }
    let met = threshold
        .met_for_ms
        .map_or_else(String::new, |millis| format!(" for {}", stretch(millis)));
    match &threshold.held {
        Some(held) => format!("MET{met}, held: {} ({held})", held_words(held)),
        None if threshold.hard => format!("MET{met}"),
        None => format!("MET{met}, acts when its grace is over"),
    }
}

/// Why a signal has no figures here.
fn why_unmeasured(status: &Status, signal: &str) -> String {
    let why = match signal {
        "allocatableMemory.available" => without_pods(status),
        _ if signal.contains("fs.") => {
            status_disks::why_unmeasured(status.disks.as_ref(), signal).to_owned()
        }
        _ => return String::new(),
    };
    format!(" ({why})")
}

/// Why nobody knows what the pods may use.
fn without_pods(status: &Status) -> String {
    match (&status.pods_cgroup, &status.kubernetes) {
        (Some(group), _) => format!("{group} has no memory limit, or cannot be read"),
        (None, Some(_)) => {
            "no kubelet has made a group of all pods in a usual place; podsCgroup names another"
                .to_owned()
        }
        (None, None) => "podsCgroup is not set".to_owned(),
    }
}

/// Conditions, workloads and what has happened.
fn node(screen: &mut Screen, status: &Status) {
    screen.gap();
    let conditions = if status.conditions.is_empty() {
        "none".to_owned()
    } else {
        status.conditions.join(", ")
    };
    screen.line("conditions  ", &conditions);
    screen.line("pressure    ", &pressure(&status.pressure));
    let never = match status.protected {
        0 => "none of them protected".to_owned(),
        some => format!("{some} of them never evicted"),
    };
    screen.line("workloads   ", &format!("{}, {never}", status.workloads));
    let decisions = counted(u64::from(status.decisions), "decision");
    screen.line(
        "this boot   ",
        &format!("{decisions}; {}", oom_kills(status)),
    );
}

/// How often the kernel's own killer has killed, if that is known.
fn oom_kills(status: &Status) -> String {
    if !status.counts_oom_kills() {
        return "kills by the kernel's OOM killer are not counted: `mark_victim` does not run"
            .to_owned();
    }
    let kills = counted(u64::from(status.oom_kills), "kill");
    let what_for = oom(status.oom);
    format!("{kills}{what_for} by the kernel's OOM killer since the start")
}

/// What the kernel's own kills were for.
fn oom(oom: OomView) -> String {
    let parts = [
        (oom.node, "for the node"),
        (oom.cgroup, "for the limit of a cgroup"),
        (oom.unknown, "for what is not known"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if oom.groups > 0 {
        parts.push(format!("several at once {} times", oom.groups));
    }
    if parts.is_empty() {
        return String::new();
    }
    format!(" ({})", parts.join(", "))
}

/// How many events were told, and which way out is closed to them.
fn events(screen: &mut Screen, told: &EventsView) {
    let last = format!("the last one has the number {}", told.last);
    let (journal, paint) = match &told.journal {
        None => ("no journal".to_owned(), None),
        Some(journal) => (journal_words(journal), journal.why.as_ref()),
    };
    let is_closed = paint.is_some();
    screen.paragraph(
        "events      ",
        &format!("{last}; {journal}"),
        is_closed.then_some(Paint::Warning),
    );
    let outlets = told.outlets.iter();
    let outlets = outlets.filter_map(|outlet| Some((&outlet.name, outlet.why.as_ref()?)));
    let troubles = outlets.map(|(name, why)| format!("events.{name} fails: {why}"));
    let numbers = told.numbers.iter();
    let numbers = numbers.map(|why| format!("their numbers cannot be kept: {why}"));
    let doors = told.doors.iter();
    let doors = doors.filter_map(|door| Some((door, door.why.as_ref()?)));
    let doors = doors
        .map(|(door, why)| format!("{} is not served at {}: {why}", door.setting, door.address));
    for trouble in troubles.chain(doors).chain(numbers) {
        screen.paragraph("            ", &trouble, Some(Paint::Warning));
    }
}

/// Whether the journal is written, and what that costs.
fn journal_words(journal: &EventJournalView) -> String {
    let why = journal.why.as_deref().unwrap_or_default();
    let waiting = || counted(journal.waiting, "event");
    let lost = match journal.lost {
        0 => String::new(),
        lost => format!(", {lost} lost to it"),
    };
    match journal.state.as_str() {
        "writing" => format!("journal of {}{lost}", unsigned(journal.size)),
        "full" => format!("the journal's disk is full, {} wait{lost}", waiting()),
        "unopened" => format!("the journal is not open: {why}"),
        _ => format!(
            "the journal is not written ({why}), {} wait{lost}",
            waiting()
        ),
    }
}

/// What was lost on the way: a quiet node and a blind one must not look alike.
fn losses(screen: &mut Screen, status: &Status) {
    let lost = status.rings.iter().filter(|ring| ring.dropped > 0);
    let mut parts: Vec<String> = lost
        .map(|ring| {
            format!(
                "{} of the {} records of the kernel's {} hooks",
                ring.dropped, ring.seen, ring.row
            )
        })
        .collect();
    if status.reports_lost > 0 {
        parts.push(counted(status.reports_lost, "report") + " of the guard");
    }
    if !parts.is_empty() {
        screen.paragraph("LOST        ", &parts.join(", "), Some(Paint::Error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::{BrokenManifestView, ProgramView, RefusedView};

    #[test]
    fn a_configuration_that_was_refused_is_told_finding_by_finding() {
        let text = include_str!("../../tests/page/status.json");
        let mut status: Status = serde_json::from_str(text).unwrap();
        assert!(!page(&status, Style::default()).contains("refused"));
        status.refused_configuration = Some(RefusedView {
            at: status.now.clone(),
            why: "a.yaml:1:1: one\na.yaml:2:1: two".to_owned(),
        });
        let page = page(&status, Style::default());
        let lines = "the one before is in force\n            a.yaml:1:1: one\n            a.yaml:2:1: two\n";
        assert!(page.contains(lines), "{page}");
    }

    #[test]
    fn manifests_that_are_not_in_order_are_told_file_by_file() {
        let text = include_str!("../../tests/page/status.json");
        let mut status: Status = serde_json::from_str(text).unwrap();
        assert!(!page(&status, Style::default()).contains("manifests"));
        let broken = |file: &str, pods_stand| BrokenManifestView {
            file: file.to_owned(),
            why: format!("{file}:1:1: one\n{file}:2:1: \u{1b}two"),
            pods_stand,
        };
        status.broken_manifests = vec![broken("a.yaml", true), broken("b.yaml", false)];
        status.more_broken_manifests = 2;
        let page = page(&status, Style::default());
        let lines = "  manifests a.yaml is not in order: the pods it had stand until it is in order again or gone
            a.yaml:1:1: one
            a.yaml:2:1: \\u{1b}two
            b.yaml is not in order: its pods are unknown
            b.yaml:1:1: one
            b.yaml:2:1: \\u{1b}two
            and 2 more files
";
        assert!(page.contains(lines), "{page}");
    }

    #[test]
    fn the_group_of_all_pods_is_told_or_why_what_they_may_use_is_not_known() {
        let text = include_str!("../../tests/page/status.json");
        let mut status: Status = serde_json::from_str(text).unwrap();
        "allocatableMemory.available".clone_into(&mut status.thresholds[0].signal);
        status.thresholds[0].observed = false;
        let says = |status: &Status, words: &str| {
            let page = page(status, Style::default());
            assert!(page.contains(words), "{page}");
        };
        says(&status, "(podsCgroup is not set)");
        status.kubernetes = serde_json::from_value(serde_json::json!({
            "node": "n", "connected": true, "since": null, "why": null, "pods": 12, "stateAgeMs": 0, "leftOut": 0, "failures": 3
        }))
        .unwrap();
        says(&status, "(no kubelet has made a group of all pods");
        status.pods_cgroup = Some("/kubepods".to_owned());
        says(
            &status,
            "(/kubepods has no memory limit, or cannot be read)",
        );
        status.thresholds[0].observed = true;
        says(
            &status,
            "allocatable memory is what the pods may use: /kubepods\n",
        );
    }

    #[test]
    fn a_program_that_nothing_depends_on_is_told_as_such() {
        let text = include_str!("../../tests/page/status.json");
        let mut status: Status = serde_json::from_str(text).unwrap();
        status.programs = ["sampler", "oom_entered"]
            .map(|name| ProgramView {
                name: name.to_owned(),
                family: "any".to_owned(),
                running: false,
                why: Some("refused".to_owned()),
                skipped: None,
            })
            .to_vec();
        let page = page(&status, Style::default());
        for line in [
            "  sampler (any) does not run: refused\n",
            "  oom_entered (any) does not run, and nothing depends on it: refused\n",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }
}

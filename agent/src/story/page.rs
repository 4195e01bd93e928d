//! An incident as a page of text: what happened, how sure that is, when each thing was, to whom, and in which state all was.

use brink_stream::model::event::Time;
use brink_stream::model::field::Missing;
use brink_stream::model::incident::{Cause, Incident, Recording, Trigger};

use super::chart::{Chart, Point};
use super::headline::{certainty, decision, headline, killed, millis_after, short};
use super::missing::missing;
use super::tables;
use super::workloads::workloads;
use crate::record::root;
use crate::record::text::{counted, moment, stage_words, time_of_day, unsigned};
use crate::terminal::{Column, Paint, Screen, Style};

/// Columns of a chart where nobody says how wide the output is.
const UNKNOWN_WIDTH: usize = 80;
/// Frames of a stack that are printed.
const FRAMES: usize = 24;

/// The whole story of an incident, for people.
pub fn page(incident: &Incident, style: Style, is_ascii: bool) -> String {
    let mut screen = Screen::fitting(style);
    head(&mut screen, incident);
    timeline(&mut screen, incident);
    tables::victims(&mut screen, incident);
    tables::other_kills(&mut screen, incident);
    fork_root(&mut screen, incident);
    trigger(&mut screen, incident);
    tables::cgroups(&mut screen, incident);
    chart(
        &mut screen,
        incident,
        style.width.unwrap_or(UNKNOWN_WIDTH),
        is_ascii,
    );
    tables::memory_stat(&mut screen, incident);
    tables::processes(&mut screen, incident);
    workloads(&mut screen, incident);
    tables::node(&mut screen, incident);
    ours(&mut screen, incident);
    tables::configuration(&mut screen, incident);
    unknown(&mut screen, incident);
    screen.into_text()
}

fn head(screen: &mut Screen, incident: &Incident) {
    screen.heading(&format!("Incident {}: {}", incident.id, headline(incident)));
    screen.line("  when       ", &moment(&incident.at));
    if let Some(limit) = incident.limit.value() {
        let text = format!("{} ({})", limit.cgroup, certainty(limit));
        screen.line("  limit      ", &text);
    }
    if let Some(workload) = incident.workload.value() {
        let mut parts = vec![format!("uid {}", workload.uid)];
        parts.extend(workload.qos.clone());
        parts.push(format!("priority {}", workload.priority));
        parts.extend(
            workload
                .request
                .map(|request| format!("requested {}", crate::record::text::bytes(request))),
        );
        parts.extend(
            workload
                .owner
                .as_ref()
                .map(|owner| format!("owned by {owner}")),
        );
        screen.line("  workload   ", &parts.join(", "));
        if let Some(id) = &workload.container_id {
            let id = format!("id {}", short(id));
            let name = workload.container.as_ref();
            let name = name.filter(|_| !workload.is_container_unnamed());
            let text = name.map_or(id.clone(), |name| format!("{name} ({id})"));
            screen.line("  container  ", &text);
        }
    }
    for (label, evidence) in std::iter::once("  evidence   ")
        .chain(std::iter::repeat("             "))
        .zip(&incident.evidence)
    {
        screen.line(label, evidence);
    }
    let state = match (incident.is_final, &incident.course.end) {
        (_, Some(end)) => end.clone(),
        (false, None) => "still open: more is to come".to_owned(),
        (true, None) => "over".to_owned(),
    };
    let paint = (!incident.is_final).then_some(Paint::Warning);
    screen.paragraph("  state      ", &state, paint);
    let freed = incident.course.freed.value();
    let survived = incident.course.container_survived.value();
    let survived = survived.map(|survived| {
        if *survived {
            "its container still has processes"
        } else {
            "nobody is left in its container"
        }
    });
    let parts: Vec<String> = freed
        .map(|freed| format!("{} given back", unsigned(*freed)))
        .into_iter()
        .chain(survived.map(str::to_owned))
        .collect();
    if !parts.is_empty() {
        screen.line("  outcome    ", &parts.join("; "));
    }
}

/// Everything with a time, in order; distances are from what crossed a threshold, or from the first victim.
fn timeline(screen: &mut Screen, incident: &Incident) {
    let stages = decision(incident).map_or_else(Vec::new, |decision| decision.stages);
    let mut moments: Vec<(Time, String)> = stages
        .iter()
        .map(|stage| (stage.at.clone(), stage_words(&stage.stage).to_owned()))
        .collect();
    let is_ours = !moments.is_empty();
    let start = stages
        .iter()
        .find(|stage| stage.stage == "sampled")
        .map_or(&incident.at, |stage| &stage.at)
        .clone();
    if !is_ours {
        moments.push((incident.at.clone(), "victim chosen".to_owned()));
        let course = [
            (&incident.course.killed, "killed"),
            (&incident.course.exited, "last victim gone"),
            (&incident.course.memory_back, "memory back"),
        ];
        let known = course
            .into_iter()
            .filter_map(|(at, what)| Some((at.value()?.clone(), what.to_owned())));
        moments.extend(known);
    }
    let exits = incident.victims.iter().filter_map(|victim| {
        let text = format!("{} (pid {}) exited", victim.comm, victim.pid);
        Some((victim.exited.value()?.clone(), text))
    });
    moments.extend(exits);
    moments.sort_by_key(|(at, _)| at.monotonic_ns);
    screen.gap();
    screen.heading(if is_ours {
        "Timeline, in ms after the sample that was below the threshold"
    } else {
        "Timeline, in ms after the victim was chosen"
    });
    let rows: Vec<Vec<String>> = moments
        .into_iter()
        .map(|(at, what)| {
            vec![
                format!("{:.3}", millis_after(&at, &start)),
                time_of_day(&at.wall).to_owned(),
                what,
            ]
        })
        .collect();
    let columns = [Column::Right("MS"), Column::Left("UTC"), Column::Text("")];
    screen.table(&columns, &rows);
}

/// Where the processes came from that took all ids.
fn fork_root(screen: &mut Screen, incident: &Incident) {
    if let Some(root) = incident.fork_root.value() {
        root::fork_root(screen, root);
    }
}

fn trigger(screen: &mut Screen, incident: &Incident) {
    let Some(trigger) = incident.trigger.value() else {
        return;
    };
    screen.gap();
    screen.heading("Trigger");
    let mut parts = vec![format!(
        "{}, pid {}, thread {}",
        trigger.comm, trigger.pid, trigger.tid
    )];
    parts.extend(trigger.cgroup.value().map(|cgroup| format!("in {cgroup}")));
    parts.extend(
        trigger
            .signal_code
            .value()
            .map(|code| format!("signal code {code}")),
    );
    screen.line("  task       ", &parts.join(", "));
    if let Some(gfp) = trigger.gfp.value() {
        let order = trigger
            .order
            .value()
            .map_or_else(String::new, |order| format!(", order {order}"));
        let flags = trigger.gfp_flags.value();
        let flags = flags.map_or_else(String::new, |flags| format!(" ({})", flags.join("|")));
        screen.line("  asked for  ", &format!("{gfp}{flags}{order}"));
    }
    stacks(screen, trigger);
}

fn stacks(screen: &mut Screen, trigger: &Trigger) {
    if let Some(stack) = trigger.kernel_stack.value() {
        frames(screen, "  kernel     ", stack);
    }
    if let Some(stack) = trigger.user_stack.value() {
        let lines: Vec<String> = stack
            .iter()
            .map(|frame| match &frame.build_id {
                Some(build) => format!("{build} +{:#x}", frame.offset),
                None => format!("{:#x}", frame.offset),
            })
            .collect();
        frames(screen, "  user       ", &lines);
        screen.paragraph(
            "             ",
            "by frame pointers: code built without them is skipped or cut off",
            Some(Paint::Faint),
        );
    }
}

fn frames(screen: &mut Screen, label: &str, stack: &[String]) {
    let indent = " ".repeat(label.len());
    let labels = std::iter::once(label).chain(std::iter::repeat(indent.as_str()));
    for (label, frame) in labels.zip(stack.iter().take(FRAMES)) {
        screen.line(label, frame);
    }
    let more = stack.len().saturating_sub(FRAMES);
    if more > 0 {
        screen.line(&indent, &format!("and {more} more"));
    }
}

fn chart(screen: &mut Screen, incident: &Incident, width: usize, is_ascii: bool) {
    let Some(recording) = incident.recording.value() else {
        return;
    };
    let (title, points, limit) = drawn(incident, recording);
    let lines = Chart {
        points: &points,
        limit,
        width,
        is_ascii,
    }
    .lines();
    if lines.is_empty() {
        return;
    }
    screen.gap();
    screen.heading(title);
    for line in lines {
        screen.drawing(&line);
    }
    if let Some(reason) = unrecorded(incident, recording) {
        let text = format!("the victim's cgroup was not recorded: {}", reason.words());
        screen.paragraph("  ", &text, Some(Paint::Faint));
    }
}

/// Why the node is drawn where the victim's cgroup would be. An order of ours is about the node, and so is a victim in the root.
fn unrecorded(incident: &Incident, recording: &Recording) -> Option<Missing> {
    let reason = recording.cgroup_missing?;
    (reason != Missing::NotApplicable && decision(incident).is_none()).then_some(reason)
}

/// The cgroup whose use the incident is about or, of one of the node's, what the node had left.
fn drawn(incident: &Incident, recording: &Recording) -> (&'static str, Vec<Point>, Option<u64>) {
    let is_ours = decision(incident);
    if recording.cgroup.is_empty() || is_ours.is_some() {
        let left = |available: i64| u64::try_from(available).unwrap_or(0);
        let points = recording
            .node
            .iter()
            .map(|point| (point.before_ms, left(point.available)));
        let crossed = is_ours.filter(|decision| decision.threshold.signal == "memory.available");
        let limit = crossed.map(|decision| left(decision.threshold.quantity));
        return (
            "The node's memory.available before it",
            points.collect(),
            limit,
        );
    }
    let points = recording
        .cgroup
        .iter()
        .map(|point| (point.before_ms, point.usage));
    let groups = incident.cgroups.value();
    let limits = groups
        .into_iter()
        .flatten()
        .filter_map(|group| *group.max.value()?);
    (
        "Memory of the victim's cgroup before it",
        points.collect(),
        limits.min(),
    )
}

/// What only our own decision tells.
fn ours(screen: &mut Screen, incident: &Incident) {
    let Some(decision) = decision(incident) else {
        return;
    };
    screen.gap();
    screen.heading("Decision");
    for sentence in &decision.why {
        screen.line("  ", sentence);
    }
    let text = format!("`brink explain {}` tells it whole", decision.order);
    screen.paragraph("  ", &text, Some(Paint::Faint));
}

fn unknown(screen: &mut Screen, incident: &Incident) {
    let missing = missing(incident);
    let unseen = incident.more_victims;
    if missing.is_empty() && unseen == 0 {
        return;
    }
    screen.gap();
    screen.heading("Not in this record");
    if unseen > 0 {
        let of = killed(incident);
        let what = if incident.cause == Cause::WouldEvict {
            "would have been"
        } else {
            "were"
        };
        let text = format!(
            "{} of {of} that {what} killed",
            counted(u64::from(unseen), "process")
        );
        screen.line("  ", &text);
    }
    for (reason, fields) in missing {
        let text = format!("{}: {}", reason.words(), fields.join(", "));
        screen.paragraph("  ", &text, Some(Paint::Faint));
    }
}

//! A scenario from a kill that was not ours: the node as it was recorded, and the workloads as they stood.

use brink_core::node::workload::full_name;
use brink_stream::model::field::Field;
use brink_stream::model::incident::{CgroupPoint, Incident, NodePoint, NodeState};
use brink_stream::model::workloads::{WorkloadLine, Workloads};
use serde_json::{Map, Value, json};

use super::configured::config;
use super::written::{Written, manifest, sayable, seen_as, used};
use super::{API_VERSION, KIND};
use crate::backend::protect::is_within;
use crate::record::text::{counted, stretch};
use crate::record::wire::RankedWorkload;
use crate::recorder::thin::{Band, Thinner, band};

/// Steps lie as far apart as these say, and closer together the nearer they are to the kill.
static PACE: [Band; 3] = [band(3_000, 100), band(13_000, 500), band(u32::MAX, 2_000)];

/// What every scenario of this kind has to say of itself.
const ALWAYS: &str =
    "behind its first eviction the scenario goes on as it was recorded, where nobody was evicted";

/// The scenario of a kill by the kernel or by somebody else.
///
/// # Errors
/// When the record does not have what a scenario is made of.
pub fn of_incident(incident: &Incident) -> Result<Written, String> {
    let table = known("table of the node's workloads", &incident.workloads)?;
    let node = known("state of the node", &incident.node)?;
    let mut notes = Vec::new();
    let config = config(&incident.configuration, &mut notes);
    notes.push(ALWAYS.to_owned());
    notes.extend(limit_note(incident));
    let lines: Vec<RankedWorkload> = table.lines.iter().map(ranked).collect();
    let pods = sayable(lines.iter(), &mut notes);
    let told = table.lines.iter().filter(|line| {
        let mut pods = pods.iter();
        pods.any(|pod| pod.uid == line.uid && pod.name == line.name)
    });
    let recorded = recorded(incident);
    let courses: Vec<Course<'_>> = told.map(|line| Course::of(line, &recorded)).collect();
    table_notes(table, &courses, &mut notes);
    let steps = steps(node, incident, &courses, &mut notes)?;
    Ok(Written {
        file: json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "notes": notes,
            "config": config,
            "pods": pods.iter().map(|pod| manifest(pod, true)).collect::<Vec<_>>(),
            "steps": steps,
        }),
        notes,
    })
}

fn known<'a, T>(what: &str, field: &'a Field<T>) -> Result<&'a T, String> {
    match field {
        Field::Value(value) => Ok(value),
        Field::Missing(reason) => Err(format!("its record has no {what}: {}", reason.words())),
    }
}

/// The kernel may have killed for a limit that no threshold looks at.
fn limit_note(incident: &Incident) -> Option<String> {
    let limit = incident.limit.value()?;
    let is_nodes = limit.cgroup == "/";
    (!is_nodes).then(|| {
        format!(
            "it was the limit of {} that was hit, and thresholds look at what the node had left",
            limit.cgroup
        )
    })
}

/// A line of the table as one of a ranking.
fn ranked(line: &WorkloadLine) -> RankedWorkload {
    let usage = line.usage.value();
    RankedWorkload {
        namespace: line.namespace.clone(),
        name: line.name.clone(),
        uid: line.uid.clone(),
        preference: line.preference.clone(),
        preference_by: line.preference_by.clone(),
        usage_to_request: String::new(),
        priority: line.priority,
        usage: usage.map(|bytes| i64::try_from(*bytes).unwrap_or(i64::MAX)),
        request: line.request,
        processes: None,
        refusal: line.refusal.clone(),
    }
}

/// What a workload used until the kill.
struct Course<'a> {
    name: String,
    line: &'a WorkloadLine,
    /// Of its cgroup, or of parts of that.
    tracks: Vec<Track<'a>>,
    /// What it used beside these at the kill, in bytes.
    beside: u64,
}

/// A recorded cgroup: its path, and its points.
type Track<'a> = (&'a str, &'a [CgroupPoint]);

impl<'a> Course<'a> {
    fn of(line: &'a WorkloadLine, recorded: &[Track<'a>]) -> Self {
        let own = line.cgroup.as_deref();
        let mut course = Self {
            name: full_name(&line.namespace, &line.name),
            line,
            tracks: own.map_or_else(Vec::new, |own| part(recorded, own)),
            beside: 0,
        };
        if course.is_in_parts() {
            let used = line.usage.value().copied().unwrap_or(0);
            course.beside = used.saturating_sub(course.at(0).unwrap_or(0));
        }
        course
    }

    /// Whether only cgroups below its own were recorded.
    fn is_in_parts(&self) -> bool {
        let own = self.line.cgroup.as_deref();
        self.tracks
            .first()
            .is_some_and(|(path, _)| Some(*path) != own)
    }

    /// Whether more is known than what it used at the kill.
    fn is_recorded(&self) -> bool {
        !self.tracks.is_empty()
    }

    /// Its working set at that time, in bytes, as of the last reading.
    fn at(&self, before_ms: u32) -> Option<u64> {
        let recorded = self.tracks.iter().filter_map(|(_, points)| {
            let later = points.partition_point(|point| point.before_ms >= before_ms);
            // Nobody has looked before the first.
            let latest = points.get(later.saturating_sub(1))?;
            Some(latest.working_set)
        });
        match recorded.reduce(u64::saturating_add) {
            Some(bytes) => Some(bytes.saturating_add(self.beside)),
            None => self.line.usage.value().copied(),
        }
    }
}

/// Every recorded cgroup, the victim's in front.
fn recorded(incident: &Incident) -> Vec<Track<'_>> {
    let Some(recording) = incident.recording.value() else {
        return Vec::new();
    };
    let victim = incident.victims.first();
    let path = victim.and_then(|victim| victim.cgroup.value());
    let own = path.map(|path| (path.as_str(), recording.cgroup.as_slice()));
    let others = recording.others.iter();
    let others = others.map(|track| (track.path.as_str(), track.points.as_slice()));
    let all = own.into_iter().chain(others);
    all.filter(|(_, points)| !points.is_empty()).collect()
}

/// What was recorded of a cgroup: itself, or those below it that lie in no other one of these.
fn part<'a>(recorded: &[Track<'a>], own: &str) -> Vec<Track<'a>> {
    if let Some(whole) = recorded.iter().find(|(path, _)| *path == own) {
        return vec![*whole];
    }
    let below = recorded.iter().filter(|(path, _)| is_within(path, own));
    let below: Vec<Track<'a>> = below.copied().collect();
    let is_topmost = |(path, _): &Track<'a>| {
        let mut others = below.iter().filter(|(other, _)| other != path);
        !others.any(|(other, _)| is_within(path, other))
    };
    below.iter().copied().filter(is_topmost).collect()
}

/// What of the workloads is missing or approximate.
fn table_notes(table: &Workloads, courses: &[Course<'_>], notes: &mut Vec<String>) {
    if courses.is_empty() {
        notes.push("no workload is in it, so nobody is evicted whatever is crossed".to_owned());
    }
    if table.more > 0 {
        let text = format!(
            "the record has the first {} of {} workloads; the others are left out",
            table.lines.len(),
            table.lines.len().saturating_add(table.more as usize)
        );
        notes.push(text);
    }
    for course in courses.iter().filter(|course| course.is_in_parts()) {
        let parts: Vec<&str> = course.tracks.iter().map(|(path, _)| *path).collect();
        let text = format!(
            "what {} used was recorded of these of its cgroups alone, and the rest is that of the kill: {}",
            course.name,
            parts.join(", ")
        );
        notes.push(text);
    }
    let as_of_kill = courses.iter().filter(|course| !course.is_recorded());
    let (read, unread): (Vec<_>, Vec<_>) =
        as_of_kill.partition(|course| course.line.usage.value().is_some());
    for course in unread {
        let text = format!(
            "what {} used is not known: it is ranked in front, as the kubelet ranks pods without statistics",
            course.name
        );
        notes.push(text);
    }
    if !read.is_empty() {
        let ages = read.iter().filter_map(|course| course.line.usage_age_ms);
        let age = i64::try_from(ages.max().unwrap_or(0)).unwrap_or(i64::MAX);
        let of = counted(u64::try_from(read.len()).unwrap_or(u64::MAX), "workload");
        let text = format!(
            "what {of} of {} used is known as of the kill alone (read up to {} before): every step has that",
            courses.len(),
            stretch(age)
        );
        notes.push(text);
    }
}

fn steps(
    node: &NodeState,
    incident: &Incident,
    courses: &[Course<'_>],
    notes: &mut Vec<String>,
) -> Result<Vec<Value>, String> {
    let capacity = *known("capacity of the node", &node.capacity)?;
    let swap = node.usable_swap.value().copied().unwrap_or(0);
    let points = points(node, incident, notes)?;
    if points.len() > 1 && swap > 0 {
        notes.push("usable swap is known as of the kill alone: every step has that".to_owned());
    }
    let first = points.first().map_or(0, |point| point.before_ms);
    let step = |point: &NodePoint| {
        let mut signals = Map::new();
        let available = seen_as(point.available, capacity);
        signals.insert("memory.available".to_owned(), available);
        let swapped = i64::try_from(swap).unwrap_or(i64::MAX);
        let headroom = seen_as(point.headroom.saturating_add(swapped), capacity);
        signals.insert("memory.headroom".to_owned(), headroom);
        let usage = courses.iter().filter_map(|course| {
            let bytes = course.at(point.before_ms)?;
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            Some((course.name.clone(), used(bytes, true)))
        });
        json!({
            "at": format!("{}ms", first.saturating_sub(point.before_ms)),
            "signals": signals,
            "usage": usage.collect::<Map<_, _>>(),
            "headroom": {"swap": swap},
        })
    };
    Ok(points.iter().map(step).collect())
}

/// The node over time, oldest first; of the points between two steps the one with the least memory available.
fn points(
    node: &NodeState,
    incident: &Incident,
    notes: &mut Vec<String>,
) -> Result<Vec<NodePoint>, String> {
    let why = match &incident.recording {
        Field::Value(recording) if recording.node.is_empty() => "the node was not recorded",
        Field::Value(recording) => {
            let mut thinner = Thinner::new(&PACE, |one: &NodePoint, other| {
                one.available < other.available
            });
            for point in &recording.node {
                thinner.push(point.before_ms, *point);
            }
            return Ok(thinner.finish());
        }
        Field::Missing(reason) => reason.words(),
    };
    notes.push(format!(
        "the time before is not in the record ({why}): the one step has the node as it was read when the kill was heard of"
    ));
    let point = NodePoint {
        available: *known("memory.available", &node.available)?,
        headroom: *known("memory.headroom", &node.headroom)?,
        ..NodePoint::default()
    };
    Ok(vec![point])
}

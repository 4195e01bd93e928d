//! A recording out of the rings: what an incident gets of the minute before it.

use brink_host::probe::abi::flight::FlightPoint;
use brink_stream::model::field::Missing;
use brink_stream::model::incident::{CgroupPoint, CgroupTrack, NodePoint, Recording};

use super::book::{Book, Entry, Wanted};
use super::point::{Counter, FilePoint, GroupPoint, Stamp, Tells, bytes};
use super::thin::{Band, Thinner, band};

/// What a recording reaches back, in milliseconds.
pub const REACH_MS: u32 = 60_000;
/// Points of the sampler that lie no further apart have no gap between them, however much they were thinned out, in milliseconds.
const GAP_MS: u32 = 2_000;

/// How much of the rings a recording holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The node.
    node: &'static [Band],
    /// The incident's own cgroup.
    cgroup: &'static [Band],
    /// Each of the others.
    others: &'static [Band],
    /// Others at most.
    most_others: usize,
    is_brief: bool,
}

/// As most incidents get it: no more than 200 KB of JSON.
pub const FULL: Form = Form {
    node: &[band(3_000, 10), band(13_000, 100), band(REACH_MS, 250)],
    cgroup: &[band(10_000, 100), band(REACH_MS, 500)],
    others: &[band(REACH_MS, 2_500)],
    most_others: 8,
    is_brief: false,
};

/// In a storm of incidents: no more than 40 KB.
pub const BRIEF: Form = Form {
    node: &[band(300, 10), band(3_000, 100), band(REACH_MS, 1_000)],
    cgroup: &[band(1_000, 100), band(REACH_MS, 1_000)],
    others: &[],
    most_others: 0,
    is_brief: true,
};

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The incident's moment; what is later is no part of it.
    pub at: Stamp,
    /// The victim's cgroup.
    pub cgroup: Option<Wanted<'a>>,
    /// How much of it.
    pub form: Form,
}

/// The node's points, thinned out as [`Form::node`] says.
#[derive(Clone, Debug, Default)]
pub struct NodePart {
    /// The points, oldest first.
    pub points: Vec<NodePoint>,
    /// From one to the next as recorded, in milliseconds.
    pub period_ms: u32,
}

impl Form {
    /// Takes the node's points as this form wants them.
    pub const fn node(&self) -> Thinner<NodePoint> {
        Thinner::new(self.node, |one, other| one.available < other.available)
    }
}

/// Cuts a recording. `sampled` is what the kernel recorded of the node; where it did not, files tell.
/// `tells` is what the programs that are loaded now count.
pub fn cut(
    book: &Book,
    request: Request<'_>,
    sampled: Option<NodePart>,
    tells: Tells,
) -> Recording {
    let form = request.form;
    let NodePart { points, period_ms } = node(book, request, sampled.unwrap_or_default());
    let own = request.cgroup.and_then(|own| book.find(own));
    let cgroup = own.map_or_else(Vec::new, |found| {
        track(book, found, request.at, form.cgroup)
    });
    let is_unstalled = points.iter().any(|point| point.stall_us.is_none());
    Recording {
        node_missing: lost_or(points.is_empty(), book.node_missing),
        node_stall_missing: lost_or(is_unstalled, book.stalls_missing),
        node_reclaims_missing: of_node(
            book,
            tells.reclaims,
            points.iter().map(|point| point.reclaims),
        ),
        node_forks_missing: of_node(book, tells.forks, points.iter().map(|point| point.forks)),
        node: points,
        cgroup_missing: cgroup_missing(request, &cgroup),
        stall_missing: stall_missing(book, &cgroup),
        reclaims_missing: uncounted(tells.reclaims, cgroup.iter().map(|point| point.reclaims)),
        forks_missing: uncounted(tells.forks, cgroup.iter().map(|point| point.forks)),
        cgroup,
        others: others(book, request, tells),
        node_period_ms: period_ms,
        near_period_ms: book.periods.near_ms,
        others_period_ms: book.periods.others_ms,
        is_brief: form.is_brief,
    }
}

/// The cgroups above the victim's that have a limit, then those nearest to theirs.
fn others(book: &Book, request: Request<'_>, tells: Tells) -> Vec<CgroupTrack> {
    let own = request.cgroup.map(|own| own.path);
    let is_above = |entry: &Entry| {
        let below = own.and_then(|own| own.strip_prefix(&*entry.path));
        below.is_some_and(|below| below.starts_with('/'))
    };
    let is_own = |entry: &Entry| own == Some(&*entry.path);
    let mut found: Vec<(usize, &Entry)> = book
        .entries()
        .filter(|(_, entry)| !is_own(entry) && entry.limit.is_some())
        .filter(|(_, entry)| entry.near.is_some() || is_above(entry))
        .collect();
    found.sort_by_key(|(slot, entry)| (!is_above(entry), std::cmp::Reverse(entry.nearness), *slot));
    let tracks = found.into_iter().map(|(slot, entry)| {
        let points = track(book, (slot, entry), request.at, request.form.others);
        CgroupTrack {
            path: entry.path.to_string(),
            limit: entry.limit,
            stall_missing: stall_missing(book, &points),
            reclaims_missing: uncounted(tells.reclaims, points.iter().map(|point| point.reclaims)),
            forks_missing: uncounted(tells.forks, points.iter().map(|point| point.forks)),
            points,
        }
    });
    let told = tracks.filter(|track| !track.points.is_empty());
    told.take(request.form.most_others).collect()
}

fn track(
    book: &Book,
    (slot, entry): (usize, &Entry),
    at: Stamp,
    bands: &'static [Band],
) -> Vec<CgroupPoint> {
    let mut kept = Thinner::new(bands, |one: &CgroupPoint, other| one.usage > other.usage);
    let points = book.points(slot);
    for point in points.filter_map(|point| cgroup_point(point, entry, at)) {
        kept.push(point.before_ms, point);
    }
    kept.finish()
}

/// Why the victim's cgroup has no points, if it has none.
fn cgroup_missing(request: Request<'_>, points: &[CgroupPoint]) -> Option<Missing> {
    points.is_empty().then_some(match request.cgroup {
        Some(Wanted { path: "/", .. }) => Missing::NotApplicable,
        _ => Missing::Lost,
    })
}

/// Why points do not say how long tasks had waited, if one does not: it is read of cgroups near their limit alone.
fn stall_missing(book: &Book, points: &[CgroupPoint]) -> Option<Missing> {
    let is_short = points.iter().any(|point| point.stall_us.is_none());
    is_short.then_some(if book.tells_stalls {
        Missing::Lost
    } else {
        Missing::KernelLacksIt
    })
}

/// Why something is missing, if it is: for this reason or, where none is known, because it was not taken.
fn lost_or(is_missing: bool, known: Option<Missing>) -> Option<Missing> {
    is_missing.then(|| known.unwrap_or(Missing::Lost))
}

/// Why points lack what the kernel's programs count, if one does: from the first that has it on, they were there to be asked, and
/// so they were if they count it now and no point has it.
fn uncounted(is_told: bool, counts: impl Iterator<Item = Option<u64>>) -> Option<Missing> {
    let mut was_counted = false;
    let mut missing = None;
    for count in counts {
        was_counted |= count.is_some();
        match (count, was_counted) {
            (Some(_), _) => {}
            (None, true) => return Some(Missing::Lost),
            (None, false) => missing = Some(Missing::ProgramNotLoaded),
        }
    }
    let is_lost = is_told && !was_counted;
    missing.map(|reason| if is_lost { Missing::Lost } else { reason })
}

/// The same of the node: where that is a cgroup, nobody counts them as of a machine.
fn of_node(
    book: &Book,
    is_told: bool,
    counts: impl Iterator<Item = Option<u64>>,
) -> Option<Missing> {
    let reason = uncounted(is_told, counts)?;
    Some(if book.node_is_cgroup {
        Missing::NotApplicable
    } else {
        reason
    })
}

fn cgroup_point(point: &GroupPoint, entry: &Entry, at: Stamp) -> Option<CgroupPoint> {
    let full = |newest: Option<u64>, bits| Counter::of(newest?).told(bits);
    let counts = entry.counts;
    Some(CgroupPoint {
        before_ms: point.at.before(at)?,
        usage: bytes(point.usage),
        working_set: bytes(point.working_set),
        anon: bytes(point.anon),
        file: bytes(point.file),
        stall_us: full(entry.stall_us, point.stall_us),
        reclaims: full(counts.and_then(|counts| counts.reclaims), point.reclaims),
        forks: full(counts.and_then(|counts| counts.forks), point.forks),
    })
}

/// The node as the sampler left it and, where that left nothing, as files told of it. The period is that of whoever came last.
fn node(book: &Book, request: Request<'_>, sampled: NodePart) -> NodePart {
    let told = book.node_points();
    let told = told.filter_map(|point| node_point(point, request.at));
    let told = told.filter(|point| !is_covered(&sampled.points, point.before_ms));
    let told: Vec<NodePoint> = told.collect();
    let newest = |points: &[NodePoint]| points.last().map(|point| point.before_ms);
    let period_ms = match (newest(&sampled.points), newest(&told)) {
        (None, None) => 0,
        (Some(ring), files) if files.is_none_or(|files| files >= ring) => sampled.period_ms,
        _ => book.periods.node_ms,
    };
    let mut all = sampled.points;
    all.extend(told);
    all.sort_by_key(|point| std::cmp::Reverse(point.before_ms));
    let mut kept = request.form.node();
    for point in all {
        kept.push(point.before_ms, point);
    }
    let mut points = kept.finish();
    add_stalls(book, request.at, &mut points);
    NodePart { points, period_ms }
}

/// Whether the sampler left points on both sides of that moment, and no gap between them.
fn is_covered(sampled: &[NodePoint], before_ms: u32) -> bool {
    let later = sampled.partition_point(|point| point.before_ms > before_ms);
    let earlier = later.checked_sub(1).and_then(|place| sampled.get(place));
    let sides = earlier.zip(sampled.get(later));
    sides.is_some_and(|(earlier, later)| earlier.before_ms - later.before_ms <= GAP_MS)
}

/// A point of files; none of what is later than the incident, or out of reach.
fn node_point(point: &FilePoint, at: Stamp) -> Option<NodePoint> {
    let before_ms = point.at.before(at).filter(|before| *before < REACH_MS)?;
    Some(NodePoint {
        before_ms,
        available: FlightPoint::bytes(point.available.into()),
        headroom: FlightPoint::bytes(point.headroom.into()),
        anon: bytes(point.anon),
        file: bytes(point.file),
        ..NodePoint::default()
    })
}

/// What goes with a point of the node is the latest reading of the waits before it.
fn add_stalls(book: &Book, at: Stamp, points: &mut [NodePoint]) {
    let Some(newest) = book.stall_us() else {
        return;
    };
    let known = book.stalls().filter_map(|stall| {
        let total = Counter::of(newest).full(stall.stall_us);
        Some((stall.at.before(at)?, total))
    });
    let mut known = known.peekable();
    let mut latest = None;
    for point in points {
        while let Some((_, total)) = known.next_if(|(before, _)| *before >= point.before_ms) {
            latest = Some(total);
        }
        point.stall_us = latest;
    }
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;

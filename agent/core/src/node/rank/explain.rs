//! Why one workload goes before another, in one sentence.

use alloc::format;
use alloc::string::String;
use core::cmp::Ordering;

use super::super::observe::Layout;
use super::super::signal::Resource;
use super::super::workload::{PodUsage, Preference, PreferenceBy, WorkloadTable, full_name};
use super::{Excess, Ranking, compared_request, subtracted_request, usage_of};
use crate::base::Quantity;

/// Where a workload stands: everything its place in the order depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Brink's preference, normal if preferences do not count.
    pub preference: Preference,
    /// Whose word that is.
    pub preference_by: PreferenceBy,
    /// How usage stands to the request; always within for process ids, where there is no request.
    pub excess: Excess,
    /// Its priority.
    pub priority: i32,
    /// What it uses; `None` without statistics.
    pub used: Option<Quantity>,
    /// The request that usage is compared with.
    pub request: Quantity,
    /// The request that is taken off usage, which for inodes is one for bytes.
    pub subtracted: Quantity,
    /// Usage less the request that is taken off it.
    pub beyond: Option<Quantity>,
    /// Its place by uid.
    pub uid_order: u32,
}

/// What decides between two workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Decider {
    /// Brink's preference.
    Preference,
    /// Whether anything is known of them.
    Statistics,
    /// Whether they use more than requested.
    Excess,
    /// Priority.
    Priority,
    /// How much they use beyond the request.
    Beyond,
    /// How many processes they run.
    Processes,
    /// Nothing that counts; the uid.
    Uid,
}

/// Where the workload at `index` stands; `None` if it is no candidate.
pub fn place(
    ranking: Ranking,
    table: &WorkloadTable,
    usage: &[Option<PodUsage>],
    index: u32,
) -> Option<Place> {
    let at = index as usize;
    let row = table.rows().get(at).filter(|row| row.is_candidate)?;
    let used = usage
        .get(at)
        .and_then(Option::as_ref)
        .map(|used| usage_of(ranking, used));
    let request = compared_request(ranking.signal, row);
    let subtracted = subtracted_request(ranking.signal, row);
    let excess = match used {
        None => Excess::Unknown,
        Some(used) if used > request && ranking.signal.resource() != Resource::Pids => Excess::Over,
        Some(_) => Excess::Within,
    };
    Some(Place {
        preference: ranking.preferences.of(row),
        preference_by: ranking.preferences.by(row),
        excess,
        priority: row.priority,
        used,
        request,
        subtracted,
        beyond: used.map(|used| used.minus(subtracted)),
        uid_order: row.uid_order,
    })
}

impl Place {
    /// How this place compares with the other, and what decides; less goes first.
    pub fn compare(&self, other: &Self, resource: Resource) -> (Ordering, Decider) {
        let known = |place: &Self| place.excess != Excess::Unknown;
        let statistics = (known(self).cmp(&known(other)), Decider::Statistics);
        let excess = (self.excess.cmp(&other.excess), Decider::Excess);
        let priority = (self.priority.cmp(&other.priority), Decider::Priority);
        let more = other.beyond.cmp(&self.beyond);
        let chain = match resource {
            Resource::Pids => [priority, statistics, (more, Decider::Processes)],
            _ if statistics.0.is_ne() => [statistics, priority, (more, Decider::Beyond)],
            _ => [excess, priority, (more, Decider::Beyond)],
        };
        let preference = (self.preference.cmp(&other.preference), Decider::Preference);
        let uid = (self.uid_order.cmp(&other.uid_order), Decider::Uid);
        let decided = core::iter::once(preference)
            .chain(chain)
            .find(|(order, _)| order.is_ne());
        decided.unwrap_or(uid)
    }
}

/// One sentence that says which of two workloads goes first, and why.
pub fn explain(
    ranking: Ranking,
    table: &WorkloadTable,
    usage: &[Option<PodUsage>],
    (one, other): (u32, u32),
) -> String {
    let name = |index: u32| match table.workloads().get(index as usize) {
        Some(pod) => full_name(&pod.namespace, &pod.name),
        None => format!("workload {index}"),
    };
    let place = |index: u32| place(ranking, table, usage, index);
    let (Some(a), Some(b)) = (place(one), place(other)) else {
        let absent = if place(one).is_none() { one } else { other };
        return format!("{} is no candidate for eviction.", name(absent));
    };
    let resource = ranking.signal.resource();
    let (order, decider) = a.compare(&b, resource);
    let (first, second, a, b) = if order.is_gt() {
        (other, one, b, a)
    } else {
        (one, other, a, b)
    };
    let because = because(
        &a,
        &b,
        decider,
        What {
            resource,
            layout: ranking.layout,
        },
    );
    format!("{} goes before {}: {because}.", name(first), name(second))
}

#[derive(Clone, Copy)]
struct What {
    resource: Resource,
    layout: Layout,
}

fn because(a: &Place, b: &Place, decider: Decider, what: What) -> String {
    let resource = what.resource;
    let used = |place: &Place| place.used.unwrap_or_default();
    match decider {
        Decider::Preference => preferred(a, b),
        Decider::Statistics => {
            format!("nothing is known of its {resource} usage, so it may be anything")
        }
        // Whoever has a request for bytes has none for inodes all the same.
        Decider::Excess if resource == Resource::Inodes => {
            format!("it uses {} of {resource}, while {}", used(a), within(b))
        }
        Decider::Excess if a.request.is_zero() => format!(
            "it uses {} of {resource} and requested none, while {}",
            used(a),
            within(b)
        ),
        Decider::Excess => format!(
            "it uses {} of {resource}, more than the {} it requested, while {}",
            used(a),
            a.request,
            within(b)
        ),
        Decider::Priority => {
            format!("its priority {} is lower than {}", a.priority, b.priority)
        }
        Decider::Processes => format!("it runs {} processes, the other {}", used(a), used(b)),
        Decider::Beyond => format!(
            "its {resource} usage is {}, the other's {}{}",
            beyond(a),
            beyond(b),
            footnote(what)
        ),
        Decider::Uid => "nothing that counts tells them apart, so the lower uid goes".into(),
    }
}

/// Who puts each of them where; the configuration alone is named once.
fn preferred(a: &Place, b: &Place) -> String {
    let (first, second) = (word(a.preference), word(b.preference));
    if [a, b].map(|place| place.preference_by) == [PreferenceBy::Node; 2] {
        return format!("the configuration puts it {first} and the other {second}");
    }
    format!(
        "it is put {first}{}, the other {second}{}",
        by_whom(a),
        by_whom(b)
    )
}

const fn by_whom(place: &Place) -> &'static str {
    match (place.preference_by, place.preference) {
        (PreferenceBy::Annotation, _) => " by its annotation",
        (PreferenceBy::Node, Preference::Normal) => "",
        (PreferenceBy::Node, _) => " by the configuration",
    }
}

fn within(other: &Place) -> String {
    match (other.used.unwrap_or_default(), other.request) {
        (used, request) if used.is_zero() && request.is_zero() => "the other uses none".into(),
        (used, request) => format!("the other uses {used}, no more than its {request}"),
    }
}

const fn word(preference: Preference) -> &'static str {
    match preference {
        Preference::Prefer => "first",
        Preference::Normal => "in between",
        Preference::Avoid => "last",
    }
}

fn beyond(place: &Place) -> String {
    match place.beyond.unwrap_or_default() {
        more if more.signum() > 0 => format!("{more} above its request"),
        none if none.is_zero() => "exactly its request".into(),
        less => format!("{} below its request", Quantity::ZERO.minus(less)),
    }
}

/// Two of the kubelet's quirks that make an order hard to believe without a word.
const fn footnote(what: What) -> &'static str {
    match (what.resource, what.layout) {
        (Resource::Inodes, _) => " (as the kubelet does, with the request for bytes of storage)",
        (Resource::EphemeralStorage, Layout::Split | Layout::LayersApart) => {
            " (images count for no pod)"
        }
        _ => "",
    }
}

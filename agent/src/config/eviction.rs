//! The kubelet's eviction keys and Brink's own thresholds, from tree to draft and from draft to policy.

use brink_core::base::Quantity;
use brink_core::node::policy::{Capacities, Doubt, DoubtKind, Draft, FaultKind, Policy, SignalMap};
use brink_core::node::signal::Signal;

use super::document::{Fields, Keys, Node, Origins, Reader, Site, Value, path_to};
use super::finding::{Finding, Report, Severity, nearest};
use super::settings::RunMode;

/// Keys of `KubeletConfiguration` that eviction looks at.
pub const KUBELET_KEYS: [&str; 9] = [
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "evictionPressureTransitionPeriod",
    "evictionMaxPodGracePeriod",
    "mergeDefaultEvictionSettings",
    "enforceNodeAllocatable",
    "localStorageCapacityIsolation",
];

/// Those of them that map signals to values.
pub const MAPS: [&str; 4] = [
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
];

/// Keys of Brink's own memory signal.
pub const HEADROOM_KEYS: [&str; 3] = ["headroomHard", "headroomSoft", "headroomSoftGracePeriod"];

/// What `enforceNodeAllocatable` may list.
const ENFORCEMENTS: [&str; 6] = [
    "none",
    "pods",
    "system-reserved",
    "system-reserved-compressible",
    "kube-reserved",
    "kube-reserved-compressible",
];

/// Whose rules a document is read by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Brink's own: unknown and repeated keys are faults.
    Brink,
    /// The kubelet's: it takes the last of repeated keys, and so do we.
    Kubelet,
    /// A scenario's: the kubelet's, without a word about texts that were not quoted.
    Scenario,
}

/// A tree that a draft was read from.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The map that holds the keys.
    pub tree: &'a Node,
    /// The way to it from the root of its document, with a dot at the end, or nothing.
    pub prefix: &'a str,
    /// The places of its values.
    pub origins: &'a Origins,
}

impl Dialect {
    /// How strictly keys are taken.
    pub const fn keys(self) -> Keys {
        match self {
            Self::Brink => Keys::Closed,
            Self::Kubelet | Self::Scenario => Keys::Warned,
        }
    }
}

/// The kubelet's keys as written; Brink's own are left out.
pub fn read_kubelet_keys<'a>(
    reader: &mut Reader<'a>,
    fields: Fields<'a>,
    dialect: Dialect,
) -> Draft {
    let mut map = |key| Some(read_map(reader, fields.get(key)?, dialect));
    let mut draft = Draft {
        eviction_hard: map("evictionHard"),
        eviction_soft: map("evictionSoft"),
        eviction_soft_grace_period: map("evictionSoftGracePeriod"),
        eviction_minimum_reclaim: map("evictionMinimumReclaim"),
        ..Draft::default()
    };
    if let Some(node) = fields.get("evictionPressureTransitionPeriod") {
        let period = reader.scalar(node, "a duration such as 5m");
        draft.eviction_pressure_transition_period = period.map(str::to_string);
    }
    if let Some(node) = fields.get("evictionMaxPodGracePeriod") {
        let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
        draft.eviction_max_pod_grace_period = reader.integer(node, least, most);
    }
    let mut boolean = |key| reader.boolean(fields.get(key)?);
    draft.merge_default_eviction_settings = boolean("mergeDefaultEvictionSettings");
    draft.local_storage_capacity_isolation = boolean("localStorageCapacityIsolation");
    if let Some(node) = fields.get("enforceNodeAllocatable") {
        draft.enforce_node_allocatable = Some(read_enforcements(reader, node));
    }
    draft
}

/// Warns of unknown keys that look like misspelled ones. All others are somebody else's business.
pub fn warn_of_near_misses(reader: &mut Reader<'_>, map: &Node, known: &[&str]) {
    for entry in map.entries() {
        let key = entry.key.as_str();
        let near = nearest(key, known.iter().copied()).is_some();
        let looks_like = near || key.to_ascii_lowercase().starts_with("eviction");
        if looks_like && !known.contains(&key) && reader.report().has_room(Severity::Warning) {
            let warning = reader.key_finding(entry, "unknown key");
            let warning = warning.nearest(key, known.iter().copied());
            reader.report().warn(warning);
        }
    }
}

/// Brink's own thresholds, put into the draft.
pub fn read_headroom_keys<'a>(reader: &mut Reader<'a>, fields: Fields<'a>, draft: &mut Draft) {
    const THRESHOLD: &str = "a quantity such as 50Mi, or a percentage; 0% for none";
    let mut text = |key, wanted| {
        let node = fields.get(key)?;
        reader.scalar(node, wanted).map(str::to_string)
    };
    draft.headroom_hard = text("headroomHard", THRESHOLD);
    draft.headroom_soft = text("headroomSoft", THRESHOLD);
    draft.headroom_soft_grace_period =
        text("headroomSoftGracePeriod", "a duration such as 90s or 1m30s");
}

/// Reports thresholds of a base file without a value. To the kubelet null is the empty text, which it
/// refuses; in a drop-in null takes a key out.
pub fn refuse_nulls(reader: &mut Reader<'_>) {
    let root = reader.root();
    for map in MAPS.iter().filter_map(|key| root.get(key)) {
        for entry in map.entries() {
            if entry.node.value == Value::Null && map.get(&entry.key).is_none() {
                let accepted = "a text such as 100Mi, 10% or 90s, or the key left out";
                reader.fault(&entry.node, "there is no value", accepted);
            }
        }
    }
}

fn read_map<'a>(reader: &mut Reader<'a>, node: &'a Node, dialect: Dialect) -> SignalMap {
    let mut map = SignalMap::new();
    for entry in reader.entries(node, dialect.keys()) {
        if dialect == Dialect::Kubelet && matches!(entry.node.value, Value::Number(_)) {
            let problem = "a number where the kubelet wants a text: it refuses this until quoted";
            reader.warn(&entry.node, problem);
        }
        let wanted = "a text such as 100Mi, 10% or 90s";
        let text = match entry.node.value {
            // Null in a map of texts is the empty text, which no grammar here takes.
            Value::Null => Some(""),
            _ => reader.scalar(&entry.node, wanted),
        };
        if let Some(text) = text {
            map.insert(entry.key.clone(), text.to_string());
        }
    }
    map
}

fn read_enforcements<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Vec<String> {
    let words: Vec<(&str, &str)> = ENFORCEMENTS.map(|word| (word, word)).to_vec();
    let items = reader.list(node);
    let mut enforcements = Vec::new();
    for item in items {
        // The kubelet takes an empty text for nothing at all.
        if item.value == Value::Text(String::new()) {
            continue;
        }
        if let Some(word) = reader.word(item, &words) {
            enforcements.push(word.to_string());
        }
    }
    if enforcements.len() > 1 && enforcements.iter().any(|word| word == "none") {
        reader.fault(
            node,
            "none stands beside others",
            "none alone, or without none",
        );
    }
    enforcements
}

/// The policy of a draft, or what is wrong with it. The draft is literal: defaults are filled in already.
pub fn check(draft: &Draft, source: Source<'_>, report: &mut Report) -> Option<Policy> {
    match draft.check() {
        Ok(policy) => Some(policy),
        Err(faults) => {
            for fault in faults.iter() {
                let mut place = Place::find(source.tree, &fault.path);
                let names = Signal::KUBELET.map(Signal::name);
                if fault.kind == FaultKind::UnknownSignal {
                    place.site = place.key;
                }
                let mut found = place.finding(source, fault.kind.to_string());
                if fault.kind == FaultKind::UnknownSignal {
                    found = found.nearest(&fault.written, names);
                } else if !fault.written.is_empty() {
                    found = found.written(format!("{:?}", fault.written));
                }
                report.fault(found.accepted(fault.kind.accepted()));
            }
            None
        }
    }
}

/// Reports what the kubelet would accept and nobody can mean.
pub fn add_doubts(draft: &Draft, source: Source<'_>, capacities: &Capacities, report: &mut Report) {
    for doubt in draft.doubts(capacities) {
        report.warn(doubted(&doubt, source));
    }
}

/// The same for an agent of ours. To enforce a headroom that is always met is to evict everything, and no rule of the kubelet's
/// asks for it: that is a fault.
pub fn add_agents_doubts(
    draft: &Draft,
    mode: RunMode,
    source: Source<'_>,
    capacities: &Capacities,
    report: &mut Report,
) {
    let capacity = capacities[Signal::MemoryHeadroom];
    for doubt in draft.doubts(capacities) {
        let found = doubted(&doubt, source);
        match capacity.filter(|_| doubt.kind == DoubtKind::HeadroomOverCapacity) {
            Some(capacity) if mode == RunMode::Enforce => {
                let capacity = Quantity::from_bytes(capacity);
                report.fault(found.accepted(format!(
                    "a quantity below {capacity}, a percentage below 100%, or 0% for none"
                )));
            }
            _ => report.warn(found),
        }
    }
}

fn doubted(doubt: &Doubt, source: Source<'_>) -> Finding {
    let place = Place::find(source.tree, &doubt.path);
    let found = place.finding(source, doubt.kind.to_string());
    found.written(format!("{:?}", doubt.written))
}

/// Where a key of the core's stands in a tree.
struct Place {
    path: String,
    site: Site,
    /// Where the key stands, not its value.
    key: Site,
}

impl Place {
    /// The core names keys `map["signal"]`; a missing grace is looked for at its threshold.
    fn find(tree: &Node, core_path: &str) -> Self {
        let (key, signal) = core_path.split_once('[').unwrap_or((core_path, ""));
        let node = tree.get(key);
        let named = |map: &'_ Node| {
            let mut entries = map.entries().iter();
            entries
                .rfind(|entry| format!("[{:?}]", entry.key) == core_path[key.len()..])
                .map(|entry| (entry.key.clone(), entry.site, entry.node.site))
        };
        if let Some((signal, at_key, site)) = node.and_then(named) {
            return Self {
                path: format!("{key}.{signal}"),
                site,
                key: at_key,
            };
        }
        let threshold = match key {
            "headroomSoftGracePeriod" => tree.get("headroomSoft").map(|node| node.site),
            _ => tree
                .get("evictionSoft")
                .and_then(named)
                .map(|(_, site, _)| site),
        };
        let signal = signal.trim_start_matches('"').trim_end_matches("\"]");
        let path = match (node, signal) {
            (Some(node), "") => path_to(tree, node),
            (_, "") => key.to_string(),
            (_, signal) => format!("{key}.{signal}"),
        };
        let site = match node {
            Some(node) if signal.is_empty() => node.site,
            _ => threshold.unwrap_or(tree.site),
        };
        Self {
            path,
            site,
            key: site,
        }
    }

    fn finding(self, source: Source<'_>, problem: String) -> Finding {
        let path = format!("{}{}", source.prefix, self.path);
        Finding::at(source.origins, self.site, path, problem)
    }
}

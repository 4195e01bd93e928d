//! Reading a scenario file: configuration, pods and steps, with everything that is wrong at once.

use std::collections::HashMap;
use std::path::Path;

use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::engine::{Disks, LiveSettings};
use brink_core::node::input::Confirmation;
use brink_core::node::observe::{Layout, Observation, Observations};
use brink_core::node::policy::Policy;
use brink_core::node::signal::{Resource, Signal};
use brink_core::node::workload::{Origin, Workload};

use super::usage::read_usage;
use super::{Scenario, Step, name_of};
use crate::config::document::{Fields, Keys, Limits, Node, Origins, Reader, Value};
use crate::config::eviction::{self, Dialect, HEADROOM_KEYS, KUBELET_KEYS, Source};
use crate::config::finding::{Faults, Finding, Report, Severity};
use crate::config::{read_one, schema, version};
use crate::pod::{Reading, read_pod};

/// `apiVersion` of a scenario file, which is not that of the agent's configuration.
pub const API_VERSION: &str = "brink.dev/v1alpha1";

/// `kind` of a scenario file.
pub const KIND: &str = "Scenario";

const KEYS: [&str; 7] = [
    "apiVersion",
    "kind",
    "notes",
    "config",
    "filesystems",
    "pods",
    "steps",
];

/// Pods by `namespace/name`.
pub(super) type Index = HashMap<String, usize>;

/// Reads a file; `-` is standard input. Gives the scenario and what is doubtful about it.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(path: &Path) -> Result<(Scenario, Vec<Finding>), Faults> {
    let (mut origins, mut report) = (Origins::default(), Report::default());
    let mut root = read_one(path, Limits::GENERATED, &mut origins, &mut report);
    if let Some(config) = root.as_mut().and_then(|root| root.get_mut("config")) {
        version::take_keys(config, "config.", &origins, &mut report);
    }
    let scenario = root.as_ref().and_then(|root| {
        let mut reader = Reader::new(root, &origins, &mut report);
        read_scenario(&mut reader, &origins)
    });
    let warnings = report.into_result()?;
    scenario
        .map(|scenario| (scenario, warnings))
        .ok_or_else(|| {
            let name = path.display().to_string();
            Faults::one(Finding::of_source(name, None, "no scenario could be read"))
        })
}

fn read_scenario(reader: &mut Reader<'_>, origins: &Origins) -> Option<Scenario> {
    let root = reader.root();
    let fields = reader.fields(root, &KEYS, Keys::Closed);
    check_header(reader, fields);
    // They are for readers of the file, and only have to be texts.
    let _for_people = fields.get("notes").map(|node| reader.texts(node));
    let (policy, live) = read_config(reader, fields, origins);
    let layouts = [
        ("single", Layout::Single),
        ("dedicatedImagefs", Layout::DedicatedImagefs),
        ("split", Layout::Split),
    ];
    let layout = match fields.get("filesystems") {
        Some(node) => reader.word(node, &layouts),
        None => Some(Layout::Single),
    };
    let (pods, index) = read_pods(reader, fields);
    let steps = fields.get("steps");
    if steps.is_none() {
        let accepted = "a list of steps, such as [{at: 0s}]";
        reader.fault(root, "steps is missing", accepted);
    }
    let steps = steps.map_or(&[][..], |node| reader.list(node));
    let mut read: Vec<Step> = Vec::with_capacity(steps.len());
    for node in steps {
        if let Some(step) = read_step(reader, node, (&pods, &index)) {
            if read.last().is_some_and(|last| step.now <= last.now) {
                let at = node.get("at").unwrap_or(node);
                reader.fault(at, "not after the step before", "times that increase");
            }
            read.push(step);
        }
    }
    Some(Scenario {
        policy: policy?,
        layout: layout?,
        pods,
        steps: read,
        live,
    })
}

fn check_header<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) {
    let root = reader.root();
    for (key, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match fields.get(key) {
            None => reader.warn(root, format!("{key} is missing; taken for {wanted}")),
            Some(node) if node.scalar() == Some(wanted) => {}
            Some(node) => reader.fault(node, format!("unknown {key}"), wanted),
        }
    }
}

/// The kubelet's keys take their defaults, and so do Brink's own; a null counts as left out.
fn read_config<'a>(
    reader: &mut Reader<'a>,
    fields: Fields<'a>,
    origins: &Origins,
) -> (Option<Policy>, LiveSettings) {
    const OWN: [&str; 3] = ["memoryPolicy", "limits", "mode"];
    let empty = Node {
        value: Value::Map(Vec::new()),
        site: reader.root().site,
    };
    let config = match fields.get("config") {
        Some(node) => reader.fields(node, &[], Keys::Open),
        None => Fields::NONE,
    };
    if let Some(node) = config.node() {
        let known = [&KUBELET_KEYS[..], &HEADROOM_KEYS, &OWN].concat();
        eviction::warn_of_near_misses(reader, node, &known);
    }
    let mut draft = eviction::read_kubelet_keys(reader, config, Dialect::Scenario);
    eviction::read_headroom_keys(reader, config, &mut draft);
    let modes = [("observe", false), ("enforce", true)];
    let live = LiveSettings {
        enforce: config
            .get("mode")
            .and_then(|node| reader.word(node, &modes))
            .unwrap_or(true),
        memory: schema::read_memory_policy(reader, config).unwrap_or_default(),
        limits: schema::read_limits(reader, config),
        disks: Disks::Ours,
    };
    let source = Source {
        tree: config.node().unwrap_or(&empty),
        prefix: "config.",
        origins,
    };
    let draft = draft.with_defaults().with_headroom_default();
    let policy = eviction::check(&draft, source, reader.report());
    (policy, live)
}

fn read_pods<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> (Vec<Workload>, Index) {
    let (mut pods, mut index) = (Vec::new(), Index::new());
    for node in fields.get("pods").map_or(&[][..], |node| reader.list(node)) {
        let Some(manifest) = read_pod(reader, node, Reading::AsWritten) else {
            continue;
        };
        let (name, at) = (name_of(&manifest.workload), pods.len());
        pods.push(manifest.workload);
        let Some(before) = index.insert(name.clone(), at) else {
            continue;
        };
        // A static pod and its mirror share a name, and usage is the static one's.
        let is_mirror = |at: usize| pods[at].origin == Origin::Mirror;
        match (is_mirror(before), is_mirror(at)) {
            (true, false) => {}
            (false, true) => drop(index.insert(name, before)),
            _ => reader.fault(node, format!("{name} is there twice"), "each pod once"),
        }
    }
    (pods, index)
}

fn read_step<'a>(
    reader: &mut Reader<'a>,
    node: &'a Node,
    (pods, index): (&[Workload], &Index),
) -> Option<Step> {
    const KEYS: [&str; 6] = ["at", "gone", "signals", "usage", "afterReclaim", "headroom"];
    let fields = reader.fields(node, &KEYS, Keys::Closed);
    let Some(at) = fields.get("at") else {
        if fields.node().is_some() {
            reader.fault(node, "at is missing", TIME);
        }
        return None;
    };
    let (text, now) = read_time(reader, at)?;
    if now < Moment::START {
        reader.fault(at, "before the start", "a time of 0s or later, such as 60s");
        return None;
    }
    let seen = read_signals(reader, fields.get("signals"), now, Observations::default());
    let after_reclaim = read_signals(reader, fields.get("afterReclaim"), now, seen);
    let (usage, details) = read_usage(reader, fields.get("usage"), (pods, index));
    let mut gone = Vec::new();
    for node in fields.get("gone").map_or(&[][..], |node| reader.list(node)) {
        if let Some(name) = reader.text(node) {
            gone.extend(find_pod(reader, node, name, index));
        }
    }
    Some(Step {
        at: text,
        now,
        gone,
        confirmation: read_headroom(reader, fields.get("headroom"), &seen),
        seen,
        after_reclaim,
        usage,
        details,
    })
}

const TIME: &str = "a time such as 60s, 1m30s, or a plain number of seconds";

/// A duration in Go's grammar, or a number of seconds; as written, and what it means.
fn read_time<'a>(reader: &mut Reader<'a>, node: &'a Node) -> Option<(String, Moment)> {
    let text = reader.scalar(node, TIME)?;
    if matches!(node.value, Value::Number(_)) {
        let nanos = text
            .parse::<Quantity>()
            .ok()
            .and_then(|seconds| i64::try_from(seconds.nanos()).ok());
        let Some(nanos) = nanos else {
            reader.fault(node, "not in range", TIME);
            return None;
        };
        return Some((format!("{text}s"), Moment::from_nanos(nanos)));
    }
    match text.parse::<Span>() {
        Ok(span) => Some((text.to_string(), Moment::START + span)),
        Err(error) => {
            reader.fault(node, error.to_string(), TIME);
            None
        }
    }
}

/// Signals over those of `seen`; their time is that of the step unless they have one.
fn read_signals<'a>(
    reader: &mut Reader<'a>,
    node: Option<&'a Node>,
    now: Moment,
    mut seen: Observations,
) -> Observations {
    let Some(node) = node else {
        return seen;
    };
    for entry in reader.entries(node, Keys::Closed) {
        let Some(signal) = Signal::named(&entry.key) else {
            if !reader.report().has_room(Severity::Fault) {
                continue;
            }
            let names = Signal::ALL.map(Signal::name);
            let fault = reader.key_finding(entry, "unknown signal");
            let fault = fault.nearest(&entry.key, names).accepted(names.join(", "));
            reader.report().fault(fault);
            continue;
        };
        let fields = reader.fields(
            &entry.node,
            &["available", "capacity", "time"],
            Keys::Closed,
        );
        let available = fields
            .get("available")
            .and_then(|node| reader.quantity(node));
        let capacity = fields
            .get("capacity")
            .and_then(|node| read_capacity(reader, node, signal));
        let figures = available.zip(capacity);
        let time = fields.get("time").and_then(|node| read_time(reader, node));
        if figures.is_none() && fields.node().is_some() {
            let problem = "available or capacity is missing: the signal counts as absent";
            reader.warn(&entry.node, problem);
        }
        seen[signal] = figures.map(|(available, capacity)| Observation {
            available: available.value(),
            capacity: capacity.value(),
            at: Some(time.map_or(now, |(_, at)| at)),
        });
    }
    seen
}

/// How much there is of something. Some filesystems have no inodes that could be counted, and say 0; of everything else there is
/// something.
fn read_capacity<'a>(reader: &mut Reader<'a>, node: &'a Node, signal: Signal) -> Option<Quantity> {
    let capacity = reader.amount(node)?;
    if capacity.is_zero() && signal.resource() != Resource::Inodes {
        reader.fault(node, "of nothing", "a quantity above 0");
        return None;
    }
    Some(capacity)
}

/// What confirms that memory is short: the signal `memory.headroom` for the node, and `headroom` for
/// the rest.
fn read_headroom<'a>(
    reader: &mut Reader<'a>,
    node: Option<&'a Node>,
    seen: &Observations,
) -> Confirmation {
    let fields = match node {
        Some(node) => reader.fields(node, &["pods", "swap", "reserve"], Keys::Closed),
        None => Fields::NONE,
    };
    let pods = fields.get("pods").and_then(|node| reader.quantity(node));
    let pods = pods.map(Quantity::value);
    let mut unsigned = |key| {
        let amount = reader.amount(fields.get(key)?)?;
        u64::try_from(amount.value()).ok()
    };
    let (swap, reserve) = (unsigned("swap"), unsigned("reserve"));
    let swap = swap.unwrap_or(0);
    let node = seen[Signal::MemoryHeadroom].map(|headroom| {
        let swap = i64::try_from(swap).unwrap_or(i64::MAX);
        headroom.available.saturating_sub(swap)
    });
    Confirmation {
        node,
        pods,
        swap,
        pods_swap: swap,
        reserve: reserve.unwrap_or(0),
        unreaped: None,
        parked: None,
    }
}

/// The index of a pod by name; one without a namespace is in `default`. The kubelet passes over what is
/// said of pods that it does not know.
pub(super) fn find_pod(
    reader: &mut Reader<'_>,
    node: &Node,
    name: &str,
    index: &Index,
) -> Option<usize> {
    let found = index.get(name).or_else(|| {
        let full = (!name.contains('/')).then(|| format!("default/{name}"))?;
        index.get(&full)
    });
    if found.is_none() && reader.report().has_room(Severity::Warning) {
        let warning = reader.finding(node, "no such pod in this scenario; passed over");
        let known = index.keys().map(String::as_str);
        let warning = warning.nearest(name, known);
        reader.report().warn(warning);
    }
    found.copied()
}

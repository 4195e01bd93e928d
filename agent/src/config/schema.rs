//! `AgentConfiguration`: its keys, and how each is read.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use brink_core::base::Span;
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::policy::Draft;
use brink_core::node::safety::Limits;

use super::document::{Fields, Keys, Node, Reader, Value};
use super::eviction::{self, Dialect};
use super::kubernetes::Kubernetes;
use super::margin::LeadMargin;
use super::settings::{
    Events, Filesystems, Hooks, KubeletFiles, LogFormat, LogLevel, LogSettings, NodeScope, Paths,
    Realtime, RunMode, RuntimeConfig, Selection, Workloads,
};
use super::storage::Storage;
use super::{disks, events, kubernetes, storage, workloads};
use crate::ledger::DECISIONS;

/// What is looked at more seldom than that is not looked after.
const LONGEST_HOUSEKEEPING: Span = Span::from_secs(3600);
/// With less the bucket is never empty, and `burst` bounds nothing.
const SHORTEST_REFILL: Span = Span::from_millis(100);

/// Every key, in the order in which they are shown.
pub(super) const KEYS: [&str; 40] = [
    "apiVersion",
    "kind",
    "mode",
    "memoryPolicy",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "evictionMaxPodGracePeriod",
    "evictionPressureTransitionPeriod",
    "mergeDefaultEvictionSettings",
    "enforceNodeAllocatable",
    "localStorageCapacityIsolation",
    "headroomHard",
    "headroomSoft",
    "headroomSoftGracePeriod",
    "kubeletConfig",
    "kubeletConfigDir",
    "leadMargin",
    "node",
    "podsCgroup",
    "workloads",
    "storage",
    "filesystems",
    "runtime",
    "kubernetes",
    "prefer",
    "avoid",
    "ignore",
    "protect",
    "annotationNamespaces",
    "limits",
    "housekeepingInterval",
    "realtime",
    "kernelPrograms",
    "hooks",
    "events",
    "metrics",
    "paths",
    "log",
];

/// What one tree says. What it leaves out, or says wrongly, has the default.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) mode: RunMode,
    pub(super) memory_policy: Option<MemoryPolicy>,
    pub(super) draft: Draft,
    pub(super) kubelet: KubeletFiles,
    pub(super) lead_margin: LeadMargin,
    pub(super) node: NodeScope,
    pub(super) pods_cgroup: Option<String>,
    pub(super) workloads: Workloads,
    pub(super) storage: Storage,
    pub(super) filesystems: Filesystems,
    pub(super) runtime: RuntimeConfig,
    pub(super) kubernetes: Kubernetes,
    pub(super) selection: Selection,
    pub(super) limits: Limits,
    pub(super) housekeeping_interval: Span,
    pub(super) realtime: Realtime,
    pub(super) kernel_programs: bool,
    pub(super) hooks: Hooks,
    pub(super) events: Events,
    pub(super) metrics_listen: Option<SocketAddr>,
    pub(super) paths: Paths,
    pub(super) log: LogSettings,
}

/// Reads the tree of the reader, which is a whole configuration or one layer of it.
pub(super) fn read(reader: &mut Reader<'_>) -> Written {
    let root = reader.root();
    let fields = reader.fields(root, &KEYS, Keys::Closed);
    let mut draft = eviction::read_kubelet_keys(reader, fields, Dialect::Brink);
    eviction::read_headroom_keys(reader, fields, &mut draft);
    let paths = read_paths(reader, fields);
    let told = events::read(reader, fields, &paths);
    let mode = [RunMode::Observe, RunMode::Enforce].map(|mode| (mode.word(), mode));
    Written {
        mode: word(reader, fields, "mode", &mode).unwrap_or_default(),
        memory_policy: read_memory_policy(reader, fields),
        draft,
        kubelet: KubeletFiles {
            file: path(reader, fields, "kubeletConfig"),
            folder: path(reader, fields, "kubeletConfigDir"),
        },
        lead_margin: match fields.get("leadMargin") {
            Some(node) => LeadMargin::read(reader, node),
            None => LeadMargin::default(),
        },
        node: read_node(reader, fields),
        pods_cgroup: fields
            .get("podsCgroup")
            .and_then(|node| workloads::read_group(reader, node)),
        workloads: workloads::read(reader, fields),
        storage: storage::read(reader, fields),
        filesystems: disks::read_filesystems(reader, fields),
        runtime: disks::read_runtime(reader, fields),
        kubernetes: kubernetes::read(reader, fields),
        selection: workloads::read_selection(reader, fields),
        limits: read_remembered_limits(reader, fields),
        housekeeping_interval: fields
            .get("housekeepingInterval")
            .and_then(|node| {
                reader.bounded_span(node, Span::from_millis(100), LONGEST_HOUSEKEEPING)
            })
            .unwrap_or(Span::from_secs(10)),
        realtime: read_realtime(reader, fields),
        kernel_programs: fields
            .get("kernelPrograms")
            .and_then(|node| reader.boolean(node))
            .unwrap_or(true),
        hooks: read_hooks(reader, fields),
        metrics_listen: events::read_metrics(reader, fields, &told),
        events: told,
        paths,
        log: read_log(reader, fields),
    }
}

/// Reads `memoryPolicy`; a scenario has it too.
pub(crate) fn read_memory_policy<'a>(
    reader: &mut Reader<'a>,
    fields: Fields<'a>,
) -> Option<MemoryPolicy> {
    let words = [
        ("kubelet", MemoryPolicy::Kubelet),
        ("confirmed", MemoryPolicy::Confirmed),
    ];
    word(reader, fields, "memoryPolicy", &words)
}

/// Reads `limits`; a scenario has them too.
pub(crate) fn read_limits<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Limits {
    let largest = i64::try_from(Limits::MOST).unwrap_or(i64::MAX);
    let default = Limits::default();
    let fields = section(
        reader,
        fields,
        "limits",
        &["burst", "refillInterval", "maxKills", "window"],
    );
    let mut integer = |key| reader.integer(fields.get(key)?, 1, largest);
    let burst = integer("burst").and_then(|count| u32::try_from(count).ok());
    let most = integer("maxKills").and_then(|count| usize::try_from(count).ok());
    let mut span = |key, least| reader.span(fields.get(key)?, least);
    Limits {
        burst: burst.unwrap_or(default.burst),
        refill: span("refillInterval", SHORTEST_REFILL).unwrap_or(default.refill),
        most: most.unwrap_or(default.most),
        window: span("window", Span::from_secs(1)).unwrap_or(default.window),
    }
}

/// The same where a ledger carries the kills over a restart: what it has no room for is forgotten then.
fn read_remembered_limits<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Limits {
    let limits = read_limits(reader, fields);
    let room = DECISIONS.slots;
    let burst = usize::try_from(limits.burst).unwrap_or(usize::MAX);
    for (key, count) in [("burst", burst), ("maxKills", limits.most)] {
        let node = fields.get("limits").and_then(|node| node.get(key));
        if let Some(node) = node.filter(|_| count > room as usize) {
            let problem = format!(
                "the ledger carries the last {room} kills over a restart of the agent; a limit above \
                 that is forgiven some of them"
            );
            reader.warn(node, problem);
        }
    }
    limits
}

fn word<'a, T: Copy>(
    reader: &mut Reader<'a>,
    fields: Fields<'a>,
    key: &str,
    words: &[(&str, T)],
) -> Option<T> {
    reader.word(fields.get(key)?, words)
}

fn path<'a>(reader: &mut Reader<'a>, fields: Fields<'a>, key: &str) -> Option<PathBuf> {
    reader.name(fields.get(key)?).map(PathBuf::from)
}

/// A path that does not depend on where the agent was started.
pub(super) fn absolute<'a>(
    reader: &mut Reader<'a>,
    fields: Fields<'a>,
    key: &str,
) -> Option<PathBuf> {
    let node = fields.get(key)?;
    let path = PathBuf::from(reader.name(node)?);
    if path.is_relative() {
        reader.fault(node, "no absolute path", "a path that begins with /");
        return None;
    }
    Some(path)
}

pub(super) fn section<'a>(
    reader: &mut Reader<'a>,
    fields: Fields<'a>,
    key: &str,
    known: &[&str],
) -> Fields<'a> {
    match fields.get(key) {
        Some(node) => reader.fields(node, known, Keys::Closed),
        None => Fields::NONE,
    }
}

fn read_node<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> NodeScope {
    let Some(node) = fields.get("node") else {
        return NodeScope::Machine;
    };
    if node.scalar() == Some("machine") {
        return NodeScope::Machine;
    }
    if !matches!(node.value, Value::Map(_)) {
        reader.fault(
            node,
            "unknown word",
            "machine, or a map such as {cgroup: /user.slice}",
        );
        return NodeScope::Machine;
    }
    let fields = reader.fields(node, &["cgroup"], Keys::Closed);
    let Some(group) = fields.get("cgroup") else {
        reader.fault(node, "cgroup is missing", "{cgroup: PATH}");
        return NodeScope::Machine;
    };
    workloads::read_group(reader, group).map_or(NodeScope::Machine, NodeScope::Cgroup)
}

fn read_realtime<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Realtime {
    let known = ["priority", "lockMemory", "moveGuardToRootCpuGroup"];
    let fields = section(reader, fields, "realtime", &known);
    let priority = read_priority(reader, fields.get("priority"));
    let mut boolean = |key| reader.boolean(fields.get(key)?);
    Realtime {
        priority,
        lock_memory: boolean("lockMemory").unwrap_or(true),
        move_guard_to_root_cpu_group: boolean("moveGuardToRootCpuGroup").unwrap_or(false),
    }
}

/// Zero stands for no real time at all.
fn read_priority<'a>(reader: &mut Reader<'a>, node: Option<&'a Node>) -> Option<u8> {
    const HIGHEST_BELOW_INTERRUPTS: i64 = 49;
    let Some(node) = node else {
        return Some(49);
    };
    let priority = reader.integer(node, 0, 99)?;
    if priority > HIGHEST_BELOW_INTERRUPTS {
        let problem = "above the kernel's interrupt threads (50): a busy guard can keep disk and \
                       network from answering";
        reader.warn(node, problem);
    }
    u8::try_from(priority).ok().filter(|&priority| priority > 0)
}

fn read_hooks<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Hooks {
    let fields = section(
        reader,
        fields,
        "hooks",
        &["beforeKill", "afterKill", "timeout"],
    );
    let timeout = fields
        .get("timeout")
        .and_then(|node| reader.span(node, Span::from_millis(1)))
        .and_then(|span| u64::try_from(span.as_nanos()).ok());
    Hooks {
        before_kill: read_command(reader, fields.get("beforeKill")),
        after_kill: read_command(reader, fields.get("afterKill")),
        timeout: timeout.map_or(Duration::from_secs(5), Duration::from_nanos),
    }
}

/// A program alone, or a list of the program and its arguments. No shell takes part.
fn read_command<'a>(reader: &mut Reader<'a>, node: Option<&'a Node>) -> Option<Vec<String>> {
    const ACCEPTED: &str = "an absolute path, or a list: [/usr/bin/logger, -t, brink]";
    let node = node?;
    let words = match node.value {
        Value::List(_) => reader.texts(node),
        _ => Vec::from_iter(reader.text(node)),
    };
    match words.first() {
        Some(program) if program.starts_with('/') => {
            Some(words.into_iter().map(str::to_string).collect())
        }
        Some(_) => {
            reader.fault(node, "the program is no absolute path", ACCEPTED);
            None
        }
        None => {
            reader.fault(node, "no program", ACCEPTED);
            None
        }
    }
}

fn read_paths<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Paths {
    let fields = section(
        reader,
        fields,
        "paths",
        &["root", "stateDir", "socket", "decisionJournal"],
    );
    let mut path = |key| absolute(reader, fields, key);
    let state_dir = path("stateDir").unwrap_or_else(|| PathBuf::from("/run/brink"));
    Paths {
        root: path("root").unwrap_or_else(|| PathBuf::from("/")),
        socket: path("socket").unwrap_or_else(|| state_dir.join("brink.sock")),
        journal: path("decisionJournal"),
        state_dir,
    }
}

fn read_log<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> LogSettings {
    let fields = section(reader, fields, "log", &["level", "format"]);
    let levels = [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
    let formats = [
        ("auto", LogFormat::Auto),
        ("text", LogFormat::Text),
        ("json", LogFormat::Json),
    ];
    LogSettings {
        level: word(reader, fields, "level", &levels).unwrap_or(LogLevel::Info),
        format: word(reader, fields, "format", &formats).unwrap_or(LogFormat::Auto),
    }
}

//! `kubernetes`: whether pods come from the Kubernetes API, how it is reached, and what is written there.

use std::path::PathBuf;

use super::document::{Fields, Reader};
use super::schema::{absolute, section};
use crate::dns::is_subdomain;

/// Every key of the section.
const KEYS: [&str; 8] = [
    "enabled",
    "configz",
    "kubeconfig",
    "context",
    "nodeName",
    "streamingLists",
    "taint",
    "dryRunEvents",
];

/// What a node can be called.
const NODE_NAME: &str = "a name as kubectl get nodes shows it: at most 253 lower-case letters, digits, - and ., with a letter or digit \
                         before and after each dot and at both ends";

/// Pods from the Kubernetes API.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of its own in what was written"
)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubernetes {
    /// Whether they come from there.
    pub enabled: bool,
    /// Whether the kubelet is asked by way of the API server what it goes by, and its thresholds are inherited.
    pub configz: bool,
    /// The kubeconfig; without one what `KUBECONFIG` names, else the service account of the pod the agent runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Its context; without one the one it calls current.
    pub context: Option<String>,
    /// What the node is called; without a name what `NODE_NAME` says, else the machine's own name.
    pub node_name: Option<String>,
    /// Whether lists come as streams.
    pub streaming_lists: StreamingLists,
    /// Whether the node is tainted while its memory is short.
    pub taint: bool,
    /// Whether an agent that only observes posts events.
    pub dry_run_events: bool,
}

impl Kubernetes {
    /// Whether the kubelet is asked what it goes by.
    pub const fn asks_kubelet(&self) -> bool {
        self.enabled && self.configz
    }
}

/// Whether the list of pods comes as a stream, pod by pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamingLists {
    /// Where the server does so.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Reads `kubernetes`.
pub(super) fn read<'a>(reader: &mut Reader<'a>, fields: Fields<'a>) -> Kubernetes {
    let section = section(reader, fields, "kubernetes", &KEYS);
    let enabled = section.get("enabled");
    let is_enabled = enabled
        .and_then(|node| reader.boolean(node))
        .unwrap_or(false);
    if let Some(node) = enabled.filter(|_| is_enabled && cfg!(not(feature = "kubernetes"))) {
        let problem = "this build knows no Kubernetes";
        reader.fault(node, problem, "false; or build with --features kubernetes");
    }
    let words = [
        ("auto", StreamingLists::Auto),
        ("always", StreamingLists::Always),
        ("never", StreamingLists::Never),
    ];
    let streaming = section.get("streamingLists");
    let streaming_lists = streaming.and_then(|node| reader.word(node, &words));
    let mut flag = |key| {
        let node = section.get(key)?;
        reader.boolean(node)
    };
    let (taint, dry_run_events) = (flag("taint"), flag("dryRunEvents"));
    let configz = flag("configz");
    let mut name = |key| {
        section
            .get(key)
            .and_then(|node| reader.name(node))
            .map(str::to_owned)
    };
    let (context, node_name) = (name("context"), name("nodeName"));
    // An agent takes it without the spaces around it. Spaces alone are what is left of a template that was not filled in.
    let is_name = |name: &str| is_subdomain(name.trim());
    if let Some(node) = section.get("nodeName")
        && node_name.as_deref().is_some_and(|name| !is_name(name))
    {
        reader.fault(node, "no name of a node", NODE_NAME);
    }
    Kubernetes {
        enabled: is_enabled,
        configz: configz.unwrap_or(false),
        kubeconfig: absolute(reader, section, "kubeconfig"),
        context,
        node_name,
        streaming_lists: streaming_lists.unwrap_or_default(),
        taint: taint.unwrap_or(false),
        dry_run_events: dry_run_events.unwrap_or(false),
    }
}

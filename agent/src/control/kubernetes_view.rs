//! How the pods of the Kubernetes API stand, as it is told over the socket.

use serde::{Deserialize, Serialize};

/// How the pods of the Kubernetes API stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesView {
    /// What this node is called there.
    pub node: String,
    /// Whether the API server is reached and the pods are up to date.
    pub connected: bool,
    /// Since when that is so, or not so, as RFC 3339 has it; none before the first attempt has ended.
    pub since: Option<String>,
    /// Why it is not reached; none while it is.
    pub why: Option<String>,
    /// Pods of this node that are known.
    pub pods: u32,
    /// Time since they were last known to be up to date, in milliseconds; none if they never were.
    pub state_age_ms: Option<i64>,
    /// Pods of this node that are not known, since there was no room when they were told of.
    pub left_out: u64,
    /// Attempts to reach the server that have failed since the start.
    pub failures: u64,
    /// Evictions and kills of the kernel's that the API is still to be told of.
    #[serde(default)]
    pub untold: u32,
    /// Why the kubelet does not say what it goes by, where it is asked (`kubernetes.configz`); none while it does.
    #[serde(default)]
    pub configz_why: Option<String>,
}

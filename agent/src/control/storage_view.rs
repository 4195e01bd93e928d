//! What `brink status` says of disks: how measuring goes, and who uses most.

use serde::{Deserialize, Serialize};

/// How the folders of workloads are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageView {
    /// Folders that are measured.
    pub folders: u32,
    /// Since when the last round is over, in milliseconds; none before the first.
    pub round_age_ms: Option<i64>,
    /// How long it took, in milliseconds.
    pub round_ms: Option<u64>,
    /// Filesystems whose kernel tells what has changed: only that is walked again.
    pub feeds: u32,
    /// What these have told.
    pub changes: u64,
    /// How often everything counted as changed, since not all was told.
    pub changes_lost: u64,
    /// Why other filesystems are walked each time, a line for each mount.
    pub without_feed: Vec<String>,
    /// What could not be measured in the last round, and why.
    pub troubles: Vec<String>,
    /// Those who use most, the first in front; 16 at most.
    pub workloads: Vec<DiskView>,
}

/// What one workload uses of disks; none of what is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskView {
    /// `namespace/name`.
    pub workload: String,
    /// Writable layers of its containers, in bytes.
    pub rootfs_bytes: Option<u64>,
    /// Logs of its containers, in bytes.
    pub logs_bytes: Option<u64>,
    /// Its local volumes, in bytes.
    pub volumes_bytes: Option<u64>,
    /// Inodes of all of these.
    pub inodes: Option<u64>,
    /// Whether something could not be looked at, so that it uses at least so much.
    pub partial: bool,
    /// Whether it has folders and no containers: neither logs nor writable layers.
    #[serde(default)]
    pub folders_alone: bool,
}

impl DiskView {
    /// Bytes of all parts that are known; none where none is.
    pub fn bytes(&self) -> Option<u64> {
        let parts = [self.rootfs_bytes, self.logs_bytes, self.volumes_bytes];
        let known = parts.into_iter().flatten();
        known.reduce(u64::saturating_add)
    }
}

//! What workloads use of disks, for the status.

use brink_core::base::Moment;
use brink_core::node::workload::full_name;

use super::Views;
use crate::control::protocol::{DiskView, StorageView};
use crate::runtime::state::State;
use crate::storage::Measured;

/// Workloads that are shown.
const MOST: usize = 16;

impl Views {
    /// Nothing where no folder is measured.
    pub(super) fn storage(&self, state: &State, now: Moment) -> Option<StorageView> {
        let keeper = &self.running.keeper;
        let standing = keeper.standing();
        if standing.folders == 0 {
            return None;
        }
        let table = state.table().map_or(&[][..], |table| table.workloads());
        let mut workloads: Vec<DiskView> = table
            .iter()
            .filter_map(|workload| {
                let name = full_name(&workload.namespace, &workload.name);
                Some(view(name, &keeper.measured(&workload.uid)?))
            })
            .collect();
        workloads.sort_by_key(|one| std::cmp::Reverse(one.bytes()));
        workloads.truncate(MOST);
        let last = standing.last_round;
        Some(StorageView {
            folders: u32::try_from(standing.folders).unwrap_or(u32::MAX),
            round_age_ms: last.map(|(at, _)| now.since(at).as_nanos() / 1_000_000),
            round_ms: last.map(|(_, took)| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            feeds: u32::try_from(standing.feeds).unwrap_or(u32::MAX),
            changes: standing.told.events,
            changes_lost: standing.told.lost,
            without_feed: standing.without_feed,
            troubles: standing.troubles,
            workloads,
        })
    }
}

impl Views {
    /// What one workload uses; nothing where nothing of it is measured.
    pub(super) fn disk_of(&self, uid: &str, name: String) -> Option<DiskView> {
        Some(view(name, &self.running.keeper.measured(uid)?))
    }
}

fn view(workload: String, measured: &Measured) -> DiskView {
    let usage = &measured.usage;
    let all = usage.rootfs.plus(usage.logs).plus(usage.volumes);
    DiskView {
        workload,
        rootfs_bytes: usage.rootfs.bytes,
        logs_bytes: usage.logs.bytes,
        volumes_bytes: usage.volumes.bytes,
        inodes: all.inodes,
        partial: measured.is_partial,
        folders_alone: measured.has_folders_alone,
    }
}

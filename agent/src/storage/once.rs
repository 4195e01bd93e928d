//! What workloads use of disks, measured once, for whoever has no rounds to wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use brink_core::node::workload::{FsUsage, Workload};
use brink_host::disk::pace::Pace;
use brink_host::disk::{DiskError, UsageMeter, UsageSettings};

use super::ground::Ground;
use super::layers::{Layers, Told};
use super::measured::{Found, Measured, of_file};
use super::owned::Owned;
use crate::config::AgentConfig;
use crate::guard::now;
use crate::guard::storage::DiskUsage;

/// Somebody waits for it, and what runs here goes first all the same.
const PACE: Pace = Pace {
    cpu_percent: 50,
    entries_per_second: 100_000,
};

/// What each of these uses of nodefs and of writable layers, in their order; none of one that could not be measured whole. None of all where that took longer
/// than `within`: a filesystem that hangs keeps a thread of ours.
pub fn measured(
    config: &AgentConfig,
    all: Vec<(Workload, Owned)>,
    within: Duration,
) -> Option<Vec<Option<DiskUsage>>> {
    let (tell, told) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let root = config.paths.root.clone();
    let ground = Ground::new(root.clone(), config.filesystems.clone());
    let layers = Layers::new(root, config.runtime.endpoint.clone());
    let measures = move || {
        // Nobody listens any more where it took too long.
        let _late = tell.send(look((ground, layers), &all, within, &stopped));
    };
    thread::Builder::new().spawn(measures).ok()?;
    let found = told.recv_timeout(within).ok();
    stop.store(true, Ordering::Release);
    found
}

fn look(
    (mut ground, mut layers): (Ground, Layers),
    all: &[(Workload, Owned)],
    within: Duration,
    stop: &AtomicBool,
) -> Vec<Option<DiskUsage>> {
    let has_containers = all.iter().any(|(_, owned)| !owned.containers.is_empty());
    let told = if has_containers {
        layers.read()
    } else {
        Told::default()
    };
    ground.look(told.folders);
    let mut meter = UsageMeter::new(UsageSettings {
        feed: false,
        pace_without_feed: PACE,
        within,
        ..UsageSettings::default()
    });
    let used = |(workload, owned): &(Workload, Owned)| {
        let found = Found {
            layers: told.layers.clone(),
            ..pieces((&mut meter, &ground), owned, stop)?
        };
        Some(Measured::of(workload, owned, &found, now()).ranked)
    };
    all.iter().map(used).collect()
}

/// What its folders hold; none where one could not be measured whole.
fn pieces(
    (meter, ground): (&mut UsageMeter, &Ground),
    owned: &Owned,
    stop: &AtomicBool,
) -> Option<Found> {
    let hosts_file = owned.hosts_file.as_deref();
    let mut found = Found {
        hosts_file: hosts_file.map_or_else(FsUsage::default, of_file),
        ..Found::default()
    };
    for piece in &owned.pieces {
        match meter.measure(&piece.folder, Instant::now(), stop) {
            Ok(usage) if !usage.gaps.is_partial() => {
                let used = FsUsage {
                    bytes: Some(usage.bytes),
                    inodes: Some(usage.inodes),
                };
                found.parts.insert(piece.part.clone(), used);
                if ground.is_elsewhere(&piece.folder.path) {
                    found.elsewhere.insert(piece.part.clone());
                }
            }
            // A pod's folders come when it starts, and go with it.
            Err(DiskError::Missing { .. }) if hosts_file.is_some() => {}
            Ok(_) | Err(_) => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use brink_core::node::workload::{Volume, VolumeSource};

    use super::super::owned::{Keeps, Places};
    use super::*;
    use crate::config::of_text;

    #[test]
    fn each_is_measured_once_and_one_that_is_not_there_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("data");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("file"), vec![1; 1 << 16]).unwrap();
        let owned = |path: &str| {
            let keeps = Keeps::Directories(vec![PathBuf::from(path)]);
            let volume = Volume {
                name: path.to_owned(),
                source: VolumeSource::Directory,
            };
            let workload = Workload {
                volumes: vec![volume],
                ..Workload::default()
            };
            let owned = Owned::of(&Places::under(root.path()), &workload, &keeps);
            (workload, owned)
        };
        let all = vec![owned("/data"), owned("/missing")];
        let mut config = of_text("");
        config.paths.root = root.path().to_path_buf();
        let found = measured(&config, all, Duration::from_secs(20)).unwrap();
        let used = found[0].unwrap().volumes;
        assert!(used.bytes >= Some(1 << 16), "{used:?}");
        assert_eq!(used.inodes, Some(2));
        assert_eq!(found[1], None);
    }
}

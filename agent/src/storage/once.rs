//! What workloads use of disks, measured once, for whoever has no rounds to wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use brink_core::node::workload::Workload;
use brink_host::disk::pace::Pace;
use brink_host::disk::{UsageMeter, UsageSettings};

use super::ground::Ground;
use super::layers::{self, Kept, Layers};
use super::measured::Measured;
use super::owned::Owned;
use super::walk::{Flaw, Walk};
use crate::config::AgentConfig;
use crate::guard::now;
use crate::guard::storage::DiskUsage;

/// Somebody waits for it, and what runs here goes first all the same.
const PACE: Pace = Pace {
    cpu_percent: 50,
    entries_per_second: 100_000,
};

/// What each of these uses of nodefs and of writable layers, in their order; none of one that could not be measured whole, or of whose
/// containers nobody tells. None of all where that took longer than `within`: a filesystem that hangs keeps a thread of ours.
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
    let runtime = Layers::new(root, config.runtime.endpoint.clone());
    let measures = move || {
        // Nobody listens any more where it took too long.
        let _late = tell.send(look((ground, runtime), &all, within, &stopped));
    };
    thread::Builder::new().spawn(measures).ok()?;
    let found = told.recv_timeout(within).ok();
    stop.store(true, Ordering::Release);
    found
}

fn look(
    (mut ground, mut runtime): (Ground, Layers),
    all: &[(Workload, Owned)],
    within: Duration,
    stop: &AtomicBool,
) -> Vec<Option<DiskUsage>> {
    let (began, mut kept) = (Instant::now(), Kept::default());
    runtime.ask(true, began, || {
        layers::ids(all.iter().map(|(_, owned)| owned))
    });
    // The rest of the time is the folders'.
    let heard = runtime.hear(within / 2, began);
    ground.look(heard.and_then(|heard| kept.hear(heard)), Instant::now());
    let mut meter = UsageMeter::new(UsageSettings {
        feed: false,
        pace_without_feed: PACE,
        within,
        ..UsageSettings::default()
    });
    let used = |(workload, owned): &(Workload, Owned)| {
        let walk = Walk {
            meter: &mut meter,
            ground: &ground,
            layers: &kept,
            stop,
            asking: &|_| {},
        };
        let found = walk.of(owned, |_, flaw| matches!(flaw, Flaw::NotThere))?;
        (!found.lacks_layers).then(|| Measured::of(workload, owned, &found, now()).ranked)
    };
    all.iter().map(used).collect()
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

    #[cfg(feature = "cri")]
    #[test]
    fn of_one_whose_containers_nobody_tells_of_nothing_is_known() {
        let root = tempfile::tempdir().unwrap();
        let owned = Owned::default().with_containers(vec![("app".to_owned(), "id".to_owned())]);
        let all = [Owned::default(), owned].map(|owned| (Workload::default(), owned));
        let mut config = of_text("");
        config.paths.root = root.path().to_path_buf();
        let found = measured(&config, all.into(), Duration::from_secs(20)).unwrap();
        assert_eq!(found, [Some(DiskUsage::default()), None]);
    }
}

//! Filesystems under a real agent: filled, out of inodes, read-only, gone, hung, and what is told and done about it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use brink::control::protocol::{Status, ThresholdState};
use brink_stream::model::data::{NodeReclaim, ReclaimPhase};
use brink_stream::model::kind::Kind;
use brink_tests::{OwnDisk, lacks_disk, skip, slowed, wait_until};

use crate::support::{MIB, Node, PATIENCE};

/// A filesystem of so many MiB, in a mount namespace that the agents of this thread share.
macro_rules! disk {
    ($folder:expr, $mib:expr, $arguments:expr) => {{
        if let Err(why) = OwnDisk::own_mounts() {
            skip!("{why}");
        }
        match OwnDisk::ext4($folder, $mib, $arguments) {
            Ok(disk) => disk,
            Err(why) => lacks_disk!("{why}"),
        }
    }};
}

/// Has an agent measure this folder as nodefs.
fn configure(node: &Node, mode: &str, folder: &Path, thresholds: &str) {
    let extra = format!(
        "evictionHard: {{{thresholds}}}\nfilesystems: {{nodefs: \"{}\"}}\nruntime: {{endpoint: \"{}\"}}",
        folder.display(),
        node.path("no-runtime.sock").display(),
    );
    node.configure(mode, &extra);
}

fn threshold(status: &Status) -> &ThresholdState {
    status
        .thresholds
        .iter()
        .find(|one| one.signal.starts_with("nodefs."))
        .unwrap()
}

/// Waits for a status in which the threshold on nodefs is as wanted.
#[track_caller]
pub(crate) fn until(node: &Node, is_so: impl Fn(&ThresholdState) -> bool) -> Status {
    node.until(|status| is_so(threshold(status)))
}

/// What an agent has told of reclaims.
pub(crate) fn told(node: &Node) -> Vec<NodeReclaim> {
    let events = crate::kinds::told(node).unwrap_or_default().into_iter();
    let reclaims = events.filter(|event| event.of == Kind::NodeReclaim);
    reclaims
        .map(|event| serde_json::from_str(event.data.get()).unwrap())
        .collect()
}

/// Writes so many MiB.
fn fill(path: &Path, mib: u64) {
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    let block = vec![1; 1 << 20];
    for _ in 0..mib {
        file.write_all(&block).unwrap();
    }
}

#[test]
fn a_full_filesystem_is_told_of_and_nobody_without_files_there_goes() {
    let mut node = Node::new(200);
    let place = node.path("disk");
    let disk = disk!(&place, 64, &[]);
    node.workload("web", "containers: [{name: c}]");
    let hog = node.holding(0, 20);
    configure(&node, "enforce", disk.place(), "nodefs.available: 30Mi");
    node.start(&[]);
    let status = until(&node, |one| one.observed);
    assert!(!threshold(&status).met, "{status:?}");
    fill(&disk.place().join("filler"), 30);
    let status = until(&node, |one| {
        one.met && one.held.as_deref() == Some("nobody")
    });
    assert_eq!(status.conditions, ["DiskPressure"]);
    assert!(crate::support::lives(&hog));
    let reclaims = told(&node);
    let phases: Vec<ReclaimPhase> = reclaims.iter().map(|one| one.phase).collect();
    assert!(
        phases.starts_with(&[ReclaimPhase::Started, ReclaimPhase::Finished]),
        "{reclaims:?}"
    );
    let outcome = reclaims[1].outcome.as_ref().unwrap();
    assert_eq!(outcome.result, "absent", "{outcome:?}");
    assert_eq!(outcome.short, ["nodefs.available<30Mi"]);
    fs::remove_file(disk.place().join("filler")).unwrap();
    until(&node, |one| !one.met);
    assert!(node.decisions().is_empty());
}

#[test]
fn inodes_that_run_out_are_seen_as_well() {
    let mut node = Node::new(200);
    let place = node.path("disk");
    let disk = disk!(&place, 32, &["-N", "512"]);
    configure(&node, "observe", disk.place(), "nodefs.inodesFree: 100");
    node.start(&[]);
    until(&node, |one| one.observed && !one.met);
    for number in 0..450 {
        File::create(disk.place().join(number.to_string())).unwrap();
    }
    let status = until(&node, |one| one.met);
    let left = status
        .signals
        .iter()
        .find(|one| one.signal == "nodefs.inodesFree");
    assert!(left.unwrap().available < 100, "{status:?}");
}

/// The thresholds on nodefs that are met, by their signals, where nothing is left.
fn used_up(status: &Status) -> Vec<&str> {
    let is_none_left = |signal: &str| {
        let mut signals = status.signals.iter();
        signals.any(|seen| seen.signal == signal && seen.available == 0)
    };
    let met = status.thresholds.iter().filter(|one| one.met);
    let signals = met.map(|one| one.signal.as_str());
    signals.filter(|signal| is_none_left(signal)).collect()
}

/// As where a node is a container, and its files lie on one.
#[test]
fn an_overlay_has_what_is_left_of_the_filesystem_below_it() {
    let mut node = Node::new(200);
    let place = node.path("disk");
    let disk = disk!(&place, 32, &["-N", "256"]);
    let overlay = match OwnDisk::overlay(disk.place()) {
        Ok(overlay) => overlay,
        Err(why) => lacks_disk!("{why}"),
    };
    let thresholds = "nodefs.available: 1Mi, nodefs.inodesFree: 10";
    configure(&node, "observe", overlay.place(), thresholds);
    node.start(&[]);
    until(&node, |one| one.observed && !one.met);
    let filler = overlay.place().join("filler");
    let mut file = File::create(&filler).unwrap();
    let block = vec![1; 1 << 16];
    while file.write_all(&block).is_ok() {}
    node.until(|status| used_up(status) == ["nodefs.available"]);
    drop(file);
    fs::remove_file(&filler).unwrap();
    let mut number = 0_u32;
    while File::create(overlay.place().join(number.to_string())).is_ok() {
        number += 1;
    }
    node.until(|status| used_up(status) == ["nodefs.inodesFree"]);
}

#[test]
fn a_folder_that_is_not_there_is_unknown_and_everything_else_goes_on() {
    let mut node = Node::new(200);
    let missing = node.path("missing");
    configure(
        &node,
        "observe",
        &missing,
        "memory.available: 20Mi, nodefs.available: 30Mi",
    );
    let checked = node.said(&[
        "config",
        "check",
        &node.path("config.yaml").display().to_string(),
    ]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned()
        + &String::from_utf8_lossy(&checked.stderr);
    assert!(said.contains("there is no such folder"), "{said}");
    let status = node.start(&[]);
    assert!(!threshold(&status).observed);
    let why = wait_until(PATIENCE, || {
        let disks = node.status()?.disks?;
        disks.filesystems.first()?.why.clone()
    });
    assert!(why.unwrap().ends_with("is not there"), "{}", node.log());
    fs::create_dir(&missing).unwrap();
    until(&node, |one| one.observed);
}

#[test]
fn a_filesystem_that_becomes_read_only_is_unknown() {
    let mut node = Node::new(200);
    let place = node.path("disk");
    let disk = disk!(&place, 32, &[]);
    configure(&node, "observe", disk.place(), "nodefs.available: 1Mi");
    node.start(&[]);
    until(&node, |one| one.observed);
    let remounted = std::process::Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(disk.place())
        .status();
    assert!(remounted.unwrap().success());
    until(&node, |one| !one.observed);
    let disks = node.status().unwrap().disks.unwrap();
    let why = disks.filesystems[0].why.clone().unwrap();
    assert!(why.contains("read-only"), "{why}");
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "seconds of a pace")]
fn a_fast_filler_is_seen_before_it_has_passed_the_threshold_by_64_mib() {
    let mut node = Node::new(400);
    let place = node.path("disk");
    let disk = disk!(&place, 1024, &["-m", "0"]);
    configure(&node, "observe", disk.place(), "nodefs.available: 300Mi");
    node.start(&[]);
    let status = until(&node, |one| one.observed);
    let left = status
        .signals
        .iter()
        .find(|one| one.signal == "nodefs.available");
    let left = u64::try_from(left.unwrap().available).unwrap() / MIB;
    assert!(left > 800, "{left} MiB");
    let path = disk.place().join("filler");
    let filled = File::create(&path).unwrap();
    let (step, began) = (4 * MIB, Instant::now());
    for number in 1..=(left - 300 + 150) / 4 {
        // Space that is given without being written: as fast as asked for, and it costs the disk below nothing.
        rustix::fs::fallocate(
            &filled,
            rustix::fs::FallocateFlags::empty(),
            0,
            number * step,
        )
        .unwrap();
        let due = Duration::from_secs_f64((number * step / MIB) as f64 / 500.0);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    until(&node, |one| one.met);
    let reclaims = wait_until(PATIENCE, || {
        Some(told(&node)).filter(|told| !told.is_empty())
    })
    .unwrap();
    let past = reclaims[0].quantity - reclaims[0].available;
    println!("asked for reclaim {} KiB past the threshold", past / 1024);
    // Of a pace of half a MiB in each.
    let millis = i64::try_from(slowed(Duration::from_millis(128)).as_millis()).unwrap();
    assert!(past < millis << 19, "{past}");
}

//! Project quotas of an ext4, where kernel and tools have them.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use brink_host::disk::quota::{self, NoQuota};
use brink_host::disk::walk::walk;
use brink_host::disk::{Folder, Method};
use brink_tests::{OwnDisk, skip};

use crate::LIMITS;
use crate::usage::{folder, measure, meter};

#[test]
fn a_project_is_counted_by_its_filesystem() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let place = tempfile::tempdir().unwrap();
    let features = ["-O", "quota,project", "-E", "quotatype=prjquota"];
    let disk = match OwnDisk::ext4(place.path(), 32, &features) {
        Ok(disk) => disk,
        Err(why) => skip!("needs an ext4 with project quotas: {why}"),
    };
    let (own, second) = (disk.place().join("own"), disk.place().join("second"));
    fs::create_dir(&own).unwrap();
    fs::create_dir(&second).unwrap();
    let give = |path: &Path, id: &str| {
        let given = Command::new("chattr")
            .args(["-p", id, "+P"])
            .arg(path)
            .status();
        given.is_ok_and(|status| status.success())
    };
    let open = |path: &Path| File::open(path).unwrap();
    assert_eq!(quota::project(open(&own)), Err(NoQuota::NoId));
    if !give(&own, "4242") {
        skip!("needs a chattr that knows projects");
    }
    let project = quota::project(open(&own)).unwrap();
    assert_eq!(project.get(), 4242);
    fs::create_dir(own.join("in")).unwrap();
    assert_eq!(quota::project(open(&own.join("in"))), Err(NoQuota::Wider));
    fs::write(own.join("in/file"), vec![1; 1 << 20]).unwrap();
    fs::write(second.join("file"), vec![1; 1 << 20]).unwrap();
    rustix::fs::syncfs(open(&own)).unwrap();

    let walked = walk(&own, LIMITS, &AtomicBool::new(false)).unwrap();
    let counted = quota::usage(open(&own), project).unwrap();
    assert_eq!(
        (counted.bytes, counted.inodes),
        (walked.bytes, walked.inodes)
    );

    let (now, mut meter) = (Instant::now(), meter(Duration::from_mins(1)));
    let asked = measure(&mut meter, &folder(&own), now).unwrap();
    assert_eq!((asked.method, asked.bytes), (Method::Quota, walked.bytes));
    let untrusted = Folder {
        quota: false,
        ..folder(&own)
    };
    assert_eq!(
        measure(&mut meter, &untrusted, now).unwrap().method,
        Method::Walk
    );

    // Two with the same project: its sum is neither's.
    assert!(give(&second, "4242"));
    meter.watch(&folder(&second), now).unwrap();
    let shared = measure(&mut meter, &folder(&own), now).unwrap();
    assert_eq!((shared.method, shared.bytes), (Method::Walk, walked.bytes));
}

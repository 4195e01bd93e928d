//! Project quotas of ext4 and XFS, where kernel and tools have them.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use brink_host::disk::quota::{self, NoQuota};
use brink_host::disk::walk::walk;
use brink_host::disk::{Folder, Method};
use brink_tests::{OwnDisk, lacks_disk};

use crate::LIMITS;
use crate::usage::{folder, measure, meter};

/// The id of the only project.
const ID: u32 = 4242;

#[test]
fn a_project_is_counted_by_its_ext4() {
    if let Err(why) = check(OwnDisk::ext4_counting_projects) {
        lacks_disk!("needs an ext4 with project quotas: {why}");
    }
}

#[test]
fn a_project_is_counted_by_its_xfs() {
    if let Err(why) = check(OwnDisk::xfs_counting_projects) {
        lacks_disk!("needs an XFS with project quotas: {why}");
    }
}

/// Fails where the filesystem counts wrongly; the error is why there is none.
fn check(make: fn(&Path) -> Result<OwnDisk, String>) -> Result<(), String> {
    OwnDisk::own_mounts()?;
    let place = tempfile::tempdir().unwrap();
    let disk = make(place.path())?;
    let (own, second) = (disk.place().join("own"), disk.place().join("second"));
    fs::create_dir(&own).unwrap();
    fs::create_dir(&second).unwrap();
    assert_eq!(quota::project(open(&own)), Err(NoQuota::NoId));
    OwnDisk::give_project(&own, ID)?;
    let project = quota::project(open(&own)).unwrap();
    assert_eq!(project.get(), ID);
    fs::create_dir(own.join("in")).unwrap();
    assert_eq!(quota::project(open(&own.join("in"))), Err(NoQuota::Wider));
    fs::write(own.join("in/file"), vec![1; 1 << 20]).unwrap();
    fs::write(second.join("file"), vec![1; 1 << 20]).unwrap();
    // Both count on the disk, where room that is only promised becomes blocks.
    rustix::fs::syncfs(open(&own)).unwrap();

    let walked = walk(&own, LIMITS, &AtomicBool::new(false)).unwrap();
    let counted = quota::usage(open(&own), project).unwrap();
    assert_eq!(
        (counted.bytes, counted.inodes),
        (walked.bytes, walked.inodes)
    );
    check_meter(&own, &second, walked.bytes);
    Ok(())
}

/// The first folder is alone in its project until the second is put into it too.
fn check_meter(own: &Path, second: &Path, bytes: u64) {
    let (now, mut meter) = (Instant::now(), meter(Duration::from_mins(1)));
    let asked = measure(&mut meter, &folder(own), now).unwrap();
    assert_eq!((asked.method, asked.bytes), (Method::Quota, bytes));
    let untrusted = Folder {
        quota: false,
        ..folder(own)
    };
    assert_eq!(
        measure(&mut meter, &untrusted, now).unwrap().method,
        Method::Walk
    );

    // Two with the same project: its sum is neither's.
    OwnDisk::give_project(second, ID).unwrap();
    meter.watch(&folder(second), now).unwrap();
    let shared = measure(&mut meter, &folder(own), now).unwrap();
    // Where there is a feed, the walk above still stands.
    assert_ne!(shared.method, Method::Quota);
    assert_eq!(shared.bytes, bytes);
}

fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

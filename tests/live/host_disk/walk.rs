//! Walks beside `du`, and over mounts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use brink_host::disk::walk::walk;
use brink_tests::{OwnDisk, report_left_out, skip};
use rustix::mount::mount_bind;

use crate::{LIMITS, disk};

#[test]
fn a_walk_counts_as_du_does_and_enters_no_mount() {
    let (_place, disk) = match disk(32) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let at = |path: &str| disk.place().join(path);
    for folder in ["a/b", "memory", "again", "large"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for number in 0..200_usize {
        fs::write(at(&format!("a/b/{number}")), vec![1; number * 40]).unwrap();
    }
    fs::hard_link(at("a/b/199"), at("a/linked")).unwrap();
    fs::write(at("large/file"), vec![1; 1 << 20]).unwrap();
    let _memory = OwnDisk::mount("tmpfs", &at("memory"), "size=1m").unwrap();
    fs::write(at("memory/file"), vec![1; 100_000]).unwrap();
    let walked = |path: &Path| walk(path, LIMITS, &AtomicBool::new(false)).unwrap();
    let before = walked(disk.place());
    let du = Command::new("du")
        .args(["-s", "-x", "-B1"])
        .arg(disk.place())
        .output();
    match du {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8(output.stdout).unwrap();
            let bytes: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
            // The place of a mount is no folder of this filesystem for du either.
            assert_eq!(before.bytes, bytes);
        }
        // The one of busybox has no such unit.
        _ => report_left_out("the comparison with du, which has no -B1"),
    }
    assert!(before.gaps.is_exact() && before.inodes >= 206, "{before:?}");
    // A second name for what was counted, which nothing but its mount tells.
    mount_bind(at("large"), at("again")).unwrap();
    let after = walked(disk.place());
    assert_eq!(
        after.inodes,
        before.inodes - 1,
        "the folder under the mount"
    );
    assert!(after.bytes <= before.bytes);
    rustix::mount::unmount(at("again"), rustix::mount::UnmountFlags::DETACH).unwrap();
}

//! Change feeds of filesystems of the tests' own: what they tell, what they lose, when they end.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use brink_host::disk::feed::{Feed, NoFeed};
use brink_tests::{OwnDisk, skip};

use crate::{disk, inode};

/// A feed of a filesystem of the test's own.
pub(crate) fn feed(disk: &OwnDisk) -> Result<Feed, String> {
    match Feed::open(disk.place()) {
        Ok(feed) => Ok(feed),
        Err(why @ (NoFeed::Denied(_) | NoFeed::Unsupported(_))) => Err(why.to_string()),
        Err(why) => panic!("{why}"),
    }
}

/// Which of these folders have changed since this was last asked.
pub(crate) fn changed(feed: &mut Feed, folders: &[&Path]) -> Vec<bool> {
    feed.drain();
    let inodes = folders.iter().map(|folder| inode(folder));
    inodes.map(|inode| feed.take(inode)).collect()
}

#[test]
fn a_feed_tells_which_folder_has_changed() {
    let (_place, disk) = match disk(32) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let (one, other, outside) = (
        disk.place().join("one"),
        disk.place().join("other"),
        disk.place().join("outside"),
    );
    for folder in [&one.join("a/b"), &other, &outside] {
        fs::create_dir_all(folder).unwrap();
    }
    let mut open = File::create(one.join("a/b/grows")).unwrap();
    let mut feed = match feed(&disk) {
        Ok(feed) => feed,
        Err(why) => skip!("{why}"),
    };
    feed.watch(inode(&one));
    feed.watch(inode(&other));
    let both = [one.as_path(), other.as_path()];
    let mut expect = |what: &str, expected: [bool; 2]| {
        assert_eq!(changed(&mut feed, &both), expected, "{what}");
        assert_eq!(changed(&mut feed, &both), [false; 2], "{what}, asked again");
    };
    expect("at first", [true, true]);
    open.write_all(&[1; 5000]).unwrap();
    expect("a file that is open since before grew", [true, false]);
    open.write_all(&[1; 5000]).unwrap();
    expect("it grew again", [true, false]);
    open.set_len(10).unwrap();
    expect("it was cut", [true, false]);
    fs::write(outside.join("file"), "outside").unwrap();
    expect("outside", [false, false]);
    fs::read(one.join("a/b/grows")).unwrap();
    expect("it was read", [false, false]);
    fs::create_dir_all(other.join("x/y")).unwrap();
    expect("folders were made", [false, true]);
    fs::write(other.join("x/y/file"), "deep").unwrap();
    expect("deep in them", [false, true]);
    fs::rename(other.join("x"), one.join("x")).unwrap();
    expect("a folder was moved", [true, true]);
    fs::write(one.join("x/y/file"), "moved").unwrap();
    expect("in the folder that was moved", [true, false]);
    fs::rename(one.join("x"), outside.join("x")).unwrap();
    expect("it was moved out", [true, false]);
    fs::write(outside.join("x/y/file"), "again").unwrap();
    expect("in the folder that was moved out", [false, false]);
    fs::hard_link(outside.join("file"), other.join("link")).unwrap();
    expect("a link was made", [false, true]);
    fs::remove_dir_all(one.join("a")).unwrap();
    expect("all was removed", [true, false]);
    fs::write(other.join("nested"), "").unwrap();
    expect("a file was made", [false, true]);
    assert_eq!(feed.counts().lost, 0);
}

#[test]
fn a_folder_in_a_folder_changes_both() {
    let (_place, disk) = match disk(32) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let outer = disk.place().join("outer");
    let inner = outer.join("inner");
    fs::create_dir_all(&inner).unwrap();
    let mut feed = match feed(&disk) {
        Ok(feed) => feed,
        Err(why) => skip!("{why}"),
    };
    feed.watch(inode(&outer));
    // What is remembered of the folder from before it was watched does not count.
    fs::write(inner.join("file"), "").unwrap();
    assert_eq!(changed(&mut feed, &[&outer]), [true]);
    feed.watch(inode(&inner));
    assert_eq!(changed(&mut feed, &[&outer, &inner]), [false, true]);
    fs::write(inner.join("file"), "more").unwrap();
    assert_eq!(changed(&mut feed, &[&outer, &inner]), [true, true]);
    fs::write(outer.join("file"), "more").unwrap();
    assert_eq!(changed(&mut feed, &[&outer, &inner]), [true, false]);
    feed.forget(inode(&inner));
    assert_eq!(
        changed(&mut feed, &[&outer, &inner]),
        [false, true],
        "nobody watches"
    );
}

#[test]
fn a_queue_that_runs_over_has_changed_everything() {
    let (_place, disk) = match disk(128) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let quiet = disk.place().join("quiet");
    fs::create_dir(&quiet).unwrap();
    let limit = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let limit: u32 = limit.trim().parse().unwrap();
    if limit > 20_000 {
        skip!("the queue holds {limit} events here, more folders than this test makes");
    }
    for number in 0..limit + 100 {
        fs::create_dir(disk.place().join(number.to_string())).unwrap();
    }
    let mut feed = match feed(&disk) {
        Ok(feed) => feed,
        Err(why) => skip!("{why}"),
    };
    feed.watch(inode(&quiet));
    assert_eq!(changed(&mut feed, &[&quiet]), [true]);
    // No inode is left for so many: a link needs none.
    fs::write(disk.place().join("file"), "").unwrap();
    for number in 0..limit + 100 {
        let link = disk.place().join(format!("{number}/link"));
        fs::hard_link(disk.place().join("file"), link).unwrap();
    }
    assert_eq!(
        changed(&mut feed, &[&quiet]),
        [true],
        "it may have changed too"
    );
    assert_eq!(feed.counts().lost, 1);
    assert_eq!(changed(&mut feed, &[&quiet]), [false], "all was read");
}

#[test]
fn a_mark_that_went_with_its_filesystem_is_missed() {
    let (_place, disk) = match disk(32) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let feed = match feed(&disk) {
        Ok(feed) => feed,
        Err(why) => skip!("{why}"),
    };
    let device = fs::metadata(disk.place()).unwrap().dev();
    assert!(feed.listens_to(device) && !feed.listens_to(device + 1));
    rustix::mount::unmount(disk.place(), rustix::mount::UnmountFlags::empty())
        .expect("a feed holds nothing open");
    assert!(!feed.listens_to(device));
}

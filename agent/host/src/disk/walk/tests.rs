//! Walks of real trees, also of trees that change under them.

use super::*;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use tempfile::TempDir;

const LIMITS: WalkLimits = WalkLimits {
    pace: Pace::UNBOUNDED,
    within: Duration::from_mins(1),
};

fn tree(files: &[(&str, usize)]) -> TempDir {
    let root = tempfile::tempdir().expect("temporary folder");
    for (path, size) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, vec![1; *size]).expect("a file");
    }
    root
}

fn found(root: &Path) -> Walked {
    walk(root, LIMITS, &AtomicBool::new(false)).expect("a folder")
}

/// The same by paths, as simply as can be.
fn expected(root: &Path) -> (u64, u64) {
    let mut seen = HashSet::new();
    let (mut bytes, mut waiting) = (0, vec![root.to_path_buf()]);
    while let Some(path) = waiting.pop() {
        let data = fs::symlink_metadata(&path).expect("there");
        if seen.insert(data.ino()) {
            bytes += data.blocks() * 512;
        }
        if data.is_dir() {
            let entries = fs::read_dir(&path).expect("readable");
            waiting.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
    }
    (bytes, seen.len() as u64)
}

fn check(root: &Path) -> Walked {
    let walked = found(root);
    assert_eq!((walked.bytes, walked.inodes), expected(root));
    assert!(walked.gaps.is_exact(), "{walked:?}");
    walked
}

#[test]
fn every_inode_counts_once_with_its_blocks() {
    let outside = tree(&[("large", 1 << 20)]);
    let root = tree(&[("a/b/one", 10_000), ("a/two", 1), ("empty", 0)]);
    let at = |path: &str| root.path().join(path);
    fs::hard_link(at("a/two"), at("a/b/two again")).expect("a link");
    symlink(outside.path(), at("a/elsewhere")).expect("a link");
    symlink("nowhere", at("dangling")).expect("a link");
    fs::File::create(at("sparse"))
        .and_then(|file| file.set_len(1 << 30))
        .expect("a file of holes");
    let walked = check(root.path());
    // The root, a, b, one, two, empty, sparse and two links.
    assert_eq!(walked.inodes, 9);
    assert!(
        walked.bytes < 1 << 19,
        "neither holes nor what is elsewhere"
    );
    assert!(!walked.has_links_elsewhere, "both links of two are here");
}

#[test]
fn a_link_from_outside_is_known() {
    let root = tree(&[("in/file", 5000), ("out/other", 0)]);
    fs::hard_link(root.path().join("in/file"), root.path().join("out/file")).expect("a link");
    assert!(check(&root.path().join("in")).has_links_elsewhere);
    assert!(!check(root.path()).has_links_elsewhere);
}

#[test]
fn an_empty_folder_uses_its_own_inode() {
    let root = tree(&[]);
    assert_eq!(check(root.path()).inodes, 1);
}

#[test]
fn many_entries_are_more_than_one_reading() {
    let names: Vec<String> = (0..3000).map(|number| format!("{number:0>40}")).collect();
    let files: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let root = tree(&files);
    for number in 0..500 {
        fs::create_dir(root.path().join(format!("folder {number}"))).expect("a folder");
    }
    assert_eq!(check(root.path()).inodes, 3501);
}

/// Folders far deeper than are held open, with something on every level before and after the way down.
fn deep_tree(levels: usize) -> (TempDir, PathBuf) {
    let root = tree(&[]);
    let mut path = root.path().to_path_buf();
    for level in 0..levels {
        fs::write(path.join("file"), vec![1; level % 5000]).expect("a file");
        for name in ["a", "m", "z"] {
            fs::create_dir(path.join(name)).expect("a folder");
        }
        fs::write(path.join("z/more"), "more").expect("a file");
        path.push("m");
    }
    (root, path)
}

#[test]
fn deeper_than_folders_are_held_open_nothing_is_lost() {
    let (root, _) = deep_tree(OPEN * 3);
    let walked = check(root.path());
    assert_eq!(walked.inodes, 1 + OPEN as u64 * 3 * 5);
}

#[test]
fn what_is_no_folder_is_refused() {
    let root = tree(&[("file", 1)]);
    let at = |path: &str| root.path().join(path);
    symlink(root.path(), at("link")).expect("a link");
    let refused = |path: &str| walk(&at(path), LIMITS, &AtomicBool::new(false)).expect_err(path);
    assert_eq!(refused("none").label(), "missing");
    assert_eq!(refused("file").label(), "not-a-folder");
    assert_eq!(refused("link").label(), "not-a-folder");
}

#[test]
fn a_walk_can_be_stopped_and_says_so() {
    let root = tree(&[("a", 1), ("b/c", 1)]);
    for number in 0..600 {
        fs::write(root.path().join(format!("b/{number}")), "").expect("a file");
    }
    let stop = AtomicBool::new(true);
    let walked = walk(root.path(), LIMITS, &stop).expect("a folder");
    assert_eq!(walked.gaps.stopped, Some(Stopped::Cancelled));
    assert!(
        walked.gaps.is_partial() && walked.inodes < 600,
        "{walked:?}"
    );
    stop.store(false, Ordering::Relaxed);
    let limits = WalkLimits {
        within: Duration::ZERO,
        ..LIMITS
    };
    let walked = walk(root.path(), limits, &stop).expect("a folder");
    assert_eq!(walked.gaps.stopped, Some(Stopped::Deadline));
}

#[test]
fn a_stop_that_comes_after_the_last_entry_cuts_nothing_off() {
    let root = tree(&[("a", 1)]);
    let walked = walk(root.path(), LIMITS, &AtomicBool::new(true)).expect("a folder");
    assert_eq!((walked.inodes, walked.gaps.stopped), (2, None));
}

#[test]
fn it_keeps_to_its_pace() {
    let root = tree(&[]);
    for number in 0..2000 {
        fs::write(root.path().join(number.to_string()), "").expect("a file");
    }
    let limits = WalkLimits {
        pace: Pace {
            cpu_percent: 10,
            entries_per_second: 0,
        },
        ..LIMITS
    };
    let walked = walk(root.path(), limits, &AtomicBool::new(false)).expect("a folder");
    assert!(walked.cpu * 9 <= walked.took, "{walked:?}");
    let limits = WalkLimits {
        pace: Pace {
            cpu_percent: 100,
            entries_per_second: 20_000,
        },
        ..LIMITS
    };
    let walked = walk(root.path(), limits, &AtomicBool::new(false)).expect("a folder");
    assert!(walked.took >= Duration::from_millis(95), "{walked:?}");
}

/// A walk whose first folder has been listed, so that what waits to be visited can be changed.
fn listed(root: &Path) -> Walk {
    let dir = open(root).expect("a folder");
    let stat = rustix::fs::fstat(&dir).expect("a folder");
    let mut walk = Walk {
        tally: Tally::new(stat.st_dev),
        frames: vec![Frame::new(dir, stat.st_ino)],
        waiting: 0,
    };
    walk.tally.count(&stat);
    let stop = AtomicBool::new(false);
    let mut pacer = Pacer::new(LIMITS.pace, LIMITS.within, &stop);
    walk.list(&mut vec![MaybeUninit::uninit(); ENTRIES], &mut pacer)
        .expect("not stopped");
    walk
}

fn finish(walk: &mut Walk) {
    let stop = AtomicBool::new(false);
    let mut pacer = Pacer::new(LIMITS.pace, LIMITS.within, &stop);
    walk.run(&mut pacer).expect("not stopped");
}

#[test]
fn a_folder_that_became_a_link_is_not_followed() {
    let outside = tree(&[("large", 1 << 20)]);
    let root = tree(&[("a/file", 1)]);
    let mut walk = listed(root.path());
    fs::remove_dir_all(root.path().join("a")).expect("removed");
    symlink(outside.path(), root.path().join("a")).expect("a link");
    finish(&mut walk);
    assert_eq!(
        (walk.tally.bytes(), walk.tally.inodes()),
        expected(root.path())
    );
    assert!(walk.tally.gaps.is_exact());
}

#[test]
fn what_went_or_became_a_file_is_no_gap() {
    let root = tree(&[("a/file", 1), ("b/file", 1)]);
    let mut walk = listed(root.path());
    fs::remove_dir_all(root.path().join("a")).expect("removed");
    fs::remove_dir_all(root.path().join("b")).expect("removed");
    fs::write(root.path().join("b"), "a file").expect("a file");
    finish(&mut walk);
    assert_eq!(walk.tally.inodes(), 2);
    assert!(walk.tally.gaps.is_exact());
}

#[test]
fn a_way_back_that_leads_elsewhere_is_told() {
    let (root, deepest) = deep_tree(OPEN + 20);
    let elsewhere = tree(&[]);
    let mut walk = listed(root.path());
    let stop = AtomicBool::new(false);
    let mut pacer = Pacer::new(LIMITS.pace, LIMITS.within, &stop);
    let mut buffer = vec![MaybeUninit::uninit(); ENTRIES];
    // Down the way of the letter m, whatever else waits.
    while walk.frames.len() < OPEN + 20 {
        walk.descend(c"m");
        walk.list(&mut buffer, &mut pacer).expect("not stopped");
        let names = &mut walk.frames.last_mut().expect("a folder").names;
        *names = names
            .split_inclusive(|byte| *byte == 0)
            .filter(|name| *name != b"m\0")
            .flatten()
            .copied()
            .collect();
    }
    // Its tenth folder is moved out of the tree while its own is closed.
    let tenth = deepest.ancestors().nth(OPEN + 10).expect("an ancestor");
    fs::rename(tenth, elsewhere.path().join("moved")).expect("same filesystem");
    finish(&mut walk);
    assert!(walk.tally.gaps.unread > 0 && walk.tally.gaps.is_partial());
    assert_eq!(walk.tally.gaps.first_error, Some(Errno::STALE));
}

#[test]
fn names_are_taken_from_the_last_to_the_first() {
    let root = tree(&[]);
    let mut frame = Frame::new(open(root.path()).expect("a folder"), 1);
    frame.names = b"a\0bc\0d\0".to_vec();
    assert_eq!(frame.next_name().as_deref(), Some(c"d"));
    assert_eq!(frame.next_name().as_deref(), Some(c"bc"));
    assert_eq!(frame.next_name().as_deref(), Some(c"a"));
    assert_eq!(frame.next_name(), None);
}

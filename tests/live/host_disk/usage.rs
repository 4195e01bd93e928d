//! What folders use by whatever way costs least: which way is taken, and when the last answer stands no more.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use brink_host::disk::{DiskError, Folder, Method, Pace, Usage, UsageMeter, UsageSettings};
use brink_tests::{OwnDisk, skip};

use crate::feed::{changed, feed};
use crate::{disk, inode};

pub(crate) fn meter(trust: Duration) -> UsageMeter {
    UsageMeter::new(UsageSettings {
        pace_with_feed: Pace::UNBOUNDED,
        pace_without_feed: Pace::UNBOUNDED,
        trust,
        ..UsageSettings::default()
    })
}

pub(crate) fn measure(
    meter: &mut UsageMeter,
    folder: &Folder,
    now: Instant,
) -> Result<Usage, DiskError> {
    meter.measure(folder, now, &AtomicBool::new(false))
}

pub(crate) fn folder(path: &Path) -> Folder {
    Folder {
        path: path.to_path_buf(),
        quota: true,
        written_directly: true,
    }
}

#[test]
fn a_second_look_is_cheap_until_something_grows() {
    const FILES: usize = 20_000;
    let (_place, disk) = match disk(128) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    if let Err(why) = feed(&disk) {
        skip!("{why}");
    }
    let path = disk.place().join("volume");
    for number in 0..FILES {
        let folder = path.join((number % 50).to_string());
        if number < 50 {
            fs::create_dir_all(&folder).unwrap();
        }
        File::create(folder.join(number.to_string())).unwrap();
    }
    let mut growing = File::options()
        .append(true)
        .open(path.join("7/57"))
        .unwrap();
    let (now, mut meter) = (Instant::now(), meter(Duration::from_mins(1)));
    let spec = folder(&path);
    let first = measure(&mut meter, &spec, now).unwrap();
    assert_eq!(
        (first.method, first.inodes),
        (Method::Walk, FILES as u64 + 51)
    );
    let second = measure(&mut meter, &spec, now).unwrap();
    assert_eq!(
        (second.method, second.bytes),
        (Method::Unchanged, first.bytes)
    );
    assert!(second.took * 10 < first.took, "{first:?} {second:?}");

    growing.write_all(&vec![1; 1 << 20]).unwrap();
    let grown = measure(&mut meter, &spec, now).unwrap();
    assert_eq!((grown.method, grown.inodes), (Method::Walk, first.inodes));
    assert!(
        grown.bytes >= first.bytes + (1 << 20),
        "{first:?} {grown:?}"
    );
    // Closed, which a writer by a mapping would be seen by.
    drop(growing);
    assert_eq!(
        measure(&mut meter, &spec, now).unwrap().method,
        Method::Walk
    );
    assert_eq!(
        measure(&mut meter, &spec, now).unwrap().method,
        Method::Unchanged
    );
    let later = now + Duration::from_mins(2);
    assert_eq!(
        measure(&mut meter, &spec, later).unwrap().method,
        Method::Walk
    );

    // Another folder in its place.
    fs::rename(&path, disk.place().join("old")).unwrap();
    fs::create_dir(&path).unwrap();
    let other = measure(&mut meter, &spec, later).unwrap();
    assert_eq!((other.method, other.inodes), (Method::Walk, 1));
    assert_eq!(
        measure(&mut meter, &spec, later).unwrap().method,
        Method::Unchanged
    );

    let (feeds, counts) = meter.feeds();
    assert!(
        feeds == 1 && counts.events > 0 && counts.lost == 0,
        "{counts:?}"
    );
    meter.retain(|_| false);
    assert_eq!(meter.feeds().0, 0, "nobody is left to listen for");
}

#[test]
fn while_a_walk_takes_its_time_what_the_kernel_tells_is_read() {
    let (_place, disk) = match disk(32) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    if let Err(why) = feed(&disk) {
        skip!("{why}");
    }
    let (slow, other) = (disk.place().join("slow"), disk.place().join("other"));
    fs::create_dir(&slow).unwrap();
    fs::create_dir(&other).unwrap();
    for number in 0..2048 {
        File::create(slow.join(number.to_string())).unwrap();
    }
    let mut meter = UsageMeter::new(UsageSettings {
        // Four seconds for the slow one.
        pace_with_feed: Pace {
            cpu_percent: 100,
            entries_per_second: 512,
        },
        ..UsageSettings::default()
    });
    let (now, slow, quiet) = (Instant::now(), folder(&slow), folder(&other));
    let first = measure(&mut meter, &quiet, now).unwrap();
    let second = measure(&mut meter, &quiet, now).unwrap();
    assert_eq!(
        (first.method, second.method),
        (Method::Walk, Method::Unchanged)
    );
    meter.watch(&slow, now).unwrap();
    meter.listen();
    let before = meter.feeds().1.events;
    let walk = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            fs::write(other.join("file"), "changed").unwrap();
        });
        measure(&mut meter, &slow, now).unwrap()
    });
    assert!(walk.took >= Duration::from_secs(3), "{walk:?}");
    let counts = meter.feeds().1;
    assert!(counts.events > before && counts.lost == 0, "{counts:?}");
    let third = measure(&mut meter, &quiet, now).unwrap();
    assert_eq!(third.method, Method::Walk, "it has changed");
}

#[test]
fn a_file_with_a_name_elsewhere_is_never_answered_from_memory() {
    let (_place, disk) = match disk(32) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    if let Err(why) = feed(&disk) {
        skip!("{why}");
    }
    let (path, elsewhere) = (disk.place().join("volume"), disk.place().join("elsewhere"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("file"), "").unwrap();
    fs::hard_link(path.join("file"), &elsewhere).unwrap();
    let (now, mut meter) = (Instant::now(), meter(Duration::from_mins(1)));
    let spec = folder(&path);
    let first = measure(&mut meter, &spec, now).unwrap();
    fs::write(&elsewhere, vec![1; 1 << 20]).unwrap();
    let second = measure(&mut meter, &spec, now).unwrap();
    assert!(
        second.bytes >= first.bytes + (1 << 20),
        "{first:?} {second:?}"
    );
}

#[test]
fn a_filesystem_that_was_mounted_anew_is_listened_to_anew() {
    if let Err(why) = OwnDisk::own_mounts() {
        skip!("{why}");
    }
    let place = tempfile::tempdir().unwrap();
    let mount = || OwnDisk::mount("tmpfs", place.path(), "size=1m,mode=0700");
    let disk = match mount() {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    if let Err(why) = feed(&disk) {
        skip!("{why}");
    }
    let (now, mut meter) = (Instant::now(), meter(Duration::from_mins(1)));
    let spec = folder(place.path());
    let mut methods = |expected: &[Method]| {
        for method in expected {
            assert_eq!(measure(&mut meter, &spec, now).unwrap().method, *method);
        }
    };
    methods(&[Method::Walk, Method::Unchanged]);
    drop(disk);
    let disk = mount().unwrap();
    methods(&[Method::Walk, Method::Unchanged]);
    fs::write(disk.place().join("file"), "grown").unwrap();
    methods(&[Method::Walk, Method::Unchanged]);
}

/// Whether the filesystem below tells of it depends on the kernel: the reason why `written_directly` is there.
#[test]
fn writes_through_an_overlay_are_walked_for() {
    let (_place, disk) = match disk(32) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let mut feed = match feed(&disk) {
        Ok(feed) => feed,
        Err(why) => skip!("{why}"),
    };
    let at = |path: &str| disk.place().join(path);
    let _overlay = match OwnDisk::overlay(disk.place()) {
        Ok(overlay) => overlay,
        Err(why) => skip!("{why}"),
    };
    let mut file = File::create(at("merged/file")).unwrap();
    feed.watch(inode(&at("upper")));
    feed.drain();
    feed.take(inode(&at("upper")));
    let (now, mut meter) = (Instant::now(), meter(Duration::from_mins(1)));
    let layer = Folder {
        written_directly: false,
        ..folder(&at("upper"))
    };
    let first = measure(&mut meter, &layer, now).unwrap();
    file.write_all(&vec![1; 1 << 20]).unwrap();
    let told = changed(&mut feed, &[&at("upper")]);
    println!("told by the filesystem below: {told:?}");
    let second = measure(&mut meter, &layer, now).unwrap();
    assert_eq!(second.method, Method::Walk);
    assert!(
        second.bytes >= first.bytes + (1 << 20),
        "{first:?} {second:?}"
    );
}

//! What the walk of a million files costs, and a second look at them.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use brink_host::disk::walk::walk;
use brink_host::disk::{Method, UsageMeter, UsageSettings};
use brink_tests::{OwnDisk, skip};
use tempfile::TempDir;

use crate::LIMITS;
use crate::feed::feed;
use crate::usage::{folder, measure};

/// Resident memory at its highest since it was reset, bytes.
fn highest_resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib << 10
}

/// What a walk adds to resident memory at most, bytes.
fn memory_of<T>(act: impl FnOnce() -> T) -> (u64, T) {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = highest_resident();
    let result = act();
    (highest_resident() - before, result)
}

const MOST_MEMORY: u64 = 16 << 20;

/// So many entries in folders of a thousand, on a tmpfs of its own: about a gibibyte of kernel memory for a million.
fn many(
    entries: u32,
    make: impl Fn(u32, &Path) -> std::io::Result<()>,
) -> Result<(TempDir, OwnDisk), String> {
    OwnDisk::own_mounts()?;
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let disk = OwnDisk::mount(
        "tmpfs",
        place.path(),
        "size=64m,nr_inodes=1100000,mode=0700",
    )?;
    for number in 0..entries {
        let folder = disk.place().join((number / 1000).to_string());
        if number % 1000 == 0 {
            fs::create_dir(&folder).map_err(|error| error.to_string())?;
        }
        make(number, &folder.join(number.to_string())).map_err(|error| error.to_string())?;
    }
    Ok((place, disk))
}

#[test]
#[ignore = "slow: a minute, at the pace of a walk"]
fn a_million_files_cost_little_and_a_second_look_a_fraction() {
    let made = many(1_000_000, |_, path| File::create(path).map(drop));
    let (_place, disk) = match made {
        Ok(made) => made,
        Err(why) => skip!("{why}"),
    };
    if let Err(why) = feed(&disk) {
        skip!("{why}");
    }
    let mut meter = UsageMeter::new(UsageSettings::default());
    let (spec, now) = (folder(disk.place()), Instant::now());
    let cpu = brink_host::clock::thread_cpu;
    let before = cpu();
    let (memory, first) = memory_of(|| measure(&mut meter, &spec, now).unwrap());
    let first_cpu = cpu().saturating_sub(before);
    let share = first_cpu.as_secs_f64() / first.took.as_secs_f64();
    let before = cpu();
    let second = measure(&mut meter, &spec, now).unwrap();
    let second_cpu = cpu().saturating_sub(before);
    println!(
        "first: {:?}, {first_cpu:?} on a processor, {:.2} % of a core, {memory} bytes; second: {:?}, {second_cpu:?} on a processor",
        first.took,
        share * 100.0,
        second.took
    );
    assert_eq!((first.method, first.inodes), (Method::Walk, 1_001_001));
    assert!(first.gaps.is_exact() && share <= 0.05 && memory <= MOST_MEMORY);
    assert_eq!(
        (second.method, second.inodes),
        (Method::Unchanged, 1_001_001)
    );
    assert!(second_cpu * 10 < first_cpu && second.took * 10 < first.took);
}

#[test]
#[ignore = "slow: half a million files"]
fn links_that_do_not_fit_in_memory_count_by_their_share() {
    let made = many(1_000_000, |number, path| {
        // The second link of a file comes as late as can be.
        match number.checked_sub(500_000) {
            None => File::create(path).map(drop),
            Some(first) => {
                let folder = path.parent().and_then(Path::parent).unwrap();
                fs::hard_link(folder.join(format!("{}/{first}", first / 1000)), path)
            }
        }
    });
    let (_place, disk) = match made {
        Ok(made) => made,
        Err(why) => skip!("{why}"),
    };
    let (memory, walked) =
        memory_of(|| walk(disk.place(), LIMITS, &AtomicBool::new(false)).unwrap());
    println!(
        "{memory} bytes, {:?}, {:?} on a processor",
        walked.took, walked.cpu
    );
    assert_eq!(walked.inodes, 501_001);
    assert!(walked.gaps.by_share > 0 && !walked.gaps.is_partial() && memory <= MOST_MEMORY);
}

//! What the measurement of a folder with very many files costs, and a second look at it when nothing has changed.
//!
//! The files are on a tmpfs of the benchmark's own, in a name space of mounts of its own: walking them waits for no disk, so
//! that the share of a core is the largest that it can be.
use std::{
    fs::{self, File},
    path::Path,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use brink_host::{
    clock::thread_cpu,
    disk::{Folder, Method, UsageMeter, UsageSettings},
    meminfo::MeminfoReader,
};
use brink_tests::OwnDisk;

use super::super::registry::{Measured, Outcome, Settings};
use super::refusal;
use super::units::{mebibytes, signed};

const FIRST: &str = "first look, share of a core";
const MEMORY: &str = "first look, memory";
const SECOND: &str = "second look, processor time against the first";
/// Files of the two forms, in folders of a thousand.
const FILES: (u32, u32) = (20_000, 1_000_000);
/// The kernel's memory for a file and its name, more than it takes, bytes.
const A_FILE: u64 = 2048;

pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = refusal() {
        return Ok(refusal);
    }
    let files = if settings.short { FILES.0 } else { FILES.1 };
    let needed = u64::from(files) * A_FILE;
    let available = MeminfoReader::open(Path::new("/"))?.read()?.available;
    if available.is_none_or(|available| available < 2 * needed) {
        let reason = format!("needs {} MiB of memory twice over", needed >> 20);
        return Ok(Measured::Skipped { reason });
    }
    // A thread has a name space of mounts of its own; the others keep theirs.
    let measured = thread::spawn(move || measure(files)).join();
    measured.map_err(|_| anyhow::anyhow!("the measuring thread has died"))?
}

pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    let case = case(settings.short);
    outcome.limit_median(&case, FIRST, settings.figure(10.0, 5.0));
    outcome.limit_median(&case, MEMORY, 16.0);
    outcome.limit_median(&case, SECOND, 10.0);
}

fn case(short: bool) -> String {
    let files = if short { FILES.0 } else { FILES.1 };
    format!("{files} files")
}

fn measure(files: u32) -> anyhow::Result<Measured> {
    let skipped = |reason: String| Ok(Measured::Skipped { reason });
    if let Err(why) = OwnDisk::own_mounts() {
        return skipped(why);
    }
    let place = tempfile::tempdir()?;
    let options = format!("size=64m,nr_inodes={},mode=0700", files + files / 10);
    let disk = match OwnDisk::mount("tmpfs", place.path(), &options) {
        Ok(disk) => disk,
        Err(why) => return skipped(why),
    };
    fill(disk.place(), files)?;
    let folder = Folder {
        path: disk.place().to_path_buf(),
        quota: false,
        written_directly: true,
    };
    let mut meter = UsageMeter::new(UsageSettings::default());
    let stop = AtomicBool::new(false);
    fs::write("/proc/self/clear_refs", "5").context("the peak of memory cannot be reset")?;
    let before = (highest_resident()?, thread_cpu());
    let first = meter.measure(&folder, Instant::now(), &stop)?;
    let first_cpu = thread_cpu().saturating_sub(before.1);
    let memory = highest_resident()?.saturating_sub(before.0);
    if meter.feeds().0 == 0 {
        let why = meter.without_feed().next().map(|(_, why)| why);
        return skipped(why.unwrap_or_else(|| "no change feed".to_owned()));
    }
    let before = thread_cpu();
    let second = meter.measure(&folder, Instant::now(), &stop)?;
    let second_cpu = thread_cpu().saturating_sub(before);
    let whole = u64::from(files + files.div_ceil(1000)) + 1;
    ensure!(
        first.inodes == whole && first.gaps.is_exact() && second.inodes == whole,
        "not all files were counted: {first:?}, {second:?}"
    );
    ensure!(second.method == Method::Unchanged, "walked again");
    let mut outcome = Outcome::default();
    let case = format!("{files} files");
    outcome.add(&case, FIRST, "%", vec![percent(first_cpu, first.took)]);
    outcome.add(&case, MEMORY, "MiB", vec![mebibytes(signed(memory))]);
    outcome.add(&case, SECOND, "%", vec![percent(second_cpu, first_cpu)]);
    outcome.notes.push(format!(
        "the first look took {:.1} s",
        first.took.as_secs_f64()
    ));
    Ok(Measured::Ran(outcome))
}

fn percent(part: Duration, of: Duration) -> f64 {
    100.0 * part.as_secs_f64() / of.as_secs_f64().max(1e-9)
}

fn fill(place: &Path, files: u32) -> anyhow::Result<()> {
    for number in 0..files {
        let folder = place.join((number / 1000).to_string());
        if number % 1000 == 0 {
            fs::create_dir(&folder)?;
        }
        File::create(folder.join(number.to_string()))?;
    }
    Ok(())
}

/// Resident memory at its highest since it was reset, bytes.
fn highest_resident() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib << 10).context("no VmHWM")
}

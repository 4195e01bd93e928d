//! How far a filler gets past a threshold on a filesystem before the node begins to give back what it can.
//!
//! The filesystem is an ext4 of the benchmark's own, in a name space of mounts of its own. The filler asks it for space without
//! writing (`fallocate`), at a steady rate that no disk below has to keep up with, and knows itself when the threshold was passed.
use std::{
    fs::File,
    path::Path,
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use brink::control::http;
use brink_host::clock::monotonic_ns;
use brink_stream::model::{
    data::{NodeReclaim, ReclaimPhase},
    event::Event,
};
use brink_tests::{OwnDisk, wait_until};
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use super::super::{
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
};
use super::{
    agent::{Agent, Setup},
    arena::Arena,
    refusal,
    units::{MIB, between, mebibytes, millis, signed},
};

/// Size of the filesystem, and what is to be left of it, in MiB.
const DISK: u64 = 1024;
const THRESHOLD: u64 = 300;
/// The filler goes on so far behind the threshold, in MiB.
const BEHIND: u64 = 120;
/// So much at a time, in bytes.
const STEP: u64 = MIB / 4;
const PATIENCE: Duration = Duration::from_secs(20);
/// However much was used at once before a run, nobody reckons with it any more after so long.
const QUIET: Duration = Duration::from_secs(2);
/// A filler begins up to so much later.
const PHASE_NS: u64 = 100_000_000;

const PASSED: &str = "past the threshold when reclaim starts";
const DELAY: &str = "crossing to the start of reclaim";
const UNSEEN: &str = "crossings without a reclaim";

/// A filler.
struct Case {
    name: &'static str,
    /// MiB a second.
    rate: u64,
    /// How far above the threshold it begins, in MiB.
    above: u64,
    /// The period that the filesystem is looked at by when it crosses, in milliseconds.
    period: f64,
    /// Whether the short form has it.
    short: bool,
}

/// Whoever comes from afar is looked at every 5 ms by then; from near by the filesystem was at rest until a moment before.
const CASES: [Case; 4] = [
    Case {
        name: "500 MiB/s from 400 MiB above",
        rate: 500,
        above: 400,
        period: 5.0,
        short: true,
    },
    Case {
        name: "500 MiB/s from 20 MiB above",
        rate: 500,
        above: 20,
        period: 50.0,
        short: true,
    },
    Case {
        name: "64 MiB/s from 128 MiB above",
        rate: 64,
        above: 128,
        period: 5.0,
        short: false,
    },
    Case {
        name: "64 MiB/s from 20 MiB above",
        rate: 64,
        above: 20,
        period: 50.0,
        short: false,
    },
];

pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = refusal() {
        return Ok(refusal);
    }
    let settings = *settings;
    // A thread has a name space of mounts of its own, and so has the agent that it starts; the others keep theirs.
    let measured = thread::spawn(move || measure(&settings)).join();
    measured.map_err(|_| anyhow::anyhow!("the measuring thread has died"))?
}

pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    for case in cases(settings) {
        outcome.limit_tail(case.name, PASSED, 64.0);
        // The look that sees it comes within a period; then the guard decides, and another thread begins.
        outcome.limit_tail(case.name, DELAY, settings.time(case.period + 5.0));
        outcome.limit_sum(case.name, UNSEEN, 0.0);
    }
}

fn cases(settings: &Settings) -> impl Iterator<Item = &'static Case> {
    let short = settings.short;
    CASES.iter().filter(move |case| case.short || !short)
}

fn measure(settings: &Settings) -> anyhow::Result<Measured> {
    let skipped = |reason: String| Ok(Measured::Skipped { reason });
    if let Err(why) = OwnDisk::own_mounts() {
        return skipped(why);
    }
    let place = tempfile::tempdir()?;
    let disk = match OwnDisk::ext4(place.path(), DISK, &["-m", "0"]) {
        Ok(disk) => disk,
        Err(why) => return skipped(why),
    };
    let arena = Arena::new(512 * MIB, 0)?;
    let agent = Agent::start(Setup {
        nodefs: Some(disk.place().to_path_buf()),
        ..Setup::of(&arena)
    })?;
    agent.arm(&[("nodefs.available", THRESHOLD * MIB)])?;
    let mut random = SplitMix64::new(settings.seed);
    let mut outcome = Outcome::default();
    for case in cases(settings) {
        let mut found = Vec::new();
        for _ in 0..settings.runs(2, 30) {
            found.push(fill(disk.place(), &agent, case, &mut random)?);
        }
        let seen = || found.iter().flatten();
        let passed = seen().map(|one| mebibytes(one.passed)).collect();
        outcome.add(case.name, PASSED, "MiB", passed);
        let delay = seen().map(|one| millis(one.delay)).collect();
        outcome.add(case.name, DELAY, "ms", delay);
        let unseen = found.iter().map(|one| f64::from(u8::from(one.is_none())));
        outcome.add(case.name, UNSEEN, "", unseen.collect());
    }
    outcome.notes.push(format!(
        "an ext4 of {DISK} MiB with a threshold of {THRESHOLD} MiB on nodefs.available; no container runtime, so that a reclaim \
         begins and finds nothing"
    ));
    Ok(Measured::Ran(outcome))
}

/// What was seen of one filler.
struct Found {
    /// Bytes.
    passed: i64,
    /// Nanoseconds.
    delay: i64,
}

/// Fills the filesystem past the threshold; none if nobody has begun to reclaim.
fn fill(
    place: &Path,
    agent: &Agent,
    case: &Case,
    random: &mut SplitMix64,
) -> anyhow::Result<Option<Found>> {
    let path = place.join("filler");
    let file = File::create(&path).context("the filler's file")?;
    wait_met(agent, false)?;
    let base = left(&file)?.checked_sub((THRESHOLD + case.above) * MIB);
    let base = base.context("the filesystem is too small")?;
    fallocate(&file, FallocateFlags::empty(), 0, base)?;
    sleep(QUIET + Duration::from_nanos(random.below(PHASE_NS)));
    ensure!(!is_met(agent)?, "the threshold is met before anybody fills");
    let began = monotonic_ns();
    let samples = grow(&file, base, case)?;
    wait_met(agent, true)?;
    let at = wait_until(PATIENCE, || reclaim_since(agent, began).ok().flatten());
    drop(file);
    std::fs::remove_file(&path)?;
    let Some(at) = at else { return Ok(None) };
    let threshold = THRESHOLD * MIB;
    let crossed = samples.iter().find(|sample| sample.left < threshold);
    let crossed = crossed.context("the filler has not crossed")?.at;
    let then = samples.iter().rfind(|sample| sample.at <= at);
    let then = then.map_or(threshold, |sample| sample.left);
    Ok(Some(Found {
        passed: signed(threshold) - signed(then),
        delay: between(crossed, at),
    }))
}

/// What was left at a moment (nanoseconds of `CLOCK_MONOTONIC`).
struct Sample {
    at: u64,
    left: u64,
}

fn grow(file: &File, base: u64, case: &Case) -> anyhow::Result<Vec<Sample>> {
    let steps = (case.above + BEHIND) * MIB / STEP;
    let pause = Duration::from_secs(1) / u32::try_from(case.rate * (MIB / STEP))?;
    let began = Instant::now();
    let mut samples = Vec::new();
    for step in 1..=u32::try_from(steps)? {
        fallocate(
            file,
            FallocateFlags::empty(),
            0,
            base + u64::from(step) * STEP,
        )?;
        samples.push(Sample {
            at: monotonic_ns(),
            left: left(file)?,
        });
        sleep((pause * step).saturating_sub(began.elapsed()));
    }
    Ok(samples)
}

/// Bytes that are left, as the agent reckons them.
fn left(file: &File) -> anyhow::Result<u64> {
    let stat = fstatvfs(file)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn is_met(agent: &Agent) -> anyhow::Result<bool> {
    let status = agent.status()?;
    let mut known = status.thresholds.iter();
    let known = known.find(|one| one.signal == "nodefs.available");
    Ok(known.context("no threshold on nodefs")?.met)
}

fn wait_met(agent: &Agent, met: bool) -> anyhow::Result<()> {
    let is_so = || (is_met(agent).ok()? == met).then_some(());
    let known = wait_until(PATIENCE, is_so);
    known.with_context(|| format!("the threshold is not met: {}\n{}", !met, agent.log()))
}

/// When the first reclaim since a moment began.
fn reclaim_since(agent: &Agent, since: u64) -> anyhow::Result<Option<u64>> {
    let answer = http::get(&agent.events(), "/v1/events?kind=node-reclaim")?;
    let text = answer.text()?;
    for line in text.lines() {
        let event: Event = serde_json::from_str(line)?;
        let reclaim: NodeReclaim = serde_json::from_str(event.data.get())?;
        let at = u64::try_from(event.at.monotonic_ns)?;
        if at >= since && matches!(reclaim.phase, ReclaimPhase::Started) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

//! One run: a contender, a load, and what the judge saw of both.
use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink_host::{
    clock::monotonic_ns,
    hog::{HogSpec, Load as Kind},
};

use super::{
    Ground,
    bystanders::Bystanders,
    load::Load,
    pods::{Pod, resident},
    tool::{self, Terms, Tool},
    verdict::{self, Evidence},
};
use crate::bench::{
    measure::units::{MIB, between, signed},
    peers::{
        contender::{Contender, LIMIT, Signal},
        judge::Aim,
        wire::{Found, Run},
        workload::Workload,
    },
    random::SplitMix64,
};

/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Longest time for a load that has to be answered. The kubelet looks every 10 s.
const PATIENCE: Duration = Duration::from_secs(40);
/// What is waited for after the kernel has killed, and after everything is over.
const AFTER_OOM: Duration = Duration::from_secs(3);
const AFTER_END: Duration = Duration::from_secs(2);
/// How long a quiet load runs.
const QUIET: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(15);
/// How far a quiet load stays from the limit.
const MARGIN: u64 = 32 * MIB;
/// A load that grows begins so many milliseconds before the limit, but not nearer than this: whatever others take meanwhile,
/// it is further beyond its request than anybody else when the limit is crossed.
const RUN_UP_MS: u64 = 1500;
const NEAREST: u64 = 64 * MIB;
/// The start is put off by up to this, so that no phase of a poll is met more often than another.
const PHASE: Duration = Duration::from_secs(1);

/// What stands ready for a run.
struct Stage {
    /// Makes the way to the limit shorter.
    _ballast: Option<Load>,
    loads: Vec<Load>,
    rate: Option<u64>,
    /// What the loads are to take.
    bytes: u64,
}

/// Plays a run.
pub(super) fn play(ground: &mut Ground, run: &Run) -> anyhow::Result<Found> {
    let mut random = SplitMix64::new(run.seed);
    let mut draw = |most: Duration| -> anyhow::Result<Duration> {
        let nanos = u64::try_from(most.as_nanos())?;
        Ok(Duration::from_nanos(random.below(nanos)))
    };
    let (phase, look) = (draw(PHASE)?, draw(Duration::from_secs(10))?);
    ground.pods.settle()?;
    let terms = Terms::now(&mut ground.judge, look)?;
    let mut tool = Tool::start(run.contender, &terms)?;
    let mut stage = stage(ground, run)?;
    let memory = tool.as_ref().and_then(|_| Tool::memory());
    let before = oom_kills()?;
    let bystanders = Bystanders::read(Path::new("/proc"))?;
    ground.judge.aim(Aim {
        limits: [signed(LIMIT); 3],
        pods_may: signed(terms.pods),
        share: signed(terms.earlyoom * 1024),
    })?;
    sleep(phase);
    let pulse = Pulse::start();
    let (began, cpu) = (monotonic_ns(), Tool::cpu());
    stage.loads.iter_mut().for_each(Load::start);
    let lasted = watch(ground, run, &mut stage, before)?;
    let cpu = cpu.zip(Tool::cpu()).map(|(before, after)| after - before);
    let stall = pulse.finish();
    let shots = ground.judge.shots()?;
    let mut found = Found {
        rate: stage.rate,
        taken: taken(run.workload, &stage)?,
        stall,
        memory,
        ..Found::of(run)
    };
    found.cpu = cpu.map(|cpu| [cpu, between(began, monotonic_ns())]);
    let evidence = Evidence {
        began,
        crossings: ground.judge.crossings()?,
        shots: &shots,
        bystanders: &bystanders,
    };
    verdict::judge(run.contender, &evidence, &mut found);
    if run.contender == Contender::Brink {
        tell_decisions(began, &mut found)?;
    }
    found.oom_victims = usize::try_from(oom_kills()? - before)?;
    anyhow::ensure!(
        verdict::has_shown(&found, &shots),
        "the load never came to the limit, or a quiet one took too little ({:?}): {}",
        found.taken,
        loads_log()
    );
    if lasted >= PATIENCE && !found.quiet && found.crossed && shots.is_empty() {
        found
            .notes
            .push(format!("nobody acted in {} s", PATIENCE.as_secs()));
    }
    if tool.as_mut().is_some_and(Tool::is_over) {
        found.notes.push(format!("it ended: {}", tool::log()));
    }
    drop((stage, tool));
    clear()?;
    Ok(found)
}

/// The stages of the agent's first decision; and what it decided on, where the run does not explain itself.
fn tell_decisions(began: u64, found: &mut Found) -> anyhow::Result<()> {
    let decisions = tool::decisions(began)?;
    found.stages = decisions
        .first()
        .map(|record| tool::stages(record, began))
        .unwrap_or_default();
    if decisions.len() > 1 || found.is_unseen() {
        let told = decisions.iter().map(|record| tool::told(record, began));
        found.notes.extend(told);
    }
    Ok(())
}

/// Everything of a run but its start.
fn stage(ground: &mut Ground, run: &Run) -> anyhow::Result<Stage> {
    let rate = rate(ground, run.workload)?;
    let own = match run.contender.signal() {
        // Of the pods' usage there is no amount that is left: what the kernel says stands for it.
        Signal::PodsUsage => Signal::Estimate,
        own => own,
    };
    let mut ballast = None;
    let values = ground.judge.values()?;
    let left = u64::try_from(values[own.place()]).unwrap_or(0);
    let room = left.saturating_sub(LIMIT);
    if !run.workload.is_quiet() {
        let way = rate.map_or(room, way_of);
        let spare = room.saturating_sub(way.max(NEAREST));
        if spare > 8 * MIB {
            ballast = Some(resident(Pod::Database, spare)?);
        }
    }
    let near = room.saturating_sub(MARGIN);
    let cached = 2 * room;
    let specs: Vec<(Pod, HogSpec)> = match run.workload {
        Workload::Idle => Vec::new(),
        Workload::Streaming => vec![quiet(Kind::CacheRead, 4 * LIMIT + 4 * room)],
        Workload::Again => vec![quiet(Kind::CacheChurn, cached)],
        Workload::Names => vec![quiet(Kind::Dentries, room / 2)],
        Workload::Near => vec![quiet(Kind::Anon, near)],
        Workload::Spikes => vec![quiet(Kind::AnonChurn, near)],
        Workload::Anon(_) => vec![loud(Pod::Leaker, Kind::Anon, rate)],
        Workload::Huge(_) => vec![loud(Pod::Leaker, Kind::AnonHuge, rate)],
        Workload::Shared(_) => vec![loud(Pod::Leaker, Kind::Shmem, rate)],
        Workload::Pipes(_) => vec![loud(Pod::Leaker, Kind::Pipes, rate)],
        Workload::ForkBomb => vec![loud(Pod::Leaker, Kind::ForkStorm, None)],
        Workload::Two => vec![
            loud(Pod::Leaker, Kind::Anon, rate),
            loud(Pod::Second, Kind::Anon, rate),
        ],
    };
    let loads: anyhow::Result<Vec<Load>> = specs
        .iter()
        .map(|(pod, spec)| Load::spawn(*pod, spec))
        .collect();
    Ok(Stage {
        _ballast: ballast,
        loads: loads?,
        rate,
        bytes: specs.iter().map(|(_, spec)| spec.bytes).sum(),
    })
}

/// Of a quiet load that does something: what it was to take, and what it took.
fn taken(workload: Workload, stage: &Stage) -> anyhow::Result<Option<[u64; 2]>> {
    if !workload.is_quiet() || stage.loads.is_empty() {
        return Ok(None);
    }
    let mut took: u64 = 0;
    for load in &stage.loads {
        took = took.saturating_add(load.progress()?.touched);
    }
    Ok(Some([stage.bytes, took]))
}

/// What a load of so many bytes a second takes from its start to the limit.
fn way_of(rate: u64) -> u64 {
    rate * RUN_UP_MS / 1000
}

fn loud(pod: Pod, kind: Kind, rate: Option<u64>) -> (Pod, HogSpec) {
    // More than there is.
    let spec = HogSpec::new(kind, 2048 * MIB, PATIENCE + Duration::from_secs(20));
    (pod, HogSpec { rate, ..spec })
}

fn quiet(kind: Kind, bytes: u64) -> (Pod, HogSpec) {
    let spec = HogSpec::new(kind, bytes, QUIET + Duration::from_secs(20));
    (Pod::Leaker, spec)
}

/// Bytes a second of each load.
fn rate(ground: &Ground, workload: Workload) -> anyhow::Result<Option<u64>> {
    let of = |kind: Kind, percent: u8| -> anyhow::Result<Option<u64>> {
        let most = ground.rates.get(kind.name());
        let most = most.with_context(|| format!("the rate of {kind} is not known"))?;
        Ok((percent < 100).then(|| (most * u64::from(percent) / 100).max(1)))
    };
    match workload {
        Workload::Anon(percent) => of(Kind::Anon, percent),
        Workload::Huge(percent) => of(Kind::AnonHuge, percent),
        Workload::Shared(percent) => of(Kind::Shmem, percent),
        Workload::Pipes(percent) => of(Kind::Pipes, percent),
        Workload::Two => of(Kind::Anon, 50),
        _ => Ok(None),
    }
}

/// Until the run is over; how long that took.
fn watch(
    ground: &Ground,
    run: &Run,
    stage: &mut Stage,
    oom_before: i64,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    if run.workload.is_quiet() {
        let time = if run.workload == Workload::Idle {
            IDLE
        } else {
            QUIET
        };
        while began.elapsed() < time {
            sleep(LOOK);
        }
        return Ok(began.elapsed());
    }
    let own = run.contender.signal();
    let limit = own.least(signed(LIMIT));
    let (mut oom_at, mut over_at) = (None, None);
    while began.elapsed() < PATIENCE {
        sleep(LOOK);
        let now = Instant::now();
        if oom_at.is_none() && oom_kills()? > oom_before {
            oom_at = Some(now);
        }
        let is_over = over(stage)?;
        if is_over && over_at.is_none() {
            over_at = Some(now);
        }
        let value = ground.judge.now()?[own.place()];
        let since = |at: Option<Instant>| at.map_or(Duration::ZERO, |at| now - at);
        let is_free = value >= limit && since(over_at) > 10 * LOOK;
        if since(oom_at) > AFTER_OOM || since(over_at) > AFTER_END || is_free {
            break;
        }
    }
    Ok(began.elapsed())
}

/// Whether nothing of the loads is left.
fn over(stage: &mut Stage) -> anyhow::Result<bool> {
    let ended = stage.loads.iter_mut().all(Load::is_over);
    Ok(ended && Pod::Leaker.processes()?.is_empty() && Pod::Second.processes()?.is_empty())
}

/// What the loads have said.
fn loads_log() -> String {
    let text = fs::read_to_string("/run/loads.log").unwrap_or_default();
    text.lines()
        .next_back()
        .unwrap_or("it said nothing")
        .to_owned()
}

/// Ends whatever is left in the pods that grow, and waits until it is gone.
fn clear() -> anyhow::Result<()> {
    for pod in [Pod::Leaker, Pod::Second] {
        fs::write(pod.folder().join("cgroup.kill"), "1")?;
        let began = Instant::now();
        while !pod.processes()?.is_empty() {
            anyhow::ensure!(
                began.elapsed() < Duration::from_secs(20),
                "{} is not empty",
                pod.name()
            );
            sleep(LOOK);
        }
    }
    Ok(())
}

/// Processes that the kernel has killed for want of memory since it was started.
fn oom_kills() -> anyhow::Result<i64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("oom_kill "));
    Ok(count.context("no oom_kill in /proc/vmstat")?.parse()?)
}

/// An ordinary thread that sleeps and looks how late it woke.
struct Pulse {
    stop: Arc<AtomicBool>,
    worst: Arc<AtomicI64>,
}

impl Pulse {
    const BEAT: Duration = Duration::from_millis(50);

    fn start() -> Self {
        let pulse = Self {
            stop: Arc::default(),
            worst: Arc::default(),
        };
        let (stop, worst) = (Arc::clone(&pulse.stop), Arc::clone(&pulse.worst));
        thread::spawn(move || {
            let mut last = monotonic_ns();
            while !stop.load(Ordering::Relaxed) {
                sleep(Self::BEAT);
                let now = monotonic_ns();
                worst.fetch_max(between(last, now), Ordering::Relaxed);
                last = now;
            }
        });
        pulse
    }

    /// The longest time between two beats, in nanoseconds.
    fn finish(self) -> i64 {
        self.stop.store(true, Ordering::Relaxed);
        self.worst.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_runs_for_a_second_and_a_half_to_the_limit() {
        assert_eq!(way_of(10 * MIB), 15 * MIB);
        assert_eq!(way_of(3), 4);
    }
}

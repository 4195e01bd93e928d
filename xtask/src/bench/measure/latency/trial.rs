//! One run: a threshold under what is available now, an allocator at full speed, and what was seen of it.
use std::{thread::sleep, time::Duration};

use anyhow::Context as _;
use brink::record::DecisionRecord;
use brink_host::{
    cgroup::owned::OwnedCgroup,
    clock::monotonic_ns,
    hog::{HogSpec, Load, Progress},
};
use brink_tests::Hog;
use rustix::process::Pid;

use super::{
    super::{
        poller::{Aim, Pace, Poller},
        programs,
        units::{MIB, between, signed},
        witness::{Excursion, Seen},
    },
    basis::{Act, Basis, Course, Disturbance, Disturbed, basis},
    scene::{Contender, LIMIT, Node, Scene},
};
use crate::bench::random::SplitMix64;

/// A run that says nothing is made again; it is tried so often at most.
const TRIES: usize = 5;
/// The start is put off by up to this, so that no contender's phase is met more often than another.
const PHASE_NS: u64 = 50_000_000;

/// How the memory comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pages {
    /// In pages of 4K.
    Base,
    /// In huge pages.
    Huge,
}

impl Pages {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Base => "4K",
            Self::Huge => "THP",
        }
    }

    /// From the start to the threshold: for huge pages more, since a fault takes 2 MiB at once.
    const fn way(self) -> u64 {
        match self {
            Self::Base => 300 * MIB,
            Self::Huge => 700 * MIB,
        }
    }

    const fn load(self) -> Load {
        match self {
            Self::Base => Load::Anon,
            Self::Huge => Load::AnonHuge,
        }
    }
}

/// What was seen of one run; distances are nanoseconds after the crossing. Where it is judged by none, it has no distances.
#[derive(Debug, Clone, Default)]
pub(super) struct Trial {
    /// The first SIGKILL was sent; none if nobody was killed after a crossing.
    pub(super) signal: Option<i64>,
    /// Between waking and the signal Brink had no processor for so long.
    pub(super) waited: i64,
    /// The crossing may have been this much earlier: the truth's last look above the threshold. None without a crossing.
    pub(super) uncertain: Option<i64>,
    /// It had been below the threshold before, and was above it again when it was sampled.
    pub(super) before_it: bool,
    /// The signal was above the threshold again.
    pub(super) back: Option<i64>,
    /// Each stage of a decision of Brink's.
    pub(super) stages: Vec<(String, i64)>,
    /// Bytes below the threshold at the worst.
    pub(super) overshoot: i64,
    /// Bytes a second, from the allocator's own log.
    pub(super) rate: u64,
    /// Somebody else was killed.
    pub(super) wrong_victim: bool,
    /// Somebody was killed, and nothing had been crossed.
    pub(super) premature: bool,
}

impl Trial {
    /// Whether it is judged by a crossing.
    pub(super) const fn has_crossing(&self) -> bool {
        self.uncertain.is_some()
    }

    /// Whether nobody was killed at all. A kill without a crossing has no time here, but is one.
    pub(super) const fn is_unkilled(&self) -> bool {
        self.signal.is_none() && !self.wrong_victim && !self.premature
    }
}

/// A run that says something; nothing if none of the tries did. Those that did not are counted.
pub(super) fn undisturbed(
    scene: &mut Scene,
    contender: Contender,
    pages: Pages,
    random: &mut SplitMix64,
    disturbed: &mut Disturbed,
) -> anyhow::Result<Option<Trial>> {
    for _ in 0..TRIES {
        let phase = Phase {
            start: Duration::from_nanos(random.below(PHASE_NS)),
            pace: pace(contender, random)?,
        };
        match trial(scene, contender, pages, phase)? {
            Ok(trial) => return Ok(Some(trial)),
            Err(why) => disturbed.count(why),
        }
    }
    Ok(None)
}

/// What is drawn for a run.
#[derive(Debug, Clone, Copy)]
struct Phase {
    /// From everything ready to the allocator's start.
    start: Duration,
    /// Of a bare poll.
    pace: Option<Pace>,
}

fn pace(contender: Contender, random: &mut SplitMix64) -> anyhow::Result<Option<Pace>> {
    let Some(period) = contender.period() else {
        return Ok(None);
    };
    Ok(Some(Pace {
        period,
        offset: Duration::from_nanos(random.below(u64::try_from(period.as_nanos())?)),
        fifo: contender == Contender::FifoPoll,
    }))
}

/// One run. It says nothing if others crossed the threshold before the load began, or if the truth saw no crossing; a kill
/// that none came before is no such disturbance but a fault.
fn trial(
    scene: &mut Scene,
    contender: Contender,
    pages: Pages,
    phase: Phase,
) -> anyhow::Result<Result<Trial, Disturbance>> {
    let victim = scene.arena.next_victim()?;
    let mut hog = waiting_hog(&victim, pages, contender.patience())?;
    let limit = scene.available()? - signed(pages.way());
    // Whatever is decided from here on is for this threshold.
    let armed = monotonic_ns();
    scene.arm(contender, (victim.group(), limit))?;
    let aim = Aim {
        pods: scene.node == Node::Pods,
        confirmed: scene.node.is_confirmed(),
        limit,
    };
    let poller = match phase.pace {
        Some(pace) => Some(Poller::start(
            scene.files()?,
            &scene.arena.layout,
            (pace, aim),
            hog.pid(),
        )?),
        None => None,
    };
    sleep(phase.start);
    let began = monotonic_ns();
    hog.start();
    let ended = hog.wait(contender.patience() + Duration::from_secs(2));
    let progress = hog.progress()?;
    let sent = poller.map(Poller::finish).transpose()?.flatten();
    let record = scene
        .agent(contender)
        .and_then(|agent| agent.decision_since(armed, Duration::from_secs(2)));
    let seen = scene.witness.seen()?;
    scene.disarm(contender)?;
    ended.with_context(|| {
        format!(
            "{}: an allocator did not end: {}",
            contender.word(),
            state(&hog)
        )
    })?;
    drop((hog, victim));
    let course = Course {
        began,
        touched: progress.touched,
        way: pages.way(),
        is_in_group: scene.node != Node::Machine,
    };
    let act = Act::of(sent, record.as_ref());
    let by = basis(&seen, act, &course);
    Ok(by.map(|by| judge(by, &seen, &progress, (sent, record.as_ref()))))
}

/// An allocator in the victim's group that has begun nothing yet.
fn waiting_hog(victim: &OwnedCgroup, pages: Pages, patience: Duration) -> anyhow::Result<Hog> {
    // Full speed to the end, but never to the group's own limit.
    let bytes = (pages.way() + 900 * MIB).min(LIMIT - 256 * MIB);
    let spec = HogSpec {
        wait: true,
        ..HogSpec::new(pages.load(), bytes, patience)
    };
    let hog = Hog::spawn(&programs::hog()?, Some(victim), &spec)?;
    // Full speed whatever else runs: the storms are to delay who watches, not who allocates.
    rustix::process::setpriority_process(Pid::from_raw(hog.pid()), -20)?;
    hog.wait_in(victim, Duration::from_secs(5))
        .context("the allocator")?;
    Ok(hog)
}

/// What keeps a process from its end.
fn state(hog: &Hog) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", hog.pid()));
    let wanted = ["State:", "SigPnd:", "ShdPnd:"];
    let status = status.unwrap_or_default();
    let lines = status
        .lines()
        .filter(|line| wanted.iter().any(|name| line.starts_with(name)));
    lines.collect::<Vec<_>>().join(", ")
}

/// What a run was.
fn judge(
    by: Basis,
    seen: &Seen,
    progress: &Progress,
    (sent, record): (Option<u64>, Option<&DecisionRecord>),
) -> Trial {
    let nanos = progress
        .latest_ns
        .saturating_sub(progress.started_ns)
        .max(1);
    let rate = u128::from(progress.touched) * 1_000_000_000 / u128::from(nanos);
    let waited = record
        .and_then(|record| record.kill.as_ref())
        .and_then(|kill| kill.waited_ns);
    let mut trial = Trial {
        waited: waited.map_or(0, signed),
        overshoot: seen.overshoot,
        rate: u64::try_from(rate).unwrap_or(u64::MAX),
        wrong_victim: Act::of(sent, record).is_some_and(|act| act.is_wrong),
        premature: by == Basis::Premature,
        ..Trial::default()
    };
    let Basis::Crossing(Excursion {
        crossed,
        before,
        back,
    }) = by
    else {
        return trial;
    };
    let after = |at: u64| between(crossed, at);
    trial.signal = sent.map(after);
    trial.uncertain = Some(between(before, crossed));
    trial.before_it = seen.first.is_some_and(|first| first.crossed < crossed);
    trial.back = back.map(after);
    if let Some(record) = record {
        let stage = |stage: &brink::record::wire::StageTime| {
            let at = stage.at.monotonic_ns.wrapping_sub(crossed.cast_signed());
            (stage.stage.clone(), at)
        };
        trial.stages = record.stages.iter().map(stage).collect();
        let first = trial
            .stages
            .iter()
            .find(|(stage, _)| stage == "firstSignal");
        trial.signal = first.map(|(_, at)| *at);
    }
    trial
}

//! What the agent costs when nothing happens: time on a processor beside that of polls, resident memory, memory of its maps.
use std::{
    collections::BTreeMap,
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink::control::protocol::SamplerView;

use super::super::{
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
    stats,
};
use super::{
    agent::{Agent, OUT_OF_REACH, Setup, free_address},
    arena::Arena,
    idle_poll::{self, Rule},
    memory, ticks,
    units::{MIB, mebibytes, micros, millis, signed},
};

const WORKLOADS: usize = 110;
const CASE: &str = "110 workloads";
const TELLING: &str = "110 workloads, with events";
const PODS: &str = "110 workloads in a cgroup of all pods of 2 GiB";
const THREADS: &str = "threads";
const SAMPLER: &str = "sampler in the kernel";
const TIMER: &str = "recorder's timer in the kernel";
const WHOLE: &str = "threads and timers";
const TICK: &str = "sampler, mean of a tick";
/// Workloads that have a limit of their own in the case with events: as many as are recorded closely. It is far from what they hold.
const LIMITED: usize = 32;
const LIMIT: u64 = 64 * MIB;
const NODE_PERIOD: &str = "recorder, period of the node";
const NEAR_PERIOD: &str = "recorder, period of the 32 nearest to a limit";
const OTHERS_PERIOD: &str = "recorder, period of the others";
const RATIO: &str = "Brink to the poll by the sampler's rule";
const RESIDENT: &str = "resident";
const MAPS: &str = "maps";
const SHARE: &str = "% of a core";
/// The agent alone: as long as all takes to come round, but for a look at all processes; half as long in the short form.
const WINDOW: Duration = Duration::from_mins(1);
const SHORT_WINDOW: Duration = Duration::from_secs(30);
/// A poll beside it.
const POLL_WINDOW: Duration = Duration::from_secs(5);
/// From the start to the beginning of the measurement.
const SETTLING: Duration = Duration::from_secs(5);
/// The polls: one that is as early as the sampler wherever memory runs short, and one that knows no headroom.
const POLLS: [(&str, Rule); 2] = [
    ("poll by the sampler's rule", Rule::Sampler),
    ("poll every 1 ms", Rule::Every(Duration::from_millis(1))),
];

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let arena = Arena::new(2048 * MIB, WORKLOADS)?;
    let agent = Agent::start(Setup {
        node: None,
        events: false,
        ..Setup::of(&arena)
    })?;
    sleep(SETTLING);
    let mut outcome = Outcome::default();
    let mut rounds = Vec::new();
    let mut random = SplitMix64::new(settings.seed);
    for _ in 0..settings.runs(1, 6) {
        rounds.push(Round::run((settings, &mut random), &arena, &agent)?);
    }
    add_time(&mut outcome, CASE, &rounds);
    add_memory(&mut outcome, agent.pid(), CASE)?;
    drop(agent);
    if !settings.short {
        add_pods(&mut outcome, settings, &arena)?;
    }
    add_events(&mut outcome, (settings, &mut random), &arena)?;
    ticks::add(&mut outcome, settings)?;
    Ok(Measured::Ran(outcome))
}

/// Holds it to its figures.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    outcome.limit_median(CASE, WHOLE, settings.time(0.05));
    outcome.limit_median(TELLING, WHOLE, settings.time(0.2));
    outcome.limit_median(CASE, RATIO, settings.figure(2.0, 1.0));
    // The same figures whatever an agent tells and wherever its pods are. What misses them is shown as that; the short form, which
    // every change is held to, has those above alone.
    if !settings.short {
        for (case, what, most) in [
            (TELLING, WHOLE, 0.05),
            (TELLING, RATIO, 1.0),
            (PODS, WHOLE, 0.05),
        ] {
            let values = outcome.values(case, what);
            let median = stats::quantile(values, 50);
            let unit = if what == WHOLE { SHARE } else { "" };
            let name = format!("{what}, {case}: p50, by the figure of an idle agent");
            outcome.limit_value(&name, unit, most, median);
        }
    }
    // What the recorder owes, at the worst moment that was looked at.
    for (what, most) in [
        (NODE_PERIOD, 10.0),
        (NEAR_PERIOD, 100.0),
        (OTHERS_PERIOD, 1_000.0),
    ] {
        let values = outcome.values(TELLING, what);
        let longest = stats::quantile(values, 100);
        outcome.limit_value(&format!("{what}, {TELLING}: longest"), "ms", most, longest);
    }
    let most = [
        (CASE, settings.figure(20.0, 16.0)),
        (TELLING, settings.figure(28.0, 24.0)),
    ];
    for (case, most) in most {
        let value = |what| outcome.values(case, what).first().copied();
        let sum = value(RESIDENT).zip(value(MAPS));
        let sum = sum.map(|(resident, maps)| resident + maps);
        outcome.limit_value(
            &format!("resident memory and maps, {case}"),
            "MiB",
            most,
            sum,
        );
    }
    outcome.limit_median(ticks::CASE, ticks::FASTEST, settings.figure(4.0, 1.0));
}

/// The agent alone, and each poll, one after the other in a random order.
struct Round {
    agent: Costs,
    /// In the order of [`POLLS`].
    polls: [f64; POLLS.len()],
    looks: [u64; POLLS.len()],
}

impl Round {
    fn run(
        (settings, random): (&Settings, &mut SplitMix64),
        arena: &Arena,
        agent: &Agent,
    ) -> anyhow::Result<Self> {
        let mut order = [None, Some(0), Some(1)];
        random.shuffle(&mut order);
        let mut costs = None;
        let (mut polls, mut looks) = ([0.0; POLLS.len()], [0; POLLS.len()]);
        for turn in order {
            let Some(index) = turn else {
                costs = Some(Costs::of(agent, settings)?);
                continue;
            };
            let (_, rule) = POLLS[index];
            let spent = idle_poll::run(&arena.layout, rule, POLL_WINDOW, OUT_OF_REACH)?;
            polls[index] = share(spent.cpu, Duration::from_nanos(spent.elapsed));
            looks[index] = spent.looks;
        }
        Ok(Self {
            agent: costs.context("the agent has no turn")?,
            polls,
            looks,
        })
    }

    fn whole(&self) -> f64 {
        self.agent.whole()
    }
}

/// Time on a processor, in percent of a core.
fn share(nanos: u64, elapsed: Duration) -> f64 {
    millis(signed(nanos)) / (elapsed.as_secs_f64() * 10.0)
}

/// The time of threads and of timers in the kernel in each window, and of the polls.
fn add_time(outcome: &mut Outcome, case: &str, rounds: &[Round]) {
    let values = |value: &dyn Fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
    outcome.add(case, THREADS, SHARE, values(&|round| round.agent.threads()));
    outcome.add(case, SAMPLER, SHARE, values(&|round| round.agent.sampler()));
    outcome.add(case, TIMER, SHARE, values(&|round| round.agent.timer()));
    outcome.add(case, WHOLE, SHARE, values(&Round::whole));
    outcome.add(case, TICK, "µs", values(&|round| round.agent.tick()));
    for (index, (name, _)) in POLLS.iter().enumerate() {
        outcome.add(case, name, SHARE, values(&|round| round.polls[index]));
    }
    outcome.add(
        case,
        RATIO,
        "",
        values(&|round| round.whole() / round.polls[0]),
    );
    if let Some(round) = rounds.last() {
        outcome.notes.push(format!(
            "{case}: in the last {:.0} s of the agent alone {} ticks; threads' share by name: {}",
            round.agent.elapsed.as_secs_f64(),
            round.agent.kernel.ticks,
            round.agent.by_name()
        ));
        outcome.notes.push(format!(
            "{case}: in {} s the poll by the sampler's rule looked {} times, the one every 1 ms {} times",
            POLL_WINDOW.as_secs(),
            round.looks[0],
            round.looks[1]
        ));
    }
}

/// The same with the workloads in the cgroup of all pods, whose page cache only files tell; the smaller that cgroup, the
/// more often it is looked at. Held in the full form, to the figure of an idle agent.
fn add_pods(outcome: &mut Outcome, settings: &Settings, arena: &Arena) -> anyhow::Result<()> {
    let setup = Setup {
        node: None,
        pods: Some(arena.node.group().to_owned()),
        events: false,
        ..Setup::of(arena)
    };
    let thresholds = [
        ("memory.available", OUT_OF_REACH),
        ("allocatableMemory.available", OUT_OF_REACH),
    ];
    let (agent, _began) = Agent::launch(setup, &thresholds)?;
    add_case(outcome, settings, PODS, &agent)
}

/// The same with everything that tells: events, their journal, the flight recorder, metrics, the page; and with as many workloads
/// near a limit of their own as are recorded closely. Held to a figure of its own, and in the full form to those of an idle agent.
fn add_events(
    outcome: &mut Outcome,
    (settings, random): (&Settings, &mut SplitMix64),
    arena: &Arena,
) -> anyhow::Result<()> {
    arena.limit(LIMITED, LIMIT)?;
    let agent = Agent::start(Setup {
        node: None,
        page: Some(free_address()?),
        ..Setup::of(arena)
    })?;
    sleep(SETTLING);
    let (mut rounds, mut periods) = (Vec::new(), Vec::new());
    for _ in 0..settings.runs(1, 3) {
        periods.push(periods_of(&agent)?);
        rounds.push(Round::run((settings, &mut *random), arena, &agent)?);
        periods.push(periods_of(&agent)?);
    }
    add_time(outcome, TELLING, &rounds);
    let names = [NODE_PERIOD, NEAR_PERIOD, OTHERS_PERIOD];
    for (index, name) in names.into_iter().enumerate() {
        let values = periods.iter().map(|periods| periods[index]).collect();
        outcome.add(TELLING, name, "ms", values);
    }
    add_memory(outcome, agent.pid(), TELLING)
}

/// From one point of the flight recorder to the next: of the node, of the cgroups near their limit, of the others.
fn periods_of(agent: &Agent) -> anyhow::Result<[f64; 3]> {
    let told = agent.status()?.recorder;
    let told = told.context("the flight recorder does not run")?;
    anyhow::ensure!(
        usize::try_from(told.near)? == LIMITED,
        "{} cgroups are recorded closely",
        told.near
    );
    let periods = [
        told.node_period_ms,
        told.near_period_ms,
        told.others_period_ms,
    ];
    Ok(periods.map(f64::from))
}

/// The time of an agent under a condition.
fn add_case(
    outcome: &mut Outcome,
    settings: &Settings,
    case: &str,
    agent: &Agent,
) -> anyhow::Result<()> {
    sleep(SETTLING);
    let costs = (0..settings.runs(1, 3)).map(|_| Costs::of(agent, settings));
    let costs = costs.collect::<anyhow::Result<Vec<_>>>()?;
    let values = |value: fn(&Costs) -> f64| costs.iter().map(value).collect();
    outcome.add(case, THREADS, SHARE, values(Costs::threads));
    outcome.add(case, SAMPLER, SHARE, values(Costs::sampler));
    outcome.add(case, TIMER, SHARE, values(Costs::timer));
    outcome.add(case, WHOLE, SHARE, values(Costs::whole));
    if let Some(last) = costs.last() {
        let by_name = last.by_name();
        let note = format!("{case}: threads' share by name: {by_name}");
        outcome.notes.push(note);
    }
    Ok(())
}

/// What is resident, and the maps.
fn add_memory(outcome: &mut Outcome, pid: u32, case: &str) -> anyhow::Result<()> {
    for (what, bytes) in [(RESIDENT, memory::resident(pid)?), (MAPS, maps(pid)?)] {
        outcome.add(case, what, "MiB", vec![mebibytes(signed(bytes))]);
    }
    Ok(())
}

/// What the agent spent in one window, in nanoseconds.
struct Costs {
    elapsed: Duration,
    by_name: BTreeMap<String, u64>,
    /// Between the two questions to the agent.
    asked: Duration,
    /// What its timers in the kernel took between those.
    kernel: Timers,
}

/// The agent's timers in the kernel: what they took, in nanoseconds.
#[derive(Clone, Copy)]
struct Timers {
    sampler: u64,
    ticks: u64,
    recorder: u64,
}

impl Timers {
    /// So far.
    fn of(agent: &Agent) -> anyhow::Result<Self> {
        let status = agent.status()?;
        let sampler = status.sampler.context("the sampler does not run")?;
        // Where the recorder has none, nothing.
        let timer = status.recorder.and_then(|recorder| recorder.timer);
        let spent = |view: SamplerView| view.mean_ns.saturating_mul(view.ticks);
        Ok(Self {
            sampler: spent(sampler),
            ticks: sampler.ticks,
            recorder: timer.map_or(0, spent),
        })
    }

    const fn since(self, before: Self) -> Self {
        Self {
            sampler: self.sampler.saturating_sub(before.sampler),
            ticks: self.ticks.saturating_sub(before.ticks),
            recorder: self.recorder.saturating_sub(before.recorder),
        }
    }
}

impl Costs {
    /// Waits for a window. Nobody asks the agent anything meanwhile.
    fn of(agent: &Agent, settings: &Settings) -> anyhow::Result<Self> {
        let window = if settings.short { SHORT_WINDOW } else { WINDOW };
        let timers = Timers::of(agent)?;
        let asked = Instant::now();
        // What the question took is over by then.
        sleep(Duration::from_millis(500));
        let (began, before) = (Instant::now(), threads(agent)?);
        sleep(window);
        let (elapsed, after) = (began.elapsed(), threads(agent)?);
        let asked = asked.elapsed();
        let kernel = Timers::of(agent)?.since(timers);
        let spent = after.into_iter().map(|(name, nanos)| {
            let before = before.get(&name).copied().unwrap_or(0);
            (name, nanos.saturating_sub(before))
        });
        Ok(Self {
            elapsed,
            by_name: spent.collect(),
            asked,
            kernel,
        })
    }

    fn threads(&self) -> f64 {
        share(self.by_name.values().sum(), self.elapsed)
    }

    fn sampler(&self) -> f64 {
        share(self.kernel.sampler, self.asked)
    }

    fn timer(&self) -> f64 {
        share(self.kernel.recorder, self.asked)
    }

    fn whole(&self) -> f64 {
        self.threads() + self.sampler() + self.timer()
    }

    /// The sampler's mean time a tick, in microseconds.
    fn tick(&self) -> f64 {
        let mean = self.kernel.sampler.checked_div(self.kernel.ticks);
        mean.map_or(f64::NAN, |nanos| micros(signed(nanos)))
    }

    fn by_name(&self) -> String {
        let spent = self.by_name.iter();
        let spent =
            spent.map(|(name, nanos)| format!("{name} {:.4} %", share(*nanos, self.elapsed)));
        spent.collect::<Vec<_>>().join(", ")
    }
}

/// What each thread has spent, by name.
fn threads(agent: &Agent) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut by_name = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{}/task", agent.pid()))? {
        let folder = entry?.path();
        let name = fs::read_to_string(folder.join("comm"))?.trim().to_owned();
        let stat = fs::read_to_string(folder.join("schedstat"))?;
        let first = stat.split_whitespace().next().context("schedstat")?;
        *by_name.entry(name).or_insert(0) += first.parse::<u64>()?;
    }
    Ok(by_name)
}

/// Kernel memory of the maps a process holds, each counted once, in bytes.
fn maps(pid: u32) -> anyhow::Result<u64> {
    let mut maps = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // A descriptor may have been closed meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else {
            continue;
        };
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse::<u64>().ok()
        };
        if let (Some(id), Some(bytes)) = (value("map_id:"), value("memlock:")) {
            maps.insert(id, bytes);
        }
    }
    anyhow::ensure!(!maps.is_empty(), "the agent holds no maps");
    Ok(maps.values().sum())
}

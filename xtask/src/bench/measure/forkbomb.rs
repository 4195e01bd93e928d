//! Fork bombs against a node's limit of process ids: from the fork that crosses to the first SIGKILL and to the empty cgroup.
//!
//! The node is a cgroup that may have 2,000 tasks, of which 200 are to be left. When somebody forked, was signalled, exited
//! and was the last to go is what the kernel's own tracer says; the agent is asked for nothing but whom it chose.
use std::{collections::BTreeSet, fs, thread::sleep, time::Duration};

use anyhow::Context as _;
use brink::record::DecisionRecord;
use brink_host::{
    cgroup::{CgroupDir, Controller, owned::OwnedCgroup},
    clock::monotonic_ns,
    hog::{HogSpec, Load},
};
use brink_tests::{Hog, wait_until};

use super::super::{
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
};
use super::{
    agent::{Agent, Setup},
    arena::Arena,
    lone_killer, programs,
    trace::{Entry, Trace},
    units::{MIB, between, millis},
};

const WORKLOADS: usize = 110;
const NODE: u64 = 2048 * MIB;
/// Tasks that the node may have, which the kernel holds whatever becomes of the agent, and how many are to be left.
const MOST: u64 = 2000;
const LEFT: u64 = 200;
/// A bomb needs a limit of its own, and is to meet the node's.
const OF_A_BOMB: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(10);
/// A bomb begins so long after the last one's processes are reaped, and up to this later.
const CLEARED: Duration = Duration::from_millis(100);
const PHASE_NS: u64 = 20_000_000;
/// Who was born late is looked for after so long.
const LATE: Duration = Duration::from_millis(100);

const CASE: &str = "2,000 tasks";
const ALONE: &str = "a lone killer";
const BARE: &str = "a lone killer, no agent";
const SIGNAL: &str = "crossing to the first SIGKILL";
const EMPTY: &str = "crossing to the empty cgroup";
const CLEARING: &str = "first SIGKILL to the empty cgroup";
const PEAK: &str = "most tasks of the node";
const BORN: &str = "forks after the first SIGKILL";
const ESCAPED: &str = "processes that escaped";
const UNSTOPPED: &str = "bombs that were not stopped";
const WRONG: &str = "others that went";
const FORKED: &str = "threads that the agent made";
const RATIO: &str =
    "first SIGKILL to the empty cgroup, the agent's over the lone killer's, of each pair";

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let events = [
        "task/task_newtask",
        "signal/signal_generate",
        "sched/sched_process_exit",
        "cgroup/cgroup_notify_populated",
    ];
    let Some(trace) = Trace::start(&events)? else {
        return Ok(Measured::Skipped {
            reason: "needs tracefs: mount -t tracefs none /sys/kernel/tracing".to_owned(),
        });
    };
    trace.filter("task/task_newtask", "comm == \"brink-hog\"")?;
    trace.filter(
        "signal/signal_generate",
        "sig == 9 && comm == \"brink-hog\"",
    )?;
    trace.filter("sched/sched_process_exit", "comm == \"brink-hog\"")?;
    let mut random = SplitMix64::new(settings.seed);
    let mut outcome = Outcome::default();
    let mut ground = Ground::new(&trace)?;
    let runs = settings.runs(6, 60);
    let mut pairs = Vec::new();
    for _ in 0..runs {
        let mut pair = [Found::default(); 2];
        let mut order = [Killer::Agent, Killer::Alone];
        random.shuffle(&mut order);
        for by in order {
            sleep(Duration::from_nanos(random.below(PHASE_NS)));
            pair[by as usize] = ground.bomb(by)?;
        }
        pairs.push(pair);
    }
    add(&mut outcome, &pairs);
    // Its kernel programs go with it.
    ground.agent = None;
    let mut bare = Vec::new();
    for _ in 0..runs {
        sleep(Duration::from_nanos(random.below(PHASE_NS)));
        bare.push(ground.bomb(Killer::Alone)?);
    }
    add_times(&mut outcome, BARE, &bare);
    outcome.notes.push(format!(
        "a node of {MOST} tasks with a threshold of {LEFT}, {WORKLOADS} workloads of one process each, and one that forks \
         as fast as it can; beside the agent's node another one of the same make, where a real-time thread looks at the count \
         without a pause and sends SIGKILL to all that are in the one group it was told, until nobody is: in turns with the agent, whose \
         kernel programs run at its signals and ends too, and once more when there is no agent: what that takes is the kernel's"
    ));
    Ok(Measured::Ran(outcome))
}

/// Who ends a bomb.
#[derive(Clone, Copy)]
enum Killer {
    /// The agent, among all workloads.
    Agent,
    /// A thread that knows whom to kill.
    Alone,
}

fn add(outcome: &mut Outcome, pairs: &[[Found; 2]]) {
    let of = |by: Killer| {
        pairs
            .iter()
            .map(|pair| pair[by as usize])
            .collect::<Vec<_>>()
    };
    add_agents(outcome, &of(Killer::Agent));
    add_times(outcome, ALONE, &of(Killer::Alone));
    let ratio =
        |[agent, alone]: &[Found; 2]| Some(millis(agent.clearing()?) / millis(alone.clearing()?));
    outcome.add(CASE, RATIO, "", pairs.iter().filter_map(ratio).collect());
}

fn add_times(outcome: &mut Outcome, case: &str, found: &[Found]) {
    let times = |of: fn(&Found) -> Option<i64>| found.iter().filter_map(of).map(millis).collect();
    outcome.add(case, SIGNAL, "ms", times(|one| one.signal));
    outcome.add(case, EMPTY, "ms", times(|one| one.empty));
    outcome.add(case, CLEARING, "ms", times(Found::clearing));
}

fn add_agents(outcome: &mut Outcome, found: &[Found]) {
    add_times(outcome, CASE, found);
    let counts = |of: fn(&Found) -> u32| found.iter().map(|one| f64::from(of(one))).collect();
    outcome.add(CASE, PEAK, "", counts(|one| one.peak));
    outcome.add(CASE, BORN, "", counts(|one| one.born));
    outcome.add(CASE, ESCAPED, "", counts(|one| one.escaped));
    let unstopped = |one: &Found| u32::from(one.signal.is_none() || one.empty.is_none());
    outcome.add(CASE, UNSTOPPED, "", counts(unstopped));
    outcome.add(CASE, WRONG, "", counts(|one| one.others));
    outcome.add(CASE, FORKED, "", counts(|one| one.agents_threads));
}

/// Holds it to its figures.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    outcome.limit_tail(CASE, SIGNAL, settings.time(10.0));
    outcome.limit_tail(CASE, EMPTY, settings.time(100.0));
    for what in [ESCAPED, UNSTOPPED, WRONG, FORKED] {
        outcome.limit_sum(CASE, what, 0.0);
    }
}

/// What was seen of one bomb; distances are nanoseconds after the crossing.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    signal: Option<i64>,
    empty: Option<i64>,
    /// Tasks of the node at the most.
    peak: u32,
    /// Forks after the first signal.
    born: u32,
    /// Processes that are there after the group was empty, or never exited.
    escaped: u32,
    /// Evictions of somebody else, whether or not the bomb was evicted too.
    others: u32,
    agents_threads: u32,
}

impl Found {
    /// From the first signal to the empty group.
    fn clearing(&self) -> Option<i64> {
        Some(self.empty? - self.signal?)
    }
}

struct Ground<'a> {
    trace: &'a Trace,
    /// None once it has ended.
    agent: Option<Agent>,
    /// The agent's node.
    arena: Arena,
    /// The lone killer's.
    other: Arena,
}

impl<'a> Ground<'a> {
    fn new(trace: &'a Trace) -> anyhow::Result<Self> {
        let new = || {
            let arena = Arena::new(NODE, WORKLOADS)?;
            arena.node.limit_tasks(&arena.layout, MOST)?;
            anyhow::Ok(arena)
        };
        let (arena, other) = (new()?, new()?);
        let agent = Agent::start(Setup::of(&arena))?;
        agent.arm(&[("memory.available", 160 * MIB), ("pid.available", LEFT)])?;
        Ok(Self {
            trace,
            agent: Some(agent),
            arena,
            other,
        })
    }

    fn bomb(&self, by: Killer) -> anyhow::Result<Found> {
        let arena = match by {
            Killer::Agent => &self.arena,
            Killer::Alone => &self.other,
        };
        let group = arena.next_victim()?;
        if let Killer::Agent = by {
            self.agent()?.wait_known(group.group())?;
        }
        group.limit_tasks(&arena.layout, OF_A_BOMB)?;
        let spec = HogSpec {
            wait: true,
            ..HogSpec::new(Load::ForkStorm, MOST, PATIENCE)
        };
        let mut hog = Hog::spawn(&programs::hog()?, Some(&group), &spec)?;
        hog.wait_in(&group, PATIENCE).context("the bomb")?;
        let node = ids(arena, &arena.node)?;
        let threads = self.threads()?;
        self.trace.clear()?;
        let before = node.tasks()?;
        let began = monotonic_ns();
        hog.start();
        let own = ids(arena, &group)?;
        // What became of it is the tracer's to say.
        match by {
            Killer::Agent => drop(self.agent()?.decision_since(began, PATIENCE)),
            Killer::Alone => lone_killer::kill(node, own, MOST - LEFT, PATIENCE)?,
        }
        // Dead, it has its process id until it is reaped.
        hog.wait(PATIENCE).context("the bomb's first process")?;
        let is_over = || (own.tasks().ok()? == 0).then_some(());
        let over = wait_until(PATIENCE, is_over);
        sleep(LATE);
        let entries = self.trace.read()?;
        let mut found = judge(&entries, before, group.group());
        found.escaped = found.escaped.max(u32::try_from(group.processes()?.len())?);
        found.others = self.evictions_of_others(began)?;
        found.agents_threads = u32::try_from(self.threads()?.difference(&threads).count())?;
        drop(hog);
        over.context("the bomb's processes stay")?;
        sleep(CLEARED);
        Ok(found)
    }

    fn agent(&self) -> anyhow::Result<&Agent> {
        self.agent.as_ref().context("the agent has ended")
    }

    /// How many the agent has evicted since then that are no bombs.
    fn evictions_of_others(&self, since: u64) -> anyhow::Result<u32> {
        let Some(agent) = &self.agent else {
            return Ok(0);
        };
        let decisions = agent.decisions()?;
        let is_other = |record: &&DecisionRecord| {
            let is_since = record.decided.monotonic_ns >= since.cast_signed();
            is_since && !record.victim.name.contains("/victim")
        };
        Ok(u32::try_from(decisions.iter().filter(is_other).count())?)
    }

    /// The threads of the agent; nobody's where there is none.
    fn threads(&self) -> anyhow::Result<BTreeSet<String>> {
        let Some(agent) = &self.agent else {
            return Ok(BTreeSet::new());
        };
        let entries = fs::read_dir(format!("/proc/{}/task", agent.pid()))?;
        let name = |entry: std::io::Result<fs::DirEntry>| {
            Ok(entry?.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    }
}

fn ids<'a>(arena: &Arena, group: &'a OwnedCgroup) -> anyhow::Result<&'a CgroupDir> {
    let dir = group.dir(&arena.layout, Controller::Pids);
    dir.context("the group has no limit of tasks")
}

/// What became of a bomb by the tracer's entries, with so many tasks on the node before it.
///
/// The kernel counts a fork before it tells of it, and one that a kill gives up it never tells of. If that was the one that crossed,
/// the time counts from the one before it, which is a little early.
fn judge(entries: &[Entry], before: u64, group: &str) -> Found {
    let (mut tasks, mut births) = (before, 1_u32);
    let (mut found, mut exits, mut crossed) = (Found::default(), 0_u32, None);
    let path = format!("path={group} ");
    let (mut signalled, mut last, mut emptied) = (None, None, None);
    for entry in entries {
        match entry.name.as_str() {
            "task_newtask" => {
                tasks += 1;
                births += 1;
                found.born += u32::from(signalled.is_some());
                found.peak = found.peak.max(u32::try_from(tasks).unwrap_or(u32::MAX));
                if tasks > MOST - LEFT && crossed.is_none() {
                    crossed = Some(entry.at);
                }
                if signalled.is_none() {
                    last = (tasks == MOST - LEFT).then_some(entry.at);
                }
            }
            "sched_process_exit" => {
                exits += 1;
                tasks = tasks.saturating_sub(1);
            }
            "signal_generate" => {
                signalled = signalled.or(Some(entry.at));
            }
            // The last time counts: it may have been empty for a moment in one hierarchy.
            "cgroup_notify_populated"
                if entry.fields.contains(&path) && entry.fields.ends_with("val=0") =>
            {
                emptied = Some(entry.at);
            }
            _ => {}
        }
    }
    let in_time = |at: &u64| signalled.is_none_or(|signalled| *at <= signalled);
    let crossed = crossed
        .filter(in_time)
        .or(last.filter(|_| signalled.is_some()));
    let since = |at| Some(between(crossed?, at));
    found.empty = emptied.and_then(since);
    found.signal = signalled.and_then(since);
    found.escaped = births.saturating_sub(exits);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: u64, name: &str, fields: &str) -> Entry {
        Entry {
            at: at * 1_000_000,
            name: name.to_owned(),
            fields: fields.to_owned(),
        }
    }

    #[test]
    fn the_fork_that_crosses_is_where_the_time_begins() {
        let fork = |at| entry(at, "task_newtask", "pid=7 comm=brink-hog");
        let exit = |at| entry(at, "sched_process_exit", "comm=brink-hog pid=7");
        let populated = |at, path: &str, value| {
            let fields = format!("root=2 id=9 level=2 path={path} val={value}");
            entry(at, "cgroup_notify_populated", &fields)
        };
        let mut entries = vec![
            fork(1),
            fork(3),
            entry(5, "signal_generate", "sig=9 comm=brink-hog"),
            fork(6),
            populated(7, "/node/victim10", 0),
            exit(8),
            exit(9),
            populated(9, "/node/victim1", 0),
            exit(10),
        ];
        let found = judge(&entries, MOST - LEFT - 1, "/node/victim1");
        assert_eq!(
            (found.signal, found.empty),
            (Some(2_000_000), Some(6_000_000))
        );
        assert_eq!((found.peak, found.born, found.escaped), (1802, 1, 1));
        entries.push(exit(11));
        assert_eq!(judge(&entries, MOST - LEFT - 1, "/node/victim1").escaped, 0);
        // The fork that crossed was counted, and given up.
        let told = judge(&entries, MOST - LEFT - 2, "/node/victim1");
        assert_eq!(
            (told.signal, told.empty),
            (Some(2_000_000), Some(6_000_000))
        );
        let early = judge(&entries, 10, "/node/victim1");
        assert_eq!((early.signal, early.empty), (None, None));
    }
}

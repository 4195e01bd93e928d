//! Events that reach the agent without a sample: an OOM kill, a fork bomb that crosses a threshold, a victim's end.
//!
//! When they happened is what the kernel's own tracer says; when they arrived is what the agent wrote down: the step
//! in its journal, or the stage in its record of the decision.
use std::{
    collections::BTreeMap,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use brink_host::{
    cgroup::{Controller, owned::OwnedCgroup},
    clock::monotonic_ns,
    hog::{HogSpec, Load},
};
use brink_tests::{Hog, wait_until};

use super::super::{
    random::SplitMix64,
    registry::{Measured, Outcome, Settings},
};
use super::{
    agent::{Agent, Setup, time_of},
    arena::Arena,
    console::Quiet,
    journal::{Journal, crosses, is_dying},
    programs,
    trace::{Entry, Trace},
    units::{MIB, between, millis},
};

const WORKLOADS: usize = 110;
const NODE: u64 = 2048 * MIB;
const PATIENCE: Duration = Duration::from_secs(10);
/// Limit of the group that runs into the kernel's killer.
const SMALL: u64 = 64 * MIB;
/// What a victim holds whose end is waited for: enough that it does not die at once.
const LARGE: u64 = 512 * MIB;
/// Processes from now to the threshold, and beyond it at most.
const FORKS: u64 = 200;
const TASKS: u64 = 500;
/// A storm begins so long after the last one's processes are reaped: the kernel tells of a process's end a little after it
/// counts it.
const CLEARED: Duration = Duration::from_millis(100);
/// Each event is put off by up to this.
const PHASE_NS: u64 = 20_000_000;

const OOM: &str = "OOM kill to step, console quiet";
const LOUD: &str = "OOM kill to step, console as it is";
const FORK: &str = "fork above the limit to step";
const BOMB: &str = "fork above the limit to SIGKILL";
const EXIT: &str = "last exit to record";
const LOST: &str = "events without a record";
const KNOWN: &str = "new cgroup to known workload";

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let events = [
        "oom/mark_victim",
        "task/task_newtask",
        "cgroup/cgroup_notify_populated",
    ];
    let Some(trace) = Trace::start(&events)? else {
        return Ok(Measured::Skipped {
            reason: "needs tracefs: mount -t tracefs none /sys/kernel/tracing".to_owned(),
        });
    };
    // Nobody else forks by that name.
    trace.filter("task/task_newtask", "comm == \"brink-hog\"")?;
    let mut outcome = Outcome::default();
    let mut random = SplitMix64::new(settings.seed);
    for storm in [false, true] {
        let case = if storm { "storms" } else { "idle" };
        let ground = Ground::new(&trace, storm)?;
        for (what, values) in measure(&ground, settings, &mut random)? {
            outcome.add(case, what, if what == LOST { "" } else { "ms" }, values);
        }
    }
    Ok(Measured::Ran(outcome))
}

/// Holds it to its figures.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    for case in ["idle", "storms"] {
        outcome.limit_sum(case, LOST, 0.0);
        for what in [OOM, FORK, EXIT] {
            outcome.limit_tail(case, what, settings.time(2.0));
        }
    }
}

/// All events under one condition, in milliseconds, by what was measured.
fn measure(
    ground: &Ground<'_>,
    settings: &Settings,
    random: &mut SplitMix64,
) -> anyhow::Result<BTreeMap<&'static str, Vec<f64>>> {
    let mut found: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    let rounds = settings.runs(8, 120);
    // The storms come last: until the kernel has cleared them away the node is no quiet place.
    let order = random.rounds(3, rounds);
    for place in order.into_iter().chain(std::iter::repeat_n(3, rounds)) {
        sleep(Duration::from_nanos(random.below(PHASE_NS)));
        let seen = match place {
            0 => ground.oom_kill(OOM)?,
            1 => ground.oom_kill(LOUD)?,
            2 => ground.exit()?,
            _ => ground.fork_bomb()?,
        };
        let heard = seen.iter().any(|(what, _)| *what != KNOWN);
        found.entry(LOST).or_default().push(f64::from(!heard));
        for (what, nanos) in seen {
            found.entry(what).or_default().push(millis(nanos));
        }
    }
    Ok(found)
}

/// What was measured in one run, in nanoseconds. An event of which the agent wrote nothing down is left out, and counted.
type Found = Vec<(&'static str, i64)>;

struct Ground<'a> {
    trace: &'a Trace,
    agent: Agent,
    _storms: Vec<Hog>,
    arena: Arena,
}

impl<'a> Ground<'a> {
    fn new(trace: &'a Trace, storm: bool) -> anyhow::Result<Self> {
        let arena = Arena::new(NODE, WORKLOADS)?;
        let agent = Agent::start(Setup {
            journal: true,
            ..Setup::of(&arena)
        })?;
        let storms = if storm { arena.storm()? } else { Vec::new() };
        Ok(Self {
            trace,
            agent,
            _storms: storms,
            arena,
        })
    }

    /// A group too small for its process: the kernel kills it, and the agent hears of it.
    fn oom_kill(&self, what: &'static str) -> anyhow::Result<Found> {
        let (group, known) = self.new_workload()?;
        let _quiet = (what == OOM).then(Quiet::start).transpose()?;
        group.limit_memory(&self.arena.layout, SMALL)?;
        self.trace.clear()?;
        let journal = Journal::at_end(&self.agent.journal())?;
        let spec = HogSpec::new(Load::Anon, 2 * SMALL, PATIENCE);
        let mut hog = Hog::spawn(&programs::hog()?, Some(&group), &spec)?;
        hog.wait(PATIENCE)?;
        let pid = hog.pid();
        let killed = self.trace.read()?.into_iter().find(|entry| {
            entry.name == "mark_victim" && entry.fields.starts_with(&format!("pid={pid} "))
        });
        let killed = killed.context("the kernel's killer did not come")?.at;
        let step = wait_until(PATIENCE, || journal.first(is_dying).ok().flatten());
        let heard = step.map(|heard| (what, between(killed, heard)));
        Ok(heard.into_iter().chain([(KNOWN, known)]).collect())
    }

    /// Processes that fork until a threshold on process ids is crossed, and the agent ends them.
    fn fork_bomb(&self) -> anyhow::Result<Found> {
        let (group, known) = self.new_workload()?;
        group.limit_tasks(&self.arena.layout, TASKS)?;
        let capacity = self.pids()?;
        let spec = HogSpec {
            wait: true,
            ..HogSpec::new(Load::ForkStorm, TASKS, Duration::from_secs(5))
        };
        let mut hog = Hog::spawn(&programs::hog()?, Some(&group), &spec)?;
        hog.wait_in(&group, PATIENCE).context("the bomb")?;
        let before = self.tasks_of(&self.arena.node)?;
        let own = self.tasks_of(&group)?;
        let left = capacity - before - FORKS;
        self.agent
            .arm(&[("memory.available", 160 * MIB), ("pid.available", left)])?;
        self.trace.clear()?;
        let journal = Journal::at_end(&self.agent.journal())?;
        let began = monotonic_ns();
        hog.start();
        let record = self.agent.decision_since(began, PATIENCE);
        let entries = self.trace.read()?;
        self.agent.disarm()?;
        drop(hog);
        self.wait_reaped(&group)?;
        let most = capacity - left;
        let counted = self.most_tasks_of(&group)?.map(|most| before - own + most);
        let mut found = vec![(KNOWN, known)];
        let step = wait_until(PATIENCE, || journal.first(crosses).ok().flatten());
        // Ended before it crossed is as wrong as not ended.
        if let (Some(crossed), Some(step), Some(record)) =
            (crossing(&entries, before, most, counted), step, record)
        {
            found.push((FORK, between(crossed, step)));
            let signal = time_of(&record, "firstSignal");
            found.extend(signal.map(|at| (BOMB, between(crossed, at))));
        }
        Ok(found)
    }

    /// Waits until nothing of a storm holds a process id: who exited holds his own until he is reaped.
    fn wait_reaped(&self, group: &OwnedCgroup) -> anyhow::Result<()> {
        let reaped = || (self.tasks_of(group).ok()? == 0).then_some(());
        wait_until(PATIENCE, reaped).context("the storm's processes stay")?;
        sleep(CLEARED);
        Ok(())
    }

    /// Tasks of a group.
    fn tasks_of(&self, group: &OwnedCgroup) -> anyhow::Result<u64> {
        let dir = group.dir(&self.arena.layout, Controller::Pids);
        let dir = dir.context("the group has no limit of tasks")?;
        Ok(dir.tasks()?)
    }

    /// The most tasks that the kernel has ever counted in a group, where it keeps that (Linux 6.11 and newer).
    fn most_tasks_of(&self, group: &OwnedCgroup) -> anyhow::Result<Option<u64>> {
        let dir = group.dir(&self.arena.layout, Controller::Pids);
        let dir = dir.context("the group has no limit of tasks")?;
        match std::fs::read_to_string(dir.path().join("pids.peak")) {
            Ok(text) => Ok(Some(text.trim().parse().context("pids.peak")?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("pids.peak"),
        }
    }

    /// Process ids of the node, as the agent counts them.
    fn pids(&self) -> anyhow::Result<u64> {
        let signals = self.agent.status()?.signals;
        let mut signals = signals.iter();
        let pids = signals.find(|signal| signal.signal == "pid.available");
        let pids = pids.context("the agent does not know pid.available")?;
        Ok(u64::try_from(pids.capacity)?)
    }

    /// A victim that takes a while to die: when the agent knows that the last of it is gone.
    fn exit(&self) -> anyhow::Result<Found> {
        let (group, known) = self.new_workload()?;
        let spec = HogSpec::new(Load::Anon, LARGE, PATIENCE);
        let mut hog = Hog::spawn(&programs::hog()?, Some(&group), &spec)?;
        hog.wait_touched(LARGE, PATIENCE)?;
        self.trace.clear()?;
        let began = monotonic_ns();
        self.agent.arm(&[("memory.available", NODE - LARGE / 2)])?;
        let record = self.agent.decision_since(began, PATIENCE);
        hog.wait(PATIENCE)?;
        let path = format!("path={}", group.group());
        let gone = self.trace.read()?.into_iter().find(|entry| {
            let mut fields = entry.fields.split(' ');
            entry.name == "cgroup_notify_populated"
                && fields.any(|field| field == path)
                && entry.fields.ends_with("val=0")
        });
        self.agent.disarm()?;
        let gone = gone.context("the victim's group did not become empty")?.at;
        let recorded = record.and_then(|record| time_of(&record, "gone"));
        let found = recorded.map(|at| (EXIT, between(gone, at)));
        Ok(found.into_iter().chain([(KNOWN, known)]).collect())
    }

    /// A new group, and how long it took until the agent watched over it.
    fn new_workload(&self) -> anyhow::Result<(OwnedCgroup, i64)> {
        let group = self.arena.next_victim()?;
        let made = Instant::now();
        self.agent.wait_known(group.group())?;
        Ok((group, i64::try_from(made.elapsed().as_nanos())?))
    }
}

/// When there were more than `most` tasks of the node, counted from so many on: nobody exits before.
///
/// The kernel counts a fork before its tracer tells of it, and gives up a fork whose parent is killed meanwhile. Where those
/// that were told of come to no more than `most`, and the kernel has `counted` more, the last of them is the earliest moment.
fn crossing(entries: &[Entry], before: u64, most: u64, counted: Option<u64>) -> Option<u64> {
    let forks = entries.iter().filter(|entry| entry.name == "task_newtask");
    let within = usize::try_from(most.checked_sub(before)?).ok()?;
    let forks: Vec<u64> = forks.map(|entry| entry.at).collect();
    let given_up = || {
        let is_counted = counted.is_some_and(|counted| counted > most);
        forks.last().copied().filter(|_| is_counted)
    };
    forks.get(within).copied().or_else(given_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_that_was_given_up_crosses_no_earlier_than_the_last_that_was_told_of() {
        let fork = |at| Entry {
            at,
            name: "task_newtask".to_owned(),
            fields: "pid=7 comm=brink-hog".to_owned(),
        };
        let entries = [fork(1), fork(3), fork(6)];
        let check = |before, counted, expected: Option<u64>| {
            assert_eq!(
                crossing(&entries, before, 10, counted),
                expected,
                "{before} {counted:?}"
            );
        };
        check(8, None, Some(6));
        check(9, Some(12), Some(3));
        check(7, Some(11), Some(6));
        check(7, Some(10), None);
        check(7, None, None);
        check(11, Some(14), None);
    }
}

//! Kills by the limits of cgroups, as fast as a bad day brings them: what of them is told, how completely and how soon.
use std::time::Duration;

use anyhow::Context as _;
use brink_host::{
    cgroup::owned::OwnedCgroup,
    hog::{HogSpec, Load},
};
use brink_tests::{
    Hog,
    kills::{self, Account, PARTS, SHOWN},
};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use super::super::registry::{Measured, Outcome, Settings};
use super::{
    agent::{Agent, Setup},
    arena::Arena,
    console::Quiet,
    programs,
    units::MIB,
};

/// Groups that take turns, each with a limit of its own.
const GROUPS: usize = 50;
const A_SECOND: u32 = 50;
/// Larger than the limits of all groups together, by more than the thresholds.
const NODE: u64 = 2048 * MIB;
/// Nothing is told for so long: there is nothing more.
const PATIENCE: Duration = Duration::from_secs(10);
const ALONE: &str = "alone";
const STORM: &str = "beside 10,000 forks a second";
/// Of each of so many processes: somewhat more than is to be reached, as each pause is made up for only slowly.
const FORKS_A_SECOND: u64 = 6_000;
const FORKERS: usize = 2;

const DELAY: &str = "kill to readable";
const COMPLETE: &str = "complete records";
const UNCOUNTED: &str = "uncounted losses";
const MISSING: &str = "kills without an incident";
const PENDING: &str = "final records with a pending field";
const WRONG: &str = "records with another cgroup's limit";
const FORKED: &str = "forks a second";

/// Runs it.
pub(super) fn run(settings: &Settings) -> anyhow::Result<Measured> {
    if let Some(refusal) = super::refusal() {
        return Ok(refusal);
    }
    let mut outcome = Outcome::default();
    let _quiet = Quiet::start()?;
    for case in [ALONE, STORM] {
        let count = u32::try_from(settings.runs(100, 1000))?;
        measure(&mut outcome, case, count)?;
    }
    Ok(Measured::Ran(outcome))
}

fn measure(outcome: &mut Outcome, case: &str, count: u32) -> anyhow::Result<()> {
    let arena = Arena::new(NODE, 0)?;
    let groups = (0..GROUPS).map(|number| arena.workload(&format!("w{number:04}")));
    let groups: Vec<OwnedCgroup> = groups.collect::<anyhow::Result<_>>()?;
    let agent = Agent::start(Setup::of(&arena))?;
    for group in &groups {
        agent.wait_known(group.group())?;
    }
    let forkers = (case == STORM).then(|| forks(&arena, count)).transpose()?;
    let listener = kills::listen(&agent.events(), count, PATIENCE)?;
    let pace = (count, A_SECOND);
    let (killed, took) = kills::kill_by_limits(&programs::hog()?, (&arena.layout, &groups), pace)?;
    let forked = forkers.map(|forkers| rate(&forkers)).transpose()?;
    let heard = listener.join();
    let heard = heard.map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    let account = Account::of(&killed, &heard)?;
    add(outcome, case, (count, &account));
    if let Some(forked) = forked {
        outcome.add(case, FORKED, "", vec![forked]);
    }
    outcome.notes.push(format!(
        "{case}: {:.1} kills a second; losses told count {}{}",
        f64::from(count) / took.as_secs_f64(),
        account.counted,
        account.example.map_or_else(String::new, |example| format!(
            "; the first that lacks something: {example}"
        ))
    ));
    Ok(())
}

/// Processes that fork and reap for as long as the kills take and longer, each on a processor of its own.
fn forks(arena: &Arena, count: u32) -> anyhow::Result<Vec<Hog>> {
    let longest = Duration::from_secs(1) * count / A_SECOND * 4 + PATIENCE;
    let spec = HogSpec {
        hold: false,
        ..HogSpec::new(
            Load::SpawnChurn,
            FORKS_A_SECOND * longest.as_secs(),
            longest,
        )
    };
    let spec = spec.at_rate(FORKS_A_SECOND);
    let processors = sched_getaffinity(None)?;
    let usable = (0..CpuSet::MAX_CPU).filter(|&processor| processors.is_set(processor));
    let usable: Vec<usize> = usable.collect();
    let start = |place: usize| {
        let hog = Hog::spawn(&programs::hog()?, Some(&arena.beside), &spec)?;
        // A child that another processor runs costs an interrupt there and back, on a virtual machine more than the fork.
        let mut only = CpuSet::new();
        only.set(usable[place % usable.len()]);
        sched_setaffinity(Pid::from_raw(hog.pid()), &only)?;
        Ok(hog)
    };
    (0..FORKERS).map(start).collect()
}

/// How many forks a second they made.
fn rate(forkers: &[Hog]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for forker in forkers {
        let progress = forker.progress()?;
        let nanos = progress.latest_ns.checked_sub(progress.started_ns);
        let nanos = nanos.filter(|nanos| *nanos > 0).context("no fork")?;
        let forks = u32::try_from(progress.touched)?;
        sum += f64::from(forks) / Duration::from_nanos(nanos).as_secs_f64();
    }
    Ok(sum)
}

/// Adds what was told of a storm.
fn add(outcome: &mut Outcome, case: &str, (count, account): (u32, &Account)) {
    outcome.add(case, DELAY, "ms", account.delays.clone());
    let number = |count: u64| vec![f64::from(u32::try_from(count).unwrap_or(u32::MAX))];
    outcome.add(case, MISSING, "", number(account.missing as u64));
    outcome.add(case, UNCOUNTED, "", number(account.uncounted));
    outcome.add(case, PENDING, "", number(account.pending as u64));
    let share = |of: usize| 100.0 * f64::from(u32::try_from(of).unwrap_or(0)) / f64::from(count);
    outcome.add(case, WRONG, "", number(account.wrong_limits as u64));
    outcome.add(case, COMPLETE, "%", vec![share(account.complete)]);
    for part in PARTS.into_iter().chain([SHOWN]) {
        for (named, parts) in [
            (first_with as fn(&str) -> String, &account.first),
            (with, &account.filled),
        ] {
            let filled = parts.get(part).copied().unwrap_or(0);
            outcome.add(case, &named(part), "%", vec![share(filled)]);
        }
    }
}

/// Of the record that `kill to readable` is about.
fn first_with(part: &str) -> String {
    format!("opening records with {part}")
}

fn with(part: &str) -> String {
    format!("records with {part}")
}

/// Holds all of it, but for the arguments, which need not be had, the times beside forks, which keep both processors busy, and what is
/// in records that are only opened. All three are shown.
pub(super) fn hold(outcome: &mut Outcome, settings: &Settings) {
    for case in [ALONE, STORM] {
        outcome.limit_sum(case, UNCOUNTED, 0.0);
        outcome.limit_sum(case, MISSING, 0.0);
        outcome.limit_sum(case, PENDING, 0.0);
        outcome.limit_sum(case, WRONG, 0.0);
        outcome.least_median(case, COMPLETE, 99.9);
        for part in PARTS {
            outcome.least_median(case, &with(part), 99.0);
        }
    }
    outcome.least_median(STORM, FORKED, settings.figure(500.0, 10_000.0));
    outcome.limit_median(ALONE, DELAY, settings.time(10.0));
    outcome.limit_tail(ALONE, DELAY, settings.time(50.0));
}

#[cfg(test)]
mod tests {
    use brink_tests::kills::{Heard, Killed};
    use serde_json::{Value, json};

    use super::*;

    fn heard(seq: u64, kind: &str, data: &Value) -> Heard {
        let event =
            json!({"type": kind, "seq": seq, "at": {"monotonicNs": 1_000_000}, "data": data});
        (3_500_000, event.to_string().into_bytes())
    }

    fn account(lines: &[(u64, &str, Value)]) -> Account {
        let heard: Vec<Heard> = lines
            .iter()
            .map(|(seq, kind, data)| heard(*seq, kind, data))
            .collect();
        let killed = Killed::from([((7, 3), "/web".to_owned())]);
        Account::of(&killed, &heard).unwrap()
    }

    fn incident(is_final: bool, freed: &Value) -> Value {
        let value = json!({"value": 1});
        let victim = json!({
            "pid": 7, "argv": {"value": ["hog"]}, "startNs": {"value": 39_999_999}, "uid": value, "oomScoreAdj": value, "anon": value, "file": value, "shmem": value,
            "pageTables": value, "ageNs": value, "cgroup": value, "exited": value,
        });
        json!({
            "isFinal": is_final, "victims": [victim], "course": {"freed": freed},
            "workload": {"value": {"name": "web"}}, "limit": {"value": {"cgroup": "/web"}},
            "memoryStat": {"value": {"pgfault": 1}},
            "trigger": {"value": {"kernelStack": {"value": ["a", "b", "c"]}}},
        })
    }

    #[test]
    fn a_record_is_complete_when_nothing_is_to_come_and_its_parts_are_counted_apart() {
        let opened = incident(false, &json!({"missing": "pending"}));
        let closed = incident(true, &json!({"missing": "processGone"}));
        let lines = [(1, "oom-kill", opened), (2, "incident-closed", closed)];
        let found = account(&lines);
        assert_eq!((found.missing, found.uncounted, found.pending), (0, 0, 0));
        assert_eq!((found.complete, &found.delays[..]), (1, &[2.5][..]));
        assert_eq!(
            (found.filled["victim"], found.filled["kernel stack"]),
            (1, 0)
        );
        assert_eq!(found.filled[SHOWN], 1);
        let example = found.example.unwrap();
        assert!(example.contains("kernelStack/value/3"), "{example}");
    }

    #[test]
    fn the_record_that_is_readable_first_is_judged_by_itself() {
        let mut opened = incident(false, &json!({"missing": "pending"}));
        opened["victims"][0]["exited"] = json!({"missing": "pending"});
        opened["trigger"]["value"]["kernelStack"] = json!({"missing": "pending"});
        opened["memoryStat"] = json!({"missing": "processGone"});
        let found = account(&[(1, "oom-kill", opened)]);
        let first = |part: &str| found.first[part];
        assert_eq!(
            (first("victim"), first("limit"), first("identity")),
            (1, 1, 1)
        );
        assert_eq!((first("memory.stat"), first("kernel stack")), (0, 0));
        assert_eq!((first(SHOWN), found.filled.len()), (1, 0));
    }

    #[test]
    fn a_limit_is_compared_with_the_one_that_killed() {
        let wrong = |cgroup: &Value| {
            let mut record = incident(true, &json!({"value": 1}));
            record["limit"] = cgroup.clone();
            let lines = [
                (1, "oom-kill", record.clone()),
                (2, "incident-closed", record),
            ];
            account(&lines).wrong_limits
        };
        assert_eq!(wrong(&json!({"value": {"cgroup": "/web"}})), 0);
        assert_eq!(wrong(&json!({"value": {"cgroup": "/"}})), 2);
        assert_eq!(
            wrong(&json!({"missing": "processGone"})),
            0,
            "it is not told"
        );
    }

    #[test]
    fn another_process_of_the_same_id_is_not_the_one_that_was_killed() {
        let mut record = incident(true, &json!({"value": 1}));
        record["victims"][0]["startNs"] = json!({"value": 40_000_000});
        let lines = [
            (1, "oom-kill", record.clone()),
            (2, "incident-closed", record),
        ];
        let found = account(&lines);
        assert_eq!(
            (found.missing, found.complete, found.wrong_limits),
            (1, 0, 0)
        );
    }

    #[test]
    fn what_is_still_to_come_in_a_final_record_is_found_wherever_it_stands() {
        let closed = incident(true, &json!({"missing": "pending"}));
        let found = account(&[(1, "incident-closed", closed)]);
        assert_eq!((found.pending, found.complete, found.missing), (1, 0, 1));
        assert_eq!(found.uncounted, 1, "nobody told of its beginning");
        // A reason stands beside what is no field of its own, and a name may be anything.
        let mut closed = incident(true, &json!({"value": 1}));
        closed["workload"]["value"]["name"] = json!("pending");
        closed["victims"][0]["comm"] = json!("\"missing\":\"pending\"");
        let found = account(&[(1, "incident-closed", closed.clone())]);
        assert_eq!((found.pending, found.complete), (0, 1));
        closed["workload"]["value"]["ownerMissing"] = json!("pending");
        let found = account(&[(1, "incident-closed", closed)]);
        assert_eq!((found.pending, found.complete), (1, 0));
    }

    #[test]
    fn a_gap_is_a_loss_that_nobody_counted_unless_it_is_told() {
        let other = || json!({});
        let lines = [(4, "pressure", other()), (6, "pressure", other())];
        assert_eq!(account(&lines).uncounted, 2, "a number, and the kill");
        let loss = json!({"place": "reader", "count": 3, "first": 5, "last": 7});
        let lines = [(4, "pressure", other()), (7, "loss", loss)];
        let found = account(&lines);
        assert_eq!((found.uncounted, found.counted, found.missing), (0, 3, 1));
    }
}

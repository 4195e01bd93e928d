//! Threads and processes against the kernel's own counts, and the end of victims.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; only the functions marked as tests are known as such"
)]

use std::os::fd::AsFd as _;
use std::process::{Child, Command};
use std::time::Duration;

use brink_host::cgroup::Controller;
use brink_host::probe::programs::PROGRAMS;
use brink_host::probe::{
    Facts, Family, Meters, Probe, Roots, Row, Signal, Victim, Wishes, coverage,
};
use brink_tests::{Sandbox, lacks, report_left_out};
use probe_support::{Group, probe, signal, threads, until, waiting, within};

mod probe_support;

fn ready(label: &str) -> Result<(Probe, Group), String> {
    let (probe, group) = (probe(Wishes::default())?, Group::new(label)?);
    Ok((probe, group))
}

/// Children that end with the test.
struct Sleepers(Vec<Child>);

impl Sleepers {
    fn new(group: &Group, count: usize) -> Self {
        let all = group.processes() + count;
        let sleepers = Self((0..count).map(|_| group.run("exec sleep 60")).collect());
        for child in &sleepers.0 {
            let comm = format!("/proc/{}/comm", child.id());
            until("the shell to become a sleeper", || {
                (std::fs::read_to_string(&comm).unwrap() == "sleep\n").then_some(())
            });
        }
        until("the sleepers to be in their group", || {
            (group.processes() == all).then_some(())
        });
        sleepers
    }

    fn kill(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
        }
    }

    fn end(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        self.0.clear();
    }
}

/// A group's processes and its dead, as they are counted; none where it is counted no more.
fn counted(meters: &Meters, group: u64) -> Option<(i64, i64)> {
    let meter = meters.cgroup(group).unwrap();
    meter.map(|meter| (meter.processes, meter.zombies))
}

/// Waits until all that is left of a group's processes are so many dead. One at whose end the kernel has left our program out, as it does
/// where that was interrupted on the same processor, is counted among the living until he is reaped.
fn until_dead(meters: &Meters, group: u64, dead: i64) {
    let unseen = || -> u64 {
        meters
            .skipped(|program| program == "exit")
            .map(|(_, runs)| runs)
            .sum()
    };
    let is_so = || {
        let (living, zombies) = counted(meters, group)?;
        let is_explained = u64::try_from(living).is_ok_and(|living| living <= unseen());
        (living + zombies == dead && is_explained).then_some(())
    };
    let found = within(is_so);
    let (counted, unseen) = (counted(meters, group), unseen());
    assert!(
        found.is_some(),
        "{counted:?} are counted, and not {dead} dead, of whom {unseen} at the most ended unseen"
    );
    if let Some((living @ 1.., _)) = counted {
        report_left_out(&format!(
            "the dead among whom {living} ended unseen by the program"
        ));
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.end();
    }
}

/// Threads that wait until they are let go.
struct Waiting {
    gate: std::sync::Arc<std::sync::Barrier>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Waiting {
    fn new(count: usize) -> Self {
        let gate = std::sync::Arc::new(std::sync::Barrier::new(count + 1));
        let wait = |_| {
            let gate = std::sync::Arc::clone(&gate);
            std::thread::spawn(move || {
                gate.wait();
            })
        };
        let threads = (0..count).map(wait).collect();
        Self { gate, threads }
    }

    fn end(self) {
        self.gate.wait();
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn threads_are_those_of_loadavg() {
    let mut probe = match probe(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    probe.calibrate_threads(threads).unwrap();
    // Others fork meanwhile, and a task that has been reaped is given back a grace period later.
    let near = |probe: &Probe| {
        until("nearly equal counts", || {
            let real = i64::try_from(threads().unwrap()).unwrap();
            let counted = probe.processes().unwrap().threads;
            (real.abs_diff(counted) <= 8).then_some(counted)
        })
    };
    let before = near(&probe);
    let waiting = Waiting::new(200);
    assert!(near(&probe) > before + 100);
    waiting.end();
    until("the threads to be given back", || {
        (near(&probe) < before + 100).then_some(())
    });
}

#[test]
fn a_count_that_is_too_high_is_not_lowered_at_once() {
    let mut probe = match probe(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    // No total of the kernel's but one that is told, relative to what is counted: others fork and exit all the time.
    let mut correction = |by: i64| {
        let counted = probe.processes().unwrap().threads;
        let delta = probe
            .calibrate_threads(|| Ok(u64::try_from(counted + by).unwrap_or(0)))
            .unwrap();
        // Rounded to what these steps are made of.
        (delta + delta.signum() * 500) / 1000 * 1000
    };
    assert_eq!(correction(50_000), 50_000, "too low: raised at once");
    assert_eq!(correction(-9_000), 0, "perhaps only not freed yet");
    assert_eq!(correction(-4_000), 0, "a reload may follow at once");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(correction(-5_000), -4_000, "the smallest excess");
}

#[test]
fn the_limit_on_threads_is_told_once_each_way() {
    let mut probe = match probe(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    probe.calibrate_threads(threads).unwrap();
    let limit = u32::try_from(threads().unwrap()).unwrap() + 40;
    probe.set_thread_limit(Some(limit)).unwrap();
    let waiting = Waiting::new(80);
    let told = |found: &Signal| match found {
        Signal::Threads(record) => Some(*record),
        _ => None,
    };
    let over = signal(&mut probe, "the limit to be told", told);
    assert_eq!((over.over, over.limit), (1, i64::from(limit)));
    assert_eq!(over.threads, i64::from(limit) + 1);
    waiting.end();
    let back = signal(&mut probe, "the way back", told);
    assert_eq!(back.over, 0);
    assert!(back.threads < i64::from(limit) * 15 / 16 + 1, "{back:?}");
    std::thread::sleep(Duration::from_millis(50));
    let mut more = 0;
    probe.drain_signals(usize::MAX, |found| more += u32::from(told(found).is_some()));
    assert_eq!(more, 0);
}

/// The node as a cgroup: its own counter is compared, whatever else the machine forks.
#[test]
fn the_limit_on_tasks_of_a_cgroup_is_told_by_the_fork_that_crosses_it() {
    let mut probe = match probe(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let sandbox = match Sandbox::new(&[Controller::Pids], 0) {
        Ok(sandbox) => sandbox,
        Err(error) => lacks!("{error}"),
    };
    sandbox.group.limit_tasks(&sandbox.layout, 200).unwrap();
    let dir = sandbox.dir(Controller::Pids).unwrap();
    probe.count_tasks_of(Some(dir.as_fd())).unwrap();
    probe.set_thread_limit(Some(40)).unwrap();
    let told = |found: &Signal| match found {
        Signal::Threads(record) => Some((record.threads, record.limit, record.over)),
        _ => None,
    };
    // The machine has more threads than that, and these are none of the group's.
    let beside = Waiting::new(60);
    assert!(threads().unwrap() > 40);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(waiting(&mut probe, told), None);
    beside.end();
    let mut all = Vec::new();
    for _ in 0..60 {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        sandbox.group.add_process(child.id()).unwrap();
        all.push(child);
    }
    assert_eq!(dir.tasks().unwrap(), 60);
    assert_eq!(
        signal(&mut probe, "the limit to be told", told),
        (41, 40, 1)
    );
    for child in &mut all {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let back = signal(&mut probe, "the way back", told);
    assert_eq!((back.1, back.2), (40, 0));
    assert!(back.0 < 38, "{back:?}");
    // Its group is gone: nothing is told of whoever has its place in memory.
    drop(sandbox);
    let others = Waiting::new(60);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(waiting(&mut probe, told), None);
    probe.count_tasks_of(None).unwrap();
    probe.calibrate_threads(threads).unwrap();
    let limit = u32::try_from(threads().unwrap() - 20).unwrap();
    probe.set_thread_limit(Some(limit)).unwrap();
    let more = Waiting::new(1);
    assert_eq!(signal(&mut probe, "the machine's", told).2, 1);
    more.end();
    others.end();
}

#[test]
fn processes_of_a_cgroup_are_those_of_its_file() {
    let group = match Group::new("count") {
        Ok(group) => group,
        Err(why) => lacks!("{why}"),
    };
    // These start before the hooks are there: the iterator finds them.
    let mut early = Sleepers::new(&group, 5);
    let mut probe = match probe(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let counted = |group: &Group| {
        meters
            .cgroup(group.id())
            .unwrap()
            .map_or(0, |meter| meter.processes)
    };
    assert_eq!(counted(&group), 0);
    probe.sync_processes().unwrap();
    assert_eq!(counted(&group), 5);
    let mut late = Sleepers::new(&group, 7);
    assert_eq!(counted(&group), 12);
    // A second pass finds nobody new.
    probe.sync_processes().unwrap();
    assert_eq!((counted(&group), group.processes()), (12, 12));
    early.end();
    until("the early ones to be counted out", || {
        (counted(&group) == 7).then_some(())
    });
    // Into another group, by hand.
    let other = Group::new("other").unwrap();
    for child in &late.0 {
        std::fs::write(other.path().join("cgroup.procs"), child.id().to_string()).unwrap();
    }
    assert_eq!((counted(&group), counted(&other)), (0, 7));
    late.end();
    until("all to be counted out", || {
        (counted(&other) == 0).then_some(())
    });
    let meter = probe.processes().unwrap();
    assert_eq!(meter.untracked, 0);
    assert!(meter.moves >= 7 && meter.synced >= 5, "{meter:?}");
    assert!(meter.attaches >= meter.moves, "{meter:?}");
}

#[test]
fn the_dead_are_counted_until_they_are_reaped() {
    let group = match Group::new("zombies") {
        Ok(group) => group,
        Err(why) => lacks!("{why}"),
    };
    let mut probe = match probe(Wishes::default()) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let mut sleepers = Sleepers::new(&group, 4);
    let counted = || counted(&meters, group.id()).unwrap();
    assert_eq!(counted(), (4, 0));
    sleepers.kill();
    until_dead(&meters, group.id(), 4);
    let before = counted();
    // Long enough for every grace period: nobody asked after them.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(counted(), before);
    sleepers.0.pop().unwrap().wait().unwrap();
    until_dead(&meters, group.id(), 3);
    sleepers.end();
    until("all to be reaped", || (counted() == (0, 0)).then_some(()));
}

/// A probe without the program at exit: whoever ends is as one of whom the kernel has left that program out.
fn blind_to_exits() -> Result<Probe, String> {
    let mut facts = Facts::gather(&Roots::default());
    let exit = PROGRAMS.iter().position(|program| program.name == "exit");
    facts
        .types
        .as_mut()
        .map_err(|error| error.to_string())?
        .targets[exit.unwrap()] = Err("left out".to_owned());
    let settings = coverage::settings(&facts, Wishes::default());
    Probe::load(&facts, &settings).map_err(|error| error.to_string())
}

#[test]
fn whoever_ends_unseen_is_counted_until_he_is_reaped() {
    let group = match Group::new("unseen") {
        Ok(group) => group,
        Err(why) => lacks!("{why}"),
    };
    let mut probe = match blind_to_exits() {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    for needed in ["fork", "free"] {
        if !probe.coverage().has(needed) {
            lacks!("the program {needed}");
        }
    }
    assert!(!probe.coverage().has("exit"));
    let meters = probe.take_meters().unwrap();
    let mut sleepers = Sleepers::new(&group, 4);
    let counted = || counted(&meters, group.id()).unwrap();
    assert_eq!(counted(), (4, 0));
    sleepers.kill();
    until("nobody to be left in the file", || {
        (group.processes() == 0).then_some(())
    });
    assert_eq!(counted(), (4, 0), "nobody told of an end");
    sleepers.end();
    until("all to be given back", || {
        (counted() == (0, 0)).then_some(())
    });
}

#[test]
fn a_removed_cgroup_counts_its_dead_until_they_are_reaped() {
    let (mut probe, group) = match ready("buried") {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let mut sleepers = Sleepers::new(&group, 4);
    let id = group.id();
    let counted = || counted(&meters, id);
    sleepers.kill();
    until_dead(&meters, id, 4);
    let before = counted();
    group.remove();
    assert_eq!(counted(), before);
    sleepers.0.pop().unwrap().wait().unwrap();
    until_dead(&meters, id, 3);
    sleepers.end();
    until("nothing to be left", || counted().is_none().then_some(()));
}

#[test]
fn threads_of_a_process_do_not_count_as_processes() {
    let (mut probe, group) = match ready("threads") {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    probe.sync_processes().unwrap();
    let own = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = own();
    let started: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(|| std::thread::sleep(Duration::from_millis(300))))
        .collect();
    assert_eq!(own(), before + 8);
    std::fs::write(
        group.path().join("cgroup.procs"),
        std::process::id().to_string(),
    )
    .unwrap();
    let counted = meters.cgroup(group.id()).unwrap().unwrap().processes;
    let parent = group.path().parent().unwrap();
    std::fs::write(parent.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    assert_eq!(counted, 1);
    for thread in started {
        thread.join().unwrap();
    }
}

#[test]
fn the_exit_of_a_victim_is_told() {
    let (mut probe, group) = match ready("victim") {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let mut sleepers = Sleepers::new(&group, 3);
    let pid = sleepers.0[1].id();
    probe.watch_victim(Victim::Process(pid)).unwrap();
    sleepers.0[0].kill().unwrap();
    sleepers.0[1].kill().unwrap();
    let record = signal(&mut probe, "the exit", |found| match found {
        Signal::Exit(record) => Some(*record),
        _ => None,
    });
    assert_eq!(
        (record.tgid, record.exit_code, record.cgroup),
        (pid, 9, group.id())
    );
    assert!(record.left <= 2, "{}", record.left);
    assert_eq!(brink_host::probe::decode::name(&record.comm), "sleep");
    probe.unwatch_victim(Victim::Process(pid)).unwrap();
    sleepers.end();
    let loss = meters.loss(Row::ProcessSignals).unwrap();
    assert_eq!((loss.sent, loss.dropped), (1, 0));
}

#[test]
fn the_end_of_a_victim_cgroup_is_told() {
    let (mut probe, group) = match ready("empty") {
        Ok(both) => both,
        Err(why) => lacks!("{why}"),
    };
    let mut sleepers = Sleepers::new(&group, 3);
    probe.watch_victim(Victim::Cgroup(group.id())).unwrap();
    sleepers.end();
    let (mut exits, mut empty) = (0, None);
    until("the cgroup to be told empty", || {
        probe.drain_signals(usize::MAX, |found| match found {
            Signal::Exit(record) if record.cgroup == group.id() => exits += 1,
            Signal::Empty(record) => empty = Some(record.cgroup),
            _ => {}
        });
        empty
    });
    assert_eq!((exits, empty), (3, Some(group.id())));
}

#[test]
fn a_full_table_is_counted_and_said() {
    let wishes = Wishes {
        processes: 1,
        without: vec![Family::Reclaim],
        ..Wishes::default()
    };
    let group = match Group::new("full") {
        Ok(group) => group,
        Err(why) => lacks!("{why}"),
    };
    let mut probe = match probe(wishes) {
        Ok(probe) => probe,
        Err(why) => lacks!("{why}"),
    };
    let meters = probe.take_meters().unwrap();
    let _sleepers = Sleepers::new(&group, 40);
    let meter = probe.processes().unwrap();
    let of_group = meters.cgroup(group.id()).unwrap();
    assert!(meter.untracked > 0, "{meter:?} {of_group:?}");
}

#[test]
fn a_cgroup_that_finds_no_room_for_its_meters_is_counted() {
    let group = match Group::new("unmetered") {
        Ok(group) => group,
        Err(why) => lacks!("{why}"),
    };
    for (cgroups, expected) in [(1, true), (2048, false)] {
        let wishes = Wishes {
            cgroups,
            ..Wishes::default()
        };
        let mut probe = match probe(wishes) {
            Ok(probe) => probe,
            Err(why) => lacks!("{why}"),
        };
        let meters = probe.take_meters().unwrap();
        let children: Vec<Group> = ["a", "b"].map(|name| group.child(name)).into();
        let _sleepers: Vec<Sleepers> = children
            .iter()
            .map(|child| Sleepers::new(child, 1))
            .collect();
        let meter = probe.processes().unwrap();
        let known = children
            .iter()
            .filter(|child| meters.cgroup(child.id()).unwrap().is_some())
            .count();
        assert_eq!(meter.unmetered > 0, expected, "{meter:?}");
        assert_eq!(known == children.len(), !expected, "{known}");
    }
}

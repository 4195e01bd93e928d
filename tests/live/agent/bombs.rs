//! Fork bombs against a limit of process ids: that of a node that is a cgroup, and the machine's.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use brink::control::http;
use brink::record::DecisionRecord;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::cgroup::{CgroupDir, Controller};
use brink_host::hog::{HogSpec, Load};
use brink_stream::model::event::Event;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{ForkRoot, Incident};
use brink_tests::{lacks, wait_until};
use rustix::process::Signal;

use crate::support::{Node, PATIENCE, lives};

/// Tasks that the node may have; the kernel forks no more, whatever becomes of the agent.
const MOST: u64 = 2000;
/// The threshold: so many are to be left. Below half of it nobody waits for the dead, so that it leaves a slow agent some time.
const LEFT: u64 = 800;
/// More than any bomb here comes to: the node's own limit is the one that is met.
const OF_A_WORKLOAD: u64 = 4000;

/// A node with a limit of tasks, somebody innocent in it, and a place for a bomb.
struct Ground {
    node: Node,
    bomb: usize,
    agent: u32,
    innocent: brink_tests::Hog,
    /// It goes when the agent has.
    cell: Cell,
}

/// A cgroup that the agent alone is in, outside its node. Once it is closed, the kernel refuses and counts every clone in it.
struct Cell {
    group: OwnedCgroup,
    folder: PathBuf,
}

impl Cell {
    /// One that the agent of this node is born in.
    fn around(node: &mut Node) -> Self {
        let layout = &node.sandbox.layout;
        let group = OwnedCgroup::create(layout, "test", &[Controller::Pids]).unwrap();
        let dir = group.dir(layout, Controller::Pids).unwrap();
        let folder = dir.path().to_path_buf();
        let script = format!("{}exec \"$@\"", entering(&group));
        node.within = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
        Self { group, folder }
    }

    /// Lets it have no more tasks than it has: how many these are.
    fn close(&self) -> u64 {
        let tasks = self.tasks();
        fs::write(self.folder.join("pids.max"), tasks.to_string()).unwrap();
        tasks
    }

    fn tasks(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("pids.current")).unwrap();
        text.trim().parse().unwrap()
    }

    /// How many clones were refused.
    fn refused(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("pids.events")).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("max "));
        count.expect("a count of what was refused").parse().unwrap()
    }

    /// Has a shell clone itself in there, for what is in brackets: so it is when somebody tries.
    fn check_closed(&self) {
        let before = self.refused();
        let script = format!("{}(:); exit 0", entering(&self.group));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).stderr(Stdio::null());
        let _refused = shell.status().unwrap();
        let refused = self.refused() - before;
        assert!(refused > 0, "a clone is not refused, or not counted");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // The agent may end as it likes.
        let _opened = fs::write(self.cell.folder.join("pids.max"), "max");
    }
}

impl Ground {
    /// How often the kernel left a program out.
    fn skipped(&self, program: &str) -> u64 {
        let status = self.node.status().expect("the agent answers");
        let mut programs = status.programs.iter();
        let found = programs.find(|found| found.name == program);
        found
            .and_then(|found| found.skipped)
            .expect("the kernel tells")
    }

    /// None where the kernel's programs do not run.
    fn new() -> Option<Self> {
        Self::with("")
    }

    /// The same with more settings of events.
    fn with(events: &str) -> Option<Self> {
        let mut node = Node::new(1500);
        let cell = Cell::around(&mut node);
        let innocent = node.workload("innocent", "containers: [{name: c}]");
        let bomb = node.workload("bomb", "containers: [{name: c}]");
        let layout = &node.sandbox.layout;
        node.sandbox.group.limit_tasks(layout, MOST).unwrap();
        node.groups[bomb]
            .limit_tasks(layout, OF_A_WORKLOAD)
            .unwrap();
        let hard = format!(
            "evictionHard: {{pid.available: \"{LEFT}\"}}\nevents: {{enabled: true{events}}}"
        );
        node.configure("enforce", &hard);
        let status = node.start(&[]);
        let innocent = node.holding(innocent, 8);
        let runs = status.rung.as_deref() == Some("kernel-sampler");
        runs.then_some(Self {
            node,
            bomb,
            agent: status.pid,
            innocent,
            cell,
        })
    }

    /// Where the incident of the latest order says that its processes came from.
    fn fork_root(&self, order: usize) -> Field<ForkRoot> {
        let incident: Incident = serde_json::from_str(self.told(order).data.get()).unwrap();
        // The record of the decision says the same: it was looked for once.
        let record = self.node.finished(order as u64);
        assert_eq!(record.fork_root.as_ref(), Some(&incident.fork_root));
        incident.fork_root
    }

    /// The same, where it has to be known. Each birth that the kernel kept from the program cuts off all that descend from it, and
    /// who is not certain to be the root is not told as that: none then.
    fn root(&self, order: usize) -> Option<ForkRoot> {
        match self.fork_root(order) {
            Field::Value(root) => Some(root),
            Field::Missing(why) => {
                assert_eq!(why, Missing::Lost);
                assert!(self.skipped("birth") > 0, "every birth was told");
                None
            }
        }
    }

    /// The last event of the incident of the latest order.
    fn told(&self, order: usize) -> Event {
        let socket = self.node.path("state/events.sock");
        let told = wait_until(PATIENCE, || {
            let answer = http::get(&socket, "/v1/events?since=0&kind=eviction-completed");
            let text = answer.ok()?.text().ok()?;
            let mut events = text.lines().skip(order - 1);
            serde_json::from_str::<Event>(events.next()?).ok()
        });
        told.unwrap_or_else(|| panic!("{}", self.node.log()))
    }

    fn ids(&self, of: usize) -> &CgroupDir {
        let group = &self.node.groups[of];
        group
            .dir(&self.node.sandbox.layout, Controller::Pids)
            .unwrap()
    }

    /// Waits for the end of a bomb whose first process is reaped: all of it goes, and nobody else does.
    fn check_over(&self, order: u64) -> DecisionRecord {
        let record = self.node.finished(order);
        let tasks = || self.ids(self.bomb).tasks().unwrap();
        let empty = wait_until(PATIENCE, || (tasks() == 0).then_some(()));
        assert!(empty.is_some(), "{} left: {record:#?}", tasks());
        sleep(Duration::from_millis(300));
        let left = self.node.groups[self.bomb].processes().unwrap();
        assert_eq!(left, Vec::<i32>::new(), "born after the kill");
        assert_eq!(record.victim_name(), "test/bomb");
        assert_eq!(record.threshold.signal, "pid.available");
        assert_eq!(record.threshold.quantity, LEFT.cast_signed());
        assert!(record.threshold.available < LEFT.cast_signed());
        let orders = || {
            let all = self.node.decisions().into_iter();
            let told = |one: DecisionRecord| {
                (
                    one.order,
                    one.victim_name(),
                    one.signals,
                    one.stages,
                    one.kill,
                    one.end,
                )
            };
            all.map(told).collect::<Vec<_>>()
        };
        assert!(lives(&self.innocent), "{:?}\n{}", orders(), self.node.log());
        record
    }
}

/// The threads of a process.
fn threads_of(pid: u32) -> BTreeSet<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.collect()
}

/// What a shell does to enter a group, before anything else.
fn entering(group: &OwnedCgroup) -> String {
    let enter = |entrance: &PathBuf| format!("echo 0 > {} && ", entrance.display());
    group.entrances().iter().map(enter).collect()
}

/// Processes that run and are ours to end by their own group.
fn shell(ground: &Ground, script: &str) -> Child {
    let enter = entering(&ground.node.groups[ground.bomb]);
    let script = format!("{enter} {script}");
    Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_node_with_a_limit_of_tasks_has_the_ids_that_its_cgroup_has() {
    let Some(ground) = Ground::new() else {
        lacks!("needs the kernel's programs");
    };
    let dir = ground.node.sandbox.dir(Controller::Pids).unwrap();
    let seen = || {
        let status = ground.node.status()?;
        let mut signals = status.signals.into_iter();
        let seen = signals.find(|seen| seen.signal == "pid.available")?;
        let now = i64::try_from(dir.tasks().unwrap()).unwrap();
        assert_eq!(seen.capacity, MOST.cast_signed());
        (seen.available == MOST.cast_signed() - now).then_some(())
    };
    assert!(
        wait_until(PATIENCE, seen).is_some(),
        "{:?}",
        ground.node.status()
    );
    assert!(ground.node.decisions().is_empty());
}

/// Everybody forks as soon as they can while they are killed.
#[test]
fn a_bomb_in_a_node_with_a_limit_of_tasks_goes_whole_before_that_is_met() {
    let Some(ground) = Ground::new() else {
        lacks!("needs the kernel's programs");
    };
    // What an agent does once and is done with.
    sleep(Duration::from_secs(2));
    let before = threads_of(ground.agent);
    let closed = ground.cell.close();
    assert_eq!(closed, before.len() as u64, "the agent is alone in there");
    for order in 1..=3 {
        let spec = HogSpec::new(Load::ForkStorm, MOST, Duration::from_mins(1));
        let mut storm = ground.node.hog(ground.bomb, &spec);
        let _killed = storm.wait(PATIENCE).unwrap();
        let record = ground.check_over(order);
        let kill = record.kill.as_ref().unwrap();
        assert!(u64::from(kill.signalled) >= MOST - LEFT - 20, "{record:#?}");
        // The fork that crossed told it: with one more the kernel's own limit would not have been met for long.
        assert!(record.threshold.available > 0, "{record:#?}");
        let Some(root) = ground.root(usize::try_from(order).unwrap()) else {
            continue;
        };
        assert_eq!(
            (root.pid.cast_signed(), root.comm.as_str()),
            (storm.pid(), "brink-hog")
        );
        let parent = root.parent.value().map(|parent| parent.pid);
        assert_eq!(parent, Some(std::process::id()), "{root:?}");
        assert!(root.descendants * 10 >= root.of * 9, "{root:?}");
        assert!(root.of >= 1000, "{root:?}");
        match &root.argv {
            Field::Value(argv) => assert!(argv.iter().any(|word| word == "fork-storm"), "{argv:?}"),
            Field::Missing(why) => assert_eq!(*why, Missing::ProcessGone),
        }
    }
    // All its threads are the same, so that there never was room for another; and none was refused: it has not tried to fork.
    let refused = ground.cell.refused();
    assert_eq!(threads_of(ground.agent), before, "{}", ground.node.log());
    let tasks = (ground.cell.tasks(), refused);
    assert_eq!(tasks, (closed, 0), "{}", ground.node.log());
    ground.cell.check_closed();
    assert!(
        !ground.node.log().contains("panicked"),
        "{}",
        ground.node.log()
    );
}

/// The arguments of the process that a bomb came from are those of its copies, and are kept out as theirs are.
#[test]
fn where_a_bomb_came_from_is_told_without_arguments_where_the_configuration_says_so() {
    let Some(ground) = Ground::with(", commandLines: false") else {
        lacks!("needs the kernel's programs");
    };
    let spec = HogSpec::new(Load::ForkStorm, MOST, Duration::from_mins(1));
    let mut storm = ground.node.hog(ground.bomb, &spec);
    let _killed = storm.wait(PATIENCE).unwrap();
    ground.check_over(1);
    if let Some(root) = ground.root(1) {
        assert_eq!(root.pid.cast_signed(), storm.pid());
        assert_eq!(root.argv, Field::Missing(Missing::Redacted));
    }
    let told = ground.told(1);
    let text = told.data.get();
    assert!(!text.contains("fork-storm"), "{text}");
}

/// Whose parents end as fast as they fork, so that nobody is there for long.
#[test]
fn a_shell_that_calls_itself_twice_goes_whole() {
    let Some(mut ground) = Ground::new() else {
        lacks!("needs the kernel's programs");
    };
    let mut shell = shell(&ground, "bomb() { bomb | bomb & }; bomb; wait");
    ground.node.finished(1);
    shell.wait().unwrap();
    let record = ground.check_over(1);
    assert!(record.kill.as_ref().unwrap().signalled > 100, "{record:#?}");
    if let Some(root) = ground.root(1) {
        assert_eq!((root.pid, root.comm.as_str()), (shell.id(), "sh"));
        assert!(root.descendants * 2 > root.of, "{root:?}");
    }
    // What was found out of it outlives the agent.
    let known = ground.fork_root(1);
    ground.node.stop(Signal::KILL);
    ground.node.start(&[]);
    assert_eq!(ground.node.finished(1).fork_root, Some(known));
}

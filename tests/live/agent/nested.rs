//! Victims that are trees of cgroups: everything below goes, whatever forks meanwhile, and whatever its OOM score.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::record::DecisionRecord;
use brink_host::cgroup::owned::OwnedCgroup;
use brink_host::hog::{Births, HogSpec, Load};
use brink_tests::{Hog, is_slow, lacks, report_left_out, wait_until};
use rustix::process::{Pid, setpriority_process};

/// Tasks that a storm may have at a time: the more there are, the longer a kill takes, and the more have time to fork.
const STORM: u64 = 500;
/// The same where processors are emulated, which take minutes for as many.
const EMULATED_STORM: u64 = 200;
/// A kill takes a few milliseconds, and whether anybody is born in that is chance: so many kills are looked at.
const KILLS: u32 = 5;
/// None is begun so long after the first, in a guest either: one takes as long there, and its short form has four minutes for all.
const LAST_KILL: Duration = Duration::from_secs(15);

fn storm_tasks() -> u64 {
    if is_slow() { EMULATED_STORM } else { STORM }
}

/// A workload of four groups, three levels deep; processes are in the leaves alone, as on cgroup v2 they must be.
struct Tree {
    node: Node,
    leaker: usize,
    storms: OwnedCgroup,
    leaves: [OwnedCgroup; 2],
    bystander: Hog,
}

impl Tree {
    fn new(mib: u64, settings: &str) -> Self {
        let mut node = Node::new(mib);
        let leaker = node.workload("leaker", "containers: [{name: c}]");
        let bystander = node.workload("bystander", "containers: [{name: c}]");
        node.configure("enforce", settings);
        let deep = node.groups[leaker].child("deep").unwrap();
        let leaves = ["leak", "quiet"].map(|name| deep.child(name).unwrap());
        let storms = deep.child("storm").unwrap();
        storms
            .limit_tasks(&node.sandbox.layout, storm_tasks())
            .unwrap();
        // It lives as long as those inside it.
        std::mem::forget(deep);
        node.start(&[]);
        Self {
            bystander: node.holding(bystander, 10),
            node,
            leaker,
            storms,
            leaves,
        }
    }

    /// Where every birth in it is noted.
    fn births(&self) -> PathBuf {
        self.node.path("births")
    }

    /// A load that forks.
    fn forking(&self, load: Load) -> HogSpec {
        let mut spec = HogSpec::new(load, u64::MAX, Duration::from_mins(1));
        spec.births = Some(self.births());
        spec
    }

    /// How many forks in it were begun after this stage of its eviction, and had brought forth somebody.
    fn born_since(&self, record: &DecisionRecord, stage: &str) -> usize {
        let mut stages = record.stages.iter();
        let reached = stages.find(|time| time.stage == stage);
        let reached = reached.unwrap_or_else(|| panic!("no {stage}: {record:#?}"));
        let births = Births::read(&self.births()).unwrap();
        let later = |began: &&u64| began.cast_signed() > reached.at.monotonic_ns;
        births.iter().filter(later).count()
    }

    fn wait_for_storm(&self) {
        let processes = || self.storms.processes().unwrap().len() as u64;
        let raging = wait_until(PATIENCE, || (processes() > storm_tasks() / 2).then_some(()));
        assert!(raging.is_some(), "{} processes", processes());
    }

    /// Nobody is left anywhere below, now and a while later, and nobody else went.
    fn check_gone(&self) -> DecisionRecord {
        let group = &self.node.groups[self.leaker];
        let left = || group.processes().unwrap();
        let empty = wait_until(PATIENCE, || left().is_empty().then_some(()));
        assert!(empty.is_some(), "{:?} live", left());
        let record = self.node.finished(1);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(left(), Vec::<i32>::new(), "born after the kill");
        assert_eq!(record.victim_name(), "test/leaker");
        assert!(lives(&self.bystander), "{record:#?}");
        assert_eq!(self.node.decisions().len(), 1);
        record
    }
}

/// Has a tree evicted until somebody was born in it between the first SIGKILL and the end, which is how many `evict` says: a kill
/// without that shows nothing of forks, and where none had any that is left out, and said.
fn until_somebody_is_born(mut evict: impl FnMut() -> usize) {
    let began = Instant::now();
    let mut kills = 0;
    while kills < KILLS && (kills == 0 || began.elapsed() < LAST_KILL) {
        kills += 1;
        let born = evict();
        println!("kill {kills}: {born} born between the first SIGKILL and the end");
        if born > 0 {
            return;
        }
    }
    // Who kills and who forks may never have run side by side, above all where an emulator takes turns.
    report_left_out(&format!("births during a kill, of which {kills} had none"));
}

fn start(group: &OwnedCgroup, spec: &HogSpec) -> Hog {
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    Hog::spawn(program, Some(group), spec).unwrap()
}

/// Puts a process before everybody else, the storm above all.
fn hurry(pid: i32) {
    setpriority_process(Pid::from_raw(pid), -20).unwrap();
}

/// A leak that a storm does not keep from its processor.
fn leak(group: &OwnedCgroup, bytes: u64) -> Hog {
    let mut spec = HogSpec::new(Load::Anon, bytes, Duration::from_mins(1));
    spec.wait = true;
    let mut hog = start(group, &spec);
    hurry(hog.pid());
    hog.start();
    hog
}

/// A load that does not listen to SIGTERM, and whose children do not.
fn deaf(group: &OwnedCgroup, mut spec: HogSpec) -> Hog {
    spec.deadline = Duration::from_mins(5);
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    Hog::spawn_deaf(program, Some(group), &spec).unwrap()
}

#[test]
fn a_tree_that_forks_goes_whole_by_a_hard_eviction() {
    until_somebody_is_born(|| {
        let tree = Tree::new(500, "evictionHard: {memory.available: 60Mi}");
        let storm = start(&tree.storms, &tree.forking(Load::ForkStorm));
        let four = HogSpec::new(Load::Anon, 4 * MIB, Duration::from_mins(1));
        let quiet = start(&tree.leaves[1], &four);
        tree.wait_for_storm();
        // One after the other, so that there is somebody to be born at every moment of the kill: whoever has a higher number than
        // the storm is not among the first that get the signal.
        let births = start(&tree.leaves[1], &tree.forking(Load::ForkChurn));
        hurry(births.pid());
        let born = || births.progress().unwrap().touched;
        wait_until(PATIENCE, || (born() > 0).then_some(())).expect("births");
        let before = born();
        let leak = leak(&tree.leaves[0], 480 * MIB);
        for hog in [&leak, &quiet, &births, &storm] {
            gone_after(hog);
        }
        assert!(born() > before, "nobody was born beside the leak");
        let record = tree.check_gone();
        let kill = record.kill.as_ref().unwrap();
        assert!(u64::from(kill.signalled) > storm_tasks() / 4, "{kill:?}");
        tree.born_since(&record, "firstSignal")
    });
}

#[test]
fn a_tree_that_forks_and_will_not_listen_goes_whole_by_a_soft_eviction() {
    let soft = "evictionHard: {memory.available: 20Mi}\nevictionSoft: {memory.available: 900Mi}\nevictionSoftGracePeriod: {memory.available: 200ms}\nevictionMaxPodGracePeriod: 1";
    until_somebody_is_born(|| {
        let tree = Tree::new(1200, soft);
        let mut storm = deaf(&tree.storms, tree.forking(Load::ForkStorm));
        tree.wait_for_storm();
        // The storm is full before the kill: this one has somebody born at every moment of the grace and of the kill.
        let mut births = deaf(&tree.leaves[1], tree.forking(Load::ForkChurn));
        hurry(births.pid());
        let leak = leak(&tree.leaves[0], 350 * MIB);
        gone_after(&leak);
        let record = tree.check_gone();
        for hog in [&mut storm, &mut births] {
            assert!(!hog.wait(PATIENCE).unwrap().success());
        }
        assert!(!record.threshold.hard);
        let asked = record.since_sample("asked").expect("SIGTERM first");
        let killed = record.since_sample("firstSignal").expect("then SIGKILL");
        let node = &tree.node;
        assert!(killed - asked > 900_000_000, "{}", node.log());
        let (heard, born) = (
            tree.born_since(&record, "asked"),
            tree.born_since(&record, "firstSignal"),
        );
        println!("{heard} born since SIGTERM");
        assert!(heard > born, "nobody was born during the grace");
        born
    });
}

/// The kernel's own killer spares who has the lowest score. Brink goes by the kubelet's ranking alone, and spares whom
/// the configuration protects, whatever score they have.
#[test]
fn a_score_that_the_kernels_killer_spares_saves_nobody_from_ours() {
    let mut node = Node::new(300);
    let [protected, leaker] =
        ["protected", "leaker"].map(|name| node.workload(name, "containers: [{name: c}]"));
    let glob = node.groups[protected].group();
    let hard = "evictionHard: {memory.available: 60Mi}";
    node.configure("enforce", &format!("{hard}\nprotect: ['{glob}']"));
    node.start(&[]);
    let kept = node.holding(protected, 150);
    let mut spec = HogSpec::new(Load::Anon, 130 * MIB, Duration::from_mins(1));
    spec.wait = true;
    let mut leak = node.hog(leaker, &spec);
    let score = format!("/proc/{}/oom_score_adj", leak.pid());
    match fs::write(&score, "-1000") {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            lacks!("needs CAP_SYS_RESOURCE, to lower a score")
        }
        written => written.unwrap(),
    }
    leak.start();
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    assert_eq!(record.ranking[0].name, "protected");
    assert_eq!(record.ranking[0].refusal.as_deref(), Some("protected"));
    assert!(lives(&kept));
    assert!(record.freed_bytes > 50 * MIB, "{record:#?}");
}

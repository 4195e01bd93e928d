//! The scene of every soak: a bounded node, bystanders that must live, culprits that may die, one agent, and its audit.

use std::fs;
use std::time::{Duration, Instant};

use brink::record::DecisionRecord;
use brink_host::hog::{HogSpec, Load};
use brink_tests::{Hog, in_guest, report_left_out, wait_until};
use rustix::process::Signal;

use super::books::Books;
use super::census::Census;
use super::truth::{Truth, now};
use crate::support::{MIB, Node, PATIENCE, gone_after, lives};

/// Capacity of the node, and its thresholds, in MiB.
pub(super) const NODE: u64 = 512;
pub(super) const HARD: u64 = 64;
pub(super) const SOFT: u64 = 128;
/// Tasks of a bomb, and so many of them are too many.
const BOMB: u64 = 1200;
const TOO_MANY: u64 = 500;
/// How long the killed may take to be reaped.
const REAPED: Duration = Duration::from_secs(10);
/// A bystander is replaced before its own deadline ends it.
const SHIFT: Duration = Duration::from_mins(4);
/// Between two passes, and where none may find what the agent was to be woken for: longer than any bound on that.
const PASS: Duration = Duration::from_secs(2);
const RARE_PASS: Duration = Duration::from_mins(1);

/// The scene.
pub(super) struct Scene {
    pub(super) truth: Truth,
    pub(super) bystanders: Vec<Bystander>,
    pub(super) books: Books,
    journal: &'static str,
    /// The journal has a gap that is not told yet.
    pub(super) has_gap: bool,
    /// What the agent held when it was warm.
    warm: Option<Warm>,
    /// The journal of events has a disk that is too small for them.
    is_short_of_disk: bool,
    /// The agent.
    pub(super) pid: u32,
    /// Workloads that may die.
    pub(super) leaker: usize,
    pub(super) bomb: usize,
    /// Times in which nobody could have answered.
    pub(super) excused: Vec<(i64, i64)>,
    /// Shortages that the files have shown: those that were judged, and those of which the witness saw too little for that.
    pub(super) shortages: [u32; 2],
    /// The last order that was given out, and the last that was audited.
    pub(super) order: u64,
    pub(super) audited: u64,
    /// What carried the signals when the agent was warm.
    pub(super) rung: Option<String>,
    /// From one pass of the agent over everything to the next.
    pass: Duration,
    pub(super) node: Node,
}

pub(super) struct Bystander {
    workload: usize,
    mib: u64,
    since: Instant,
    pub(super) hog: Hog,
}

/// Process ids that the machine has left, once nobody is left to be reaped of what ran before.
pub(super) fn ids_left() -> u64 {
    let is_dead_load = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat"));
        stat.is_ok_and(|stat| stat.contains("(brink-hog) Z "))
    };
    let none = || !fs::read_dir("/proc").unwrap().flatten().any(is_dead_load);
    // One that its own test holds on to may stay.
    let _reaped = wait_until(REAPED, || none().then_some(()));
    let number = |path: &str| -> u64 {
        let text = fs::read_to_string(path).unwrap();
        text.trim().parse().unwrap()
    };
    let tasks = fs::read_to_string("/proc/loadavg").unwrap();
    let tasks = tasks.split_whitespace().nth(3).unwrap();
    let threads: u64 = tasks.split('/').nth(1).unwrap().parse().unwrap();
    let limits = ["pid_max", "threads-max"].map(|name| number(&format!("/proc/sys/kernel/{name}")));
    limits[0].min(limits[1]) - threads
}

/// An agent that has done everything once.
pub(super) struct Warm {
    census: Census,
    workloads: usize,
    /// The number of its last order then.
    orders: u64,
    /// Whether it has all that it ever keeps: as many decisions and events as there is room for, those that wait included.
    is_full: bool,
}

/// More decisions than an agent keeps.
const ALL_ORDERS: u64 = 300;

impl Scene {
    /// A node with its people and a warm agent that enforces.
    pub(super) fn begin() -> Self {
        Self::begin_with("journal", |_| {})
    }

    /// The same with a pass a minute: what is to be acted on at once is not found by the next one.
    pub(super) fn begin_with_rare_passes() -> Self {
        Self::begin_as(RARE_PASS, "journal", |_| {})
    }

    /// The same with the journal at another place in the node's folder; the node may be changed before the agent starts.
    pub(super) fn begin_with(journal: &'static str, prepare: impl FnOnce(&Node)) -> Self {
        Self::begin_as(PASS, journal, prepare)
    }

    fn begin_as(pass: Duration, journal: &'static str, prepare: impl FnOnce(&Node)) -> Self {
        let mut node = Node::new(NODE);
        let people = people(&mut node);
        let [leaker, bomb] =
            ["leaker", "bomb"].map(|name| node.workload(name, "containers: [{name: c}]"));
        let group = &node.groups[bomb];
        group.limit_tasks(&node.sandbox.layout, BOMB).unwrap();
        configure(&node, journal, &settings(HARD, pass));
        prepare(&node);
        let status = node.start(&[]);
        let (pid, rung) = (status.pid, status.rung);
        if in_guest() {
            assert_eq!(rung.as_deref(), Some("kernel-sampler"));
        }
        let bystanders = people.map(|(workload, mib)| Bystander {
            workload,
            mib,
            since: Instant::now(),
            hog: holding(&node, workload, mib),
        });
        let mut scene = Self {
            truth: Truth::watch(&node.sandbox, NODE * MIB, HARD * MIB),
            bystanders: bystanders.into(),
            books: Books::open(node.path(journal)),
            journal,
            has_gap: false,
            warm: None,
            is_short_of_disk: false,
            pid,
            leaker,
            bomb,
            excused: Vec::new(),
            shortages: [0; 2],
            order: 0,
            audited: 0,
            rung,
            pass,
            node,
        };
        scene.warm_up();
        scene
    }

    /// Everything once: what is made at first use is no leak.
    fn warm_up(&mut self) {
        self.warm = None;
        for _ in 0..2 {
            self.leak(Load::Anon);
            self.audit(&["test/leaker"]);
        }
        self.warm = Some(Warm {
            census: Census::of(self.pid),
            workloads: self.node.groups.len(),
            orders: self.audited,
            is_full: false,
        });
        if self.is_short_of_disk {
            self.lacks_disk();
        }
    }

    /// From now on events wait for room on the disk of their journal.
    pub(super) fn lacks_disk(&mut self) {
        self.is_short_of_disk = true;
        if let Some(warm) = &mut self.warm {
            warm.census.may_wait();
        }
    }

    /// A leak at full speed, which must be ended by a hard eviction of the leaker.
    pub(super) fn leak(&mut self, load: Load) -> DecisionRecord {
        self.leak_of("test/leaker", load)
    }

    /// The same where the leaker has another name.
    pub(super) fn leak_of(&mut self, name: &str, load: Load) -> DecisionRecord {
        let leak = self.node.load(self.leaker, load, (NODE - 16) * MIB);
        gone_after(&leak);
        let record = self.next_record();
        assert_eq!(record.victim_name(), name, "{record:#?}");
        record
    }

    /// A workload that comes later than the others.
    pub(super) fn welcome(&mut self, name: &str) -> usize {
        self.node.workload(name, "containers: [{name: c}]")
    }

    /// It goes again, and nothing of it stays with the agent.
    pub(super) fn dismiss(&mut self, name: &str) {
        let manifest = self.node.path("manifests").join(format!("{name}.yaml"));
        fs::remove_file(manifest).unwrap();
        self.node
            .groups
            .pop()
            .expect("it came last")
            .remove()
            .unwrap();
        self.wait_for_workloads();
    }

    /// Waits until the agent knows all workloads.
    pub(super) fn wait_for_workloads(&self) {
        let wanted = self.node.groups.len();
        let known = || {
            self.node
                .status()
                .filter(|status| status.workloads as usize == wanted)
        };
        assert!(wait_until(PATIENCE, known).is_some(), "{}", self.node.log());
    }

    /// From now on, and until the configuration changes, the machine's process ids are held to so many. No longer than needed:
    /// others on the machine come and go.
    pub(super) fn limit_ids(&self, ids: u64) {
        let limits =
            settings(HARD, self.pass).replacen('}', &format!(", pid.available: \"{ids}\"}}"), 1);
        self.reconfigure(&limits);
    }

    /// A fork bomb, which must be ended with everybody in it.
    pub(super) fn explode(&mut self) -> DecisionRecord {
        self.limit_ids(ids_left() - TOO_MANY);
        let spec = HogSpec::new(Load::ForkStorm, BOMB, Duration::from_mins(1));
        let storm = self.node.hog(self.bomb, &spec);
        let is_over = || (!lives(&storm)).then_some(());
        if wait_until(PATIENCE / 3, is_over).is_none() {
            // Others on the machine have given back more ids than the bomb takes too many of.
            report_left_out(
                "a threshold of process ids that a bomb passed: others gave back so many, and the next one stood above what was left",
            );
            self.limit_ids(ids_left() + TOO_MANY / 2);
        }
        gone_after(&storm);
        let record = self.next_record();
        assert_eq!(record.victim_name(), "test/bomb", "{record:#?}");
        let group = &self.node.groups[self.bomb];
        let empty = || group.processes().unwrap().is_empty().then_some(());
        assert!(
            wait_until(PATIENCE, empty).is_some(),
            "somebody has escaped"
        );
        self.reload(HARD);
        record
    }

    /// The record after the last that was given out, finished.
    pub(super) fn next_record(&mut self) -> DecisionRecord {
        self.order += 1;
        self.node.finished(self.order)
    }

    /// Configures the agent anew, with another hard threshold.
    pub(super) fn reload(&self, hard: u64) {
        self.reconfigure(&settings(hard, self.pass));
    }

    fn reconfigure(&self, settings: &str) {
        let before = self.node.log().matches("was read again").count();
        configure(&self.node, self.journal, settings);
        self.node.signal(Signal::HUP);
        let read = || (self.node.log().matches("was read again").count() > before).then_some(());
        assert!(wait_until(PATIENCE, read).is_some(), "{}", self.node.log());
    }

    /// Nobody could have answered between these times.
    pub(super) fn excuse(&mut self, since: i64, until: i64) {
        self.excused.push((since, until));
    }

    /// The agent was replaced by another one, whose warmth is not known yet.
    pub(super) fn replaced(&mut self, pid: u32) {
        self.pid = pid;
        self.books.begin_anew();
        if self.has_gap {
            // The agent that could have told of it is no more.
            self.books.open_gap();
        }
        self.warm_up();
    }

    /// The journal has told of its gap: from here on nothing may be missing.
    pub(super) fn has_told_its_gap(&mut self) {
        self.has_gap = false;
        self.books.forgive_lost();
    }

    /// Starts an agent after the sudden end of the one before, in the middle of a leak that one of them must end. From then on
    /// nobody could have answered until it was over.
    pub(super) fn restarted(&mut self, leak: &Hog, killed: i64) {
        let status = self.node.start(&[]);
        gone_after(leak);
        self.excuse(killed, now());
        self.pid = status.pid;
        self.books.begin_anew();
        let known = self.node.decisions();
        let new = known.iter().filter(|record| record.order > self.audited);
        let new: Vec<_> = new.collect();
        // One cause is one order, unless the agent ended between its record and its signal: nobody had been killed then.
        let is_signalled = |record: &DecisionRecord| {
            let mut stages = record.stages.iter();
            stages.any(|time| ["asked", "lastSignal"].contains(&time.stage.as_str()))
        };
        let signalled = new.iter().filter(|record| is_signalled(record)).count();
        let told = || {
            let each = new
                .iter()
                .map(|record| (record.order, is_signalled(record)));
            each.collect::<Vec<_>>()
        };
        assert!(
            signalled == 1 && new.len() <= 2,
            "one cause: {:?}\n{}",
            told(),
            self.node.log()
        );
        for record in &new {
            self.books.know(record.order, record.decided.monotonic_ns);
        }
        let is_leaker = |record: &&DecisionRecord| record.victim_name() == "test/leaker";
        assert!(new.iter().all(is_leaker), "{:?}", told());
        self.audited += new.len() as u64;
        self.order = self.audited;
        self.warm_up();
    }

    /// Holds the agent to what it held when it was warm, and from when on it has all that it ever keeps, to what it held then. A
    /// workload more is a descriptor more.
    #[track_caller]
    pub(super) fn check_flat(&mut self) {
        let Some(warm) = &mut self.warm else {
            return;
        };
        if warm.workloads != self.node.groups.len() {
            return;
        }
        Census::check_flat(self.pid, &warm.census);
        if warm.is_full || self.audited < warm.orders + ALL_ORDERS {
            return;
        }
        let status = self.node.status().expect("the agent lives");
        let journal = status.events.and_then(|events| events.journal);
        if journal.is_some_and(|journal| journal.lost > 0) {
            warm.census = Census::of(self.pid);
            warm.census.has_all();
            warm.is_full = true;
            println!("it has all that it ever keeps: {}", warm.census);
        }
    }

    /// The books as they are now.
    pub(super) fn books(&mut self) -> &Books {
        self.books.read();
        &self.books
    }

    /// What the end of a scene must be: nothing has grown, and nothing stays in the kernel after a clean end.
    #[track_caller]
    pub(super) fn close(mut self) {
        self.check_flat();
        let census = Census::of(self.pid);
        self.node.stop(Signal::TERM);
        census.check_gone();
        self.books.read();
        let open = self.books.unfinished();
        assert!(open.is_empty(), "never over: {open:?}\n{}", self.node.log());
        self.tell_unjudged();
    }

    /// Replaces bystanders whose time is nearly over.
    pub(super) fn relieve(&mut self) {
        for each in &mut self.bystanders {
            if each.since.elapsed() > SHIFT {
                each.hog = holding(&self.node, each.workload, each.mib);
                each.since = Instant::now();
            }
        }
    }
}

/// Workloads that must live, and how much each holds in MiB.
fn people(node: &mut Node) -> [(usize, u64); 3] {
    let requests = "containers: [{name: c, resources: {requests: {memory: 64Mi}}}]";
    let critical = "priority: 2000000000, containers: [{name: c}]";
    [
        (node.workload("web", requests), 24),
        (node.workload("batch", requests), 16),
        (node.workload("db", critical), 24),
    ]
}

/// How long a condition outlives its cause: longer than between two waves, under emulation too.
pub(super) fn transition() -> Duration {
    Duration::from_secs(if in_guest() { 10 } else { 2 })
}

/// Grace of the soft threshold: longer than it takes to touch what crosses that, under emulation too.
pub(super) fn grace() -> Duration {
    Duration::from_secs(if in_guest() { 4 } else { 1 })
}

fn configure(node: &Node, journal: &str, settings: &str) {
    node.configure("enforce", settings);
    let path = node.path("config.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let place = |journal: &str| format!("decisionJournal: \"{}\"", node.path(journal).display());
    fs::write(path, text.replace(&place("journal"), &place(journal))).unwrap();
}

fn settings(hard: u64, pass: Duration) -> String {
    let [grace, transition, pass] = [grace(), transition(), pass].map(|span| span.as_secs());
    format!(
        "evictionHard: {{memory.available: {hard}Mi}}\n\
         evictionSoft: {{memory.available: {SOFT}Mi}}\n\
         evictionSoftGracePeriod: {{memory.available: {grace}s}}\n\
         evictionPressureTransitionPeriod: {transition}s\n\
         evictionMaxPodGracePeriod: 1\n\
         housekeepingInterval: {pass}s\n\
         limits: {{burst: 60, refillInterval: 100ms, maxKills: 60, window: 1s}}"
    )
}

/// A load of somebody who is no danger.
fn holding(node: &Node, workload: usize, mib: u64) -> Hog {
    let spec = HogSpec::new(Load::Anon, mib * MIB, HogSpec::LONGEST);
    let mut hog = node.hog(workload, &spec);
    hog.wait_touched(mib * MIB, PATIENCE).unwrap();
    hog
}

//! An OOM as a real agent tells it: whose workload it was, how the node stood, and what reclaim had cost before.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use brink::control::http;
use brink::control::protocol::Status;
use brink_host::hog::{HogSpec, Load};
use brink_stream::model::event::Event;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use brink_tests::{files_are_in_memory, lacks, slowed, wait_until};

use crate::pods::{Kubelets, id};
use crate::support::{MIB, Node, PATIENCE, gone_after};

const PRESSURE: &str = "/proc/pressure/memory";
const HARD: &str = "evictionHard: {memory.available: 8Mi}\nevents: {enabled: true}";

/// What does not run of what tells of OOMs and of reclaim.
fn missing(status: &Status) -> Option<String> {
    ["oom_victim", "sigkill_sent"]
        .iter()
        .find(|name| {
            let mut programs = status.programs.iter();
            !programs.any(|program| program.name == **name && program.running)
        })
        .map(|name| format!("{name} does not run: {:?}", status.rung_reasons))
}

/// The incident of this victim as it was told when it closed.
#[track_caller]
fn closed(node: &Node, pid: u32) -> Incident {
    let found = wait_until(PATIENCE, || {
        let target = "/v1/events?since=0&kind=incident-closed";
        let answer = http::get(&node.path("state/events.sock"), target).ok()?;
        let text = answer.text().ok()?;
        let mut told = text.lines().map(|line| {
            let event: Event = serde_json::from_str(line).unwrap();
            assert_eq!(event.of, Kind::IncidentClosed);
            serde_json::from_str::<Incident>(event.data.get()).unwrap()
        });
        told.find(|incident| incident.victims.iter().any(|victim| victim.pid == pid))
    });
    found.unwrap_or_else(|| panic!("nothing of {pid}: {}", node.log()))
}

/// A container has the name that its pod's status has for it, and the id by which its runtime knows it.
#[test]
fn the_container_of_a_victim_has_its_name_and_its_id() {
    let mut kubelets = Kubelets::new(300, &['a'], HARD);
    let container = kubelets.make(&id('a'));
    let status = kubelets.node.start(&[]);
    if let Some(why) = missing(&status) {
        lacks!("{why}");
    }
    let leak = kubelets.beyond_its_limit(container, 32);
    let closed = closed(&kubelets.node, leak.pid().unsigned_abs());
    let workload = closed.workload.value().unwrap();
    assert_eq!(
        (workload.namespace.as_str(), workload.name.as_str()),
        ("shop", "web")
    );
    assert_eq!(workload.container.as_deref(), Some("a"), "{workload:?}");
    assert_eq!(workload.container_id, Some(id('a')));
    assert_eq!(workload.container_missing, None);
    let limit = closed.limit.value().unwrap();
    assert!(limit.cgroup.ends_with(&id('a')), "{limit:?}");
}

/// Every class has its workload, each with a priority of its own: what was known of the manifest is in the record.
#[test]
fn the_workload_of_a_victim_has_its_class_its_priority_and_its_request() {
    const HALF: &str = "containers: [{name: c, resources: {requests: {memory: 16Mi}}}]";
    const WHOLE: &str = "containers: [{name: c, resources: {requests: {cpu: 1, memory: 48Mi}, limits: {cpu: 1, memory: 48Mi}}}]";
    let cases = [
        ("none", "containers: [{name: c}]", "BestEffort", 0, 0),
        ("half", HALF, "Burstable", -7, 16 << 20),
        ("whole", WHOLE, "Guaranteed", 1_000_000, 48 << 20),
    ];
    let mut node = Node::new(300);
    let made = cases.map(|(name, spec, _, priority, _)| {
        node.workload(name, &format!("priority: {priority}, {spec}"))
    });
    for workload in made {
        let group = &node.groups[workload];
        group.limit_memory(&node.sandbox.layout, 48 * MIB).unwrap();
    }
    node.configure("enforce", HARD);
    if let Some(why) = missing(&node.start(&[])) {
        lacks!("{why}");
    }
    for (workload, (name, _, class, priority, request)) in made.into_iter().zip(cases) {
        let leak = node.load(workload, Load::Anon, 100 * MIB);
        gone_after(&leak);
        let told = closed(&node, leak.pid().unsigned_abs());
        let Field::Value(identity) = &told.workload else {
            panic!("{name}: {told:#?}");
        };
        assert_eq!(
            (&*identity.namespace, &*identity.name, &*identity.uid),
            ("test", name, &*format!("uid-{name}"))
        );
        assert_eq!(
            (identity.qos.as_deref(), identity.qos_missing),
            (Some(class), None),
            "{identity:?}"
        );
        assert_eq!(identity.priority, priority, "{identity:?}");
        assert_eq!(identity.request, Some(request), "{identity:?}");
        assert_eq!(identity.request_missing, None, "{identity:?}");
    }
    assert!(node.decisions().is_empty(), "the node was never short");
}

/// With the machine as node the kernel leaves a point of it every 10 ms, and an incident has those of its last three seconds.
#[test]
fn an_incident_on_a_machine_has_its_last_seconds_every_ten_milliseconds() {
    const BEFORE: Duration = Duration::from_secs(4);
    const FORKS: u64 = 100;
    let mut node = Node::new(128);
    let web = node.workload("web", "containers: [{name: c}]");
    let group = &node.groups[web];
    group.limit_memory(&node.sandbox.layout, 48 * MIB).unwrap();
    node.configure_machine("observe", HARD);
    let status = node.start(&[]);
    let mut programs = status.programs.iter();
    let idle =
        programs.find(|each| ["reclaim", "process"].contains(&&*each.family) && !each.running);
    let is_polled = status.rung.as_deref() != Some("kernel-sampler");
    let polled = is_polled.then(|| format!("{:?}: {:?}", status.rung, status.rung_reasons));
    if let Some(why) = missing(&status)
        .or(idle.map(|idle| format!("{idle:?}")))
        .or(polled)
    {
        lacks!("{why}");
    }
    sleep(slowed(BEFORE) / 2);
    let spec = HogSpec {
        hold: false,
        ..HogSpec::new(Load::ForkChurn, FORKS, Duration::from_mins(1))
    };
    let mut forker = node.hog(web, &spec);
    forker.start();
    assert!(forker.wait(PATIENCE).unwrap().success());
    sleep(slowed(BEFORE) / 2);
    let leak = node.load(web, Load::Anon, 100 * MIB);
    gone_after(&leak);
    let told = closed(&node, leak.pid().unsigned_abs());
    let recording = told.recording.value().expect("the recorder runs");
    assert_eq!(recording.node_period_ms, 10, "{:?}", recording.node);
    // Others' incidents at the same time make it brief.
    let reach = if recording.is_brief { 300 } else { 3_000 };
    let mut lately = recording
        .node
        .iter()
        .map(|point| point.before_ms)
        .collect::<Vec<_>>();
    lately.retain(|before| *before < reach);
    let mut gaps: Vec<u32> = lately.windows(2).map(|pair| pair[0] - pair[1]).collect();
    gaps.sort_unstable();
    let middle = gaps
        .get(gaps.len() / 2)
        .expect("points of the last seconds");
    let most = slowed(Duration::from_millis(15));
    assert!(
        Duration::from_millis((*middle).into()) <= most,
        "{middle} ms apart: {gaps:?}"
    );
    let least = Duration::from_millis(reach.into()).as_millis() / most.as_millis();
    assert!(
        lately.len() as u128 >= least,
        "{} points: {lately:?}",
        lately.len()
    );
    // What files told before the programs were loaded has neither.
    let points = recording.node.iter();
    let counted = points.skip_while(|point| point.forks.is_none());
    let forks: Option<Vec<u64>> = counted.clone().map(|point| point.forks).collect();
    let forks = forks.expect("every point has them");
    assert!(forks[forks.len() - 1] - forks[0] >= FORKS, "{forks:?}");
    // Nobody may have reclaimed for the node meanwhile: that they are counted is all that is known.
    assert!(
        counted.clone().all(|point| point.reclaims.is_some()),
        "{:?}",
        recording.node
    );
}

/// Notes what the kernel says of the node's waits for memory, all the while.
struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<[String; 2]>>,
}

/// Averages over ten seconds, of some and of all tasks, in the kernel's own digits.
fn averages(text: &str) -> [String; 2] {
    ["some", "full"].map(|whom| {
        let line = text.lines().find_map(|line| line.strip_prefix(whom));
        let average = line.and_then(|line| line.trim().strip_prefix("avg10="));
        let digits = average.and_then(|rest| rest.split(' ').next());
        digits.unwrap_or_else(|| panic!("{text}")).to_owned()
    })
}

impl Witness {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let note = move || {
            let mut seen = BTreeSet::new();
            while !over.load(Ordering::Relaxed) {
                seen.insert(averages(&fs::read_to_string(PRESSURE).unwrap()));
                // They change every two seconds, so none is missed.
                sleep(Duration::from_millis(5));
            }
            seen
        };
        let thread = thread::spawn(note);
        Self { is_over, thread }
    }

    fn end(self) -> BTreeSet<[String; 2]> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Page cache that does not fit keeps its reader in reclaim, so that the node waits for memory; then a leak is killed there.
#[test]
fn the_nodes_waits_and_the_cost_of_reclaim_are_those_of_the_moment() {
    const CHURNS: Duration = Duration::from_secs(5);
    const READERS: u32 = 4;
    if files_are_in_memory() {
        lacks!("holes of a file on tmpfs are read without page cache");
    }
    let mut node = Node::new(300);
    let web = node.workload("web", "containers: [{name: c}]");
    let calm = node.workload("calm", "containers: [{name: c}]");
    for workload in [web, calm] {
        let group = &node.groups[workload];
        group.limit_memory(&node.sandbox.layout, 48 * MIB).unwrap();
    }
    node.configure("enforce", HARD);
    let status = node.start(&[]);
    let mut programs = status.programs.iter();
    let idle = programs.find(|each| each.family == "reclaim" && !each.running);
    if let Some(why) = missing(&status).or(idle.map(|idle| format!("{idle:?}"))) {
        lacks!("{why}");
    }
    let has_pressure = Path::new(PRESSURE).exists();
    let witness = has_pressure.then(Witness::start);
    let began = Instant::now();
    let churns = (0..READERS)
        .map(|_| node.load(web, Load::CacheChurn, 128 * MIB))
        .collect::<Vec<_>>();
    sleep(slowed(CHURNS));
    let leak = node.load(web, Load::Anon, 100 * MIB);
    gone_after(&leak);
    let told = closed(&node, leak.pid().unsigned_abs());
    let took = began.elapsed();
    drop(churns);
    let state = told.node.value().expect("it was read");
    match (witness.map(Witness::end), &state.pressure) {
        (Some(seen), Field::Value(pressure)) => {
            let number = |digits: &String| digits.parse::<f64>().unwrap().to_bits();
            let full = pressure.full.expect("of memory the kernel tells it");
            let told = [pressure.some, full].map(f64::to_bits);
            let mut seen_then = seen.iter().map(|pair| [number(&pair[0]), number(&pair[1])]);
            assert!(
                seen_then.any(|pair| pair == told),
                "{pressure:?} is none of {seen:?}"
            );
            assert!(pressure.some > 0.0, "{seen:?}");
            assert!(
                pressure.some <= 100.0 && full <= pressure.some,
                "{pressure:?}"
            );
        }
        (None, Field::Missing(reason)) => assert_eq!(*reason, Missing::KernelLacksIt),
        (seen, told) => panic!("{told:?}, and the kernel tells {seen:?}"),
    }
    let cost = *state.reclaim_ns.value().expect("the programs run");
    let cost = Duration::from_nanos(cost);
    // All tasks of the cgroup may have been in reclaim, and nobody else's reclaim is theirs.
    assert!(
        cost > Duration::from_millis(5) && cost < (READERS + 1) * took,
        "{cost:?} in {took:?}"
    );

    // Whoever is killed without a wait before has only its own reclaim (the kernel may hold it up once, for 100 ms):
    // were it everybody's, it would be more than the other's.
    let leak = node.load(calm, Load::Anon, 100 * MIB);
    gone_after(&leak);
    let other = closed(&node, leak.pid().unsigned_abs());
    let state = other.node.value().expect("it was read");
    let of_calm = Duration::from_nanos(*state.reclaim_ns.value().expect("the programs run"));
    assert!(of_calm < cost / 2, "{of_calm:?}, and {cost:?} of the other");
}

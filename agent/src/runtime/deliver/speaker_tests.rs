//! What is put into the outbox and wished of the node, without any server.

use brink_core::node::engine::MemoryPolicy;
use brink_core::node::lead::Lead;
use brink_core::node::observe::{Layout, Observation};
use brink_core::node::policy::Settings;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value};
use brink_core::node::workload::{FsUsage, PodDetail, WorkloadTable};
use brink_host::cgroup::Layout as CgroupLayout;
use brink_host::clock::BootId;
use brink_kube::outbox::{ENTRIES, Part};
use brink_kube::pods::Pod;
use brink_kube::watch::Change;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::record::told::ToldView;
use crate::record::wire::KillFacts;
use crate::runtime::state::State;
use crate::storage::Measured;

struct Scene {
    speaker: Arc<Speaker>,
    keeper: Arc<Keeper>,
    tasks: Tasks,
    shared: Arc<Shared>,
    _folder: tempfile::TempDir,
}

fn policy() -> Policy {
    let threshold = |signal| Threshold {
        signal,
        grace: Span::ZERO,
        value: Value::Quantity("100Mi".parse().unwrap()),
        min_reclaim: None,
    };
    let thresholds = [Signal::MemoryAvailable, Signal::NodefsAvailable].map(threshold);
    Policy::new(thresholds.to_vec(), Layout::Single, Settings::default())
}

fn scene(dry_run_events: bool) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let state = State::new(policy(), MemoryPolicy::Kubelet, Mode::Enforcing);
    let shared = Arc::new(Shared::new(state));
    let pods = Arc::new(Pods::new(|| {}));
    let keeper = Arc::new(Keeper::default());
    let pod = json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u-web", "resourceVersion": "7" },
        "status": { "phase": "Running" },
    });
    let pod: Pod = serde_json::from_str(&pod.to_string()).unwrap();
    for change in [Change::Began, Change::Found(pod), Change::Complete] {
        pods.take(change, Timestamp::UNIX_EPOCH);
    }
    let config = Kubernetes {
        dry_run_events,
        ..Kubernetes::default()
    };
    let (speaker, tasks) = Speaker::open(Plan {
        config: &config,
        access: Access::default(),
        node: "node-a".to_owned(),
        seed: 7,
        folder: folder.path(),
        pods,
        asked_in_vain: None,
        of: Voice {
            boot: BootId([1; 16]),
            layout: CgroupLayout::detect(Path::new("/")).unwrap(),
            roots: PodRoots::new("/", None),
            recorder: Arc::default(),
            keeper: Arc::clone(&keeper),
            shared: Arc::clone(&shared),
        },
    })
    .unwrap();
    Scene {
        speaker,
        keeper,
        tasks,
        shared,
        _folder: folder,
    }
}

fn record(order: u64, mode: &str, uid: &str) -> DecisionRecord {
    let place = json!({
        "namespace": "shop", "name": "web", "uid": uid, "preference": "normal", "usageToRequest": "over",
        "priority": 7, "usage": 900, "request": 100, "refusal": null,
    });
    serde_json::from_value(json!({
        "apiVersion": "brink.dev/v1alpha1", "kind": "Decision", "order": order, "bootId": BootId([1; 16]).to_string(),
        "decided": {"wall": "2026-11-21T10:00:00.000000Z", "monotonicNs": 2},
        "rung": "poll", "mode": mode, "memoryPolicy": "kubelet",
        "threshold": {"signal": "memory.available", "hard": true, "graceSeconds": 0, "quantity": 100, "available": 90, "capacity": 1000},
        "signals": [],
        "memory": {"headroomBytes": null, "podsHeadroomBytes": null, "usableSwapBytes": 0, "podsUsableSwapBytes": 0, "reserveBytes": 0, "creditBytes": 0},
        "victim": place, "candidates": 1, "ranking": [place], "stages": [],
        "kill": null, "freedBytes": 0, "reclaim": null, "end": null, "kubelet": null,
    }))
    .unwrap()
}

impl Scene {
    fn order(&mut self, order: u64, mode: &str, uid: &str) -> Option<Entry> {
        let record = record(order, mode, uid);
        let victim = Workload {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: uid.to_owned(),
            ..Workload::default()
        };
        self.shared.lock().add_decision(record.clone());
        self.speaker.ordered(&record, &victim, &policy());
        self.tasks.new.try_recv().ok()
    }

    fn told(&self, order: u64) -> Option<ToldView> {
        self.shared.lock().decision(order)?.kubernetes.clone()
    }
}

#[test]
fn an_eviction_of_the_apis_pod_is_put_in_and_the_record_says_how_far_it_has_come() {
    let mut scene = scene(false);
    let mut entry = scene.order(3, "enforcing", "u-web").unwrap();
    assert_eq!((entry.key.of, scene.speaker.owed()), (Cause::Order(3), 1));
    assert_eq!(scene.told(3).unwrap().status, "waiting");
    entry.status_part = Part::Done;
    entry.event_part = Part::Done;
    scene.speaker.told(&Told {
        entry,
        waits: None,
        is_changed: true,
        is_over: false,
    });
    assert_eq!(scene.speaker.owed(), 0);
    let told = scene.told(3).unwrap();
    assert_eq!(
        (&*told.status, &*told.event, told.why),
        ("told", "told", None)
    );
    // Nobody in the API is meant, and nobody was evicted.
    assert_eq!(scene.order(4, "enforcing", "another"), None);
    assert_eq!(scene.order(5, "paused", "u-web"), None);
    assert_eq!((scene.told(4), scene.told(5)), (None, None));
}

#[test]
fn what_the_ledger_has_and_the_outbox_never_had_is_told_by_the_next_run() {
    let mut scene = scene(false);
    let victim = Workload {
        uid: "u-web".to_owned(),
        name: "web".to_owned(),
        ..Workload::default()
    };
    let table = WorkloadTable::new(vec![victim], 1);
    scene.shared.lock().tables.push_back(Arc::new(table));
    for order in [1, 2, 3, 4, 5] {
        let record = record(order, "enforcing", "u-web");
        scene.shared.lock().add_decision(record);
    }
    let evicted = |orders: &[u64]| -> Vec<Evicted> {
        let evicted = |&order| Evicted {
            uid: "u-web".to_owned(),
            order,
            at: Moment::START,
        };
        orders.iter().map(evicted).collect()
    };
    // The first of all had no time to be put in.
    scene.speaker.recall(&evicted(&[1]));
    assert_eq!(scene.tasks.new.try_recv().unwrap().key.of, Cause::Order(1));
    scene.order(3, "enforcing", "u-web").unwrap();
    // The last one is not among those that were carried out lately.
    scene.speaker.recall(&evicted(&[1, 2, 3, 4]));
    assert_eq!(scene.tasks.new.try_recv().unwrap().key.of, Cause::Order(4));
    assert!(scene.tasks.new.try_recv().is_err());
    scene.speaker.recall(&evicted(&[3, 4]));
    assert!(scene.tasks.new.try_recv().is_err());
}

#[test]
fn an_order_that_reached_nobody_is_no_eviction() {
    let scene = scene(false);
    let mut tasks = scene.tasks;
    let mut record = record(3, "enforcing", "u-web");
    record.kill = Some(KillFacts {
        means: "signals".to_owned(),
        passes: 1,
        signalled: 0,
        refused: 2,
        spared: 0,
        releasing: 0,
        errno: Some(1),
        waited_ns: None,
    });
    let victim = Workload {
        uid: "u-web".to_owned(),
        ..Workload::default()
    };
    scene.speaker.ordered(&record, &victim, &policy());
    assert!(tasks.new.try_recv().is_err());
    record.kill.as_mut().unwrap().signalled = 1;
    scene.speaker.ordered(&record, &victim, &policy());
    assert!(tasks.new.try_recv().is_ok());
}

#[test]
fn of_disks_it_says_what_was_measured_of_each_container() {
    let scene = scene(false);
    let five = FsUsage {
        bytes: Some(5 << 20),
        inodes: None,
    };
    let app = ContainerUsage {
        name: "app".to_owned(),
        rootfs: five,
        logs: five,
        ..ContainerUsage::default()
    };
    let detail = PodDetail {
        containers: vec![app.clone()],
        ..PodDetail::default()
    };
    let measured = Measured {
        detail,
        ..Measured::default()
    };
    scene.keeper.take("u-web", measured);
    let victim = Workload {
        uid: "u-web".to_owned(),
        ..Workload::default()
    };
    let used = |signal: &str| {
        let mut record = record(1, "enforcing", "u-web");
        record.threshold.signal = signal.to_owned();
        scene.speaker.usages(&record, &victim)
    };
    assert_eq!(used("nodefs.available"), [app]);
    for signal in ["nodefs.inodesFree", "pid.available"] {
        assert_eq!(used(signal), [], "{signal}");
    }
}

#[test]
fn a_full_outbox_is_said_in_the_record_and_a_full_queue_is_found_on_disk() {
    let mut scene = scene(false);
    for order in 1..=ENTRIES as u64 {
        let record = record(order, "enforcing", "u-web");
        let victim = Workload {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "u-web".to_owned(),
            ..Workload::default()
        };
        scene.speaker.ordered(&record, &victim, &policy());
    }
    assert_eq!(scene.speaker.owed(), ENTRIES);
    assert_eq!(scene.speaker.files().list().unwrap().0.len(), ENTRIES);
    while scene.tasks.new.try_recv().is_ok() {}
    let more = ENTRIES as u64 + 1;
    assert_eq!(scene.order(more, "enforcing", "u-web"), None);
    let told = scene.told(more).unwrap();
    assert_eq!((&*told.status, &*told.event), ("ended", "ended"));
    assert!(told.why.unwrap().contains("256"));
    assert_eq!(scene.speaker.owed(), ENTRIES);
}

#[test]
fn who_only_observes_tells_of_a_pod_once_in_a_while_and_only_if_asked() {
    assert_eq!(scene(false).order(1, "observing", "u-web"), None);
    let mut scene = scene(true);
    let entry = scene.order(1, "observing", "u-web").unwrap();
    assert_eq!((entry.status, entry.event.warns), (None, false));
    assert_eq!(scene.order(2, "observing", "u-web"), None);
}

#[test]
fn the_node_says_what_is_measured_while_it_is_ours_to_say() {
    let scene = scene(false);
    let held: ConditionSet = [Condition::MemoryPressure].into_iter().collect();
    let wanted = |mode| {
        let seen = (held, &Observations::default());
        scene.speaker.looked(seen, &policy(), mode);
        scene.tasks.wanted.borrow().clone()
    };
    // Nobody measures the disk.
    let says = Wanted::Says {
        measured: held,
        held,
        beside: None,
    };
    assert_eq!(wanted(Mode::Enforcing), says);
    assert_eq!(wanted(Mode::Observing(Reason::Standby)), Wanted::Unknown);
    assert_eq!(wanted(Mode::Observing(Reason::Paused)), says);
    assert_eq!(wanted(Mode::Observing(Reason::Observing)), Wanted::Nothing);
    scene.speaker.close();
    assert!(scene.tasks.wanted.has_changed().is_err(), "the end");
}

#[test]
fn pressure_on_disks_is_told_while_one_answers_and_as_long_as_it_holds() {
    use Condition::{DiskPressure, MemoryPressure};
    let scene = scene(false);
    let set = |conditions: &[Condition]| conditions.iter().copied().collect::<ConditionSet>();
    let answers = Observation {
        available: 1,
        capacity: 2,
        at: None,
    };
    for (answer, held, measured) in [
        (None, set(&[]), set(&[MemoryPressure])),
        (
            Some(answers),
            set(&[]),
            set(&[MemoryPressure, DiskPressure]),
        ),
        (
            Some(answers),
            set(&[DiskPressure]),
            set(&[MemoryPressure, DiskPressure]),
        ),
        // What does not answer has not got better.
        (
            None,
            set(&[DiskPressure]),
            set(&[MemoryPressure, DiskPressure]),
        ),
    ] {
        let mut seen = Observations::default();
        seen[Signal::NodefsAvailable] = answer;
        let speaker = &scene.speaker;
        speaker.looked((held, &seen), &policy(), Mode::Enforcing);
        let says = Wanted::Says {
            measured,
            held,
            beside: None,
        };
        assert_eq!(*scene.tasks.wanted.borrow(), says, "{answer:?}");
    }
}

#[test]
fn who_acts_first_is_told_at_once_and_with_every_look_after_it() {
    let scene = scene(false);
    let lead = Lead {
        signal: Signal::MemoryAvailable,
        ours: Some(164),
        kubelets: Some(100),
        margin: 64,
        is_confirmed: false,
    };
    let look = |mode| {
        let seen = (ConditionSet::EMPTY, &Observations::default());
        scene.speaker.looked(seen, &policy(), mode);
    };
    let told = || match &*scene.tasks.wanted.borrow() {
        Wanted::Says { beside, .. } => beside.clone(),
        Wanted::Unknown | Wanted::Nothing => None,
    };
    let by = |lead| Some(Conflict::By(lead));
    scene.speaker.stand_beside(by(lead));
    assert_eq!(*scene.tasks.wanted.borrow(), Wanted::Unknown);
    look(Mode::Enforcing);
    assert_eq!(told(), by(lead));
    // Who is paused does not act first, whatever the thresholds.
    look(Mode::Observing(Reason::Paused));
    assert_eq!(told(), by(lead.while_idle()));
    let higher = Lead {
        ours: Some(200),
        ..lead
    };
    scene.speaker.stand_beside(by(higher));
    assert_eq!(told(), by(lead.while_idle()));
    look(Mode::Enforcing);
    assert_eq!(told(), by(higher));
    let other = Lead { ours: None, ..lead };
    scene.speaker.stand_beside(by(other));
    assert_eq!(told(), by(other));
    // A kubelet that does not say what it goes by may act or not, whatever we do.
    let unknown = Some(Conflict::Unknown("HTTP 403".into()));
    scene.speaker.stand_beside(unknown.clone());
    assert_eq!(told(), unknown);
    look(Mode::Observing(Reason::Paused));
    assert_eq!(told(), unknown);
    // What can no longer be known says nothing new.
    scene.speaker.stand_beside(None);
    look(Mode::Enforcing);
    assert_eq!(told(), None);
    look(Mode::Observing(Reason::Observing));
    scene.speaker.stand_beside(by(lead));
    assert_eq!(*scene.tasks.wanted.borrow(), Wanted::Nothing);
}

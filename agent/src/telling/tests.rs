//! What is told, in which order, and that nothing stays to come in what is final.

mod ends;

use std::time::{Duration, Instant};

use brink_core::base::{Quantity, Span};
use brink_core::node::action::Action;
use brink_core::node::condition::{Condition, ConditionSet};
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::observe::{Layout, Observation};
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::safety::Mode;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value as Amount};
use brink_core::node::workload::{Workload, WorkloadTable};
use brink_host::kill::pid_set::ProtectedPids;
use brink_stream::hub::{Identity, Limits, Next, Reader};
use brink_stream::model::event::Event;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{Cause, Identity as IncidentIdentity};
use brink_stream::outlet::Format;
use brink_stream::outlet::file::Rotation;
use serde_json::{Value, json};

use super::*;
use crate::config::{EventFile, EventJournal, Outlets};
use crate::guard::roster::Roster;
use crate::guard::rung::{Rung, Standing};
use crate::guard::step::Step;
use crate::record::DecisionRecord;

fn telling() -> (Telling, Reader) {
    let identity = Identity {
        node: "here".to_owned(),
        boot_id: "3f2a0000-0000-0000-0000-000000000000".to_owned(),
    };
    let hub = Hub::new(identity, 16, Limits::default());
    let reader = hub.reader(None);
    (Telling::new(hub, ClockPair::now()), reader)
}

fn events(reader: &mut Reader) -> Vec<Event> {
    let next = std::iter::from_fn(|| reader.next());
    next.map(|next| match next {
        Next::Line(line) => serde_json::from_slice(&line.text).unwrap(),
        lost @ Next::Lost { .. } => panic!("{lost:?}"),
    })
    .collect()
}

fn kinds(events: &[Event]) -> Vec<Kind> {
    events.iter().map(|event| event.of).collect()
}

fn incident(event: &Event) -> Incident {
    serde_json::from_str(event.data.get()).unwrap()
}

fn stage(name: &str, nanos: i64) -> Value {
    json!({"stage": name, "wall": "2026-11-21T10:00:00.000000Z", "monotonicNs": nanos, "sinceSampleNs": nanos})
}

/// A decision as it is when the kill has just been sent.
fn decided(order: u64, mode: &str) -> DecisionRecord {
    let place = json!({
        "namespace": "shop", "name": "web", "uid": "u-web", "preference": "normal", "usageToRequest": "over",
        "priority": 7, "usage": 900, "request": 100, "refusal": null,
    });
    let is_carried_out = mode == "enforcing";
    let mut stages = vec![stage("sampled", 1), stage("decided", 2)];
    if is_carried_out {
        stages.push(stage("firstSignal", 3));
    }
    let kill = json!({
        "means": "signals", "passes": 1, "signalled": 3, "refused": 0, "spared": 0, "releasing": 0, "errno": null,
    });
    serde_json::from_value(json!({
        "apiVersion": "brink.dev/v1alpha1", "kind": "Decision", "order": order, "bootId": "3f2a",
        "decided": {"wall": "2026-11-21T10:00:00.000000Z", "monotonicNs": 2},
        "rung": "poll", "mode": mode, "memoryPolicy": "kubelet",
        "threshold": {"signal": "memory.available", "hard": true, "graceSeconds": 0, "quantity": 100, "available": 90, "capacity": 1000},
        "signals": [{"signal": "memory.available", "available": 90, "capacity": 1000}],
        "memory": {"headroomBytes": 80, "podsHeadroomBytes": null, "usableSwapBytes": 0, "podsUsableSwapBytes": 0, "reserveBytes": 0, "creditBytes": 0},
        "victim": place, "candidates": 1, "ranking": [place], "stages": stages,
        "kill": is_carried_out.then_some(kill), "freedBytes": 0, "reclaim": null, "end": null, "kubelet": null,
    }))
    .unwrap()
}

/// The same once it is over.
fn over(mut record: DecisionRecord, end: &str) -> DecisionRecord {
    record.end = Some(end.to_owned());
    if record.kill.is_some() {
        record.freed_bytes = 800;
        for (name, at) in [("gone", 9), ("ended", 8)] {
            record
                .stages
                .push(serde_json::from_value(stage(name, at)).unwrap());
        }
    }
    record
}

fn policy() -> Policy {
    let threshold = Threshold {
        signal: Signal::MemoryAvailable,
        grace: Span::ZERO,
        value: Amount::Quantity(Quantity::from_bytes(100 << 20)),
        min_reclaim: None,
    };
    Policy::new(vec![threshold], Layout::Single, Settings::default())
}

/// A step with these answers, told.
fn take_step(telling: &Telling, actions: &[Action], is_reconfigured: bool) {
    let mut step = Step {
        actions: actions.to_vec(),
        ..Step::default()
    };
    step.observations[Signal::MemoryAvailable] = Some(Observation {
        available: 90,
        capacity: 1000,
        at: None,
    });
    telling.step(&Heard {
        step: &step,
        policy: &policy(),
        memory: MemoryPolicy::Kubelet,
        mode: Mode::Enforcing,
        is_reconfigured,
    });
}

#[test]
fn a_crossing_comes_before_its_order_and_the_order_before_its_end() {
    let (telling, mut reader) = telling();
    // The guard tells of them in this order.
    telling.ordered(&decided(5, "enforcing"), Some("Burstable"));
    assert!(telling.has_waiting() && events(&mut reader).is_empty());
    let kill = Action::Kill {
        order: 5,
        workload: 0,
    };
    take_step(&telling, &[Action::Crossed { threshold: 0 }, kill], false);
    telling.completed(&over(decided(5, "enforcing"), "memory-back"), None);
    let events = events(&mut reader);
    let expected = [
        Kind::ThresholdCrossed,
        Kind::EvictionOrdered,
        Kind::EvictionCompleted,
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(
        events.iter().map(|event| event.seq).collect::<Vec<_>>(),
        [17, 18, 19]
    );

    let (opened, closed) = (incident(&events[1]), incident(&events[2]));
    assert_eq!((&events[1].at, &closed.at), (&opened.at, &opened.at));
    assert!(
        events[2].at.monotonic_ns > opened.at.monotonic_ns,
        "what closes has its own time: {:?}",
        events[2].at
    );
    assert_eq!(
        (opened.id.as_str(), opened.revision, opened.is_final),
        ("3f2a0000-18", 1, false)
    );
    assert_eq!(
        (closed.id.as_str(), closed.revision, closed.is_final),
        ("3f2a0000-18", 2, true)
    );
    assert_eq!((opened.cause, opened.more_victims), (Cause::Eviction, 3));
    let subject = events[2].subject.clone().unwrap();
    assert_eq!(
        (subject.name.as_str(), subject.incident.as_deref()),
        ("web", Some("3f2a0000-18"))
    );
    assert_eq!(
        opened.workload.value().unwrap().qos.as_deref(),
        Some("Burstable")
    );
    // Nobody has seen its manifest here.
    let mut identity = opened.workload.value().unwrap().clone();
    identity.owner_missing = Some(Missing::Lost);
    assert_eq!(closed.workload, Field::Value(identity));
    assert_eq!(opened.course.killed.value().unwrap().monotonic_ns, 3);
    assert_eq!(opened.course.freed, Field::Missing(Missing::Pending));
    assert_eq!(closed.course.memory_back.value().unwrap().monotonic_ns, 8);
    assert_eq!(closed.course.exited.value().unwrap().monotonic_ns, 9);
    assert_eq!(closed.course.freed, Field::Value(800));
    assert_eq!(closed.course.container_survived, Field::Value(false));
    assert_eq!(closed.decision.value().unwrap()["order"], 5);
    assert!(events[1].data.get().contains("pending") && !events[2].data.get().contains("pending"));
}

#[test]
fn an_order_without_a_step_and_an_end_without_an_order_are_told_all_the_same() {
    let (telling, mut reader) = telling();
    telling.ordered(&decided(5, "enforcing"), None);
    telling.tell_waiting();
    assert!(!telling.has_waiting());
    telling.ordered(&decided(5, "enforcing"), None);
    telling.tell_waiting();
    telling.completed(&over(decided(6, "enforcing"), "gone"), None);
    let events = events(&mut reader);
    assert_eq!(
        kinds(&events),
        [Kind::EvictionOrdered, Kind::EvictionCompleted]
    );
    let alone = incident(&events[1]);
    assert_eq!(
        (alone.id.as_str(), alone.revision, alone.is_final),
        ("3f2a0000-18", 1, true)
    );
}

#[test]
fn what_was_only_observed_says_so() {
    let (telling, mut reader) = telling();
    telling.ordered(&decided(5, "observing"), None);
    telling.completed(&over(decided(5, "observing"), "dry-run"), None);
    for event in events(&mut reader) {
        let incident = incident(&event);
        assert_eq!(
            (incident.cause, incident.more_victims),
            (Cause::WouldEvict, 0)
        );
        for field in [
            &incident.course.killed,
            &incident.course.exited,
            &incident.course.memory_back,
        ] {
            assert_eq!(field, &Field::Missing(Missing::NotApplicable));
        }
        assert!(
            incident.evidence[1].starts_with("nobody was killed"),
            "{:?}",
            incident.evidence
        );
    }
}

/// Nobody dies of an order that is only told: whom it names goes on living.
#[test]
fn who_would_have_been_killed_has_no_exit_to_wait_for() {
    let check = |mode: &str, end: &str, count: usize| {
        let (telling, mut reader) = telling();
        telling.ordered(&decided(5, mode), None);
        let samples = include_str!("../../../tests/events/v1alpha1/incident-closed.json");
        let closed: Event = serde_json::from_str(samples).unwrap();
        let mut victim = incident(&closed).victims.remove(0);
        victim.exited = Field::Missing(Missing::Pending);
        telling.amend(
            |_| true,
            |incident| {
                incident.victims = vec![victim; count];
                incident.more_victims = 0;
            },
        );
        telling.completed(&over(decided(5, mode), end), None);
        incident(&events(&mut reader)[1]).victims.remove(0).exited
    };
    let lives = Field::Missing(Missing::NotApplicable);
    assert_eq!(check("observing", "dry-run", 1), lives);
    let unseen = Field::Missing(Missing::Lost);
    assert_eq!(check("enforcing", "memory-back", 2), unseen);
    // One alone was gone when all were.
    let gone = check("enforcing", "memory-back", 1);
    assert_eq!(gone.value().map(|at| at.monotonic_ns), Some(9));
}

/// What a record of an order does not know of its workload has a reason, whatever it was ordered for.
#[test]
fn nothing_of_a_workload_is_without_a_value_or_a_reason() {
    let (telling, mut reader) = telling();
    let mut record = decided(5, "enforcing");
    record.threshold.signal = "pid.available".to_owned();
    telling.ordered(&record, None);
    telling.completed(&over(record, "gone"), None);
    let told = events(&mut reader);
    let identity = |event: &Event| incident(event).workload.value().unwrap().clone();
    let (opened, closed) = (identity(&told[0]), identity(&told[1]));
    let reasons = |of: &IncidentIdentity| {
        [
            of.container_missing,
            of.qos_missing,
            of.request_missing,
            of.owner_missing,
        ]
    };
    assert_eq!(
        (&closed.container, &closed.qos, closed.request),
        (&None, &None, None)
    );
    let pending = Some(Missing::Pending);
    assert_eq!(
        reasons(&opened),
        [Some(Missing::NotApplicable), pending, pending, pending]
    );
    let lost = Some(Missing::Lost);
    assert_eq!(
        reasons(&closed),
        [Some(Missing::NotApplicable), lost, lost, lost]
    );
    let mut known = opened.clone();
    (known.qos, known.qos_missing) = (Some("Guaranteed".to_owned()), None);
    (known.owner, known.owner_missing) = (None, Some(Missing::NotApplicable));
    let mut completed = opened;
    completed.completed_by(&known);
    assert_eq!(completed.qos.as_deref(), Some("Guaranteed"));
    assert_eq!(
        (completed.qos_missing, completed.owner_missing),
        (None, Some(Missing::NotApplicable))
    );
}

#[test]
fn others_fill_in_what_they_know_while_an_order_is_open() {
    let (telling, mut reader) = telling();
    let fill = |incident: &mut Incident| {
        incident.memory_stat = Field::Value([("anon".to_owned(), 5)].into());
    };
    let is_web = |incident: &Incident| {
        incident
            .workload
            .value()
            .is_some_and(|of| of.uid == "u-web")
    };
    assert!(!telling.amend(is_web, fill));
    telling.ordered(&decided(5, "enforcing"), None);
    assert!(telling.amend(is_web, fill), "one that waits is open");
    telling.completed(&over(decided(5, "enforcing"), "gone"), None);
    assert!(!telling.amend(is_web, fill));
    let events = events(&mut reader);
    let closed = incident(&events[1]);
    let node = |incident: &Incident| incident.node.value().unwrap().reclaim_ns.clone();
    let opened = incident(&events[0]);
    assert_eq!(node(&opened), Field::Missing(Missing::Pending));
    assert_eq!(
        node(&closed),
        Field::Missing(Missing::Lost),
        "nobody read it"
    );
    assert_eq!(closed.memory_stat.value().unwrap()["anon"], 5);
    assert_eq!(closed.top_of_cgroup, Field::Missing(Missing::Lost));
    assert_eq!(closed.top_of_node, Field::Missing(Missing::Lost));
}

#[test]
fn a_step_tells_what_it_changed() {
    let (telling, mut reader) = telling();
    let pressure: ConditionSet = [Condition::MemoryPressure].into_iter().collect();
    let actions = [
        Action::Crossed { threshold: 0 },
        Action::Conditions(pressure),
        Action::Mode(Mode::Enforcing),
        Action::Cleared { threshold: 0 },
        Action::Cleared { threshold: 31 },
    ];
    take_step(&telling, &actions, true);
    let events = events(&mut reader);
    let expected = [
        Kind::ThresholdCrossed,
        Kind::Pressure,
        Kind::ThresholdCleared,
        Kind::ConfigurationChanged,
    ];
    assert_eq!(kinds(&events), expected);
    let data = |index: usize| -> Value { serde_json::from_str(events[index].data.get()).unwrap() };
    assert_eq!(data(0)["quantity"], 100 << 20);
    assert_eq!(data(0)["available"], 90);
    assert_eq!(data(1)["conditions"], json!(["MemoryPressure"]));
    assert_eq!(data(3)["thresholds"], json!(["memory.available<100Mi"]));
    let part =
        json!({"signal": "memory.available", "value": "100Mi", "grace": null, "minReclaim": null});
    assert_eq!(data(3)["parts"], json!([part]));
    assert_eq!(data(3)["pressureTransition"], "5m0s");
    take_step(&telling, &[], false);
    assert_eq!(reader.next(), None);
}

/// An order that an earlier run has left open ends in its incident, also where that is found later than the order is over.
#[test]
fn an_order_of_an_earlier_run_ends_in_its_own_incident() {
    let left = |order| {
        let (telling, mut reader) = telling();
        telling.ordered(&decided(order, "enforcing"), None);
        telling.tell_waiting();
        (order, incident(&events(&mut reader)[0]))
    };
    let check = |is_found_first: bool| {
        let (telling, mut reader) = telling();
        telling.await_inheritance();
        assert!(!telling.goes_on(5));
        let over = over(decided(5, "enforcing"), "gone");
        let left = left(5);
        let id = left.1.id.clone();
        if is_found_first {
            telling.taken_up(5);
            assert!(telling.goes_on(5));
            telling.inherit(vec![left]);
            telling.completed(&over, None);
        } else {
            telling.completed(&over, None);
            assert_eq!(events(&mut reader).len(), 0, "it is not known whose it is");
            assert!(telling.goes_on(5));
            telling.inherit(vec![left]);
        }
        let told = events(&mut reader);
        assert_eq!(kinds(&told), [Kind::EvictionCompleted]);
        let closed = incident(&told[0]);
        assert_eq!((closed.id, closed.revision, closed.is_final), (id, 2, true));
        // Of one that nobody has left, nothing is waited for any more.
        telling.completed(&self::over(decided(6, "enforcing"), "gone"), None);
        assert_eq!(incident(&events(&mut reader)[0]).revision, 1);
    };
    check(true);
    check(false);

    // Where the journal cannot be opened at first it is over before its incident is found, which is closed then.
    let (late, mut reader) = telling();
    late.await_inheritance();
    late.taken_up(5);
    late.inherit(Vec::new());
    late.completed(&over(decided(5, "enforcing"), "gone"), None);
    assert_eq!(events(&mut reader).len(), 1);
    assert!(!late.goes_on(5));

    let (telling, mut reader) = telling();
    telling.await_inheritance();
    telling.completed(&over(decided(5, "enforcing"), "gone"), None);
    telling.end_ways();
    assert_eq!(
        events(&mut reader).len(),
        1,
        "a disk that hangs keeps no end"
    );
}

#[test]
fn an_incident_has_what_was_configured_when_it_opened() {
    let (telling, mut reader) = telling();
    let mut closed = |order| {
        telling.ordered(&decided(order, "enforcing"), None);
        telling.tell_waiting();
        if order == 2 {
            // What is configured while it is open is another one's.
            telling.configuration(
                Moment::START,
                &policy(),
                MemoryPolicy::Confirmed,
                Mode::Enforcing,
            );
        }
        telling.completed(&over(decided(order, "enforcing"), "gone"), None);
        let told = events(&mut reader);
        let opened = told.iter().find(|event| event.of == Kind::EvictionOrdered);
        let opened = incident(opened.unwrap()).configuration;
        assert_eq!(
            opened,
            Field::Missing(Missing::Pending),
            "it comes at the end"
        );
        incident(told.last().unwrap()).configuration
    };
    assert_eq!(closed(1), Field::Missing(Missing::BeforeStart));
    telling.configuration(
        Moment::START,
        &policy(),
        MemoryPolicy::Kubelet,
        Mode::Enforcing,
    );
    let known = closed(2);
    let known = known.value().expect("it was told");
    assert_eq!(
        (known.mode.as_str(), known.memory_policy.as_str()),
        ("enforcing", "kubelet")
    );
    assert_eq!(known.thresholds, ["memory.available<100Mi"]);
    assert_eq!(known.parts[0].value, "100Mi");
}

#[test]
fn the_rung_is_told_with_why_it_is_no_higher() {
    let (telling, mut reader) = telling();
    let standing = Standing {
        rung: Rung::RealtimePoll,
        scheduling: "SCHED_FIFO 49".to_owned(),
        reasons: vec!["no BTF".to_owned()],
    };
    telling.rung(Moment::START, &standing);
    let events = events(&mut reader);
    assert_eq!(kinds(&events), [Kind::RungChanged]);
    let data: Value = serde_json::from_str(events[0].data.get()).unwrap();
    let expected =
        json!({"rung": "realtime-poll", "scheduling": "SCHED_FIFO 49", "reasons": ["no BTF"]});
    assert_eq!(data, expected);
}

#[test]
fn who_comes_and_goes_is_told_and_who_was_there_is_not() {
    let (telling, mut reader) = telling();
    let roster = |uids: &[&str]| {
        let workload = |uid: &&str| Workload {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: (*uid).to_owned(),
            ..Workload::default()
        };
        let table = WorkloadTable::new(uids.iter().map(workload).collect(), 1);
        Roster::new(
            table,
            Vec::new(),
            ProtectedPids::new(std::path::Path::new("/"), []),
        )
    };
    for uids in [&["a", "b"][..], &["a", "b"], &["b", "c"]] {
        telling.roster(Moment::START, &roster(uids));
    }
    let events = events(&mut reader);
    assert_eq!(kinds(&events), [Kind::WorkloadEnded, Kind::WorkloadStarted]);
    let uids: Vec<_> = events
        .iter()
        .map(|event| event.subject.clone().unwrap().uid)
        .collect();
    assert_eq!(uids, ["a", "c"]);
}

#[test]
fn nobody_is_told_where_events_are_off() {
    let telling = Telling::off();
    telling.ordered(&decided(5, "enforcing"), None);
    telling.completed(&over(decided(5, "enforcing"), "gone"), None);
    take_step(&telling, &[Action::Crossed { threshold: 0 }], true);
    telling.lost_reports(Moment::START, 1, 1);
    assert!(!telling.has_waiting() && telling.hub().is_none());
}

#[test]
fn a_way_out_that_cannot_be_had_says_why_and_is_tried_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("disk");
    std::fs::write(&folder, "in the way").unwrap();
    let path = folder.join("events.jsonl");
    let rotation = Rotation {
        size: 1 << 20,
        count: 1,
    };
    let config = Events {
        enabled: true,
        socket: root.path().join("events.sock"),
        listen: None,
        page: false,
        command_lines: false,
        journal: EventJournal {
            enabled: false,
            path: root.path().join("journal"),
            limits: brink_stream::journal::Limits::default(),
        },
        outlets: Outlets {
            file: Some(EventFile {
                path: path.clone(),
                rotation,
                format: Format::Json,
            }),
            stdout: None,
            journald: false,
            otlp: None,
        },
    };
    let (telling, _reader) = telling();
    telling.started("observe", Moment::from_nanos(1), None);
    telling.open_ways(&config, || ()).unwrap();
    let failed = || {
        let outlets = telling.outlets();
        let file = outlets.iter().find(|(name, _)| *name == "file");
        file.and_then(|(_, status)| status.failed.clone())
    };
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let end = Instant::now() + Duration::from_mins(1);
        while !is_so() {
            assert!(Instant::now() < end, "it never came: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    until("the reason", &|| {
        failed().is_some_and(|why| why.contains("events.jsonl: "))
    });
    std::fs::remove_file(&folder).unwrap();
    until("it is written", &|| path.is_file() && failed().is_none());
    telling.end_ways();
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written.contains("\"type\":\"agent-started\""), "{written}");
}

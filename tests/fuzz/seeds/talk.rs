//! What an agent answers: one of each kind, and figures that no agent has.

use brink::control::protocol::{
    Answer, BrokenManifestView, DoorView, EventJournalView, EventsView, Explanation, ModeView,
    OomView, OutletView, PauseView, ProgramView, Ranking, RecorderView, Refusal, RefusalReason,
    RefusedView, RingView, SamplerView, Status, ThresholdState, Why,
};
use brink::record::DecisionRecord;
use brink::record::wire::{
    API_VERSION, OrderView, PressureView, RankedWorkload, SignalValue, Time,
};

use super::slots::{completion, record};
use super::write;

fn say(name: &str, answer: &Answer) {
    let text = serde_json::to_string(answer).unwrap_or_default() + "\n";
    write("answers", name, text.as_bytes());
}

fn time(monotonic_ns: i64) -> Time {
    Time {
        wall: "2026-11-20T09:36:31.250877Z".to_owned(),
        monotonic_ns,
    }
}

fn decision() -> DecisionRecord {
    DecisionRecord::new(&record(), Some(&completion()))
}

fn workload(name: &str) -> RankedWorkload {
    RankedWorkload {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        preference: "avoid".to_owned(),
        preference_by: Some("annotation".to_owned()),
        usage_to_request: "over".to_owned(),
        priority: 3,
        usage: Some(1 << 30),
        request: 1 << 20,
        processes: None,
        refusal: (name == "db").then(|| "critical".to_owned()),
    }
}

pub(super) fn answers() {
    say(
        "status",
        &Answer::Status(Box::new(status(time(9_957_000_000_000)))),
    );
    say(
        "regression-order-from-long-before",
        &Answer::Status(Box::new(status(time(i64::MIN)))),
    );
    say("ranking", &Answer::Ranking(Box::new(ranking())));
    say("explanation", &Answer::Explanation(Box::new(explanation())));
    say("decision", &Answer::Decision(Box::new(decision())));
    say("decisions", &Answer::Decisions(vec![decision()]));
    let mode = ModeView {
        api_version: API_VERSION.to_owned(),
        kind: "Mode".to_owned(),
        now: time(1),
        mode: "paused".to_owned(),
        pause: Some(PauseView {
            until: Some(time(2)),
            pressed_by: ["file", "annotation"].map(str::to_owned).into(),
        }),
    };
    say("mode", &Answer::Mode(Box::new(mode)));
    let refusal = Refusal {
        reason: RefusalReason::Ambiguous,
        message: "several are called web\u{1b}[2J".to_owned(),
        next: "name one by its uid".to_owned(),
    };
    say("refusal", &Answer::Refused(refusal));
}

fn status(now: Time) -> Status {
    Status {
        api_version: API_VERSION.to_owned(),
        kind: "Status".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 4242,
        started: time(1_000_000_000),
        now,
        mode: "enforcing".to_owned(),
        pause: None,
        other_enforcer: Some(77),
        refused_configuration: Some(RefusedView {
            at: time(2_000_000_000),
            why: "node.yaml:3:1: mode: twice".to_owned(),
        }),
        broken_manifests: vec![BrokenManifestView {
            file: "/etc/kubernetes/manifests/web.yaml".to_owned(),
            why: "web.yaml:2:11: metadata: the pod has no name".to_owned(),
            pods_stand: true,
        }],
        more_broken_manifests: 1,
        memory_policy: "confirmed".to_owned(),
        rung: Some("kernel-sampler".to_owned()),
        scheduling: None,
        rung_reasons: vec!["no BTF".to_owned()],
        signals: vec![SignalValue {
            signal: "memory.available".to_owned(),
            available: 90 << 20,
            capacity: 16 << 30,
        }],
        pods_cgroup: Some("/kubepods.slice".to_owned()),
        headroom_bytes: Some(80 << 20),
        usable_swap_bytes: 1 << 30,
        figures_age_ms: Some(12),
        pressure: vec![PressureView {
            resource: "memory".to_owned(),
            some: 0.25,
            full: None,
        }],
        thresholds: vec![threshold()],
        conditions: vec!["MemoryPressure".to_owned()],
        workloads: 12,
        protected: 3,
        open_order: Some(OrderView::of(&decision())),
        decisions: 1,
        last_order: None,
        oom_kills: 0,
        oom: OomView {
            node: 0,
            cgroup: 0,
            unknown: 0,
            groups: 0,
        },
        programs: vec![ProgramView {
            name: "mark_victim".to_owned(),
            family: "oom".to_owned(),
            running: false,
            why: Some("no tracefs".to_owned()),
            skipped: Some(3),
        }],
        rings: vec![RingView {
            row: "oom".to_owned(),
            seen: 5,
            sent: 3,
            dropped: 1,
            filtered: 1,
        }],
        reports_lost: 1,
        sampler: Some(SamplerView {
            ticks: 100,
            mean_ns: 1_500,
            max_ns: 9_000,
        }),
        events: Some(events()),
        recorder: Some(recorder()),
        kubernetes: None,
        storage: None,
        disks: None,
    }
}

fn events() -> EventsView {
    EventsView {
        last: 17,
        numbers: Some("No space left on device".to_owned()),
        journal: Some(EventJournalView {
            state: "full".to_owned(),
            why: Some("No space left on device".to_owned()),
            size: 4096,
            written: 9,
            waiting: 2,
            lost: 1,
        }),
        outlets: vec![OutletView {
            name: "file".to_owned(),
            why: Some("gone".to_owned()),
            sent: 8,
            lost: 3,
        }],
        doors: vec![DoorView {
            setting: "events.listen".to_owned(),
            address: "127.0.0.1:9753".to_owned(),
            why: Some("Address in use".to_owned()),
        }],
    }
}

fn recorder() -> RecorderView {
    RecorderView {
        node_period_ms: 10,
        near_period_ms: 100,
        others_period_ms: 1_000,
        near: 32,
        others: 78,
        surveyed: 110,
        left_out: 37,
        overwritten: 4,
        timer: Some(SamplerView {
            ticks: 600,
            mean_ns: 4_000,
            max_ns: 20_000,
        }),
    }
}

fn threshold() -> ThresholdState {
    ThresholdState {
        signal: "memory.available".to_owned(),
        value: "10%".to_owned(),
        hard: false,
        grace_seconds: 90,
        quantity: Some(100 << 20),
        observed: true,
        met: true,
        met_for_ms: Some(61_000),
        held: Some("unconfirmed".to_owned()),
    }
}

fn ranking() -> Ranking {
    Ranking {
        api_version: API_VERSION.to_owned(),
        kind: "Ranking".to_owned(),
        signal: "memory.available".to_owned(),
        now: time(5),
        figures_age_ms: 3,
        workloads: vec![workload("db"), workload("web")],
        why: vec![Why {
            by: "beyond".to_owned(),
            sentence: "shop/db goes before shop/web: so.".to_owned(),
        }],
        met: Vec::new(),
    }
}

fn explanation() -> Explanation {
    Explanation {
        api_version: API_VERSION.to_owned(),
        kind: "Explanation".to_owned(),
        workload: workload("web"),
        signal: "pid.available".to_owned(),
        now: time(5),
        figures_age_ms: 3,
        place: Some(2),
        candidates: 2,
        met: Vec::new(),
        reasons: vec!["its priority 3 is lower than 4".to_owned()],
        advice: vec!["A soft threshold swings: so.\u{1b}[2J".to_owned()],
        cgroups: vec!["/kubepods/burstable/pod1".to_owned()],
        orders: vec![OrderView::of(&decision())],
        storage: None,
    }
}

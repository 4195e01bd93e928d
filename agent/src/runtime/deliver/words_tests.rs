//! From records to the kubelet's words.

use brink_core::node::observe::Layout;
use brink_core::node::policy::Settings;
use brink_core::node::workload::{Container, FsUsage, ResourceList, Resources};
use serde_json::json;

use super::*;

fn record(mode: &str, signal: &str, usage: Option<i64>) -> DecisionRecord {
    let place = json!({
        "namespace": "shop", "name": "web", "uid": "u-web", "preference": "normal", "usageToRequest": "over",
        "priority": 7, "usage": usage, "request": 100, "refusal": null,
    });
    serde_json::from_value(json!({
        "apiVersion": "brink.dev/v1alpha1", "kind": "Decision", "order": 9, "bootId": "3f2a",
        "decided": {"wall": "2026-11-21T10:00:00.987654Z", "monotonicNs": 2},
        "rung": "poll", "mode": mode, "memoryPolicy": "kubelet",
        "threshold": {"signal": signal, "hard": true, "graceSeconds": 0, "quantity": 104_857_600, "available": 94_371_840, "capacity": 1_073_741_824},
        "signals": [],
        "memory": {"headroomBytes": null, "podsHeadroomBytes": null, "usableSwapBytes": 0, "podsUsableSwapBytes": 0, "reserveBytes": 0, "creditBytes": 0},
        "victim": place, "candidates": 1, "ranking": [place], "stages": [],
        "kill": null, "freedBytes": 0, "reclaim": null, "end": null, "kubelet": null,
    }))
    .unwrap()
}

fn victim() -> Workload {
    let container = |name: &str, request: &str| Container {
        name: name.to_owned(),
        resources: Resources {
            requests: ResourceList {
                memory: Some(request.parse().unwrap()),
                ..ResourceList::default()
            },
            ..Resources::default()
        },
        ..Container::default()
    };
    Workload {
        namespace: "shop".to_owned(),
        // The record has it cut.
        name: "w".repeat(200),
        uid: "u-web".to_owned(),
        generation: 4,
        containers: vec![container("app", "16Mi"), container("side", "1Gi")],
        ..Workload::default()
    }
}

fn policy(value: Value) -> Policy {
    let threshold = Threshold {
        signal: Signal::MemoryAvailable,
        grace: Span::ZERO,
        value,
        min_reclaim: None,
    };
    Policy::new(vec![threshold], Layout::Single, Settings::default())
}

fn used(name: &str, mebibytes: u64) -> ContainerUsage {
    ContainerUsage {
        name: name.to_owned(),
        memory: Some(mebibytes << 20),
        ..ContainerUsage::default()
    }
}

/// A victim of whose containers nothing is known.
fn bare<'a>(victim: &'a Workload, policy: &'a Policy) -> Known<'a> {
    Known {
        victim,
        policy,
        containers: &[],
    }
}

const LOW: &str =
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. ";

#[test]
fn an_eviction_says_what_the_kubelet_says() {
    let policy = policy(Value::Quantity("100Mi".parse().unwrap()));
    let (victim, containers) = (victim(), [used("app", 300), used("side", 2)]);
    let known = Known {
        victim: &victim,
        policy: &policy,
        containers: &containers,
    };
    let entry = evicted(&record("enforcing", "memory.available", Some(900)), known).unwrap();
    let text = format!(
        "{LOW}Container app was using 300Mi, request is 16Mi, has larger consumption of memory. "
    );
    let status = entry.status.as_ref().unwrap();
    assert_eq!((&status.message, status.generation), (&text, Some(4)));
    assert_eq!(status.at, "2026-11-21T10:00:00Z");
    assert_eq!((&*entry.event.reason, entry.event.warns), ("Evicted", true));
    assert_eq!(entry.event.message, text);
    let annotations: Vec<(&str, &str)> = entry
        .event
        .annotations
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    assert_eq!(
        annotations,
        [
            ("offending_containers", "app"),
            ("offending_containers_usage", "300Mi"),
            ("starved_resource", "memory")
        ]
    );
    assert_eq!(
        (entry.pod.name.len(), entry.key.text().as_str()),
        (200, "3f2a-9")
    );
}

#[test]
fn containers_are_blamed_for_their_layers_and_logs_where_both_are_known() {
    let (policy, victim) = (policy(Value::Quantity("100Mi".parse().unwrap())), victim());
    let known = |mebibytes: u64| FsUsage {
        bytes: Some(mebibytes << 20),
        inodes: Some(1),
    };
    let of = |name: &str, rootfs, logs| ContainerUsage {
        name: name.to_owned(),
        rootfs,
        logs,
        ..ContainerUsage::default()
    };
    let containers = [
        of("app", known(3), known(2)),
        of("side", FsUsage::default(), known(9)),
    ];
    let known = Known {
        containers: &containers,
        ..bare(&victim, &policy)
    };
    let entry = evicted(&record("enforcing", "nodefs.available", Some(900)), known).unwrap();
    assert_eq!(
        entry.event.message,
        "The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: 90Mi. Container app was \
         using 5Mi, request is 0, has larger consumption of ephemeral-storage. "
    );
    let annotations = &entry.event.annotations;
    assert_eq!(annotations["starved_resource"], "ephemeral-storage");
    assert_eq!(annotations["offending_containers"], "app");
    assert_eq!(annotations["offending_containers_usage"], "5Mi");
}

#[test]
fn a_victim_without_figures_has_no_annotations() {
    let (policy, victim) = (policy(Value::Quantity("100Mi".parse().unwrap())), victim());
    let known = bare(&victim, &policy);
    let entry = evicted(&record("enforcing", "memory.available", None), known).unwrap();
    assert_eq!(entry.event.message, LOW);
    assert!(entry.event.annotations.is_empty());
}

#[test]
fn an_amount_prints_as_it_was_written() {
    let victim = victim();
    let said = |value: Value| {
        let policy = policy(value);
        let known = bare(&victim, &policy);
        let entry = evicted(&record("enforcing", "memory.available", None), known);
        entry.unwrap().event.message
    };
    // The same amount, in the kubelet's decimal format.
    let decimal = said(Value::Quantity("104857600".parse().unwrap()));
    assert!(
        decimal.contains("Threshold quantity: 104857600, "),
        "{decimal}"
    );
    // A policy that has another threshold by now.
    let other = said(Value::Quantity("1Gi".parse().unwrap()));
    assert!(other.contains("Threshold quantity: 100Mi, "), "{other}");
}

#[test]
fn what_only_would_have_been_is_marked_and_changes_nothing() {
    let (policy, victim) = (policy(Value::Quantity("100Mi".parse().unwrap())), victim());
    let known = bare(&victim, &policy);
    let entry = would_evict(&record("observing", "memory.available", Some(900)), known).unwrap();
    assert_eq!((&entry.status, &entry.status_part), (&None, &Part::None));
    assert_eq!(
        (&*entry.event.reason, entry.event.warns),
        ("WouldEvict", false)
    );
    assert_eq!(entry.event.annotations[DRY_RUN], "true");
    assert_eq!(entry.event.message, format!("{DRY}{LOW}"));
}

#[test]
fn a_record_of_an_unknown_signal_has_no_words() {
    let (policy, victim) = (policy(Value::Quantity("100Mi".parse().unwrap())), victim());
    let known = bare(&victim, &policy);
    assert_eq!(
        evicted(&record("enforcing", "swap.available", None), known),
        None
    );
}

#[test]
fn an_eviction_for_a_limit_has_the_limits_message_alone_and_no_condition() {
    let policy = policy(Value::Quantity("100Mi".parse().unwrap()));
    let victim = victim();
    let message = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"1Mi\". ";
    let mut record = record("enforcing", "emptydirfs.limit", Some(2 << 20));
    record.limit = serde_json::from_value(json!({
        "part": "scratch", "limitBytes": 1_048_576, "usedBytes": 2_097_152, "message": message,
    }))
    .unwrap();
    let entry = evicted(&record, bare(&victim, &policy)).unwrap();
    let status = entry.status.unwrap();
    assert_eq!((&*status.message, status.for_limit), (message, true));
    assert_eq!(entry.event.message, message);
    assert!(entry.event.annotations.is_empty());
}

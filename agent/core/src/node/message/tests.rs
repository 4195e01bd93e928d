//! Messages and annotations, to the letter.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::super::signal::Signal;
use super::super::threshold::Value;
use super::super::workload::{Container, ContainerKind, FsUsage, Resources};
use super::*;
use crate::base::Span;

fn threshold(signal: Signal, value: &str) -> Threshold {
    let value = Value::Quantity(value.parse().unwrap());
    Threshold {
        signal,
        grace: Span::ZERO,
        value,
        min_reclaim: None,
    }
}

fn seen(available: i64) -> Observation {
    Observation {
        available,
        capacity: 1 << 40,
        at: None,
    }
}

fn container(name: &str, kind: ContainerKind, request: &str) -> Container {
    let request = (!request.is_empty()).then(|| request.parse().unwrap());
    let requests = ResourceList {
        memory: request,
        ephemeral_storage: request,
        ..ResourceList::default()
    };
    let resources = Resources {
        requests,
        ..Resources::default()
    };
    Container {
        name: name.to_string(),
        kind,
        resources,
    }
}

fn stats(name: &str, memory: u64, rootfs: Option<u64>, logs: Option<u64>) -> ContainerUsage {
    let fs = |bytes| FsUsage {
        bytes,
        inodes: None,
    };
    ContainerUsage {
        name: name.to_string(),
        memory: Some(memory),
        rootfs: fs(rootfs),
        logs: fs(logs),
    }
}

#[track_caller]
fn check(
    threshold: &Threshold,
    available: Option<i64>,
    (pod, usage, detail): (&Workload, Option<PodUsage>, &PodDetail),
    text: &str,
) -> Option<Annotations> {
    let seen = available.map(seen);
    let victim = Victim {
        pod,
        usage: usage.as_ref(),
        detail,
    };
    let message = eviction_message(threshold, seen.as_ref(), victim);
    assert_eq!(message.text, text);
    message.annotations
}

const MI: u64 = 1 << 20;

#[test]
fn a_pod_without_statistics_gets_the_threshold_only() {
    let pod = Workload::default();
    let nothing = (&pod, None, &PodDetail::default());
    let memory = threshold(Signal::MemoryAvailable, "2Gi");
    let text = "The node was low on resource: memory. Threshold quantity: 2Gi, available: 1500Mi. ";
    assert_eq!(check(&memory, Some(1500 << 20), nothing, text), None);
    let text = "The node was low on resource: memory. ";
    assert_eq!(check(&memory, None, nothing, text), None);
    let pids = threshold(Signal::PidAvailable, "1200");
    let text = "The node was low on resource: pids. Threshold quantity: 1200, available: 500. ";
    check(&pids, Some(500), nothing, text);
    let inodes = Threshold {
        value: Value::Fraction(0.5),
        ..threshold(Signal::NodefsInodesFree, "1")
    };
    let text = "The node was low on resource: inodes. Threshold quantity: 512Gi, available: 1k. ";
    check(&inodes, Some(1000), nothing, text);
    let negative = "The node was low on resource: memory. Threshold quantity: 2Gi, available: \
                    -35681Mi. ";
    check(&memory, Some(-37_414_240_256), nothing, negative);
}

#[test]
fn containers_over_their_request_are_named_in_the_order_of_statistics() {
    let pod = Workload {
        containers: vec![
            container("a", ContainerKind::Regular, "100Mi"),
            container("b", ContainerKind::Regular, ""),
            container("c", ContainerKind::Regular, "1Gi"),
            container("init", ContainerKind::Init, "1Mi"),
        ],
        ..Workload::default()
    };
    let detail = PodDetail {
        containers: vec![
            stats("init", 2 * MI, None, None),
            stats("ephemeral", 900 * MI, None, None),
            stats("c", 1024 * MI, None, None),
            stats("b", 1, None, None),
            stats("a", 150 * MI, None, None),
        ],
        ..PodDetail::default()
    };
    let memory = threshold(Signal::AllocatableMemoryAvailable, "1Gi");
    let text = "The node was low on resource: memory. Threshold quantity: 1Gi, available: 1Mi. \
                Container init was using 2Mi, request is 1Mi, has larger consumption of memory. \
                Container b was using 1, request is 0, has larger consumption of memory. \
                Container a was using 150Mi, request is 100Mi, has larger consumption of memory. ";
    let usage = Some(PodUsage::default());
    let annotations = check(&memory, Some(1 << 20), (&pod, usage, &detail), text).unwrap();
    let pairs: Vec<_> = annotations.iter().collect();
    let expected = [
        ("starved_resource", "memory"),
        ("offending_containers", "init,b,a"),
        ("offending_containers_usage", "2Mi,1,150Mi"),
    ];
    assert_eq!(pairs, expected);
    // Inodes and process ids blame nobody.
    let pids = threshold(Signal::PidAvailable, "10");
    let text = "The node was low on resource: pids. Threshold quantity: 10, available: 1. ";
    let annotations = check(&pids, Some(1), (&pod, usage, &detail), text).unwrap();
    assert_eq!(
        annotations.iter().nth(1),
        Some(("offending_containers", ""))
    );
}

#[test]
fn storage_needs_both_figures() {
    let pod = Workload {
        containers: ["a", "b", "c"]
            .map(|n| container(n, ContainerKind::Regular, "50Gi"))
            .into(),
        ..Workload::default()
    };
    let detail = PodDetail {
        containers: vec![
            stats("a", 0, Some(80 << 30), Some(0)),
            stats("b", 0, Some(80 << 30), None),
            stats("c", 0, Some(50 << 30), Some(0)),
        ],
        ..PodDetail::default()
    };
    let text = "The node was low on resource: ephemeral-storage. Threshold quantity: 50Gi, \
                available: 10Gi. Container a was using 80Gi, request is 50Gi, has larger \
                consumption of ephemeral-storage. ";
    let imagefs = threshold(Signal::ImagefsAvailable, "50Gi");
    check(
        &imagefs,
        Some(10 << 30),
        (&pod, Some(PodUsage::default()), &detail),
        text,
    );
}

#[test]
fn a_pod_with_resources_of_its_own_is_named_itself() {
    let requests = ResourceList {
        memory: Some("1Gi".parse().unwrap()),
        ..ResourceList::default()
    };
    let pod = Workload {
        name: "p".to_string(),
        pod_resources: Some(Resources {
            requests,
            ..Resources::default()
        }),
        containers: vec![container("a", ContainerKind::Regular, "")],
        ..Workload::default()
    };
    let detail = PodDetail {
        containers: vec![stats("a", MI, None, None)],
        ..PodDetail::default()
    };
    let usage = |memory| {
        Some(PodUsage {
            memory,
            ..PodUsage::default()
        })
    };
    let memory = threshold(Signal::MemoryAvailable, "1Gi");
    // Named although it uses less than it requested.
    let text = "The node was low on resource: memory. Threshold quantity: 1Gi, available: 1Mi. \
                Pod p was using 900Mi, request is 1Gi, has larger consumption of memory. Container \
                a was using 1Mi, request is 0, has larger consumption of memory. ";
    let annotations = check(
        &memory,
        Some(1 << 20),
        (&pod, usage(Some(900 * MI)), &detail),
        text,
    );
    let keys: Vec<_> = annotations
        .iter()
        .flat_map(Annotations::iter)
        .skip(3)
        .collect();
    assert_eq!(
        keys,
        [("offending_pod", "p"), ("offending_pod_usage", "900Mi")]
    );
    let text = "The node was low on resource: memory. Threshold quantity: 1Gi, available: 1Mi. \
                Container a was using 1Mi, request is 0, has larger consumption of memory. ";
    check(&memory, Some(1 << 20), (&pod, usage(None), &detail), text);
    let disk = threshold(Signal::NodefsAvailable, "1Gi");
    let text = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, \
                available: 1Mi. ";
    check(
        &disk,
        Some(1 << 20),
        (&pod, usage(Some(900 * MI)), &PodDetail::default()),
        text,
    );
}

#[test]
fn the_node_event_names_the_resource() {
    assert_eq!(
        node_event(Resource::EphemeralStorage),
        "Attempting to reclaim ephemeral-storage"
    );
}

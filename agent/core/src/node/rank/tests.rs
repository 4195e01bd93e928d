//! Ranking: the kubelet's cases, and that the order is total, stable and explained.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::decision::Standing;
use super::super::workload::{
    Container, FsUsage, Origin, ResourceList, Resources, Stage, Workload,
};
use super::*;

const MI: i64 = 1 << 20;

/// One pod: name, priority, request in bytes, usage in bytes, inodes or processes.
#[derive(Clone, Debug)]
struct Pod {
    name: String,
    priority: Option<i32>,
    request: i64,
    used: Option<u64>,
    preference: Preference,
    origin: Origin,
}

fn pod(name: &str, priority: i32, request: i64, used: Option<u64>) -> Pod {
    Pod {
        name: name.to_string(),
        priority: Some(priority),
        request,
        used,
        preference: Preference::Normal,
        origin: Origin::Api,
    }
}

fn workload(pod: &Pod) -> Workload {
    let request = (pod.request > 0).then(|| Quantity::from_bytes(pod.request));
    let requests = ResourceList {
        memory: request,
        ephemeral_storage: request,
        ..ResourceList::default()
    };
    let resources = Resources {
        requests,
        ..Resources::default()
    };
    Workload {
        namespace: "default".to_string(),
        name: pod.name.clone(),
        uid: pod.name.clone(),
        priority: pod.priority,
        origin: pod.origin,
        preference: pod.preference,
        containers: vec![Container {
            resources,
            ..Container::default()
        }],
        ..Workload::default()
    }
}

/// The same figure for everything, so that one pod serves every signal.
fn usage(pod: &Pod) -> Option<PodUsage> {
    let fs = FsUsage {
        bytes: pod.used,
        inodes: pod.used,
    };
    let none = FsUsage::default();
    pod.used.map(|used| PodUsage {
        memory: Some(used),
        processes: Some(used),
        rootfs: fs,
        logs: none,
        volumes: none,
    })
}

fn ranking(signal: Signal) -> Ranking {
    Ranking {
        signal,
        layout: Layout::Single,
        preferences: Preferences::Ignore,
    }
}

fn ranked(ranking: Ranking, pods: &[Pod]) -> Vec<String> {
    let table = WorkloadTable::new(pods.iter().map(workload).collect(), 1);
    let usage: Vec<_> = pods.iter().map(usage).collect();
    let mut order = Vec::new();
    rank(ranking, &table, &usage, &mut order);
    order
        .iter()
        .map(|&index| pods[index as usize].name.clone())
        .collect()
}

#[track_caller]
fn check(signal: Signal, pods: &[Pod], expected: &[&str]) {
    assert_eq!(ranked(ranking(signal), pods), expected, "{signal}");
}

#[test]
fn memory_goes_by_excess_then_priority_then_amount() {
    let mi = |mi: i64| Some((mi * MI).unsigned_abs());
    let pods = [
        pod("p8", 1, 1024 * MI, mi(200)),
        pod("p7", 1, 1024 * MI, mi(800)),
        pod("p6", -1, 1024 * MI, mi(200)),
        pod("p5", -1, 1024 * MI, mi(800)),
        pod("p4", 1, 100 * MI, mi(150)),
        pod("p3", 1, 100 * MI, mi(600)),
        pod("p2", -1, 0, mi(50)),
        pod("p1", -1, 0, mi(500)),
        pod("p0", 1000, 0, None),
    ];
    for signal in [
        Signal::MemoryAvailable,
        Signal::AllocatableMemoryAvailable,
        Signal::MemoryHeadroom,
        Signal::NodefsAvailable,
    ] {
        check(
            signal,
            &pods,
            &["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"],
        );
    }
}

#[test]
fn usage_equal_to_the_request_is_not_over_it() {
    let pods = [
        pod("equal", -1, 100, Some(100)),
        pod("over", 5, 100, Some(101)),
        pod("zero", -9, 0, Some(0)),
    ];
    check(Signal::MemoryAvailable, &pods, &["over", "zero", "equal"]);
}

#[test]
fn processes_go_by_priority_first_and_know_no_request() {
    let pods = [
        pod("nostats", 0, 0, None),
        pod("low", -1, 0, Some(1)),
        pod("peer", 0, 1_000_000, Some(999)),
        pod("few", 0, 0, Some(2)),
    ];
    check(
        Signal::PidAvailable,
        &pods,
        &["low", "nostats", "peer", "few"],
    );
}

#[test]
fn inodes_have_no_request_but_the_one_for_bytes_is_taken_off() {
    let pods = [
        pod("many", 0, 1 << 30, Some(900_000)),
        pod("few", 0, 0, Some(1000)),
        pod("none", -5, 0, Some(0)),
    ];
    check(Signal::NodefsInodesFree, &pods, &["few", "many", "none"]);
}

#[test]
fn a_decision_keeps_the_request_that_was_taken_off() {
    let pods = [pod("a", 0, MI, Some(357))];
    let table = WorkloadTable::new(pods.iter().map(workload).collect(), 1);
    let usage: Vec<_> = pods.iter().map(usage).collect();
    for (signal, request) in [
        (Signal::NodefsInodesFree, MI),
        (Signal::NodefsAvailable, MI),
        (Signal::MemoryAvailable, MI),
        (Signal::PidAvailable, 0),
    ] {
        let place = place(ranking(signal), &table, &usage, 0).unwrap();
        let kept = Standing::from(place);
        assert_eq!((kept.usage, kept.request), (Some(357), request), "{signal}");
        assert_eq!(
            place.beyond.map(Quantity::value),
            Some(357 - request),
            "{signal}"
        );
    }
}

#[test]
fn what_is_measured_follows_the_layout() {
    let parts = |rootfs, logs, volumes| {
        let fs = |bytes| FsUsage {
            bytes: Some(bytes),
            inodes: None,
        };
        PodUsage {
            rootfs: fs(rootfs),
            logs: fs(logs),
            volumes: fs(volumes),
            ..PodUsage::default()
        }
    };
    let used = parts(1, 10, 100);
    for (layout, expected) in [
        (Layout::Single, [111, 111, 111]),
        (Layout::DedicatedImagefs, [110, 1, 1]),
        (Layout::Split, [111, 0, 111]),
        (Layout::LayersApart, [110, 0, 1]),
    ] {
        let signals = [
            Signal::NodefsAvailable,
            Signal::ImagefsAvailable,
            Signal::ContainerfsAvailable,
        ];
        let measured = signals.map(|signal| {
            usage_of(
                Ranking {
                    layout,
                    ..ranking(signal)
                },
                &used,
            )
            .value()
        });
        assert_eq!(measured, expected, "{layout:?}");
    }
}

#[test]
fn a_counter_below_zero_counts_as_below_zero() {
    let pods = [pod("one", 0, 0, Some(1)), pod("odd", 0, 0, Some(u64::MAX))];
    check(Signal::MemoryAvailable, &pods, &["one", "odd"]);
}

#[test]
fn equals_go_by_uid_and_mirrors_and_the_dead_not_at_all() {
    let mut table: Vec<Workload> = ["c", "a", "b", "m", "t", "d"]
        .map(|name| workload(&pod(name, 0, 0, None)))
        .into();
    table[3].origin = Origin::Mirror;
    table[4].stage = Stage::Terminating;
    table[5].stage = Stage::Terminal;
    let table = WorkloadTable::new(table, 1);
    let mut order = Vec::new();
    rank(ranking(Signal::MemoryAvailable), &table, &[], &mut order);
    assert_eq!(order, [1, 2, 0, 4]);
}

#[test]
fn preferences_come_first_where_they_count() {
    let mut pods = [
        pod("a", 5, 0, Some(9)),
        pod("b", 0, 0, Some(5)),
        pod("c", -5, 0, Some(99)),
    ];
    pods[0].preference = Preference::Prefer;
    pods[2].preference = Preference::Avoid;
    let with = |preferences| Ranking {
        preferences,
        ..ranking(Signal::MemoryAvailable)
    };
    assert_eq!(ranked(with(Preferences::Ignore), &pods), ["c", "b", "a"]);
    assert_eq!(ranked(with(Preferences::Respect), &pods), ["a", "b", "c"]);
}

#[test]
fn whoever_puts_a_workload_where_it_stands_is_named() {
    let by = |one: (Preference, PreferenceBy), other: (Preference, PreferenceBy)| {
        let placed = |name, (preference, preference_by)| Workload {
            preference,
            preference_by,
            ..workload(&pod(name, 0, 0, None))
        };
        let table = WorkloadTable::new(vec![placed("a", one), placed("b", other)], 1);
        let ranking = Ranking {
            preferences: Preferences::Respect,
            ..ranking(Signal::MemoryAvailable)
        };
        explain(ranking, &table, &[], (0, 1))
    };
    let none = (Preference::Normal, PreferenceBy::Node);
    let first = |by| (Preference::Prefer, by);
    let last = (Preference::Avoid, PreferenceBy::Annotation);
    for (said, why) in [
        (
            by(first(PreferenceBy::Node), none),
            "the configuration puts it first and the other in between",
        ),
        (
            by(first(PreferenceBy::Annotation), none),
            "it is put first by its annotation, the other in between",
        ),
        (
            by(first(PreferenceBy::Node), last),
            "it is put first by the configuration, the other last by its annotation",
        ),
    ] {
        assert_eq!(said, format!("default/a goes before default/b: {why}."));
    }
}

#[track_caller]
fn check_sentence(signal: Signal, pods: &[Pod; 2], sentence: &str) {
    let table = WorkloadTable::new(pods.iter().map(workload).collect(), 1);
    let usage: Vec<_> = pods.iter().map(usage).collect();
    for pair in [(0, 1), (1, 0)] {
        assert_eq!(explain(ranking(signal), &table, &usage, pair), sentence);
    }
}

#[test]
fn sentences() {
    let mi = |mi: i64| Some((mi * MI).unsigned_abs());
    let memory = Signal::MemoryAvailable;
    check_sentence(
        memory,
        &[
            pod("a", 0, 100 * MI, mi(400)),
            pod("b", -9, 100 * MI, mi(50)),
        ],
        "default/a goes before default/b: it uses 400Mi of memory, more than the 100Mi it \
         requested, while the other uses 50Mi, no more than its 100Mi.",
    );
    check_sentence(
        memory,
        &[pod("a", -1, 0, mi(1)), pod("b", 0, 0, mi(400))],
        "default/a goes before default/b: its priority -1 is lower than 0.",
    );
    check_sentence(
        memory,
        &[pod("a", 0, 100 * MI, mi(50)), pod("b", 0, 300 * MI, mi(50))],
        "default/a goes before default/b: its memory usage is 50Mi below its request, the other's \
         250Mi below its request.",
    );
    check_sentence(
        memory,
        &[pod("a", 9, 0, None), pod("b", 0, 0, mi(400))],
        "default/a goes before default/b: nothing is known of its memory usage, so it may be \
         anything.",
    );
    check_sentence(
        Signal::PidAvailable,
        &[pod("a", 0, 0, Some(600)), pod("b", 0, 0, Some(50))],
        "default/a goes before default/b: it runs 600 processes, the other 50.",
    );
    check_sentence(
        Signal::NodefsInodesFree,
        &[pod("a", 0, 0, Some(14)), pod("b", 0, MI, Some(357))],
        "default/a goes before default/b: its inodes usage is 14 above its request, the other's \
         1048219 below its request (as the kubelet does, with the request for bytes of storage).",
    );
    check_sentence(
        Signal::NodefsInodesFree,
        &[pod("a", 9, MI, Some(14)), pod("b", 0, 0, Some(0))],
        "default/a goes before default/b: it uses 14 of inodes, while the other uses none.",
    );
    check_sentence(
        memory,
        &[pod("a", 0, 0, None), pod("b", 0, 0, None)],
        "default/a goes before default/b: nothing that counts tells them apart, so the lower uid \
         goes.",
    );
    let mut mirror = pod("b", 0, 0, None);
    mirror.origin = Origin::Mirror;
    check_sentence(
        memory,
        &[pod("a", 0, 0, None), mirror],
        "default/b is no candidate for eviction.",
    );
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let preference = prop_oneof![
        Just(Preference::Prefer),
        Just(Preference::Normal),
        Just(Preference::Avoid)
    ];
    let origin =
        prop_oneof![4 => Just(Origin::Api), 1 => Just(Origin::Static), 1 => Just(Origin::Mirror)];
    let priority = proptest::option::of(-2i32..3);
    // Few values, so that every comparator sees ties.
    let used = proptest::option::of(0u64..4);
    (priority, 0i64..3, used, preference, origin).prop_map(
        |(priority, request, used, preference, origin)| Pod {
            name: String::new(),
            priority,
            request,
            used,
            preference,
            origin,
        },
    )
}

fn any_pods() -> impl Strategy<Value = Vec<Pod>> {
    proptest::collection::vec(any_pod(), 0..24).prop_map(|mut pods| {
        for (at, pod) in pods.iter_mut().enumerate() {
            pod.name = format!("p{at:02}");
        }
        pods
    })
}

fn any_ranking() -> impl Strategy<Value = Ranking> {
    let signal = proptest::sample::select(&Signal::ALL[..]);
    let layout = prop_oneof![
        Just(Layout::Single),
        Just(Layout::DedicatedImagefs),
        Just(Layout::Split),
        Just(Layout::LayersApart)
    ];
    let preferences = prop_oneof![Just(Preferences::Respect), Just(Preferences::Ignore)];
    (signal, layout, preferences).prop_map(|(signal, layout, preferences)| Ranking {
        signal,
        layout,
        preferences,
    })
}

proptest! {
    #[test]
    fn the_order_does_not_depend_on_the_order_of_the_input(
        ranking in any_ranking(),
        (pods, shuffled) in any_pods().prop_flat_map(|pods| (Just(pods.clone()), Just(pods).prop_shuffle())),
    ) {
        prop_assert_eq!(ranked(ranking, &pods), ranked(ranking, &shuffled));
    }

    #[test]
    fn every_candidate_once_and_nobody_else(ranking in any_ranking(), pods in any_pods()) {
        let mut order = ranked(ranking, &pods);
        order.sort();
        let candidates = pods.iter().filter(|pod| pod.origin != Origin::Mirror);
        let candidates: Vec<_> = candidates.map(|pod| pod.name.clone()).collect();
        prop_assert_eq!(order, candidates);
    }

    /// The kubelet's chained comparators, written out, must never put a later pod strictly first.
    #[test]
    fn the_order_agrees_with_chained_comparators(ranking in any_ranking(), pods in any_pods()) {
        let table = WorkloadTable::new(pods.iter().map(workload).collect(), 1);
        let usage: Vec<_> = pods.iter().map(usage).collect();
        let mut order = Vec::new();
        rank(ranking, &table, &usage, &mut order);
        for (at, &first) in order.iter().enumerate() {
            for &second in &order[at + 1..] {
                let [first, second] = [first, second].map(|index| place(ranking, &table, &usage, index).unwrap());
                let (ordering, decider) = first.compare(&second, ranking.signal.resource());
                prop_assert!(ordering.is_lt(), "{first:?} {second:?} {decider:?}");
            }
        }
    }

    #[test]
    fn the_head_is_the_beginning_of_the_whole(
        ranking in any_ranking(),
        pods in any_pods(),
        head in 0usize..30,
    ) {
        let table = WorkloadTable::new(pods.iter().map(workload).collect(), 1);
        let usage: Vec<_> = pods.iter().map(usage).collect();
        let (mut whole, mut order) = (Vec::new(), Vec::new());
        rank(ranking, &table, &usage, &mut whole);
        rank_head(ranking, &table, &usage, &mut order, head);
        let head = head.min(whole.len());
        prop_assert_eq!(&order[..head], &whole[..head]);
        order.sort_unstable();
        whole.sort_unstable();
        prop_assert_eq!(order, whole);
    }

    #[test]
    fn using_more_never_moves_a_pod_back(
        ranking in any_ranking(),
        pods in any_pods(),
        which: proptest::sample::Index,
        more in 1u64..5,
    ) {
        prop_assume!(pods.iter().any(|pod| pod.origin != Origin::Mirror && pod.used.is_some()));
        let eligible: Vec<usize> = (0..pods.len())
            .filter(|&at| pods[at].origin != Origin::Mirror && pods[at].used.is_some())
            .collect();
        let chosen = eligible[which.index(eligible.len())];
        let position = |pods: &[Pod]| {
            let order = ranked(ranking, pods);
            order.iter().position(|name| *name == pods[chosen].name).unwrap()
        };
        let before = position(&pods);
        let mut grown = pods.clone();
        grown[chosen].used = grown[chosen].used.map(|used| used + more);
        prop_assert!(position(&grown) <= before);
    }
}

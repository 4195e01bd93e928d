//! Scores of pods of every class, on nodes of several sizes.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::workload::{Origin, ResourceList, Resources};
use super::*;

const GB: i64 = 1_000_000_000;
const MI: i64 = 1 << 20;
const GI: i64 = 1 << 30;
const TI: i64 = 1 << 40;

fn list(memory: &str) -> ResourceList {
    ResourceList {
        memory: (!memory.is_empty()).then(|| memory.parse().unwrap()),
        ..ResourceList::default()
    }
}

/// `NAME KIND REQUEST LIMIT`, with `-` for what is not set; kinds are `c`, `i` and `s`.
fn container(text: &str) -> Container {
    let words: Vec<&str> = text.split(' ').collect();
    let amount = |at: usize| words.get(at).copied().filter(|word| *word != "-");
    Container {
        name: words[0].to_string(),
        kind: match words[1] {
            "c" => ContainerKind::Regular,
            "i" => ContainerKind::Init,
            _ => ContainerKind::Sidecar,
        },
        resources: Resources {
            requests: list(amount(2).unwrap_or_default()),
            limits: list(amount(3).unwrap_or_default()),
        },
    }
}

/// A pod of the class Burstable, whatever its containers say.
fn pod(containers: &[&str]) -> Workload {
    Workload {
        reported_qos: Some(QosClass::Burstable),
        containers: containers.iter().map(|text| container(text)).collect(),
        ..Workload::default()
    }
}

fn with_own(own: (&str, &str), containers: &[&str]) -> Workload {
    Workload {
        pod_resources: Some(Resources {
            requests: list(own.0),
            limits: list(own.1),
        }),
        ..pod(containers)
    }
}

#[track_caller]
fn check(pod: &Workload, capacity: i64, expected: &[(&str, i64, i64)]) {
    for (name, plain, tie_break) in expected {
        let score = of_container(pod, Some(name), capacity).unwrap();
        assert_eq!(
            (score.plain, score.tie_break),
            (*plain, *tie_break),
            "{name}"
        );
    }
}

#[test]
fn the_class_decides_at_both_ends() {
    let of = |class| Workload {
        reported_qos: Some(class),
        ..pod(&["a c 1Gi -", "b c 2Gi -"])
    };
    for (class, expected) in [(QosClass::Guaranteed, -997), (QosClass::BestEffort, 1000)] {
        check(
            &of(class),
            16 * GI,
            &[("a", expected, expected), ("b", expected, expected)],
        );
        // Nothing hangs on which container it is, nor on the node.
        let score = of_container(&of(class), None, 0).unwrap();
        assert_eq!(score, Score::both(expected));
        assert_eq!(of_whole(&of(class), 0), Some(Score::both(expected)));
    }
}

#[test]
fn only_the_class_for_nodes_keeps_a_pod_whatever_it_requests() {
    let of = |node_critical, origin, priority| Workload {
        priority,
        node_critical,
        origin,
        ..pod(&["a c 4G -"])
    };
    let score = |workload: &Workload| of_container(workload, Some("a"), 16 * GB).unwrap().plain;
    assert_eq!(score(&of(true, Origin::Api, Some(2_000_001_000))), -997);
    assert_eq!(score(&of(true, Origin::Mirror, None)), -997);
    // Critical to the cluster, or static: never evicted, and yet by its request.
    assert_eq!(score(&of(false, Origin::Api, Some(2_000_000_000))), 750);
    assert_eq!(score(&of(false, Origin::Static, Some(2_000_001_000))), 750);
    // The name of the class without its priority is nobody's that a cluster admitted.
    assert_eq!(score(&of(true, Origin::Api, Some(7))), 750);
}

#[test]
fn a_burstable_container_goes_by_its_own_request() {
    let one = |request: &str| pod(&[&["a c ", request, " -"].concat()]);
    for (request, expected) in [
        ("0", 999),
        ("-", 999),
        ("1", 999),
        // A thousandth is 8000000; the one that would come to 1000 is the class's below.
        ("7999999", 999),
        ("8000000", 999),
        ("15999999", 999),
        ("16000000", 998),
        ("4G", 500),
        ("7990000000", 3),
        ("8G", 3),
        ("80G", 3),
        ("8Ei", 3),
    ] {
        let score = of_container(&one(request), Some("a"), 8 * GB).unwrap();
        assert_eq!(score.plain, expected, "{request}");
    }
    let several = pod(&["a c 1G -", "b c - -", "init i 2G -"]);
    check(
        &several,
        8 * GB,
        &[
            ("a", 875, 875),
            ("b", 999, 999),
            ("init", 750, 750),
            ("debug", 999, 999),
        ],
    );
}

#[test]
fn a_sidecar_goes_with_the_least_of_the_regular_ones_or_after_them() {
    let of = |sidecar: &str| {
        let sidecar = ["s s ", sidecar, " -"].concat();
        pod(&["a c 1G -", "b c 2G -", &sidecar])
    };
    check(
        &of("-"),
        8 * GB,
        &[("a", 875, 875), ("b", 750, 750), ("s", 875, 875)],
    );
    check(&of("4G"), 8 * GB, &[("s", 500, 500)]);
    check(&pod(&["s s - -"]), 8 * GB, &[("s", 999, 999)]);
}

#[test]
fn what_the_pod_requests_beyond_its_containers_is_shared() {
    let own = ("4G", "");
    check(
        &with_own(own, &["a c 1G -", "b c - -", "s s - -"]),
        8 * GB,
        // 3 GB among three.
        &[
            ("a", 750, 750),
            ("b", 875, 875),
            ("s", 875, 875),
            ("debug", 875, 875),
        ],
    );
    // An init container has its share, and runs before the others: together they request 2 GB.
    check(
        &with_own(own, &["a c 1G -", "i i 2G -"]),
        8 * GB,
        &[("a", 750, 750), ("i", 625, 625)],
    );
    check(
        &with_own(("", "4G"), &["a c 1G -"]),
        8 * GB,
        &[("a", 875, 875)],
    );
    check(
        &with_own(("0", ""), &["a c 1G -"]),
        8 * GB,
        &[("a", 875, 875)],
    );
    check(&with_own(own, &[]), 8 * GB, &[("debug", 999, 999)]);
}

#[test]
fn kubelets_that_break_ties_take_some_points_off() {
    for (capacity, text, plain, tie_break) in [
        (16 * GI, "c c 500Mi -", 970, 970),
        (16 * GI, "c c 500Mi 500Mi", 970, 969),
        (TI, "c c 50Mi -", 999, 999),
        (TI, "c c 500Mi -", 999, 998),
        (TI, "c c 4Gi -", 997, 993),
        (TI, "c c 16Gi -", 985, 981),
        (TI, "c c 500Mi 500Mi", 999, 993),
        (TI, "c c 500Mi 501Mi", 999, 998),
        (4 * TI, "c c 500Mi -", 999, 998),
        (4 * TI, "c c 64Gi -", 985, 979),
    ] {
        check(&pod(&[text]), capacity, &[("c", plain, tie_break)]);
    }
    let sidecar = pod(&["a c 50Mi 50Mi", "b c 16Gi -", "s s 50Mi -"]);
    check(&sidecar, TI, &[("s", 999, 995)]);
    for (limit, tie_break) in [("4Gi", 995), ("2Gi", 990)] {
        let pod = with_own(("2Gi", limit), &["c c - -"]);
        check(&pod, TI, &[("c", 999, tie_break)]);
    }
}

#[test]
fn a_container_of_no_known_name_has_a_score_where_all_have_the_same() {
    let score = |containers: &[&str]| of_container(&pod(containers), None, 8 * GB);
    assert_eq!(score(&["a c 1G -"]), Some(Score::both(875)));
    assert_eq!(score(&["a c 1G -", "b c 1G -"]), Some(Score::both(875)));
    assert_eq!(score(&["a c 1G -", "b c 2G -"]), None);
    assert_eq!(score(&[]), None);
    assert_eq!(of_container(&pod(&["a c 1G -"]), None, 0), None);
    assert_eq!(of_container(&pod(&["a c 1G -"]), Some("a"), -1), None);
}

#[test]
fn a_whole_workload_requests_what_all_of_it_does() {
    let score = |workload: &Workload| of_whole(workload, 8 * GB).map(|score| score.plain);
    assert_eq!(score(&pod(&["a c 1G -", "b c 1G -"])), Some(750));
    assert_eq!(score(&with_own(("4G", ""), &["a c 1G -"])), Some(500));
    assert_eq!(score(&pod(&["a c - -"])), Some(999));
    assert_eq!(of_whole(&pod(&["a c 1G -"]), 0), None);
}

proptest! {
    /// The rule as one would write it down, on integers that cannot overflow there.
    #[test]
    fn a_lone_container_is_as_the_formula_says(
        request in 0..(64 * GI),
        capacity in MI..(64 * GI),
    ) {
        let text: String = ["a c ", &request.to_string(), " -"].concat();
        let score = of_container(&pod(&[&text]), Some("a"), capacity).unwrap();
        let thousandths = 1000 - 1000 * request / capacity;
        prop_assert_eq!(score.plain, thousandths.clamp(3, 999));
        prop_assert!(score.tie_break <= score.plain && (3..=999).contains(&score.tie_break));
        prop_assert!(score.admits(score.plain) && score.admits(score.tie_break));
    }

    /// Whatever is written, the kernel takes it, and no sidecar goes before all regular ones.
    #[test]
    fn every_score_is_one_and_sidecars_are_kept(
        requests in proptest::collection::vec((0u8..3, 0..(8 * GI), 0..(8 * GI)), 1..6),
        own in 0..(64 * GI),
        capacity in 1..(64 * GI),
    ) {
        let texts: Vec<String> = requests.iter().enumerate().map(|(at, (kind, request, limit))| {
            let kind = ["c", "i", "s"][usize::from(*kind)];
            alloc::format!("c{at} {kind} {request} {limit}")
        }).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let pod = with_own((&own.to_string(), ""), &texts);
        let of = |container: &Container| of_container(&pod, Some(&container.name), capacity).unwrap();
        let regular = || pod.containers.iter().filter(|one| one.kind == ContainerKind::Regular).map(of);
        for container in &pod.containers {
            let score = of(container);
            prop_assert!((3..=999).contains(&score.plain) && (3..=999).contains(&score.tie_break));
            if container.kind == ContainerKind::Sidecar && regular().next().is_some() {
                prop_assert!(regular().any(|one| one.plain >= score.plain));
                prop_assert!(regular().any(|one| one.tie_break >= score.tie_break));
            }
        }
    }
}

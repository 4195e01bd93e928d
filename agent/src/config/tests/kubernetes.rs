//! `kubernetes`: what is said, what holds where nothing is, and what is no way to a server.

use super::*;
use crate::guard::pods::PodsGroup;

fn folder(text: &str) -> Folder {
    Folder::new(&[("config.yaml", &format!("{HEAD}{text}\n"))])
}

#[test]
fn what_is_not_said_is_found_out_later() {
    assert_eq!(folder("").load().config.kubernetes, Kubernetes::default());
    let text = "kubernetes: {enabled: true, configz: true, kubeconfig: /k, context: c, nodeName: n, streamingLists: never, \
                taint: true, dryRunEvents: true}";
    let expected = Kubernetes {
        enabled: true,
        configz: true,
        kubeconfig: Some("/k".into()),
        context: Some("c".to_owned()),
        node_name: Some("n".to_owned()),
        streaming_lists: StreamingLists::Never,
        taint: true,
        dry_run_events: true,
    };
    assert_eq!(folder(text).load().config.kubernetes, expected);
}

#[test]
fn in_kubernetes_all_pods_are_in_the_kubelets_group_unless_one_is_named() {
    let pods = |text: &str| folder(text).load().config.pods();
    assert_eq!(pods(""), PodsGroup::None);
    let cluster = "kubernetes: {enabled: true}";
    assert_eq!(pods(cluster), PodsGroup::Kubelets);
    let named = format!("{cluster}\npodsCgroup: /that/kubepods");
    assert_eq!(pods(&named), PodsGroup::Named("/that/kubepods".to_owned()));
}

#[test]
fn who_wants_no_threshold_on_what_the_pods_may_use_says_so() {
    let watched = |files: &[(&str, &str)]| {
        let config = Folder::new(files).load().config;
        let mut thresholds = config.policy.thresholds().iter();
        thresholds.any(|threshold| threshold.signal == Signal::AllocatableMemoryAvailable)
    };
    let base = format!("{HEAD}kubernetes: {{enabled: true}}\n");
    assert!(watched(&[("config.yaml", &base)]));
    for off in ["[]", "[none]"] {
        let drop_in = format!("enforceNodeAllocatable: {off}\n");
        let files = [
            ("config.yaml", base.as_str()),
            ("conf.d/90.yaml", drop_in.as_str()),
        ];
        assert!(!watched(&files), "{off}");
    }
}

#[test]
fn what_is_no_way_to_a_server_is_a_fault_with_its_place() {
    for (text, expected) in [
        (
            "kubernetes: {kubeconfig: k}",
            "config.yaml:3:26: kubernetes.kubeconfig: \"k\": no absolute path",
        ),
        ("kubernetes: {nodeName: ''}", "kubernetes.nodeName"),
        (
            "kubernetes: {streamingLists: on}",
            "kubernetes.streamingLists",
        ),
        ("kubernetes: {enable: true}", "did you mean enabled?"),
        ("kubernetes: {configz: 10m}", "kubernetes.configz"),
    ] {
        let said = folder(text).faults();
        assert_eq!(said.len(), 1, "{text}: {said:#?}");
        assert!(said[0].contains(expected), "{text}: {said:#?}");
    }
}

#[test]
fn a_kubelet_that_nobody_would_ask_is_told() {
    let findings = |text: &str| {
        let found = folder(text).load().idle;
        let found = found.iter().map(ToString::to_string);
        found.collect::<Vec<String>>()
    };
    let found = findings("kubernetes: {configz: true}");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("set kubernetes.enabled: true"),
        "{found:?}"
    );
    for text in [
        "kubernetes: {enabled: true, configz: true}",
        "kubernetes: {configz: false}",
    ] {
        assert_eq!(findings(text), [""; 0], "{text}");
    }
}

#[test]
fn who_has_the_pods_of_a_cluster_has_somebody_to_evict() {
    let findings = |text: &str| folder(&format!("mode: enforce\n{text}")).load().idle.len();
    assert_eq!(
        (findings(""), findings("kubernetes: {enabled: true}")),
        (1, 0)
    );
}

#[test]
fn a_switch_that_changes_nothing_as_the_rest_is_written_is_told() {
    let findings = |text: &str| {
        let found = folder(text).load().idle;
        let found = found
            .iter()
            .map(|told| (told.path.clone(), told.to_string()));
        found.collect::<Vec<(String, String)>>()
    };
    // Somebody whom an agent that enforces could evict, so that nothing is said of that.
    let somebody = "workloads: {cgroups: [{glob: /a}]}";
    for (text, key, word) in [
        ("{taint: true}", "taint", "set kubernetes.enabled: true"),
        (
            "{dryRunEvents: true}",
            "dryRunEvents",
            "set kubernetes.enabled: true",
        ),
        (
            "{enabled: true, taint: true}\nmode: observe",
            "taint",
            "it counts with mode: enforce",
        ),
        (
            "{enabled: true, dryRunEvents: true}\nmode: enforce",
            "dryRunEvents",
            "it counts with mode: observe",
        ),
    ] {
        let found = findings(&format!("{somebody}\nkubernetes: {text}"));
        let [(path, said)] = found.as_slice() else {
            panic!("{text}: {found:#?}");
        };
        assert_eq!(*path, format!("kubernetes.{key}"), "{text}");
        assert!(said.contains(word), "{text}: {said}");
    }
    for text in [
        "{enabled: true, taint: true}\nmode: enforce",
        "{enabled: true, dryRunEvents: true}\nmode: observe",
        "{taint: false, dryRunEvents: false}",
    ] {
        assert_eq!(findings(&format!("{somebody}\nkubernetes: {text}")), []);
    }
}

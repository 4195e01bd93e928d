//! Properties of what is printed, over scenarios that a kubelet could live through.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use super::{lines, live_lines, scenario};

const KEYS: [&str; 7] = [
    "at",
    "met",
    "ready",
    "conditions",
    "reclaim",
    "ranking",
    "evict",
];

/// Scenarios that a kubelet could live through.
fn scenarios() -> impl Strategy<Value = Value> {
    let pods = proptest::collection::vec(pod(), 0..6);
    let steps = proptest::collection::vec(step(), 0..6);
    let layout = proptest::sample::select(vec!["single", "dedicatedImagefs", "split"]);
    (config(), pods, steps, layout).prop_map(|(config, mut pods, mut steps, layout)| {
        for (at, pod) in pods.iter_mut().enumerate() {
            pod["metadata"]["name"] = json!(format!("p{at}"));
        }
        for (at, step) in steps.iter_mut().enumerate() {
            step["at"] = json!(format!("{}s", at * 40));
        }
        json!({
            "apiVersion": "brink.dev/v1alpha1", "kind": "Scenario", "config": config,
            "filesystems": layout, "pods": pods, "steps": steps,
        })
    })
}

fn amount() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0i64..5000).prop_map(Value::from),
        (0i64..4000).prop_map(|mebi| json!(format!("{mebi}Mi"))),
        "[1-9][0-9]{0,2}(k|M|Ki|Gi|m|e3)".prop_map(Value::from),
    ]
}

fn threshold() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[1-9][0-9]{0,2}(k|M|Mi|Gi)?".prop_map(Value::from),
        "[1-9][0-9]?(\\.[0-9])?%".prop_map(Value::from),
        proptest::sample::select(vec!["0%", "100%", "0.0%"]).prop_map(Value::from),
    ]
}

fn signal() -> impl Strategy<Value = String> {
    let names = Signal::KUBELET.map(|signal| signal.name().to_string());
    proptest::sample::select(names.to_vec())
}

fn config() -> impl Strategy<Value = Value> {
    let map = || proptest::collection::btree_map(signal(), threshold(), 0..5);
    (
        proptest::option::of(map()),
        map(),
        0u8..3,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(hard, soft, grace, merge, pods)| {
            let graces: Value = soft
                .keys()
                .map(|signal| (signal.clone(), json!(format!("{}s", u32::from(grace) * 30))))
                .collect::<serde_json::Map<_, _>>()
                .into();
            json!({
                "evictionHard": hard, "evictionSoft": soft, "evictionSoftGracePeriod": graces,
                "mergeDefaultEvictionSettings": merge,
                "enforceNodeAllocatable": if pods { vec!["pods"] } else { vec![] },
                "evictionPressureTransitionPeriod": "1m",
            })
        })
}

fn pod() -> impl Strategy<Value = Value> {
    let origin = proptest::sample::select(vec!["api", "file", "mirror"]);
    let priority = proptest::option::of(proptest::sample::select(vec![-1, 0, 1, 2_000_000_000]));
    (origin, priority, proptest::option::of(amount()), proptest::option::of(amount())).prop_map(
        |(origin, priority, request, limit)| {
            let mut annotations = json!({"kubernetes.io/config.source": origin});
            if origin == "mirror" {
                annotations["kubernetes.io/config.mirror"] = json!("x");
            }
            let mut resources = json!({"requests": {}, "limits": {}});
            if let Some(request) = request {
                resources["requests"] = json!({"memory": request, "ephemeral-storage": request});
            }
            if let Some(limit) = limit {
                resources["limits"] = json!({"ephemeral-storage": limit});
            }
            json!({
                "metadata": {"annotations": annotations},
                "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]},
            })
        },
    )
}

fn step() -> impl Strategy<Value = Value> {
    let seen = || {
        (amount(), 1i64..5000)
            .prop_map(|(available, capacity)| json!({"available": available, "capacity": capacity}))
    };
    let fs = || {
        (amount(), amount()).prop_map(|(bytes, inodes)| json!({"bytes": bytes, "inodes": inodes}))
    };
    let used = (amount(), amount(), fs(), fs()).prop_map(|(memory, processes, rootfs, logs)| {
        json!({
            "memory": memory, "processes": processes, "rootfs": rootfs, "logs": logs,
            "containers": {"c": {"memory": memory, "rootfs": rootfs, "logs": logs}},
        })
    });
    let name = (0usize..6).prop_map(|index| format!("default/p{index}"));
    (
        proptest::collection::btree_map(signal(), seen(), 0..6),
        proptest::collection::btree_map(name.clone(), used, 0..6),
        proptest::option::of(proptest::collection::btree_map(signal(), seen(), 0..3)),
        proptest::collection::vec(name, 0..2),
    )
        .prop_map(|(signals, usage, after, gone)| {
            let mut step = json!({"signals": signals, "usage": usage, "gone": gone});
            if let Some(after) = after {
                step["afterReclaim"] = json!(after);
            }
            step
        })
}

fn has_exactly(line: &Value, keys: &[&str]) -> bool {
    let line = line.as_object().unwrap();
    line.len() == keys.len() && keys.iter().all(|key| line.contains_key(*key))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_line_is_whole_and_says_what_it_does(value in scenarios()) {
        let scenario = scenario(&value.to_string());
        let found = lines(&scenario);
        prop_assert_eq!(found.len(), scenario.steps.len());
        let mut gone: std::collections::BTreeSet<usize> = std::collections::BTreeSet::new();
        for (line, step) in found.iter().zip(&scenario.steps) {
            prop_assert!(has_exactly(line, &KEYS), "{}", line);
            gone.extend(&step.gone);
            let ranking: Vec<&str> = line["ranking"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            let candidates = || scenario.pods.iter().enumerate().filter(|(at, pod)| pod.is_candidate() && !gone.contains(at));
            if !ranking.is_empty() {
                let mut sorted = ranking.clone();
                sorted.sort_unstable();
                let mut all: Vec<String> = candidates().map(|(_, pod)| name_of(pod)).collect();
                all.sort_unstable();
                prop_assert_eq!(sorted, all);
            }
            let refuses = |name: &str| scenario.pods.iter().any(|pod| name_of(pod) == name && pod.is_critical());
            match &line["evict"] {
                Value::Null => prop_assert!(ranking.iter().all(|name| refuses(name))),
                Value::Array(over) => {
                    prop_assert!(ranking.is_empty() && !over.is_empty());
                    prop_assert!(over.iter().all(|one| !refuses(one["pod"].as_str().unwrap())));
                }
                one => prop_assert_eq!(Some(one["pod"].as_str().unwrap()), ranking.iter().find(|name| !refuses(name)).copied()),
            }
            for ready in line["ready"].as_array().unwrap() {
                prop_assert!(line["met"].as_array().unwrap().contains(ready));
            }
        }
    }

    #[test]
    fn the_order_of_pods_and_the_form_of_the_file_change_nothing(value in scenarios()) {
        let mut value = value;
        value["config"]["localStorageCapacityIsolation"] = json!(false);
        let expected = lines(&scenario(&value.to_string()));
        value["pods"].as_array_mut().unwrap().reverse();
        prop_assert_eq!(&lines(&scenario(&value.to_string())), &expected);
        let documents = crate::config::document::parse(value.to_string().as_bytes(), crate::config::document::Origins::DEFAULT, crate::config::document::Limits::GENERATED).unwrap();
        let yaml = crate::config::document::to_yaml(&documents[0], &|_| None);
        prop_assert_eq!(&lines(&scenario(&yaml)), &expected, "{}", yaml);
    }

    #[test]
    fn the_live_engine_gives_whole_lines_too(value in scenarios()) {
        let scenario = scenario(&value.to_string());
        let keys: Vec<&str> = KEYS.into_iter().chain(["mode", "order", "actions"]).collect();
        let found = live_lines(&scenario);
        prop_assert_eq!(found.len(), scenario.steps.len());
        for line in &found {
            prop_assert!(has_exactly(line, &keys), "{}", line);
        }
        prop_assert_eq!(found, live_lines(&scenario));
    }

    #[test]
    fn any_text_is_run_or_refused(key in "[a-zA-Z]{1,8}", value in "[-+.0-9a-zA-Z%{}\\[\\],: '\"]{0,30}", at in 0usize..6) {
        let places = ["", "config:\n  ", "pods:\n- ", "steps:\n- at: 0s\n  ", "steps:\n- at: 0s\n  usage:\n    a:\n      ", "steps:\n- at: 0s\n  signals:\n    memory.available:\n      "];
        let text = format!("pods: [{{metadata: {{name: a}}}}]\n{}{key}: {value}\n", places[at]);
        if let Ok((scenario, _)) = super::read_text(&text) {
            prop_assert_eq!(lines(&scenario).len(), scenario.steps.len());
        }
    }
}

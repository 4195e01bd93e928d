//! Scenarios from file to line: the schema, its faults, and properties of what is printed.

use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const KEYS: [&str; 7] = [
    "at",
    "met",
    "ready",
    "conditions",
    "reclaim",
    "ranking",
    "evict",
];

fn read_text(text: &str) -> Result<(Scenario, Vec<String>), Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.yaml");
    fs::write(&path, text).unwrap();
    let plain = |finding: &crate::config::finding::Finding| {
        let prefix = format!("{}/", folder.path().display());
        finding.to_string().replace(&prefix, "")
    };
    match read(&path) {
        Ok((scenario, warnings)) => Ok((scenario, warnings.iter().map(plain).collect())),
        Err(faults) => Err(faults.list.iter().map(plain).collect()),
    }
}

#[track_caller]
fn scenario(text: &str) -> Scenario {
    read_text(text)
        .unwrap_or_else(|faults| panic!("{faults:#?}\n{text}"))
        .0
}

fn lines(scenario: &Scenario) -> Vec<Value> {
    let mut lines = Vec::new();
    let told: Result<(), ()> = run(scenario, |line| {
        lines.push(serde_json::to_value(line).unwrap());
        Ok(())
    });
    told.unwrap();
    lines
}

fn live_lines(scenario: &Scenario) -> Vec<Value> {
    let mut lines = Vec::new();
    let told: Result<(), ()> = run_live(scenario, |line| {
        lines.push(serde_json::to_value(line).unwrap());
        Ok(())
    });
    told.unwrap();
    lines
}

const HEAD: &str = "apiVersion: brink.dev/v1alpha1\nkind: Scenario\n";

#[test]
fn left_out_and_null_take_defaults() {
    let text = format!(
        "{HEAD}config: null\nfilesystems: null\npods: null\nsteps:\n- {{at: 0s, gone: null, signals: null, usage: null, afterReclaim: null}}\n"
    );
    let full = scenario(&text);
    let bare = scenario(&format!("{HEAD}steps: [{{at: 0s}}]"));
    for scenario in [full, bare] {
        let names: Vec<_> = scenario
            .policy
            .thresholds()
            .iter()
            .map(|t| t.signal.name())
            .collect();
        assert_eq!(
            names.len(),
            7,
            "five defaults, one copy, headroom: {names:?}"
        );
        assert_eq!(scenario.layout, Layout::Single);
        assert_eq!(
            lines(&scenario),
            [
                json!({"at": "0s", "met": [], "ready": [], "conditions": [], "reclaim": [], "ranking": [], "evict": null})
            ]
        );
    }
    assert_eq!(lines(&scenario(&format!("{HEAD}steps: []"))).len(), 0);
}

#[test]
fn times_amounts_and_names_have_their_forms() {
    let text = format!(
        "{HEAD}config: {{evictionHard: {{memory.available: 1000, pid.available: '1500m'}}, enforceNodeAllocatable: []}}\n\
         pods: [{{metadata: {{name: a}}}}, {{metadata: {{name: b, namespace: x}}}}]\n\
         steps:\n\
         - {{at: -1.5, signals: {{memory.available: {{available: -5, capacity: 1Ki, time: -90s}}}}, usage: {{a: {{memory: 1500m}}}}}}\n\
         - {{at: 1m30s, signals: {{memory.available: {{available: 999, capacity: 1}}, pid.available: {{available: 1, capacity: 1e3}}}}, gone: [x/b]}}\n\
         - {{at: 91, signals: {{memory.available: {{available: null, capacity: 1}}}}}}\n"
    );
    let (scenario, warnings) = read_text(&text).unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("steps[2].signals.memory.available: available or capacity is missing")
    );
    let found = lines(&scenario);
    let of = |key: &str| {
        found
            .iter()
            .map(|line| line[key].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("at"), ["-1.5s", "1m30s", "91s"]);
    assert_eq!(
        of("ranking"),
        [json!(["x/b", "default/a"]), json!(["default/a"]), json!([])]
    );
    // 1500m is one and a half: one is less.
    assert_eq!(found[1]["met"].as_array().unwrap().len(), 2);
    assert_eq!(scenario.steps[0].usage[0].unwrap().memory, Some(2));
}

#[test]
fn containers_are_summed_and_named_in_the_order_of_the_manifest() {
    let text = format!(
        "{HEAD}config: {{evictionHard: {{memory.available: 1Gi}}, enforceNodeAllocatable: []}}\n\
         pods: [{{metadata: {{name: a}}, spec: {{containers: [{{name: z}}, {{name: b, resources: {{requests: {{memory: 1Mi}}}}}}], initContainers: [{{name: i}}]}}}}]\n\
         steps: [{{at: 0s, signals: {{memory.available: {{available: 1, capacity: 2}}}},\n\
           usage: {{default/a: {{containers: {{other: {{memory: 9Gi}}, i: {{memory: 1Ki}}, b: {{memory: 2Mi}}, z: {{memory: 1536}}}}}}}}}}]\n"
    );
    let scenario = scenario(&text);
    let sum = (9 << 30) + (1 << 10) + (2 << 20) + 1536;
    assert_eq!(scenario.steps[0].usage[0].unwrap().memory, Some(sum));
    assert_eq!(
        lines(&scenario)[0]["evict"]["message"],
        "The node was low on resource: memory. Threshold quantity: 1Gi, available: 1. \
         Container z was using 1536, request is 0, has larger consumption of memory. \
         Container b was using 2Mi, request is 1Mi, has larger consumption of memory. \
         Container i was using 1Ki, request is 0, has larger consumption of memory. "
    );
}

#[test]
fn everything_wrong_is_told_at_once() {
    let text = "apiVersion: v1\nkind: Scenario\nconfig: {evictionHard: {memory.available: 1Gx}, evictionSoft: {foo: 1Gi}, mergeDefaultEvictionSettings: maybe}\nfilesystems: dedicated\npods:\n- {metadata: {name: a}}\n- {metadata: {name: a, namespace: default}}\n- {metadata: {}}\nsteps:\n- {at: 5s, signals: {mem.available: {available: 1, capacity: 1}, nodefs.available: {available: 1x, capacity: 1, tme: 1}}}\n- {at: 5s, usage: {a: {memory: [], procs: 1}, nobody: {}}}\n- {signals: {}}\n- {at: soon}\nstep: []\n";
    let faults = read_text(text).unwrap_err();
    for part in [
        "s.yaml:1:13: apiVersion: \"v1\": unknown apiVersion",
        "s.yaml:3:43: config.evictionHard.memory.available: \"1Gx\": a quantity",
        "s.yaml:3:64: config.evictionSoft.foo: unknown eviction signal",
        "s.yaml:3:105: config.mergeDefaultEvictionSettings: \"maybe\": this is a text; accepted: true or false",
        "s.yaml:4:14: filesystems: \"dedicated\": unknown word; accepted: one of single, dedicatedImagefs, split",
        "s.yaml:7:3: pods[1]: default/a is there twice",
        "s.yaml:8:14: pods[2].metadata: the pod has no name",
        "s.yaml:10:22: steps[0].signals.mem.available: unknown signal; did you mean memory.available?",
        "s.yaml:10:113: steps[0].signals.nodefs.available.tme: unknown key; did you mean time?",
        "s.yaml:10:96: steps[0].signals.nodefs.available.available: \"1x\": ",
        "s.yaml:11:8: steps[1].at: \"5s\": not after the step before",
        "s.yaml:11:32: steps[1].usage.a.memory: this is a list",
        "s.yaml:11:36: steps[1].usage.a.procs: unknown key",
        "s.yaml:12:3: steps[2]: at is missing",
        "s.yaml:13:8: steps[3].at: \"soon\": invalid duration",
        "s.yaml:14:1: step: unknown key; did you mean steps?",
    ] {
        let times = faults
            .iter()
            .filter(|fault| fault.starts_with(part))
            .count();
        assert_eq!(times, 1, "{part}\n{faults:#?}");
    }
    assert_eq!(faults.len(), 16, "{faults:#?}");
    for text in [
        "",
        "[]",
        "a",
        "{",
        "apiVersion: brink.dev/v1alpha1\n---\nkind: Scenario\n",
    ] {
        assert!(read_text(text).is_err(), "{text:?}");
    }
}

#[test]
fn what_the_kubelet_accepts_is_accepted() {
    for config in [
        "{evictionHard: {memory.available: 0.0%, nodefs.available: 10%%, pid.available: 1e3}}",
        "{evictionHard: {memory.available: 99%}, evictionSoft: {memory.available: 1%}, evictionSoftGracePeriod: {memory.available: 0s, imagefs.available: 1h}}",
        "{evictionHard: {memory.available: 100Ti}, evictionMinimumReclaim: {memory.available: 900%, pid.available: 0}}",
        "{evictionMaxPodGracePeriod: -7, evictionPressureTransitionPeriod: -1s, enforceNodeAllocatable: [none]}",
        "{port: 10250, kubeReserved: {memory: 1Gi}, volumeStatsAggPeriod: 1m, evictionHard: null, localStorageCapacityIsolation: false}",
        "{evictionHard: {allocatableMemory.available: 5%, containerfs.available: 1Gi, containerfs.inodesFree: 3%}, enforceNodeAllocatable: ['', pods, kube-reserved]}",
        "{evictionHard: {memory.available: 1Gi, memory.available: 2Gi}}",
        "{evictionPressureTransitionPeriod: 0s, mergeDefaultEvictionSettings: yes, evictionHard: {}}",
    ] {
        scenario(&format!("{HEAD}config: {config}\nsteps: [{{at: 0s}}]"));
    }
}

#[test]
fn the_live_engine_adds_its_rules() {
    let step = |at: &str, available: &str, headroom: &str| {
        format!(
            "- {{at: {at}, signals: {{memory.available: {{available: {available}, capacity: 4Gi}}, memory.headroom: {{available: {headroom}, capacity: 4Gi}}}}, usage: {{a: {{memory: 2Gi}}, b: {{memory: 1Gi}}}}}}\n"
        )
    };
    let config = "config: {evictionHard: {memory.available: 1Gi}, enforceNodeAllocatable: []";
    let pods = "pods: [{metadata: {name: a}}, {metadata: {name: b}}]\nsteps:\n";
    let text = format!(
        "{HEAD}{config}}}\n{pods}{}{}{}{}",
        step("0s", "500Mi", "3Gi"),
        step("1s", "500Mi", "900Mi"),
        step("1100ms", "500Mi", "900Mi"),
        step("20s", "2Gi", "40Mi"),
    );
    let confirmed = live_lines(&scenario(&text));
    let evicted = |lines: &[Value]| {
        lines
            .iter()
            .map(|line| line["evict"]["pod"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        evicted(&confirmed),
        [
            json!(null),
            json!("default/a"),
            json!(null),
            json!("default/a")
        ]
    );
    assert_eq!(confirmed[0]["actions"][2]["reason"], "unconfirmed");
    assert_eq!(confirmed[2]["order"]["phase"], "killed");
    assert_eq!(confirmed[3]["evict"]["signal"], "memory.headroom");
    assert_eq!(evicted(&lines(&scenario(&text)))[0], "default/a");

    let kubelet = text.replace(
        "enforceNodeAllocatable",
        "memoryPolicy: kubelet, enforceNodeAllocatable",
    );
    assert_eq!(evicted(&live_lines(&scenario(&kubelet)))[0], "default/a");
    let observe = text.replace(
        "enforceNodeAllocatable",
        "mode: observe, enforceNodeAllocatable",
    );
    let observed = live_lines(&scenario(&observe));
    assert_eq!(observed[1]["mode"], "observing");
    assert_eq!(observed[1]["order"]["dryRun"], true);
    let throttled = text.replace(
        "enforceNodeAllocatable",
        "memoryPolicy: kubelet, limits: {burst: 1, refill: 1h}, enforceNodeAllocatable",
    );
    assert_eq!(live_lines(&scenario(&throttled))[3]["mode"], "throttled");
}

#[test]
fn the_live_engine_reclaims_before_it_orders() {
    let text = format!(
        "{HEAD}config: {{evictionHard: {{nodefs.available: 1Gi}}}}\npods: [{{metadata: {{name: a}}}}]\nsteps:\n\
         - {{at: 0s, signals: {{nodefs.available: {{available: 1Mi, capacity: 4Gi}}}}, afterReclaim: {{nodefs.available: {{available: 3Gi, capacity: 4Gi}}}}}}\n\
         - {{at: 10s, signals: {{nodefs.available: {{available: 1Mi, capacity: 4Gi}}}}}}\n"
    );
    let found = live_lines(&scenario(&text));
    assert_eq!(
        found[0]["reclaim"],
        json!(["deadContainers", "unusedImages"])
    );
    assert_eq!(found[0]["evict"], json!(null));
    assert_eq!(found[1]["evict"]["pod"], "default/a");
}

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
    let names = brink_core::node::signal::Signal::KUBELET.map(|signal| signal.name().to_string());
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
        (amount(), amount())
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
}

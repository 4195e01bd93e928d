//! Scenarios from file to line: the schema and its faults, and what the live engine adds.

mod happened;
mod properties;

use std::fs;

use brink_core::node::workload::Origin;
use serde_json::{Value, json};

use super::*;

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
         - {{at: 1.5, signals: {{memory.available: {{available: -5, capacity: 1Ki, time: -90s}}}}, usage: {{a: {{memory: 1500m}}}}}}\n\
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
    assert_eq!(of("at"), ["1.5s", "1m30s", "91s"]);
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
fn a_pod_with_statistics_uses_something_even_if_that_is_nothing() {
    let text = format!(
        "{HEAD}config: {{evictionHard: {{memory.available: 1Gi}}, enforceNodeAllocatable: []}}\n\
         pods: [{{metadata: {{name: a}}, spec: {{resources: {{requests: {{memory: 1Mi}}}}}}}}]\n\
         steps: [{{at: 0s, signals: {{memory.available: {{available: 1, capacity: 2}}}}, usage: {{a: {{}}}}}}]\n"
    );
    let message = lines(&scenario(&text))[0]["evict"]["message"].clone();
    let message = message.as_str().unwrap();
    assert!(
        message.contains("Pod a was using 0, request is 1Mi"),
        "{message}"
    );
}

#[test]
fn a_static_pod_and_its_mirror_share_a_name() {
    let fixed = "{metadata: {name: a, annotations: {kubernetes.io/config.source: file}}}";
    let mirror = "{metadata: {name: a, annotations: {kubernetes.io/config.mirror: x}}}";
    let text = |pods: [&str; 2]| {
        let steps = "[{at: 0s, signals: {memory.available: {available: 1, capacity: 2}}, usage: {a: {memory: 7}}}, {at: 1s, gone: [a], signals: {memory.available: {available: 1, capacity: 2}}}]";
        let config = "{evictionHard: {memory.available: 1Gi}}";
        let pods = pods.join(", ");
        format!("{HEAD}config: {config}\npods: [{pods}]\nsteps: {steps}\n")
    };
    for pods in [[fixed, mirror], [mirror, fixed]] {
        let scenario = scenario(&text(pods));
        let fixed = scenario
            .pods
            .iter()
            .position(|pod| pod.origin == Origin::Static);
        let used = scenario.steps[0].usage.iter().position(Option::is_some);
        assert_eq!(used, fixed, "{pods:?}");
        let lines = lines(&scenario);
        assert_eq!(lines[0]["ranking"], json!(["default/a"]), "{pods:?}");
        assert_eq!(lines[1]["ranking"], json!([]), "{pods:?}");
    }
    for pods in [[fixed, fixed], [mirror, mirror]] {
        let faults = read_text(&text(pods)).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:#?}");
    }
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
fn what_no_node_can_have_is_refused() {
    let text = format!(
        "{HEAD}pods:\n- {{metadata: {{name: a}}, spec: {{terminationGracePeriodSeconds: -5, containers: [{{name: c, resources: {{requests: {{memory: -1Gi}}, limits: {{memory: -1}}}}}}]}}}}\n\
         steps:\n- {{at: -5s}}\n\
         - {{at: 1s, signals: {{memory.available: {{available: -1Gi, capacity: -2Gi}}, pid.available: {{available: 0, capacity: 0}}, nodefs.inodesFree: {{available: 0, capacity: 0}}}}}}\n\
         - {{at: 2s, usage: {{a: {{memory: -5Gi, processes: -3, rootfs: {{bytes: -1}}}}}}, headroom: {{pods: -1Mi, swap: -1}}}}\n"
    );
    let faults = read_text(&text).unwrap_err();
    let parts = [
        (
            "s.yaml:4:",
            "terminationGracePeriodSeconds: \"-5\": not in range; accepted: a whole number from 0",
        ),
        (
            "s.yaml:4:",
            "requests.memory: \"-1Gi\": negative; accepted: a quantity of 0 or more",
        ),
        ("s.yaml:4:", "limits.memory: \"-1\": negative"),
        (
            "s.yaml:6:",
            "steps[0].at: \"-5s\": before the start; accepted: a time of 0s or later",
        ),
        ("s.yaml:7:", "memory.available.capacity: \"-2Gi\": negative"),
        (
            "s.yaml:7:",
            "pid.available.capacity: \"0\": of nothing; accepted: a quantity above 0",
        ),
        ("s.yaml:8:", "usage.a.memory: \"-5Gi\": negative"),
        ("s.yaml:8:", "usage.a.processes: \"-3\": negative"),
        ("s.yaml:8:", "usage.a.rootfs.bytes: \"-1\": negative"),
        ("s.yaml:8:", "headroom.swap: \"-1\": negative"),
    ];
    for (place, said) in parts {
        let told = |fault: &&String| fault.starts_with(place) && fault.contains(said);
        assert_eq!(faults.iter().filter(told).count(), 1, "{said}\n{faults:#?}");
    }
    assert_eq!(faults.len(), parts.len(), "{faults:#?}");
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
        "memoryPolicy: kubelet, limits: {burst: 1, refillInterval: 1h}, enforceNodeAllocatable",
    );
    assert_eq!(live_lines(&scenario(&throttled))[3]["mode"], "throttled");
}

#[test]
fn the_live_engine_reclaims_before_it_orders() {
    let text = format!(
        "{HEAD}config: {{evictionHard: {{nodefs.available: 1Gi}}}}\npods: [{{metadata: {{name: a}}}}]\nsteps:\n\
         - {{at: 0s, signals: {{nodefs.available: {{available: 1Mi, capacity: 4Gi}}}}, afterReclaim: {{nodefs.available: {{available: 3Gi, capacity: 4Gi}}}}}}\n\
         - {{at: 10s, signals: {{nodefs.available: {{available: 1Mi, capacity: 4Gi}}}}, usage: {{default/a: {{logs: {{bytes: 1Gi}}}}}}}}\n"
    );
    let found = live_lines(&scenario(&text));
    assert_eq!(
        found[0]["reclaim"],
        json!(["deadContainers", "unusedImages"])
    );
    assert_eq!(found[0]["evict"], json!(null));
    assert_eq!(found[1]["evict"]["pod"], "default/a");
}

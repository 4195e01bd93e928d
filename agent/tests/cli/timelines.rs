//! The kubelet's reference timelines, reclaims, messages and limits through the command line.

use serde_json::{Value, json};

use super::conformance::{Case, cases};
use super::{scenario, simulate};

/// `hard memory.available<1Gi minReclaim 500Mi`, `soft pid.available<1500 grace 120s`.
fn config(case: &Case) -> Value {
    let mut config = json!({
        "evictionHard": {}, "evictionSoft": {}, "evictionSoftGracePeriod": {},
        "evictionMinimumReclaim": {}, "enforceNodeAllocatable": [],
        "evictionMaxPodGracePeriod": case.input["max_pod_grace_s"],
    });
    if let Some(period) = case.input.get("transition_s") {
        config["evictionPressureTransitionPeriod"] = json!(format!("{period}s"));
    }
    for threshold in case.input["thresholds"].as_array().unwrap() {
        let words: Vec<&str> = threshold.as_str().unwrap().split(' ').collect();
        let (signal, value) = words[1].split_once('<').unwrap();
        let map = if words[0] == "hard" {
            "evictionHard"
        } else {
            "evictionSoft"
        };
        config[map][signal] = json!(value);
        match words.get(2..4) {
            Some(["grace", grace]) => config["evictionSoftGracePeriod"][signal] = json!(grace),
            Some(["minReclaim", more]) => config["evictionMinimumReclaim"][signal] = json!(more),
            _ => {}
        }
    }
    config
}

fn layout(name: &Value) -> &'static str {
    match name.as_str() {
        Some("dedicated-imagefs") => "dedicatedImagefs",
        Some("split") => "split",
        _ => "single",
    }
}

fn pods(case: &Case) -> Value {
    let pod = |given: &Value| {
        let mut pod = json!({
            "metadata": {"name": given["n"]},
            "spec": {
                "priority": given["prio"],
                "containers": [{"name": "c", "resources": {"requests": {"memory": given.get("req")}}}],
            },
        });
        if given["static"] == true {
            pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "file"});
        }
        pod
    };
    case.input["pods"]
        .as_array()
        .unwrap()
        .iter()
        .map(pod)
        .collect()
}

fn usage(case: &Case) -> Value {
    let mut usage = json!({});
    for given in case.input["pods"].as_array().unwrap() {
        let figure = |key: &str| given.get(key).cloned().unwrap_or(json!(0));
        usage[format!("default/{}", given["n"].as_str().unwrap())] = json!({
            "memory": figure("use"), "processes": figure("procs"),
            "rootfs": {"bytes": figure("root"), "inodes": figure("inodes")},
            "logs": {"bytes": figure("logs")},
        });
    }
    usage
}

/// The signal and the observation of one step.
fn seen(case: &Case, amount: i64) -> Value {
    if let Some(max) = case.input.get("max_pid") {
        let available = max.as_i64().unwrap() - amount;
        return json!({"pid.available": {"available": available, "capacity": max}});
    }
    let signal = case.input["thresholds"][0].as_str().unwrap();
    let signal = signal.split([' ', '<']).nth(1).unwrap();
    let capacity = case
        .input
        .get("inodes_total")
        .cloned()
        .unwrap_or(json!(1i64 << 40));
    json!({signal: {"available": amount, "capacity": capacity}})
}

fn check(line: &Value, expected: &Value, id: &str) {
    if let Some(pressure) = expected.get("pressure") {
        let found = !line["conditions"].as_array().unwrap().is_empty();
        assert_eq!(json!(found), *pressure, "{id}: {line}");
    }
    let expected_kill = expected.get("kill").unwrap_or(&Value::Null);
    match expected_kill.as_str() {
        Some(name) => assert_eq!(
            line["evict"]["pod"],
            format!("default/{name}"),
            "{id}: {line}"
        ),
        None => assert_eq!(line["evict"], Value::Null, "{id}: {line}"),
    }
    if let Some(grace) = expected.get("grace_s") {
        assert_eq!(line["evict"]["gracePeriodSeconds"], *grace, "{id}: {line}");
    }
}

#[test]
fn every_timeline() {
    for case in cases("timeline") {
        let input = case.input.as_object().unwrap();
        let (_, points) = input
            .iter()
            .find(|(key, _)| key.starts_with("steps_t_s"))
            .unwrap();
        let steps: Value = points
            .as_array()
            .unwrap()
            .iter()
            .map(|point| {
                let signals = seen(&case, point[1].as_i64().unwrap());
                json!({"at": point[0], "signals": signals, "usage": usage(&case)})
            })
            .collect();
        let layout = layout(&case.input["layout"]);
        let lines = simulate(&scenario(&config(&case), layout, &pods(&case), &steps));
        for expected in case.expect.as_array().unwrap() {
            let at = format!("{}s", expected["t"]);
            let line = lines.iter().find(|line| line["at"] == at.as_str()).unwrap();
            check(line, expected, &case.id);
        }
    }
}

#[test]
fn the_node_gives_back_first() {
    for case in cases("node-reclaim") {
        if case.id == "reclaim-other-threshold-blocks" {
            continue;
        }
        let signal = case.input["signal"].as_str().unwrap();
        let config = json!({
            "evictionHard": {signal: case.input["threshold"].to_string()},
            "evictionMinimumReclaim": {signal: case.input["min_reclaim"].to_string()},
        });
        let pods = json!([{"metadata": {"name": "a"}, "spec": {"priority": 1}}, {"metadata": {"name": "b"}}]);
        let observed =
            |amount: &Value| json!({signal: {"available": amount, "capacity": 1i64 << 40}});
        let mut ways = vec![];
        for (key, way) in [
            ("container_gc", "deadContainers"),
            ("image_gc", "unusedImages"),
        ] {
            if case.expect[key] == true {
                ways.push(way);
            }
        }
        let outcomes = case.expect["outcomes"].as_array().unwrap();
        for (given, outcome) in case.input["cases"].as_array().unwrap().iter().zip(outcomes) {
            let step = json!({"at": 0, "signals": observed(&case.input["available_before"]), "afterReclaim": observed(&given["after_gc"])});
            let lines = simulate(&scenario(
                &config,
                layout(&case.input["layout"]),
                &pods,
                &json!([step]),
            ));
            let line = &lines[0];
            assert_eq!(line["reclaim"], json!(ways), "{}", case.id);
            assert_eq!(line["conditions"], json!(["DiskPressure"]), "{}", case.id);
            let nobody = outcome.as_str().unwrap().starts_with("no pod killed");
            assert_eq!(line["evict"].is_null(), nobody, "{}: {line}", case.id);
            assert_eq!(line["ranking"].as_array().unwrap().is_empty(), nobody);
            if !nobody {
                assert_eq!(line["evict"]["pod"], "default/b");
                assert_eq!(line["evict"]["gracePeriodSeconds"], 1);
            }
        }
    }
}

#[test]
fn an_unrelated_threshold_makes_reclaim_count_for_nothing() {
    let config = json!({
        "evictionHard": {"nodefs.available": "1Gi"},
        "evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1h"},
    });
    let step = json!({
        "at": 0,
        "signals": {"nodefs.available": {"available": 1, "capacity": "10Gi"}, "memory.available": {"available": 1, "capacity": "10Gi"}},
        "afterReclaim": {"nodefs.available": {"available": "9Gi", "capacity": "10Gi"}},
    });
    let lines = simulate(&scenario(
        &config,
        "single",
        &json!([{"metadata": {"name": "a"}}]),
        &json!([step]),
    ));
    assert_eq!(lines[0]["evict"]["signal"], "nodefs.available");
}

#[test]
fn every_message() {
    for case in cases("status-message") {
        // The gate is the kubelet's own; a layout given here is one it accepts.
        if case.id == "msg-split-fs-gate-off" {
            continue;
        }
        let resource = case.input["resource"].as_str().unwrap();
        let (signal, layout) = match resource {
            "memory" => ("memory.available", "single"),
            "pids" => ("pid.available", "single"),
            _ => ("imagefs.available", "dedicatedImagefs"),
        };
        let available = case.input.get("available").cloned().unwrap_or_else(|| {
            let max = case.input["max_pid"].as_i64().unwrap();
            json!(max - case.input["used"].as_i64().unwrap())
        });
        let container = case.input.get("container");
        let name = container.map_or(json!("c"), |container| container["n"].clone());
        // Written in binary, as the reference has it: the message prints it in that family.
        let request = container.map_or(json!(0), |container| {
            json!(format!("{}Ki", container["req"].as_i64().unwrap() / 1024))
        });
        let root = container.map_or(json!(0), |container| container["root"].clone());
        let pods = json!([{"metadata": {"name": "a"}, "spec": {"containers": [{"name": name, "resources": {"requests": {"ephemeral-storage": request}}}]}}]);
        let mut used = json!({"rootfs": {"bytes": root}});
        if container.is_some() {
            used["containers"] = json!({name.as_str().unwrap(): {"rootfs": {"bytes": root}}});
        }
        let config = json!({"evictionHard": {signal: case.input["threshold"]}, "enforceNodeAllocatable": []});
        let step = json!({"at": 0, "signals": {signal: {"available": available, "capacity": "100Gi"}}, "usage": {"default/a": used}});
        let lines = simulate(&scenario(&config, layout, &pods, &json!([step])));
        assert_eq!(
            lines[0]["evict"]["reason"], case.expect["reason"],
            "{}",
            case.id
        );
        assert_eq!(
            lines[0]["evict"]["message"], case.expect["message"],
            "{}",
            case.id
        );
    }
}

#[test]
fn every_limit() {
    const MB: i64 = 1 << 20;
    for case in cases("local-storage") {
        let input = &case.input;
        let amount = |key: &str| input.get(key).and_then(Value::as_i64);
        let mut used = json!({});
        let root = amount("rootfs").or(amount("rootfs_MB").map(|mb| mb * MB));
        let in_volume = amount("used").or(amount("used_MB").map(|mb| mb * MB));
        if let Some(root) = root {
            used["containers"] = json!({"c": {"rootfs": {"bytes": root}}});
        }
        if let Some(logs) = amount("logs") {
            used["containers"] = json!({"c": {"logs": {"bytes": logs}}});
        }
        if let Some(bytes) = in_volume {
            used["volumes"] = json!({"v": {"bytes": bytes}});
        }
        let limit = amount("size_limit")
            .or(amount("emptydir_limit"))
            .or(amount("limit"));
        let volume =
            json!({"name": "v", "emptyDir": {"sizeLimit": limit, "medium": input.get("medium")}});
        let mut container = json!({"name": "c"});
        if let Some(limit) = amount("container_limit") {
            container["resources"] = json!({"limits": {"ephemeral-storage": limit}});
        }
        let pods = if input.get("pods").is_some() {
            let limited = |names: &[&str]| -> Value {
                names
                    .iter()
                    .map(|name| json!({"name": name, "resources": {"limits": {"ephemeral-storage": format!("{}Mi", 800 / names.len())}}}))
                    .collect()
            };
            json!([
                {"metadata": {"name": "a"}, "spec": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": 1}}]}},
                {"metadata": {"name": "b"}, "spec": {"containers": limited(&["c"])}},
                {"metadata": {"name": "d"}, "spec": {"containers": limited(&["c", "e"])}},
            ])
        } else {
            json!([{"metadata": {"name": "a"}, "spec": {"containers": [container], "volumes": [volume]}}])
        };
        let usage = json!({
            "a": if input.get("pods").is_some() { json!({"volumes": {"v": {"bytes": 2}}}) } else { used },
            "b": {"containers": {"c": {"rootfs": {"bytes": "900Mi"}}}},
            "d": {"rootfs": {"bytes": "900Mi"}},
        });
        let step = json!({"at": 0, "usage": usage});
        let lines = simulate(&scenario(&json!({}), "single", &pods, &json!([step])));
        let found = lines[0]["evict"].as_array().map_or(0, Vec::len);
        let expected = match case.expect.get("evicted_in_one_cycle") {
            Some(count) => count.as_u64().unwrap(),
            None => u64::from(case.expect["evicted"] == true),
        };
        assert_eq!(found as u64, expected, "{}", case.id);
        if found > 0 {
            assert_eq!(lines[0]["evict"][0]["gracePeriodSeconds"], 1, "{}", case.id);
        }
    }
}

#[test]
fn every_grace() {
    for case in cases("grace-override") {
        let map = if case.input["kind"] == "hard" {
            "evictionHard"
        } else {
            "evictionSoft"
        };
        let mut config = json!({"evictionHard": {}, "evictionMaxPodGracePeriod": case.input["max"], "evictionSoftGracePeriod": {"pid.available": "1s"}});
        config[map] = json!({"pid.available": "10"});
        let pods = json!([{"metadata": {"name": "a"}, "spec": {"terminationGracePeriodSeconds": case.input["pod"]}}]);
        let step = |at: u8| json!({"at": at, "signals": {"pid.available": {"available": 1, "capacity": 100}}});
        let lines = simulate(&scenario(
            &config,
            "single",
            &pods,
            &json!([step(0), step(5)]),
        ));
        assert_eq!(
            lines[1]["evict"]["gracePeriodSeconds"], case.expect["override_s"],
            "{}",
            case.id
        );
    }
}

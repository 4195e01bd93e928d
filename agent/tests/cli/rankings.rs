//! The kubelet's reference rankings through the command line.

use serde_json::{Value, json};

use super::conformance::{Case, cases};
use super::{scenario, simulate};

/// The signal that ranks by what an area is about, and the layout it needs.
fn ranked_by(area: &str) -> (&'static str, &'static str) {
    match area {
        "rank-disk-split-imagefs" => ("imagefs.available", "split"),
        area if area.contains("inodes") => ("nodefs.inodesFree", "single"),
        area if area.contains("disk") => ("nodefs.available", "single"),
        area if area.contains("pid") => ("pid.available", "single"),
        _ => ("memory.available", "single"),
    }
}

fn pod(given: &Value, signal: &str) -> Value {
    let resource = if signal == "memory.available" {
        "memory"
    } else {
        "ephemeral-storage"
    };
    let request = given.get("req").or(given.get("ephemeral_req_bytes"));
    json!({
        "metadata": {"name": given["n"]},
        "spec": {
            "priority": given["prio"],
            "containers": [{"name": "c", "resources": {"requests": {resource: request.unwrap_or(&json!(0))}}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    })
}

/// What a pod uses; nothing for one without statistics.
fn usage(given: &Value, signal: &str) -> Option<Value> {
    let figure = |key: &str| given.get(key).cloned().unwrap_or(json!(0));
    let has_no_statistics = ["use", "procs"]
        .into_iter()
        .any(|key| given.get(key).is_some_and(Value::is_null));
    if has_no_statistics {
        return None;
    }
    let unit = if signal.ends_with("inodesFree") {
        "inodes"
    } else {
        "bytes"
    };
    let root = given.get("inodes").cloned().unwrap_or(figure("root"));
    Some(json!({
        "memory": figure("use"), "processes": figure("procs"),
        "rootfs": {unit: root}, "logs": {unit: figure("logs")}, "volumes": {"v": {unit: figure("vol")}},
    }))
}

fn ranking(case: &Case) -> Vec<String> {
    let (signal, layout) = ranked_by(&case.area);
    let given = case.input.as_array().unwrap();
    let pods: Vec<Value> = given.iter().map(|one| pod(one, signal)).collect();
    let mut used = json!({});
    for one in given {
        if let Some(usage) = usage(one, signal) {
            used[format!("default/{}", one["n"].as_str().unwrap())] = usage;
        }
    }
    let config = json!({"evictionHard": {signal: "10"}, "localStorageCapacityIsolation": false});
    let step =
        json!({"at": 0, "signals": {signal: {"available": 1, "capacity": 100}}, "usage": used});
    let lines = simulate(&scenario(&config, layout, &json!(pods), &json!([step])));
    let names = lines[0]["ranking"].as_array().unwrap().iter();
    names
        .map(|name| {
            name.as_str()
                .unwrap()
                .trim_start_matches("default/")
                .to_string()
        })
        .collect()
}

#[test]
fn every_ranking() {
    for case in cases("rank-") {
        let expected = case.expect.get("full_order").unwrap_or(&case.expect);
        assert_eq!(json!(ranking(&case)), *expected, "{}", case.id);
    }
}

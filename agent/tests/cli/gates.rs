//! The kubelet's reference cases through the command line: when a threshold is met, ready, and acted on.

use serde_json::{Value, json};

use super::conformance::cases;
use super::{scenario, simulate};

/// The met and ready thresholds of the last of some steps.
fn last(config: &Value, filesystems: &str, steps: &Value) -> Value {
    let lines = simulate(&scenario(config, filesystems, &json!([]), steps));
    lines.last().unwrap().clone()
}

/// When a step of a case is: their times count from now on, and those of a scenario from its start.
fn moved(at: i64) -> i64 {
    at + 1000
}

fn names(list: &Value) -> Vec<String> {
    let name = |threshold: &Value| threshold["signal"].as_str().unwrap().to_string();
    list.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn percentages_are_rounded_in_single_precision() {
    for case in cases("percentage-rounding") {
        let percent = format!("{}%", case.input["percent"]);
        let config = json!({"evictionHard": {"nodefs.available": percent}});
        let quantity = case.expect["quantity"].as_i64().unwrap();
        for (available, met) in [(quantity - 1, 1), (quantity, 0)] {
            let seen = json!({"nodefs.available": {"available": available, "capacity": case.input["capacity"]}});
            let line = last(
                &config,
                "dedicatedImagefs",
                &json!([{"at": 0, "signals": seen}]),
            );
            let found = line["met"].as_array().unwrap();
            assert_eq!(found.len(), met, "{} at {available}", case.id);
            for threshold in found {
                assert_eq!(
                    threshold["value"]["fraction_f32"], case.expect["fraction_f32"],
                    "{}",
                    case.id
                );
            }
        }
    }
}

#[test]
fn thresholds_met() {
    let text = |value: &Value| match value {
        Value::Null => None,
        value => Some(match value.get("bytes_or_count") {
            Some(count) => count.to_string(),
            None => format!("{}%", value["fraction_f32"].as_f64().unwrap() * 100.0),
        }),
    };
    for case in cases("thresholds-met") {
        let list = match case.input.get("threshold") {
            Some(threshold) => vec![threshold.clone()],
            None => case.input["thresholds"].as_array().unwrap().clone(),
        };
        let (mut config, mut low) = (
            json!({"evictionHard": {}, "evictionMinimumReclaim": {}, "enforceNodeAllocatable": []}),
            json!({}),
        );
        for threshold in &list {
            let signal = threshold["signal"].as_str().unwrap();
            config["evictionHard"][signal] = json!(text(&threshold["value"]));
            if let Some(reclaim) = text(&threshold["min_reclaim"]) {
                config["evictionMinimumReclaim"][signal] = json!(reclaim);
            }
            low[signal] = json!({"available": 0, "capacity": 1u64 << 40});
        }
        let seen = if case.input.get("threshold").is_some() {
            json!({"memory.available": {"available": case.input["available"], "capacity": 1u64 << 40}})
        } else {
            json!({"memory.available": case.input["memory"], "nodefs.available": case.input["nodefs"]})
        };
        // The minimum reclaim holds what was met before.
        let mut steps = vec![json!({"at": 1, "signals": seen})];
        if case.input["enforce_min_reclaim"] == true {
            steps.insert(0, json!({"at": 0, "signals": low}));
        }
        let met = names(&last(&config, "dedicatedImagefs", &json!(steps))["met"]);
        let expected: Vec<String> = match &case.expect {
            Value::Bool(true) => vec!["memory.available".into()],
            Value::Bool(false) => vec![],
            list => list
                .as_array()
                .unwrap()
                .iter()
                .map(|name| format!("{}.available", name.as_str().unwrap()))
                .collect(),
        };
        assert_eq!(met, expected, "{}", case.id);
    }
}

#[test]
fn only_news_may_act() {
    let config = json!({"evictionHard": {"imagefs.available": 10}});
    for case in cases("updated-stats") {
        let seen = |time: &Value| json!({"imagefs.available": {"available": 1, "capacity": 2, "time": time}});
        let mut steps = vec![json!({"at": 200, "signals": seen(&case.input["observed_time_s"])})];
        if case.input["last_time_s"] != "absent" {
            steps.insert(
                0,
                json!({"at": 100, "signals": seen(&case.input["last_time_s"])}),
            );
        }
        let line = last(&config, "dedicatedImagefs", &json!(steps));
        let may_act = !line["ready"].as_array().unwrap().is_empty();
        assert_eq!(json!(may_act), case.expect["may_act"], "{}", case.id);
        assert!(names(&line["met"]).contains(&"imagefs.available".to_string()));
    }
}

#[test]
fn graces_run_from_the_first_observation() {
    for case in cases("grace") {
        // "grace-override" begins so too; its cases are evictions and stand with the timelines.
        if case.area != "grace" {
            continue;
        }
        let grace = format!("{}s", case.input["grace_s"]);
        let config = json!({"evictionHard": {}, "evictionSoft": {"pid.available": 10}, "evictionSoftGracePeriod": {"pid.available": grace}});
        let (first, now) = (&case.input["first_observed"], &case.input["now"]);
        let step = |at: &Value| json!({"at": moved(at.as_i64().unwrap()), "signals": {"pid.available": {"available": 1, "capacity": 100}}});
        let steps = if first == now {
            json!([step(now)])
        } else {
            json!([step(first), step(now)])
        };
        let ready = !last(&config, "single", &steps)["ready"]
            .as_array()
            .unwrap()
            .is_empty();
        assert_eq!(json!(ready), case.expect, "{}", case.id);
    }
    for case in cases("first-observed") {
        // Kept or new shows in whether a grace of a minute is over.
        let config = json!({"evictionHard": {}, "evictionSoft": {"pid.available": 10}, "evictionSoftGracePeriod": {"pid.available": "1m"}});
        let step = |at: &Value, available: u8| json!({"at": moved(at.as_i64().unwrap()), "signals": {"pid.available": {"available": available, "capacity": 100}}});
        let steps = match &case.input["previous"] {
            Value::Null => json!([step(&json!(-60), 99), step(&case.input["now"], 1)]),
            previous => json!([step(previous, 1), step(&case.input["now"], 1)]),
        };
        let ready = !last(&config, "single", &steps)["ready"]
            .as_array()
            .unwrap()
            .is_empty();
        assert_eq!(ready, case.expect["first_observed"] == -60, "{}", case.id);
    }
}

#[test]
fn conditions_outlive_their_causes() {
    for case in cases("node-conditions") {
        let period = case
            .input
            .get("period_s")
            .and_then(Value::as_i64)
            .unwrap_or(300);
        let config = json!({"evictionHard": {"memory.available": 10}, "evictionPressureTransitionPeriod": format!("{period}s")});
        let step = |at: i64, low: bool| {
            let available = if low { 1 } else { 99 };
            json!({"at": moved(at), "signals": {"memory.available": {"available": available, "capacity": 100}}})
        };
        let reported =
            |steps: &[Value]| last(&config, "single", &json!(steps))["conditions"].clone();
        let Some(before) = case.input.get("last") else {
            assert_eq!(reported(&[step(0, true)]), case.expect, "{}", case.id);
            continue;
        };
        let since = before["MemoryPressure"].as_i64().unwrap();
        let holds = case
            .input
            .get("current")
            .is_some_and(|list| list[0] == "MemoryPressure");
        match &case.expect {
            Value::Array(_) => assert_eq!(
                reported(&[step(since, true), step(0, false)]),
                case.expect,
                "{}",
                case.id
            ),
            seen => {
                // When it was last seen shows in when it ends.
                let seen = seen["MemoryPressure"].as_i64().unwrap();
                for (at, expected) in [
                    (seen + period - 1, json!(["MemoryPressure"])),
                    (seen + period, json!([])),
                ] {
                    let steps = [step(since, true), step(0, holds), step(at, false)];
                    assert_eq!(reported(&steps), expected, "{} at {at}", case.id);
                }
            }
        }
    }
}

#[test]
fn memory_goes_first_and_hard_before_soft() {
    for case in cases("threshold-order") {
        let mut config =
            json!({"evictionHard": {}, "evictionSoft": {}, "evictionSoftGracePeriod": {}});
        let mut seen = json!({});
        for entry in case.input.as_array().unwrap() {
            let (signal, kind) = entry
                .as_str()
                .unwrap()
                .split_once('#')
                .unwrap_or((entry.as_str().unwrap(), "hard"));
            let map = if kind == "soft" {
                "evictionSoft"
            } else {
                "evictionHard"
            };
            config[map][signal] = json!(if kind == "soft" { "20" } else { "10" });
            config["evictionSoftGracePeriod"][signal] = json!("1s");
            seen[signal] = json!({"available": 1, "capacity": 100});
        }
        let pods =
            json!([{"metadata": {"name": "a"}, "spec": {"terminationGracePeriodSeconds": 60}}]);
        let steps = json!([{"at": 0}, {"at": 1, "signals": seen}, {"at": 9, "signals": seen}]);
        let lines = simulate(&scenario(&config, "dedicatedImagefs", &pods, &steps));
        let evict = &lines[2]["evict"];
        assert_eq!(evict["signal"], "memory.available", "{}", case.id);
        // The kubelet's order of two memory thresholds is random; ours takes the hard one.
        assert_eq!(evict["gracePeriodSeconds"], 1, "{}", case.id);
    }
}

#[test]
fn containerfs_follows_the_layout() {
    let maps =
        |fs: &str| json!({format!("{fs}.available"): "1Gi", format!("{fs}.inodesFree"): "5%"});
    for case in cases("containerfs-thresholds") {
        let split = case.input["split"] == true;
        let layout = if split { "split" } else { "dedicatedImagefs" };
        let origin = if split { "nodefs" } else { "imagefs" };
        let low = json!({"available": 1, "capacity": 1000});
        let steps = json!([{"at": 0, "signals": {"containerfs.available": low, "containerfs.inodesFree": low}}]);
        let mut config = json!({"evictionHard": maps(origin), "evictionSoft": maps(origin), "evictionSoftGracePeriod": {}, "evictionMinimumReclaim": maps(origin)});
        for end in ["available", "inodesFree"] {
            config["evictionSoftGracePeriod"][format!("{origin}.{end}")] = json!("30s");
        }
        if let Some(hard) = case.input.get("nodefs_hard") {
            config = json!({"evictionHard": {"containerfs.available": "500Mi", "nodefs.available": hard.to_string()}});
            let met = last(&config, layout, &steps)["met"].clone();
            assert_eq!(met.as_array().unwrap().len(), 1);
            assert_eq!(
                met[0]["value"]["bytes_or_count"], case.expect["containerfs_hard"],
                "{}",
                case.id
            );
            continue;
        }
        let met = last(&config, layout, &steps)["met"].clone();
        let found: Vec<_> = met
            .as_array()
            .unwrap()
            .iter()
            .map(|t| {
                (
                    t["signal"].as_str().unwrap(),
                    t["grace_s"].as_i64(),
                    t["min_reclaim"].clone(),
                )
            })
            .collect();
        let gi = json!({"bytes_or_count": 1 << 30});
        let five = json!({"fraction_f32": f64::from(0.05f32)});
        assert_eq!(
            found,
            [
                ("containerfs.available", Some(0), gi.clone()),
                ("containerfs.available", Some(30), gi),
                ("containerfs.inodesFree", Some(0), five.clone()),
                ("containerfs.inodesFree", Some(30), five),
            ],
            "{}",
            case.id
        );
    }
}

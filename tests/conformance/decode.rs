//! From the notation of the reference cases to the core's types.

use brink_core::base::{Quantity, Span};
use brink_core::node::observe::{Layout, Observation, Observations};
use brink_core::node::policy::{Draft, Policy, Settings, SignalMap};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value as Limit};
use brink_core::node::workload::{
    Container, FsUsage, Origin, PodUsage, ResourceList, Resources, Workload,
};
use serde_json::Value;

pub(crate) fn signal(name: &Value) -> Signal {
    name.as_str()
        .unwrap()
        .parse()
        .unwrap_or_else(|_| panic!("signal {name}"))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the cases give single-precision numbers"
)]
fn single(number: &Value) -> f32 {
    number.as_f64().unwrap() as f32
}

/// `{"bytes_or_count": n}` or `{"fraction_f32": x}`.
pub(crate) fn limit(value: &Value) -> Limit {
    match value["bytes_or_count"].as_i64() {
        Some(amount) => Limit::Quantity(Quantity::from_bytes(amount)),
        None => Limit::Fraction(single(&value["fraction_f32"])),
    }
}

/// A threshold in the notation of the cases; `grace_ns` overrides `grace_s`.
pub(crate) fn threshold(value: &Value) -> Threshold {
    let grace = match value["grace_ns"].as_i64() {
        Some(nanos) => Span::from_nanos(nanos),
        None => Span::from_secs(value["grace_s"].as_i64().unwrap()),
    };
    assert_eq!(value["op"], "LessThan");
    Threshold {
        signal: signal(&value["signal"]),
        grace,
        value: limit(&value["value"]),
        min_reclaim: Some(&value["min_reclaim"])
            .filter(|v| !v.is_null())
            .map(limit),
    }
}

pub(crate) fn thresholds(list: &Value) -> Vec<Threshold> {
    list.as_array().unwrap().iter().map(threshold).collect()
}

/// Sorted, comparable renderings: the kubelet's lists have no order.
pub(crate) fn shown(thresholds: &[Threshold]) -> Vec<String> {
    let show =
        |t: &Threshold| format!("{} {} {:?} {:?}", t.signal, t.grace, t.value, t.min_reclaim);
    let plain = |t: &Threshold| {
        let plain = |value: Limit| match value {
            Limit::Quantity(quantity) => Limit::Quantity(Quantity::from_bytes(quantity.value())),
            fraction @ Limit::Fraction(_) => fraction,
        };
        Threshold {
            value: plain(t.value),
            min_reclaim: t.min_reclaim.map(plain),
            ..*t
        }
    };
    let mut shown: Vec<String> = thresholds.iter().map(|t| show(&plain(t))).collect();
    shown.sort();
    shown
}

pub(crate) fn signal_map(value: &Value) -> Option<SignalMap> {
    let pairs = value.as_object()?.iter();
    Some(
        pairs
            .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_string()))
            .collect(),
    )
}

/// The eviction keys of an input, literally.
pub(crate) fn draft(input: &Value) -> Draft {
    let list = input["enforceNodeAllocatable"].as_array();
    let list = list.map(|keys| {
        keys.iter()
            .map(|key| key.as_str().unwrap().to_string())
            .collect()
    });
    Draft {
        eviction_hard: signal_map(&input["evictionHard"]),
        eviction_soft: signal_map(&input["evictionSoft"]),
        eviction_soft_grace_period: signal_map(&input["evictionSoftGracePeriod"]),
        eviction_minimum_reclaim: signal_map(&input["evictionMinimumReclaim"]),
        enforce_node_allocatable: list,
        ..Draft::default()
    }
}

/// A policy of these thresholds and the kubelet's other defaults.
pub(crate) fn policy(thresholds: Vec<Threshold>) -> Policy {
    Policy::new(thresholds, Layout::Single, Settings::default())
}

/// Observations without a time, so that they always count as new.
pub(crate) fn observations(values: &[(Signal, i64, i64)]) -> Observations {
    let mut seen = Observations::default();
    for &(signal, available, capacity) in values {
        seen[signal] = Some(Observation {
            available,
            capacity,
            at: None,
        });
    }
    seen
}

pub(crate) fn layout(name: &Value) -> Layout {
    match name.as_str().unwrap_or("single") {
        "single" => Layout::Single,
        "dedicated-imagefs" => Layout::DedicatedImagefs,
        "split" => Layout::Split,
        other => panic!("layout {other}"),
    }
}

/// A pod of the cases: `n`, `prio`, `req` (bytes, for memory and storage alike), `static`.
pub(crate) fn workload(pod: &Value) -> Workload {
    let request = pod["req"].as_i64().or(pod["ephemeral_req_bytes"].as_i64());
    let request = request.filter(|&bytes| bytes > 0).map(Quantity::from_bytes);
    let requests = ResourceList {
        memory: request,
        ephemeral_storage: request,
        ..ResourceList::default()
    };
    let resources = Resources {
        requests,
        ..Resources::default()
    };
    let name = pod["n"].as_str().unwrap().to_string();
    Workload {
        namespace: "default".to_string(),
        uid: name.clone(),
        name,
        priority: pod["prio"]
            .as_i64()
            .map(|priority| i32::try_from(priority).unwrap()),
        origin: if pod["static"] == true {
            Origin::Static
        } else {
            Origin::Api
        },
        containers: vec![Container {
            resources,
            ..Container::default()
        }],
        ..Workload::default()
    }
}

/// A pod's figures: `use`, `procs`, `root`, `logs`, `vol`, and `inodes` of the writable layer;
/// `None` if one of the first two is given as null. What is left out is zero.
pub(crate) fn usage(pod: &Value, counts_inodes: bool) -> Option<PodUsage> {
    if ["use", "procs"]
        .iter()
        .any(|key| pod.get(key).is_some_and(Value::is_null))
    {
        return None;
    }
    let number = |key: &str| Some(pod[key].as_u64().unwrap_or(0));
    let fs = |key: &str| match (counts_inodes, pod.get("inodes")) {
        (true, Some(_)) if key == "root" => FsUsage {
            bytes: None,
            inodes: number("inodes"),
        },
        (true, _) => FsUsage {
            bytes: None,
            inodes: number(key),
        },
        (false, _) => FsUsage {
            bytes: number(key),
            inodes: None,
        },
    };
    Some(PodUsage {
        memory: number("use"),
        processes: number("procs"),
        rootfs: fs("root"),
        logs: fs("logs"),
        volumes: fs("vol"),
    })
}

//! What is done and said: node reclaim, messages, limits, admission, notifier, observations, grace.

use brink_core::base::{Moment, Quantity, Span};
use brink_core::node::admission::{Admission, admit};
use brink_core::node::condition::{Condition, ConditionSet};
use brink_core::node::grace::override_seconds;
use brink_core::node::kubelet::{Cycle, Kubelet, Snapshot};
use brink_core::node::memcg::{MemoryStats, Rearm, usage_threshold};
use brink_core::node::message::{DisruptionTarget, PHASE, REASON};
use brink_core::node::observe::{self, Layout, Observations};
use brink_core::node::policy::{Policy, Settings};
use brink_core::node::reclaim::Reclaim;
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value as Limit};
use brink_core::node::workload::{
    Container, ContainerUsage, FsUsage, Origin, PodDetail, PodUsage, QosClass, ResourceList,
    Resources, Toleration, Workload, WorkloadTable,
};
use serde_json::Value;

use super::decode::{layout, observations, signal};
use super::{Case, of_areas};

fn amount(bytes: i64) -> Limit {
    Limit::Quantity(Quantity::from_bytes(bytes))
}

fn hard(signal: Signal, value: Limit) -> Threshold {
    Threshold {
        signal,
        grace: Span::ZERO,
        value,
        min_reclaim: None,
    }
}

/// One pod with its figures.
#[derive(Default)]
pub(crate) struct Pod {
    pub(crate) workload: Workload,
    pub(crate) usage: PodUsage,
    pub(crate) detail: PodDetail,
}

/// One cycle of the kubelet over these pods; `seen` is before and after reclaim on the node.
pub(crate) fn cycle(
    thresholds: Vec<Threshold>,
    layout: Layout,
    seen: [&Observations; 2],
    pods: Vec<Pod>,
) -> Cycle {
    let policy = Policy::new(thresholds, layout, Settings::default());
    let mut kubelet = Kubelet::new(&policy, layout);
    let usage: Vec<_> = pods.iter().map(|pod| Some(pod.usage)).collect();
    let details: Vec<_> = pods.iter().map(|pod| pod.detail.clone()).collect();
    let table = WorkloadTable::new(pods.into_iter().map(|pod| pod.workload).collect(), 1);
    let snapshot = Snapshot {
        observations: seen[0],
        after_reclaim: Some(seen[1]),
        table: &table,
        usage: &usage,
        details: &details,
    };
    kubelet.cycle(Moment::START, &snapshot)
}

#[test]
fn node_reclaim() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["node-reclaim"])
    {
        let layout = layout(&input["layout"]);
        let signal = signal(&input["signal"]);
        let Some(cases) = input["cases"].as_array() else {
            // The one case in prose: nodefs is fine afterwards, a soft memory threshold is met.
            assert_eq!(id, "reclaim-other-threshold-blocks", "unknown notation");
            let soft = Threshold {
                grace: Span::from_secs(60),
                ..hard(Signal::MemoryAvailable, amount(9))
            };
            let before = observations(&[(signal, 1, 100), (Signal::MemoryAvailable, 5, 100)]);
            let after = observations(&[(signal, 99, 100), (Signal::MemoryAvailable, 5, 100)]);
            let thresholds = vec![hard(signal, amount(10)), soft];
            let cycle = cycle(thresholds, layout, [&before, &after], vec![Pod::default()]);
            assert!(cycle.evict.is_some(), "{id}");
            continue;
        };
        let number = |key: &str| input[key].as_i64().unwrap();
        let threshold = Threshold {
            min_reclaim: Some(amount(number("min_reclaim"))),
            ..hard(signal, amount(number("threshold")))
        };
        let outcomes = expect["outcomes"].as_array().unwrap();
        for (case, outcome) in cases.iter().zip(outcomes) {
            let seen = |available: i64| observations(&[(signal, available, 1 << 40)]);
            let before = seen(number("available_before"));
            let after = seen(case["after_gc"].as_i64().unwrap());
            let cycle = cycle(
                vec![threshold],
                layout,
                [&before, &after],
                vec![Pod::default()],
            );
            let ran = |way: Reclaim| Some(cycle.reclaim.contains(&way));
            assert_eq!(
                ran(Reclaim::DeadContainers),
                expect["container_gc"].as_bool(),
                "{id}"
            );
            assert_eq!(
                ran(Reclaim::UnusedImages),
                expect["image_gc"].as_bool(),
                "{id}"
            );
            let spared = outcome.as_str().unwrap().starts_with("no pod killed");
            let grace = cycle.evict.as_ref().map(|evict| evict.grace_seconds);
            assert_eq!(grace, (!spared).then_some(1), "{id}: {outcome}");
            assert_eq!(expect["condition_still_true"], true, "{id}");
            assert!(cycle.conditions.contains(signal.condition()), "{id}");
        }
    }
}

/// Cases about something Brink does not have; each with the reason.
const NOT_APPLICABLE: &[(&str, &str)] = &[(
    "msg-split-fs-gate-off",
    "a feature gate of the kubelet's own: here a split filesystem is simply a layout",
)];

#[test]
fn status_message() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["status-message"])
    {
        if let Some((_, why)) = NOT_APPLICABLE.iter().find(|(case, _)| *case == id) {
            eprintln!("not applicable: {id}: {why}");
            continue;
        }
        let resource = input["resource"].as_str().unwrap();
        let signal = match resource {
            "memory" => Signal::MemoryAvailable,
            "pids" => Signal::PidAvailable,
            "ephemeral-storage" => Signal::ImagefsAvailable,
            other => panic!("{id}: {other}"),
        };
        let available = match (&input["available"], input["max_pid"].as_i64()) {
            (Value::String(text), _) => text.parse::<Quantity>().unwrap().value(),
            (Value::Number(number), _) => number.as_i64().unwrap(),
            (_, Some(max)) => max - input["used"].as_i64().unwrap(),
            other => panic!("{id}: {other:?}"),
        };
        let value = Limit::Quantity(input["threshold"].as_str().unwrap().parse().unwrap());
        let seen = observations(&[(signal, available, 1 << 50)]);
        let pods = vec![message_pod(&input["container"])];
        let cycle = cycle(
            vec![hard(signal, value)],
            Layout::DedicatedImagefs,
            [&seen, &seen],
            pods,
        );
        let evict = cycle.evict.unwrap();
        assert_eq!(evict.message, expect["message"].as_str().unwrap(), "{id}");
        assert_eq!(
            (PHASE, REASON),
            (
                expect["phase"].as_str().unwrap(),
                expect["reason"].as_str().unwrap()
            )
        );
        let condition = &expect["condition"];
        let constants = [
            DisruptionTarget::TYPE,
            DisruptionTarget::STATUS,
            DisruptionTarget::REASON,
        ];
        assert_eq!(
            constants,
            ["type", "status", "reason"].map(|key| condition[key].as_str().unwrap())
        );
        assert_eq!(
            evict.disruption.unwrap().message,
            condition["message"].as_str().unwrap(),
            "{id}"
        );
    }
}

/// A pod with the container of a message case, or with none.
fn message_pod(container: &Value) -> Pod {
    let Some(name) = container["n"].as_str() else {
        return Pod::default();
    };
    let bytes = |key: &str| container[key].as_u64();
    let ephemeral_storage = container["req"].as_i64().map(Quantity::from_bytes);
    let requests = ResourceList {
        ephemeral_storage,
        ..ResourceList::default()
    };
    let resources = Resources {
        requests,
        ..Resources::default()
    };
    let rootfs = FsUsage {
        bytes: bytes("root"),
        inodes: None,
    };
    let logs = FsUsage {
        bytes: Some(0),
        inodes: None,
    };
    let name = name.to_string();
    Pod {
        workload: Workload {
            containers: vec![Container {
                name: name.clone(),
                resources,
                ..Container::default()
            }],
            ..Workload::default()
        },
        usage: PodUsage {
            rootfs,
            ..PodUsage::default()
        },
        detail: PodDetail {
            containers: vec![ContainerUsage {
                name,
                memory: None,
                rootfs,
                logs,
            }],
            ..PodDetail::default()
        },
    }
}

#[test]
fn admission() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["admission"])
    {
        let named = input["conditions"].as_array().unwrap().iter();
        let find = |name: &Value| {
            Condition::ALL
                .into_iter()
                .find(|c| c.name() == name)
                .unwrap()
        };
        let conditions: ConditionSet = named.map(find).collect();
        let toleration = input["toleration"].as_str().map(|text| {
            let (key, effect) = text.split_once(':').unwrap();
            Toleration {
                key: key.to_string(),
                effect: effect.to_string(),
                ..Toleration::default()
            }
        });
        let pod = Workload {
            origin: if input["critical"] == true {
                Origin::Static
            } else {
                Origin::Api
            },
            tolerations: toleration.into_iter().collect(),
            ..Workload::default()
        };
        if let Some(admitted) = expect["admit"].as_bool() {
            let answer = admit(conditions, &pod);
            assert_eq!(answer == Admission::Admit, admitted, "{id}");
            if let Some(message) = expect["message"].as_str() {
                assert_eq!(answer.to_string(), message, "{id}");
                assert_eq!(
                    brink_core::node::admission::REASON,
                    expect["reason"].as_str().unwrap()
                );
            }
            continue;
        }
        for (key, class) in [
            ("guaranteed", QosClass::Guaranteed),
            ("burstable", QosClass::Burstable),
            ("best_effort", QosClass::BestEffort),
        ] {
            let pod = Workload {
                reported_qos: Some(class),
                ..pod.clone()
            };
            let admitted = admit(conditions, &pod) == Admission::Admit;
            assert_eq!(Some(admitted), expect[key].as_bool(), "{id} {key}");
        }
    }
}

#[test]
fn memcg_notifier() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["memcg-notifier"])
    {
        if let Some(times) = input["sync_times_s"].as_array() {
            let mut rearm = Rearm::default();
            let due = |time: &&Value| rearm.is_due(Moment::from_secs(time.as_i64().unwrap()));
            let calls = times.iter().filter(due).count();
            assert_eq!(Some(calls as u64), expect["update_calls"].as_u64(), "{id}");
            continue;
        }
        let number = |key: &str| input[key].as_u64();
        // Of the cases without figures one has an empty cgroup and one has none at all.
        let stats = (input["allocatable"] != true).then(|| MemoryStats {
            usage: number("usage"),
            working_set: number("working_set"),
            available: number("available"),
        });
        let value = amount(input["threshold"].as_i64().unwrap_or(1));
        let threshold = usage_threshold(stats, value);
        assert_eq!(
            threshold.is_err(),
            expect["error"].as_bool().unwrap_or(false),
            "{id}"
        );
        assert_eq!(threshold.ok(), expect["usage_threshold"].as_i64(), "{id}");
    }
}

#[test]
fn observations_of_signals() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["observations"])
    {
        if let Some(limit) = input["limit"].as_u64() {
            let number = |key: &str| input[key].as_u64().unwrap();
            let used = observe::working_set(number("usage"), number("inactive_file"));
            assert_eq!(Some(used), expect["working_set"].as_u64(), "{id}");
            let seen = observe::memory(limit, used, None).unwrap();
            assert_eq!(Some(seen.available), expect["available"].as_i64(), "{id}");
            assert_eq!(seen.capacity.unsigned_abs(), limit, "{id}");
            continue;
        }
        let seen = all_signals(&input);
        for (name, expected) in expect.as_object().unwrap() {
            let seen = seen[name.parse().unwrap()];
            let expected = expected["available"]
                .as_i64()
                .zip(expected["capacity"].as_i64());
            assert_eq!(
                seen.map(|seen| (seen.available, seen.capacity)),
                expected,
                "{id} {name}"
            );
        }
    }
}

fn all_signals(input: &Value) -> Observations {
    let number = |part: &str, key: &str| input[part][key].as_u64();
    let memory =
        |part| observe::memory_stats(number(part, "available"), number(part, "working_set"), None);
    let bytes =
        |part| observe::filesystem(number(part, "available"), number(part, "capacity"), None);
    let inodes =
        |part| observe::filesystem(number(part, "inodes_free"), number(part, "inodes"), None);
    let pid = |key: &str| input["pid"][key].as_i64();
    let mut seen = Observations::default();
    seen[Signal::MemoryAvailable] = memory("node_mem");
    seen[Signal::AllocatableMemoryAvailable] = memory("kubepods");
    seen[Signal::NodefsAvailable] = bytes("nodefs");
    seen[Signal::NodefsInodesFree] = inodes("nodefs");
    seen[Signal::ImagefsAvailable] = bytes("imagefs");
    seen[Signal::ImagefsInodesFree] = inodes("imagefs");
    seen[Signal::ContainerfsAvailable] = bytes("containerfs");
    seen[Signal::ContainerfsInodesFree] = inodes("containerfs");
    seen[Signal::PidAvailable] = observe::pids(pid("max"), pid("used"), None);
    seen
}

#[test]
fn grace_override() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["grace-override"])
    {
        let hard = input["kind"] == "hard";
        let maximum = input["max"].as_i64().unwrap();
        let seconds = override_seconds(hard, maximum, input["pod"].as_i64());
        assert_eq!(Some(seconds), expect["override_s"].as_i64(), "{id}");
    }
}

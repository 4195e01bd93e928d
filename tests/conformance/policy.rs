//! Parsing, defaults, copies and derived thresholds.

use brink_core::base::Quantity;
use brink_core::node::observe::Layout;
use brink_core::node::policy::{
    Draft, add_allocatable, hard_with_defaults, merged, read_percentage,
};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::{Threshold, Value as Limit};
use serde_json::Value;

use super::decode::{draft, limit, policy, shown, signal_map, threshold, thresholds};
use super::{Case, of_areas};

#[test]
fn parse() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["parse"])
    {
        if let Some(text) = input["text"].as_str() {
            let read = read_percentage(text).ok();
            let expected = expect["fraction_f32"].as_f64();
            assert_eq!(read.map(f64::from), expected, "{id}");
            assert_eq!(read.is_none(), expect["error"].as_bool().unwrap(), "{id}");
            continue;
        }
        let read = draft(&input).check();
        assert_eq!(
            read.is_err(),
            expect["error"].as_bool().unwrap(),
            "{id}: {read:?}"
        );
        if let Ok(policy) = read {
            let expected = shown(&thresholds(&expect["thresholds"]));
            assert_eq!(shown(policy.thresholds()), expected, "{id}");
        }
    }
}

#[test]
fn allocatable_copy() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["allocatable-copy"])
    {
        let given = thresholds(&input);
        let mut all = given.clone();
        add_allocatable(&mut all);
        let expected = match expect.get("added") {
            Some(added) => [given, thresholds(added)].concat(),
            None => thresholds(&expect),
        };
        assert_eq!(shown(&all), shown(&expected), "{id}");
    }
}

#[test]
fn defaults() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["defaults"])
    {
        let written = input
            .get("evictionHard")
            .or(input.get("base_evictionHard"))
            .unwrap();
        let merge = input["merge"].as_bool().unwrap();
        let mut map = hard_with_defaults(signal_map(written), merge);
        if let Some(drop_in) = signal_map(&input["dropin"]) {
            map = merged(map, drop_in);
        }
        assert_eq!(Some(map), signal_map(&expect), "{id}");
    }
}

#[test]
fn percentage_rounding() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["percentage-rounding"])
    {
        let fraction = read_percentage(&format!("{}%", input["percent"])).unwrap();
        assert_eq!(
            Some(f64::from(fraction)),
            expect["fraction_f32"].as_f64(),
            "{id}"
        );
        let quantity = Limit::Fraction(fraction).quantity(input["capacity"].as_i64().unwrap());
        assert_eq!(Some(quantity.value()), expect["quantity"].as_i64(), "{id}");
    }
}

#[test]
fn threshold_equality() {
    let value = |value: &Value| match value["q"].as_i64() {
        Some(amount) => Limit::Quantity(Quantity::from_bytes(amount)),
        None => limit(&serde_json::json!({"fraction_f32": value["p"]})),
    };
    for Case {
        id, input, expect, ..
    } in of_areas(&["threshold-equality"])
    {
        assert_eq!(
            Some(value(&input["a"]) == value(&input["b"])),
            expect.as_bool(),
            "{id}"
        );
    }
}

/// Hard and soft thresholds of bytes and inodes on both origins, all different.
fn origins() -> Draft {
    draft(&serde_json::json!({
        "evictionHard": {"nodefs.available": "1Gi", "nodefs.inodesFree": "1%",
                         "imagefs.available": "2Gi", "imagefs.inodesFree": "2%"},
        "evictionSoft": {"nodefs.available": "3Gi", "nodefs.inodesFree": "3%",
                         "imagefs.available": "4Gi", "imagefs.inodesFree": "4%"},
        "evictionSoftGracePeriod": {"nodefs.available": "1s", "nodefs.inodesFree": "2s",
                                    "imagefs.available": "3s", "imagefs.inodesFree": "4s"},
        "evictionMinimumReclaim": {"nodefs.available": "5Gi", "nodefs.inodesFree": "5%",
                                   "imagefs.available": "6Gi", "imagefs.inodesFree": "6%"},
    }))
}

const BYTES: [Signal; 3] = [
    Signal::NodefsAvailable,
    Signal::ImagefsAvailable,
    Signal::ContainerfsAvailable,
];
const INODES: [Signal; 3] = [
    Signal::NodefsInodesFree,
    Signal::ImagefsInodesFree,
    Signal::ContainerfsInodesFree,
];

#[test]
fn containerfs_thresholds() {
    for Case {
        id, input, expect, ..
    } in of_areas(&["containerfs-thresholds"])
    {
        let layout = match (
            input["dedicated_imagefs"].as_bool(),
            input["split"].as_bool(),
        ) {
            (Some(false), Some(false)) => Layout::Single,
            (Some(true), Some(false)) => Layout::DedicatedImagefs,
            (Some(true), Some(true)) => Layout::Split,
            other => panic!("{id}: {other:?}"),
        };
        if let Some(copies) = expect["containerfs_copies"].as_str() {
            let origin = usize::from(copies.starts_with("imagefs"));
            let derived = origins().check().unwrap().on_layout(layout);
            for signals in [BYTES, INODES] {
                let of = |signal: Signal| -> Vec<Threshold> {
                    let all = derived.thresholds().iter().filter(|t| t.signal == signal);
                    all.map(|t| Threshold {
                        signal: signals[2],
                        ..*t
                    })
                    .collect()
                };
                assert_eq!(of(signals[2]).len(), 2, "{id}");
                assert_eq!(shown(&of(signals[2])), shown(&of(signals[origin])), "{id}");
            }
        } else {
            assert_eq!(
                input["user"], "containerfs.available hard 500Mi",
                "{id}: unknown notation"
            );
            let user = |signal: &str, bytes: &Value| {
                threshold(
                    &serde_json::json!({"signal": signal, "op": "LessThan", "grace_s": 0,
                    "value": {"bytes_or_count": bytes}, "min_reclaim": null}),
                )
            };
            let given = vec![
                user("containerfs.available", &Value::from(500 << 20)),
                user("nodefs.available", &input["nodefs_hard"]),
            ];
            let derived = policy(given).on_layout(layout);
            let found = derived.thresholds().iter().filter(|t| t.signal == BYTES[2]);
            let found: Vec<i64> = found.map(|t| t.quantity(0).value()).collect();
            assert_eq!(
                found,
                [expect["containerfs_hard"].as_i64().unwrap()],
                "{id}"
            );
        }
    }
}

//! The policy: parsing, faults, derived thresholds and doubts.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::super::signal::Signal;
use super::super::threshold::Value;
use super::*;
use crate::base::Quantity;

#[expect(clippy::unnecessary_wraps, reason = "every key of a draft is optional")]
fn map(pairs: &[(&str, &str)]) -> Option<SignalMap> {
    Some(
        pairs
            .iter()
            .map(|&(key, value)| (key.to_string(), value.to_string()))
            .collect(),
    )
}

fn hard(pairs: &[(&str, &str)]) -> Draft {
    let enforce_node_allocatable = Some(Vec::new());
    Draft {
        eviction_hard: map(pairs),
        enforce_node_allocatable,
        ..Draft::default()
    }
}

fn shown(policy: &Policy) -> Vec<String> {
    policy
        .thresholds()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[track_caller]
fn check_value(text: &str, expected: Result<Option<Value>, FaultKind>) {
    assert_eq!(read_threshold(text), expected, "{text:?}");
}

#[test]
fn values() {
    let bytes = |bytes| Ok(Some(Value::Quantity(Quantity::from_bytes(bytes))));
    let fraction = |fraction| Ok(Some(Value::Fraction(fraction)));
    check_value("150Mi", bytes(150 << 20));
    check_value("1k", bytes(1000));
    check_value("10%", fraction(0.1));
    check_value("10.5%", fraction(0.105));
    check_value("10%%", fraction(0.1));
    check_value("0%", Ok(None));
    check_value("100%", Ok(None));
    check_value("0.0%", fraction(0.0));
    check_value("100.0%", fraction(1.0));
    check_value("0%%", fraction(0.0));
    check_value("-0%", fraction(0.0));
    check_value("0", Err(FaultKind::NotPositive));
    check_value("-150Mi", Err(FaultKind::NotPositive));
    check_value("-1%", Err(FaultKind::NegativePercentage));
    check_value("150%", Err(FaultKind::OverHundred));
    check_value("inf%", Err(FaultKind::OverHundred));
    for text in [
        "", "%", "foo%", "12%345", "blah", "1 Gi", "10 %", "1Kb", "1e39%",
    ] {
        assert!(read_threshold(text).is_err(), "{text:?}");
    }
    assert!(matches!(read_threshold("nan%"), Ok(Some(Value::Fraction(nan))) if nan.is_nan()));
}

#[test]
fn a_fraction_of_the_capacity_is_cut_in_double_precision() {
    for (text, capacity, expected) in [
        ("10%", 1_048_576_000, 104_857_601),
        ("20%", 1_048_576_000, 209_715_203),
        ("5%", 1_048_576_000, 52_428_800),
        ("15%", 107_374_182_400, 16_106_128_000),
        ("10.5%", 107_374_182_400, 11_274_288_800),
        ("5%", 6_553_600, 327_680),
        ("100.0%", -5, -5),
        ("nan%", 100, i64::MIN),
    ] {
        let value = read_threshold(text).unwrap().unwrap();
        assert_eq!(
            value.quantity(capacity).value(),
            expected,
            "{text} of {capacity}"
        );
    }
    assert_eq!(Value::Fraction(f32::INFINITY).quantity(1).value(), i64::MIN);
    assert_eq!(
        Value::Fraction(0.05).quantity(6_553_600).to_string(),
        "320Ki"
    );
}

#[test]
fn hard_soft_and_copies() {
    let draft = Draft {
        eviction_hard: map(&[("memory.available", "150Mi"), ("pid.available", "10%")]),
        eviction_soft: map(&[("memory.available", "300Mi"), ("nodefs.available", "1Gi")]),
        eviction_soft_grace_period: map(&[
            ("memory.available", "1m30s"),
            ("nodefs.available", "0s"),
            ("imagefs.available", "5s"),
        ]),
        eviction_minimum_reclaim: map(&[("memory.available", "0"), ("pid.available", "5%")]),
        ..Draft::default()
    };
    let policy = draft.check().unwrap();
    let expected = [
        "allocatableMemory.available<150Mi",
        "memory.available<150Mi",
        "memory.available<300Mi for 1m30s",
        "nodefs.available<1Gi",
        "pid.available<10%",
    ];
    assert_eq!(shown(&policy), expected);
    let reclaims = policy.thresholds().iter().map(|t| t.min_reclaim.is_some());
    assert_eq!(
        reclaims.collect::<Vec<_>>(),
        [true, true, true, false, true]
    );
    let off = |draft: Draft| draft.check().unwrap().thresholds().len();
    let ignored = Draft {
        allocatable_ignore_eviction: Some(true),
        ..draft.clone()
    };
    assert_eq!(off(ignored), 4);
    let unenforced = Draft {
        enforce_node_allocatable: Some(Vec::new()),
        ..draft
    };
    assert_eq!(off(unenforced), 4);
}

#[test]
fn settings_and_their_defaults() {
    assert_eq!(
        Draft::default().check().unwrap().settings,
        Settings::default()
    );
    let draft = Draft {
        eviction_max_pod_grace_period: Some(-1),
        eviction_pressure_transition_period: Some("0s".to_string()),
        local_storage_capacity_isolation: Some(false),
        ..Draft::default()
    };
    let settings = draft.check().unwrap().settings;
    let expected = Settings {
        max_pod_grace: -1,
        pressure_transition: Span::ZERO,
        local_storage_isolation: false,
    };
    assert_eq!(settings, expected);
}

#[test]
fn all_faults_at_once_with_path_and_range() {
    let draft = Draft {
        eviction_hard: map(&[("mem.available", "x"), ("nodefs.available", "150%")]),
        eviction_soft: map(&[("memory.available", "-1Mi"), ("pid.available", "5")]),
        eviction_soft_grace_period: map(&[("memory.available", "-30s"), ("foo", "1d")]),
        eviction_minimum_reclaim: map(&[("memory.available", "0%"), ("imagefs.available", "-1")]),
        eviction_max_pod_grace_period: Some(1 << 40),
        eviction_pressure_transition_period: Some("soon".to_string()),
        headroom_hard: Some("120%".to_string()),
        headroom_soft: Some("1Gi".to_string()),
        ..Draft::default()
    };
    let faults = draft.check().unwrap_err();
    let found: Vec<_> = faults
        .iter()
        .map(|f| format!("{} {:?}", f.path, f.written))
        .collect();
    let expected = [
        r#"evictionHard["mem.available"] "mem.available""#,
        r#"evictionHard["mem.available"] "x""#,
        r#"evictionHard["nodefs.available"] "150%""#,
        r#"evictionSoft["memory.available"] "-1Mi""#,
        r#"evictionSoftGracePeriod["foo"] "foo""#,
        r#"evictionSoftGracePeriod["foo"] "1d""#,
        r#"evictionSoftGracePeriod["memory.available"] "-30s""#,
        r#"evictionMinimumReclaim["imagefs.available"] "-1""#,
        r#"evictionMinimumReclaim["memory.available"] "0%""#,
        r#"evictionSoftGracePeriod["pid.available"] """#,
        r#"headroomHard "120%""#,
        r#"headroomSoftGracePeriod """#,
        r#"evictionMaxPodGracePeriod "1099511627776""#,
        r#"evictionPressureTransitionPeriod "soon""#,
    ];
    assert_eq!(found, expected);
    assert!(faults.iter().all(|fault| !fault.kind.accepted().is_empty()));
    let line = faults.to_string().lines().nth(2).unwrap().to_string();
    assert_eq!(
        line,
        "evictionHard[\"nodefs.available\"]: \"150%\": a percentage must not be above 100%; \
         accepted: a percentage from 0% to 100%; 0% and 100% switch the threshold off"
    );
}

#[test]
fn headroom_has_keys_of_its_own_and_stays_out_of_the_kubelets_loop() {
    let draft = Draft {
        headroom_soft: Some("10%".to_string()),
        headroom_soft_grace_period: Some("30s".to_string()),
        ..hard(&[("memory.available", "100Mi")])
    };
    let policy = draft.clone().with_headroom_default().check().unwrap();
    let expected = [
        "memory.available<100Mi",
        "memory.headroom<50Mi",
        "memory.headroom<10% for 30s",
    ];
    assert_eq!(shown(&policy), expected);
    assert_eq!(shown(&policy.without_headroom()), expected[..1]);
    let off = Draft {
        headroom_hard: Some("0%".to_string()),
        ..draft
    };
    assert_eq!(
        shown(&off.with_headroom_default().check().unwrap()).len(),
        2
    );
    let named = hard(&[("memory.headroom", "50Mi")]);
    assert_eq!(
        named.check().unwrap_err().iter().next().unwrap().kind,
        FaultKind::UnknownSignal
    );
}

#[test]
fn containerfs_follows_the_filesystem_it_lives_on() {
    let draft = Draft {
        eviction_soft: map(&[("nodefs.available", "2Gi"), ("imagefs.inodesFree", "7%")]),
        eviction_soft_grace_period: map(&[
            ("nodefs.available", "10s"),
            ("imagefs.inodesFree", "20s"),
        ]),
        eviction_minimum_reclaim: map(&[("nodefs.available", "500Mi")]),
        ..hard(&[
            ("nodefs.available", "1Gi"),
            ("imagefs.available", "3Gi"),
            ("containerfs.available", "9Gi"),
            ("containerfs.inodesFree", "9%"),
        ])
    };
    let policy = draft.check().unwrap();
    let containerfs = |layout| {
        let mut shown = shown(&policy.on_layout(layout));
        shown.retain(|text| text.starts_with("containerfs"));
        shown
    };
    let nodefs = [
        "containerfs.available<1Gi",
        "containerfs.available<2Gi for 10s",
    ];
    assert_eq!(containerfs(Layout::Single), nodefs);
    assert_eq!(containerfs(Layout::Split), nodefs);
    assert_eq!(containerfs(Layout::LayersApart), nodefs);
    let imagefs = [
        "containerfs.available<3Gi",
        "containerfs.inodesFree<7% for 20s",
    ];
    assert_eq!(containerfs(Layout::DedicatedImagefs), imagefs);
    let derived = policy.on_layout(Layout::Split);
    let copy = derived
        .thresholds()
        .iter()
        .find(|t| t.signal == Signal::ContainerfsAvailable);
    assert!(copy.unwrap().min_reclaim.is_some());
    // Deriving twice changes nothing.
    let twice = policy
        .on_layout(Layout::Single)
        .on_layout(Layout::DedicatedImagefs);
    assert_eq!(
        shown(&twice),
        shown(&policy.on_layout(Layout::DedicatedImagefs))
    );
}

#[test]
fn of_two_hard_thresholds_the_second_gives_and_the_second_is_replaced() {
    let draft = Draft {
        eviction_soft: map(&[
            ("nodefs.available", "2Gi"),
            ("containerfs.available", "6Gi"),
        ]),
        eviction_soft_grace_period: map(&[
            ("nodefs.available", "0s"),
            ("containerfs.available", "0s"),
        ]),
        ..hard(&[
            ("nodefs.available", "1Gi"),
            ("containerfs.available", "5Gi"),
        ])
    };
    let derived = shown(&draft.check().unwrap().on_layout(Layout::Single));
    let expected = [
        "containerfs.available<5Gi",
        "containerfs.available<2Gi",
        "nodefs.available<1Gi",
        "nodefs.available<2Gi",
    ];
    assert_eq!(derived, expected);
}

#[test]
fn the_largest_policy_fits_the_set() {
    let every = |value: &str| -> Option<SignalMap> {
        Some(
            Signal::KUBELET
                .map(|s| (s.name().to_string(), value.to_string()))
                .into(),
        )
    };
    let draft = Draft {
        eviction_hard: every("10%"),
        eviction_soft: every("20%"),
        eviction_soft_grace_period: every("0s"),
        headroom_soft: Some("1Gi".to_string()),
        headroom_soft_grace_period: Some("1s".to_string()),
        ..Draft::default()
    };
    let policy = draft
        .with_headroom_default()
        .check()
        .unwrap()
        .on_layout(Layout::Single);
    assert!(
        policy.thresholds().len() < ThresholdSet::CAPACITY,
        "{:?}",
        shown(&policy)
    );
}

#[track_caller]
fn check_doubts(draft: &Draft, capacity: Option<i64>, expected: &[(&str, DoubtKind)]) {
    let doubts = draft.doubts(&Capacities::from_fn(|_| capacity));
    let found: Vec<_> = doubts
        .iter()
        .map(|doubt| (&*doubt.path, doubt.kind))
        .collect();
    assert_eq!(found, expected, "{doubts:?}");
}

#[test]
fn doubts_about_periods() {
    let graces = |seconds| Draft {
        eviction_max_pod_grace_period: Some(seconds),
        ..Draft::default()
    };
    let below = [("evictionMaxPodGracePeriod", DoubtKind::NegativeMaxGrace)];
    check_doubts(&graces(-1), None, &below);
    check_doubts(&graces(0), None, &[]);
    let transition = |period: &str| Draft {
        eviction_pressure_transition_period: Some(period.into()),
        ..Draft::default()
    };
    let none = [("evictionPressureTransitionPeriod", DoubtKind::NoTransition)];
    check_doubts(&transition("-1ns"), None, &none);
    check_doubts(&transition("0s"), None, &none);
    check_doubts(&transition("1ns"), None, &[]);
    let lonely = Draft {
        headroom_soft_grace_period: Some("1m".into()),
        ..Draft::default()
    };
    let without = [("headroomSoftGracePeriod", DoubtKind::GraceWithoutThreshold)];
    check_doubts(&lonely, None, &without);
}

#[test]
fn doubts() {
    let key = |map: &str| format!("{map}[\"memory.available\"]");
    let (hard_key, soft_key) = (key("evictionHard"), key("evictionSoft"));
    let (grace_key, reclaim_key) = (
        key("evictionSoftGracePeriod"),
        key("evictionMinimumReclaim"),
    );
    let draft = |hard: &str, soft: &str, reclaim: &str| {
        let one = |value: &str| map(&[("memory.available", value)]);
        Draft {
            eviction_hard: one(hard),
            eviction_soft: one(soft),
            eviction_soft_grace_period: one("1m"),
            eviction_minimum_reclaim: one(reclaim),
            ..Draft::default()
        }
    };
    check_doubts(&draft("100Mi", "200Mi", "50Mi"), None, &[]);
    check_doubts(&draft("100Mi", "200Mi", "50Mi"), Some(1 << 30), &[]);
    let above = [(&*hard_key, DoubtKind::HardAboveSoft)];
    check_doubts(&draft("200Mi", "100Mi", "0"), None, &above);
    check_doubts(&draft("20%", "20%", "0"), None, &above);
    // A fraction and an amount can be compared only where the capacity is known.
    check_doubts(&draft("20%", "100Mi", "0"), None, &[]);
    check_doubts(&draft("20%", "100Mi", "0"), Some(1 << 30), &above);
    let over = [
        (&*hard_key, DoubtKind::OverCapacity),
        (&*soft_key, DoubtKind::OverCapacity),
    ];
    check_doubts(&draft("2Gi", "3Gi", "0"), Some(1 << 30), &over);
    let never = [
        (&*hard_key, DoubtKind::NeverMet),
        (&*soft_key, DoubtKind::NeverMet),
    ];
    check_doubts(&draft("NaN%", "0.0%", "0"), None, &never);
    check_doubts(&draft("nan%", "-0%", "0"), Some(1 << 30), &never);
    check_doubts(&draft("NaN%", "20%", "0"), Some(1 << 30), &never[..1]);
    let below_one = [(&*hard_key, DoubtKind::BelowOne)];
    check_doubts(&draft("100m", "20%", "0"), Some(1 << 30), &below_one);
    check_doubts(&draft("0.5", "1", "0"), None, &below_one);
    check_doubts(&draft("1", "1.5", "0"), None, &[]);
    // More than can be counted is more than there is, whatever that is.
    check_doubts(
        &draft("100Mi", "1e99", "0"),
        None,
        &[(&*soft_key, DoubtKind::OverCapacity)],
    );
    let headroom = Draft {
        headroom_hard: Some("NaN%".into()),
        ..Draft::default()
    };
    check_doubts(&headroom, None, &[("headroomHard", DoubtKind::NeverMet)]);
    let headroom = |hard: &str, soft: &str| Draft {
        headroom_hard: Some(hard.into()),
        headroom_soft: Some(soft.into()),
        headroom_soft_grace_period: Some("1m".into()),
        ..Draft::default()
    };
    let over = [
        ("headroomHard", DoubtKind::HeadroomOverCapacity),
        ("headroomSoft", DoubtKind::HeadroomOverCapacity),
    ];
    check_doubts(&headroom("1Gi", "2Gi"), Some(1 << 30), &over);
    check_doubts(&headroom("1023Mi", "1Gi"), Some(1 << 30), &over[1..]);
    check_doubts(&headroom("99.9%", "100%"), Some(1 << 30), &[]);
    check_doubts(&headroom("1Gi", "2Gi"), None, &[]);
    let unreachable = [(&*reclaim_key, DoubtKind::UnreachableReclaim)];
    check_doubts(&draft("10%", "20%", "95%"), None, &unreachable);
    check_doubts(&draft("100Mi", "200Mi", "1Gi"), Some(1 << 30), &unreachable);
    check_doubts(
        &draft("0%", "0%", "1Gi"),
        None,
        &[
            (&*grace_key, DoubtKind::GraceWithoutThreshold),
            (&*reclaim_key, DoubtKind::ReclaimWithoutThreshold),
        ],
    );
    let containerfs = hard(&[("containerfs.available", "1Gi")]);
    let path = "evictionHard[\"containerfs.available\"]";
    check_doubts(
        &containerfs,
        None,
        &[(path, DoubtKind::ContainerfsReplaced)],
    );
    let doubts = draft("200Mi", "100Mi", "0").doubts(&Capacities::default());
    assert_eq!(
        doubts[0].to_string(),
        "evictionHard[\"memory.available\"]: 200Mi: the hard threshold is not below the soft one, \
         so the soft one never acts first"
    );
}

proptest! {
    #[test]
    fn percentages_are_read_back(bits in 0u32..=0x3f80_0000) {
        let percent = f32::from_bits(bits) * 100.0;
        let text = format!("{percent}%");
        prop_assume!(text != "0%" && text != "100%");
        let Ok(Some(Value::Fraction(fraction))) = read_threshold(&text) else {
            return Err(TestCaseError::fail(text));
        };
        prop_assert_eq!(fraction.to_bits(), (percent / 100.0).to_bits());
        let printed = Value::Fraction(fraction).to_string();
        prop_assert_eq!(read_threshold(&printed).ok().flatten(), Some(Value::Fraction(fraction)), "{}", printed);
    }

    #[test]
    fn percentages_are_printed_as_they_were_written(hundredths in 1..10_000_u32) {
        let (whole, rest) = (hundredths / 100, hundredths % 100);
        let text = format!("{whole}.{rest:02}");
        let text = format!("{}%", text.trim_end_matches('0').trim_end_matches('.'));
        let value = read_threshold(&text).unwrap().unwrap();
        prop_assert_eq!(value.to_string(), text);
    }

    #[test]
    fn any_text_is_read_or_refused(
        texts in proptest::collection::vec("\\PC*|[0-9.%-]{0,6}(Mi|%|s|e3)?", 6),
        signal in proptest::sample::select(&Signal::KUBELET[..]),
    ) {
        let one = |at: usize| map(&[(signal.name(), &texts[at]), (&texts[at], "1")]);
        let draft = Draft {
            eviction_hard: one(0),
            eviction_soft: one(1),
            eviction_soft_grace_period: one(2),
            eviction_minimum_reclaim: one(3),
            headroom_hard: Some(texts[4].clone()),
            eviction_pressure_transition_period: Some(texts[5].clone()),
            ..Draft::default()
        };
        if let Ok(policy) = draft.with_defaults().check() {
            prop_assert!(policy.on_layout(Layout::Split).thresholds().len() <= ThresholdSet::CAPACITY);
        }
    }
}

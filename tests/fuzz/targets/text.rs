//! Small grammars: quantities, durations, percentages, arguments of a load; patterns and paths of groups.

use std::ffi::OsString;

use brink_core::base::{Quantity, Span};
use brink_core::node::policy::{read_percentage, read_threshold};
use brink_core::node::signal::Signal;
use brink_core::node::threshold::Value;
use brink_host::cgroup::glob::Glob;
use brink_host::cgroup::pod::{PodGroup, PodRoots};
use brink_host::hog::HogSpec;
use brink_host::process::essential::role_of_unit;

use crate::Taken;

/// What is printed of an amount is read back as the same amount.
pub(crate) fn quantities(bytes: &[u8]) -> Taken {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Taken::Refused;
    };
    let mut taken = false;
    for text in text.lines() {
        taken |= quantity(text) | span(text) | percentage(text) | threshold(text);
        if let Ok(signal) = text.parse::<Signal>() {
            assert_eq!(signal.name(), text);
        }
        taken |= arguments(text);
    }
    Taken::from_accepted(taken)
}

fn quantity(text: &str) -> bool {
    let quantity: Quantity = match text.parse() {
        Ok(quantity) => quantity,
        Err(error) => return error_is_told(&error),
    };
    let written = quantity.to_string();
    assert_eq!(written.parse(), Ok(quantity), "{text:?} is {written:?}");
    let whole = Quantity::new(quantity.value(), quantity.format());
    let is_held = quantity.value() == i64::MAX || quantity.value() == i64::MIN;
    let is_rounded_away = whole.nanos().unsigned_abs() >= quantity.nanos().unsigned_abs();
    assert!(is_held || is_rounded_away, "{text:?} as {whole}");
    let json = serde_json::to_string(&quantity).unwrap_or_default();
    let back: Option<Quantity> = serde_json::from_str(&json).ok();
    let amount = |quantity: Quantity| (quantity.nanos(), quantity.format());
    assert_eq!(back.map(amount), Some(amount(quantity)), "{json}");
    true
}

fn span(text: &str) -> bool {
    let span: Span = match text.parse() {
        Ok(span) => span,
        Err(error) => return error_is_told(&error),
    };
    let written = span.to_string();
    assert_eq!(written.parse(), Ok(span), "{text:?} is {written:?}");
    true
}

fn percentage(text: &str) -> bool {
    let fraction = match read_percentage(text) {
        Ok(fraction) => fraction,
        Err(error) => return error_is_told(&error),
    };
    let written = Value::Fraction(fraction).to_string();
    let back = read_percentage(&written);
    let is_same = back.is_ok_and(|back| {
        back.to_bits() == fraction.to_bits() || back.is_nan() && fraction.is_nan()
    });
    assert!(is_same, "{text:?} is {written:?}");
    true
}

/// An accepted threshold is positive, and at no capacity more than all of it.
fn threshold(text: &str) -> bool {
    let value = match read_threshold(text) {
        Ok(Some(value)) => value,
        Ok(None) => return text == "0%" || text == "100%",
        Err(error) => return error_is_told(&error),
    };
    match value {
        Value::Quantity(quantity) => assert!(quantity.signum() > 0, "{text:?}"),
        Value::Fraction(_) => {
            for capacity in [0, 1, 1 << 30, i64::MAX] {
                let amount = value.quantity(capacity).value();
                assert!(amount <= capacity, "{text:?} of {capacity} is {amount}");
            }
        }
    }
    true
}

fn arguments(text: &str) -> bool {
    let words = || text.split(' ').map(OsString::from);
    match HogSpec::from_args(words()) {
        Ok(spec) => {
            assert_eq!(HogSpec::from_args(spec.to_args()).as_ref(), Ok(&spec));
            true
        }
        Err(error) => error_is_told(&error),
    }
}

fn error_is_told(error: &dyn std::fmt::Display) -> bool {
    assert!(!error.to_string().is_empty());
    false
}

/// A pattern in the first line, paths of groups in the others.
pub(crate) fn paths(bytes: &[u8]) -> Taken {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Taken::Refused;
    };
    let mut lines = text.split('\n');
    let pattern = lines.next().unwrap_or_default();
    let glob = Glob::new(pattern);
    if let Err(error) = &glob {
        error_is_told(error);
    }
    let mut has_pod = false;
    for path in lines.take(16) {
        if let Ok(glob) = &glob {
            check_match(glob, path);
        }
        has_pod |= check_pod(pattern, path);
        let _role = role_of_unit(path);
    }
    Taken::from_accepted(glob.is_ok() || has_pod)
}

fn check_match(glob: &Glob, path: &str) {
    let pattern = glob.as_str();
    let matches = glob.matches(path);
    let names = |path: &str| -> Vec<String> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    if !pattern.contains(['*', '?', '[']) {
        assert_eq!(
            matches,
            names(pattern) == names(path),
            "{pattern:?} {path:?}"
        );
    }
    // What covers a group covers it with a slash in front and behind as well.
    assert_eq!(glob.matches(&format!("/{path}/")), matches);
    if let Ok(below) = Glob::new(&format!("{pattern}/**")) {
        assert!(!matches || below.matches(path), "{pattern:?} {path:?}");
        assert!(!matches || below.matches(&format!("{path}/x")));
    }
}

/// A pod where a kubelet makes one is a pod by its names too, and says the same.
fn check_pod(root: &str, path: &str) -> bool {
    let named = PodGroup::parse(path);
    for roots in [PodRoots::new("/", None), PodRoots::new(root, Some(root))] {
        let rooted = roots.parse(path);
        assert!(rooted.is_none() || rooted == named, "{root:?} {path:?}");
    }
    if let Some(pod) = &named {
        assert!((1..=64).contains(&pod.uid.len()), "{pod:?}");
        let inner = PodGroup::parse(&format!("{path}/a/b"));
        assert_eq!(inner.map(|inner| inner.uid), Some(pod.uid.clone()));
    }
    named.is_some()
}

//! Thresholds from a configuration: defaults, copies, and what is derived for containerfs.

use serde_json::{Value, json};

use super::quantity::{Amount, Family, ONE};

pub(crate) const SIGNALS: [&str; 9] = [
    "memory.available",
    "allocatableMemory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

const DEFAULTS: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Amount(Amount),
    Share(f32),
}

impl Limit {
    /// `None` switches a threshold off.
    fn read(text: &str) -> Option<Self> {
        if text == "0%" || text == "100%" {
            return None;
        }
        Some(match text.strip_suffix('%') {
            Some(number) => {
                let number: f32 = number.trim_end_matches('%').parse().unwrap();
                Self::Share(number / 100.0)
            }
            None => Self::Amount(Amount::read(text)),
        })
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the specification multiplies in double precision and cuts"
    )]
    pub(crate) fn of(self, capacity: i64) -> Amount {
        match self {
            Self::Amount(amount) => amount,
            Self::Share(share) => {
                Amount::of((capacity as f64 * f64::from(share)) as i64, Family::Twos)
            }
        }
    }

    fn key(self) -> String {
        match self {
            Self::Amount(amount) => format!("{}", amount.nanos),
            Self::Share(share) => format!("{share}%"),
        }
    }

    fn line(self) -> Value {
        match self {
            Self::Amount(amount) => json!({"bytes_or_count": amount.whole()}),
            Self::Share(share) => json!({"fraction_f32": f64::from(share)}),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Threshold {
    pub(crate) signal: String,
    pub(crate) value: Limit,
    /// Seconds.
    pub(crate) grace: i64,
    pub(crate) reclaim: Option<Limit>,
}

impl Threshold {
    pub(crate) fn resource(&self) -> &'static str {
        match self.signal.as_str() {
            "pid.available" => "pids",
            signal if signal.contains("emory") => "memory",
            signal if signal.ends_with("inodesFree") => "inodes",
            _ => "ephemeral-storage",
        }
    }

    pub(crate) fn condition(&self) -> usize {
        match self.resource() {
            "memory" => 0,
            "pids" => 2,
            _ => 1,
        }
    }

    /// What makes two thresholds the same to the kubelet's lists; the minimum reclaim does not.
    pub(crate) fn same(&self) -> String {
        format!("{} {} {}", self.signal, self.grace, self.value.key())
    }

    /// Where it stands among those that are ready.
    pub(crate) fn place(&self) -> (usize, usize, usize) {
        let place = SIGNALS.iter().position(|name| *name == self.signal);
        let (place, soft) = (place.unwrap(), usize::from(self.grace != 0));
        match place {
            0 | 1 => (0, soft, place),
            _ => (1, place, soft),
        }
    }

    pub(crate) fn line(&self) -> Value {
        json!({
            "signal": self.signal, "op": "LessThan", "grace_s": self.grace,
            "value": self.value.line(), "min_reclaim": self.reclaim.map(Limit::line),
        })
    }

    pub(crate) fn is_met(&self, available: i64, capacity: i64, with_reclaim: bool) -> bool {
        let mut limit = self.value.of(capacity);
        if let Some(more) = self.reclaim.filter(|_| with_reclaim) {
            limit = limit.plus(more.of(capacity));
        }
        limit.nanos > i128::from(available) * ONE
    }
}

fn pairs(map: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), Into::into);
    let entries = map.as_object().into_iter().flatten();
    entries
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

/// Those of a configuration, copies for allocatable memory at the end.
pub(crate) fn configured(config: &Value) -> Vec<Threshold> {
    let soft = pairs(&config["evictionSoft"]);
    let mut found = Vec::new();
    for (is_soft, entries) in [(false, hard(config)), (true, soft)] {
        for (signal, text) in entries {
            let of = |map: &str| {
                let mut entries = pairs(&config[map]).into_iter();
                entries.find_map(|(name, text)| (name == signal).then_some(text))
            };
            let grace = of("evictionSoftGracePeriod").filter(|_| is_soft);
            let reclaim = of("evictionMinimumReclaim").and_then(|text| Limit::read(&text));
            if let Some(value) = Limit::read(&text) {
                found.push(Threshold {
                    signal,
                    value,
                    grace: grace.map_or(0, |text| seconds(&text)),
                    reclaim,
                });
            }
        }
    }
    let enforced = config["enforceNodeAllocatable"].as_array();
    if enforced.is_none_or(|words| words.iter().any(|word| word == "pods")) {
        let memory = |t: &&Threshold| t.signal == SIGNALS[0] && t.grace == 0;
        let copy = |threshold: &Threshold| Threshold {
            signal: SIGNALS[1].into(),
            ..threshold.clone()
        };
        let copies: Vec<_> = found.iter().filter(memory).map(copy).collect();
        found.extend(copies);
    }
    found
}

fn hard(config: &Value) -> Vec<(String, String)> {
    let mut hard = pairs(&config["evictionHard"]);
    let merged = config["mergeDefaultEvictionSettings"] == true;
    for (signal, value) in DEFAULTS {
        let known = hard.iter().any(|(name, _)| name == signal);
        if config["evictionHard"].is_null() || (merged && !known) {
            hard.push((signal.into(), value.into()));
        }
    }
    hard
}

/// `90s`; nothing else is generated.
pub(crate) fn seconds(text: &str) -> i64 {
    text.strip_suffix('s').unwrap().parse().unwrap()
}

/// With those of containerfs taken from the filesystem it lives on.
pub(crate) fn derived(configured: &[Threshold], layout: &str) -> Vec<Threshold> {
    let origin = if layout == "dedicatedImagefs" {
        "imagefs"
    } else {
        "nodefs"
    };
    let mut found = configured.to_vec();
    for end in ["available", "inodesFree"] {
        for hard in [true, false] {
            let is = |filesystem: &str, threshold: &Threshold| {
                threshold.signal == format!("{filesystem}.{end}") && (threshold.grace == 0) == hard
            };
            if let Some(at) = found.iter().rposition(|t| is("containerfs", t)) {
                found.remove(at);
            }
            if let Some(from) = configured.iter().rfind(|t| is(origin, t)) {
                found.push(Threshold {
                    signal: format!("containerfs.{end}"),
                    ..from.clone()
                });
            }
        }
    }
    found
}

//! Scenarios at random, with small figures so that they meet and miss each other.

use serde_json::{Map, Value, json};

use super::thresholds::SIGNALS;

/// A repeatable source of choices.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// So many times in ten.
    fn chance(&mut self, tenths: usize) -> bool {
        self.below(10) < tenths
    }
}

const AMOUNTS: [&str; 16] = [
    "0", "5", "10", "11", "20", "21", "30", "1023", "1Ki", "1025", "1.5Ki", "0.5Ki", "2500m", "1k",
    "1e1", "1100m",
];
const LIMITS: [&str; 13] = [
    "50", "100", "1Ki", "1.5k", "20.5", "5e1", "10%", "5%", "33.3%", "0.0%", "100.0%", "0%", "10%%",
];

pub(crate) fn scenario(seed: u64) -> Value {
    let mut dice = Dice::new(seed);
    let dice = &mut dice;
    let count = dice.one(&[0, 1, 2, 3, 5, 8, 20]);
    let pods: Vec<_> = (0..count).map(|at| pod(dice, at)).collect();
    let config = config(dice);
    let (mut steps, mut now) = (Vec::new(), 0i64);
    for _ in 0..=dice.below(6) {
        steps.push(step(dice, now, &pods, &config));
        now += dice.one(&[1, 5, 10, 15, 20, 30, 60]);
    }
    json!({
        "apiVersion": "brink.dev/v1alpha1", "kind": "Scenario", "config": config, "pods": pods,
        "filesystems": dice.one(&["single", "dedicatedImagefs", "split"]), "steps": steps,
    })
}

fn config(dice: &mut Dice) -> Value {
    let mut config = json!({
        "evictionHard": {}, "evictionSoft": {}, "evictionSoftGracePeriod": {}, "evictionMinimumReclaim": {},
        "evictionMaxPodGracePeriod": dice.one(&[0, 5, 30, -1]),
        "evictionPressureTransitionPeriod": dice.one(&["0s", "10s", "20s", "60s"]),
        "mergeDefaultEvictionSettings": dice.chance(1),
        "localStorageCapacityIsolation": dice.chance(6),
    });
    for _ in 0..dice.one(&[1, 1, 2, 3, 6]) {
        let signal = dice.one(&SIGNALS);
        if dice.chance(7) {
            config["evictionHard"][signal] = json!(dice.one(&LIMITS));
        }
        if dice.chance(6) {
            config["evictionSoft"][signal] = json!(dice.one(&LIMITS));
            config["evictionSoftGracePeriod"][signal] =
                json!(dice.one(&["0s", "10s", "20s", "30s"]));
        }
        if dice.chance(5) {
            let reclaim = dice.one(&["0", "10", "1Ki", "5%", "150%", "0.5"]);
            config["evictionMinimumReclaim"][signal] = json!(reclaim);
        }
    }
    match dice.below(4) {
        0 => config["enforceNodeAllocatable"] = json!([]),
        1 => config["enforceNodeAllocatable"] = json!(["pods"]),
        2 => config["enforceNodeAllocatable"] = json!(["none"]),
        _ => {}
    }
    if dice.chance(1) {
        config.as_object_mut().unwrap().remove("evictionHard");
    }
    config
}

fn resources(dice: &mut Dice) -> Value {
    let mut found = Map::new();
    for side in ["requests", "limits"] {
        let mut list = Map::new();
        for (name, tenths) in [("memory", 6), ("ephemeral-storage", 4), ("cpu", 3)] {
            if dice.chance(tenths) {
                list.insert(name.into(), json!(dice.one(&AMOUNTS)));
            }
        }
        if dice.chance(8) {
            found.insert(side.into(), list.into());
        }
    }
    found.into()
}

fn pod(dice: &mut Dice, at: usize) -> Value {
    let mut meta = json!({"name": format!("p{at}"), "annotations": {}});
    if dice.chance(7) {
        meta["uid"] = json!(format!("{}{}", dice.one(&["a", "b", "c"]), dice.below(4)));
    }
    if dice.chance(3) {
        meta["namespace"] = json!("x");
    }
    if dice.chance(1) {
        meta["annotations"]["kubernetes.io/config.source"] =
            json!(dice.one(&["file", "http", "api"]));
    }
    if dice.below(20) == 0 {
        meta["annotations"]["kubernetes.io/config.mirror"] = json!("");
    }
    if dice.chance(1) {
        meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    let mut spec = json!({"containers": [], "initContainers": [], "volumes": []});
    if dice.chance(7) {
        spec["priority"] = json!(dice.one(&[-1, 0, 1, 0, 1, 1_999_999_999, 2_000_000_000]));
    }
    if dice.chance(6) {
        spec["terminationGracePeriodSeconds"] = json!(dice.one(&[0, 1, 3, 30, 60]));
    }
    for (key, letter, most) in [("containers", 'c', 4), ("initContainers", 'i', 3)] {
        for number in 0..dice.below(most) {
            let mut container =
                json!({"name": format!("{letter}{number}"), "resources": resources(dice)});
            if letter == 'i' && dice.chance(5) {
                container["restartPolicy"] = json!("Always");
            }
            spec[key].as_array_mut().unwrap().push(container);
        }
    }
    if dice.chance(2) {
        spec["overhead"] = resources(dice)["requests"].clone();
    }
    if dice.chance(2) {
        spec["resources"] = resources(dice);
    }
    for number in 0..dice.below(4) {
        spec["volumes"]
            .as_array_mut()
            .unwrap()
            .push(volume(dice, number));
    }
    json!({
        "metadata": meta, "spec": spec,
        "status": {"phase": dice.one(&["Running", "Running", "Pending", "Failed", "Succeeded"])},
    })
}

fn volume(dice: &mut Dice, number: usize) -> Value {
    let mut volume = json!({"name": format!("v{number}")});
    match dice.below(6) {
        0 => volume["hostPath"] = json!({"path": "/"}),
        1 => volume["configMap"] = json!({}),
        2 => volume["secret"] = json!({}),
        _ => {
            volume["emptyDir"] = json!({"medium": dice.one(&["", "", "Memory"])});
            if dice.chance(3) {
                volume["emptyDir"]["sizeLimit"] = json!(dice.one(&AMOUNTS));
            }
        }
    }
    volume
}

fn step(dice: &mut Dice, now: i64, pods: &[Value], config: &Value) -> Value {
    let mut step = json!({"at": format!("{now}s"), "signals": signals(dice, now), "usage": {}});
    // Limits hide everything else, so they are exceeded in few steps only.
    let quiet = config["localStorageCapacityIsolation"] == true && dice.chance(8);
    for pod in pods {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
        let name = format!("{namespace}/{}", pod["metadata"]["name"].as_str().unwrap());
        if dice.chance(9) {
            step["usage"][&name] = usage(dice, quiet);
        }
        if dice.below(30) == 0 {
            step["gone"] = json!([name, "default/nobody"]);
        }
    }
    if dice.chance(4) {
        step["afterReclaim"] = signals(dice, now);
    }
    step
}

fn signals(dice: &mut Dice, now: i64) -> Value {
    let mut found = json!({});
    let plenty = dice.chance(3);
    for signal in SIGNALS {
        if dice.chance(8) {
            let low = dice.one(&[
                0, 1, 19, 20, 49, 50, 51, 60, 99, 100, 101, 333, 500, 1023, 1025, 1500, -7,
            ]);
            let available = if plenty { 10_000_000 } else { low };
            found[signal] =
                json!({"available": available, "capacity": dice.one(&[1000, 10_240, 100])});
            if dice.below(20) == 0 {
                found[signal]["time"] = json!(format!("{}s", now - dice.one(&[0, 1, 10])));
            }
            if dice.below(60) == 0 {
                found[signal]["capacity"] = Value::Null;
            }
        }
    }
    found
}

fn usage(dice: &mut Dice, quiet: bool) -> Value {
    let figure =
        |dice: &mut Dice| json!(dice.one(&["0", "5", "10", "11", "20", "21", "31", "1Ki", "1.1k"]));
    let disk = |dice: &mut Dice| {
        let bytes = if quiet { json!(0) } else { figure(dice) };
        json!({"bytes": bytes, "inodes": figure(dice)})
    };
    let mut found = json!({"volumes": {}, "containers": {}});
    for key in ["memory", "processes"] {
        if dice.chance(7) {
            found[key] = figure(dice);
        }
    }
    for key in ["rootfs", "logs"] {
        if dice.chance(7) {
            found[key] = disk(dice);
        }
    }
    for name in ["v0", "v1", "v2"] {
        if dice.chance(6) {
            found["volumes"][name] = disk(dice);
        }
    }
    for name in ["i1", "c1", "c0", "i0", "c2", "other"] {
        if dice.chance(6) {
            found["containers"][name] =
                json!({"memory": figure(dice), "rootfs": disk(dice), "logs": disk(dice)});
        }
    }
    found
}

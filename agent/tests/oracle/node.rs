//! The kubelet's loop, step by step as the specification tells it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::pods::{Pod, Usage, amount, list};
use super::quantity::{Amount, Family};
use super::thresholds::{Threshold, configured, derived, seconds};

const CONDITIONS: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

/// Available, capacity, and when.
type Seen = BTreeMap<String, (i64, i64, i64)>;

type Candidate<'a> = (&'a Pod, Option<Usage>);

struct Node<'a> {
    config: &'a Value,
    layout: &'a str,
    thresholds: Vec<Threshold>,
    pods: Vec<Pod>,
    gone: Vec<String>,
    first_met: BTreeMap<String, i64>,
    held: Vec<usize>,
    last_seen: Seen,
    conditions: [Option<i64>; 3],
}

/// The lines that `brink simulate` owes for a scenario.
pub(crate) fn lines(scenario: &Value) -> Vec<Value> {
    let layout = scenario["filesystems"].as_str().unwrap();
    let config = &scenario["config"];
    let mut node = Node {
        config,
        layout,
        thresholds: derived(&configured(config), layout),
        pods: list(&scenario["pods"]).iter().map(Pod::read).collect(),
        gone: Vec::new(),
        first_met: BTreeMap::new(),
        held: Vec::new(),
        last_seen: Seen::new(),
        conditions: [None; 3],
    };
    list(&scenario["steps"])
        .iter()
        .map(|step| node.step(step))
        .collect()
}

fn seen(signals: &Value, now: i64) -> Seen {
    let entries = signals.as_object().into_iter().flatten();
    entries
        .filter_map(|(name, value)| {
            let figure = |key: &str| amount(&value[key]).map(Amount::whole);
            let at = value["time"].as_str().map_or(now, seconds);
            Some((
                name.clone(),
                (figure("available")?, figure("capacity")?, at),
            ))
        })
        .collect()
}

impl Node<'_> {
    fn step(&mut self, step: &Value) -> Value {
        let now = seconds(step["at"].as_str().unwrap());
        let mut line = json!({
            "at": step["at"], "met": [], "ready": [], "conditions": [],
            "reclaim": [], "ranking": [], "evict": null,
        });
        let gone = list(&step["gone"]).iter().filter_map(Value::as_str);
        self.gone.extend(gone.map(String::from));
        let isolation = self.config["localStorageCapacityIsolation"] != false;
        if self.thresholds.is_empty() && !isolation {
            return line;
        }
        let now_seen = seen(&step["signals"], now);
        let (met, ready) = self.observe(&now_seen, now);
        line["met"] = self.sorted(&met);
        line["ready"] = self.sorted(&ready);
        line["conditions"] = self.reported(now);
        let usage = |pod: &Pod| {
            let usage = &step["usage"][&pod.full];
            (!usage.is_null()).then(|| Usage::read(usage, pod))
        };
        let candidates = self.pods.iter().filter(|pod| pod.is_candidate);
        let candidates: Vec<_> = candidates
            .filter(|pod| !self.gone.contains(&pod.full))
            .map(|pod| (pod, usage(pod)))
            .collect();
        let over = |(pod, usage): &Candidate<'_>| self.over_limits(pod, usage.as_ref()?);
        let over: Vec<Value> = candidates.iter().filter_map(over).collect();
        let place = |at: &&usize| (self.thresholds[**at].place(), **at);
        if isolation && !over.is_empty() {
            line["evict"] = json!(over);
        } else if let Some(at) = ready.iter().min_by_key(place) {
            let mut after = now_seen.clone();
            for (name, _) in step["afterReclaim"].as_object().into_iter().flatten() {
                after.remove(name);
            }
            after.extend(seen(&step["afterReclaim"], now));
            self.act(*at, (&now_seen, &after), candidates, &mut line);
        }
        line
    }

    /// Reclaim on the node, then a pod.
    fn act(
        &self,
        at: usize,
        (seen, after): (&Seen, &Seen),
        mut candidates: Vec<Candidate<'_>>,
        line: &mut Value,
    ) {
        let threshold = &self.thresholds[at];
        let ways = self.ways(threshold);
        line["reclaim"] = json!(ways);
        if !ways.is_empty() && !self.thresholds.iter().any(|t| is_met(t, after, true)) {
            return;
        }
        candidates.sort_by_cached_key(|(pod, usage)| self.rank(threshold, pod, usage.as_ref()));
        let names: Vec<_> = candidates.iter().map(|(pod, _)| &pod.full).collect();
        line["ranking"] = json!(names);
        if let Some((pod, usage)) = candidates.iter().find(|(pod, _)| !pod.refuses) {
            line["evict"] = json!({
                "pod": pod.full, "signal": threshold.signal, "reason": "Evicted",
                "gracePeriodSeconds": self.grace(threshold, pod),
                "message": message(threshold, seen, pod, usage.as_ref()),
            });
        }
    }

    /// Those met or held, and those that may act.
    fn observe(&mut self, seen: &Seen, now: i64) -> (Vec<usize>, Vec<usize>) {
        let all = &self.thresholds;
        let mut met: Vec<_> = (0..all.len())
            .filter(|at| is_met(&all[*at], seen, false))
            .collect();
        for &at in &self.held {
            let is_new = met.iter().all(|known| all[*known].same() != all[at].same());
            if is_new && is_met(&all[at], seen, true) {
                met.push(at);
            }
        }
        // Plain shares are alike to a map whose key is the threshold; anything else holds a pointer.
        let key = |at: usize| match (all[at].value, all[at].reclaim) {
            (super::thresholds::Limit::Share(_), None) => all[at].same(),
            _ => at.to_string(),
        };
        let (mut first_met, mut ready) = (BTreeMap::new(), Vec::new());
        for &at in &met {
            self.conditions[all[at].condition()] = Some(now);
            let since = self.first_met.get(&key(at)).copied().unwrap_or(now);
            if first_met.insert(key(at), since).is_none() && now - since >= all[at].grace {
                ready.push(at);
            }
        }
        let last = std::mem::replace(&mut self.last_seen, seen.clone());
        let fresh = |at: &usize| {
            let signal = &all[*at].signal;
            last.get(signal)
                .is_none_or(|before| seen[signal].2 > before.2)
        };
        let may_act = ready.iter().copied().filter(fresh).collect();
        (self.first_met, self.held) = (first_met, ready);
        (met, may_act)
    }

    fn reported(&self, now: i64) -> Value {
        let period = self.config["evictionPressureTransitionPeriod"].as_str();
        let period = period.map_or(300, seconds);
        let period = if period == 0 { 300 } else { period };
        let is_on = |at: &usize| self.conditions[*at].is_some_and(|since| now - since < period);
        (0..3).filter(is_on).map(|at| CONDITIONS[at]).collect()
    }

    fn sorted(&self, places: &[usize]) -> Value {
        let mut found: Vec<_> = places
            .iter()
            .map(|at| self.thresholds[*at].line())
            .collect();
        found.sort_by_key(super::order);
        json!(found)
    }

    fn ways(&self, threshold: &Threshold) -> &'static [&'static str] {
        let filesystem = threshold.signal.split('.').next().unwrap();
        match (filesystem, self.layout) {
            ("nodefs", "dedicatedImagefs") | ("memory" | "allocatableMemory" | "pid", _) => &[],
            ("imagefs", "split") => &["unusedImages"],
            (_, "split") => &["deadContainers"],
            _ => &["deadContainers", "unusedImages"],
        }
    }

    /// Smaller goes first.
    fn rank(&self, threshold: &Threshold, pod: &Pod, usage: Option<&Usage>) -> impl Ord + use<> {
        let tie = (pod.uid.clone(), pod.full.clone());
        let Some(usage) = usage else {
            let (class, priority) = (0, pod.priority);
            let key = if threshold.resource() == "pids" {
                [priority, 0]
            } else {
                [class, priority]
            };
            return (key, 0, tie);
        };
        let (over, beyond) = match threshold.resource() {
            "pids" => return ([pod.priority, 1], -i128::from(usage.processes), tie),
            "memory" => {
                let beyond = Usage::beyond(usage.memory, pod.memory);
                (beyond > 0, beyond)
            }
            resource => {
                let used = self.disk(threshold, usage)[usize::from(resource == "inodes")];
                let beyond = Usage::beyond(used, pod.storage);
                // Nobody requests inodes, and bytes are taken from their count all the same.
                let over = if resource == "inodes" {
                    used > 0
                } else {
                    beyond > 0
                };
                (over, beyond)
            }
        };
        ([if over { 1 } else { 2 }, pod.priority], -beyond, tie)
    }

    fn disk(&self, threshold: &Threshold, usage: &Usage) -> [i64; 2] {
        let image = threshold.signal.starts_with("imagefs");
        let node = threshold.signal.starts_with("nodefs");
        let parts: &[[i64; 2]] = match self.layout {
            "split" if image => &[],
            "single" | "split" => &[usage.rootfs, usage.logs, usage.local_volumes],
            _ if node => &[usage.logs, usage.local_volumes],
            _ => &[usage.rootfs],
        };
        parts
            .iter()
            .fold([0, 0], |sum, part| [sum[0] + part[0], sum[1] + part[1]])
    }

    fn grace(&self, threshold: &Threshold, pod: &Pod) -> i64 {
        let most = self.config["evictionMaxPodGracePeriod"]
            .as_i64()
            .unwrap_or(0);
        match threshold.grace {
            0 => 1,
            _ => pod.grace.map_or(most, |own| own.min(most)),
        }
    }

    fn over_limits(&self, pod: &Pod, usage: &Usage) -> Option<Value> {
        let (signal, message) = self.exceeded(pod, usage).filter(|_| !pod.refuses)?;
        Some(json!({
            "pod": pod.full, "signal": signal, "gracePeriodSeconds": 1,
            "reason": "Evicted", "message": message,
        }))
    }

    fn exceeded(&self, pod: &Pod, usage: &Usage) -> Option<(&'static str, String)> {
        for (name, limit, ..) in &pod.volumes {
            let used = usage.volumes.get(name).copied();
            if let (Some(limit), Some(used)) = (limit.filter(|limit| limit.nanos > 0), used)
                && Usage::beyond(used, limit) > 0
            {
                let limit = limit.text();
                let message =
                    format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". ");
                return Some(("emptydirfs.limit", message));
            }
        }
        if let Some(limit) = pod.storage_limit
            && Usage::beyond(usage.ephemeral, limit) > 0
        {
            let of = "Pod ephemeral local storage usage exceeds the total limit of containers";
            return Some(("ephemeralpodfs.limit", format!("{of} {}. ", limit.text())));
        }
        for (name, limit) in &pod.limited {
            let [_, rootfs, logs] = usage.containers.get(name).copied().unwrap_or_default();
            let used = if self.layout == "single" {
                logs + rootfs
            } else {
                logs
            };
            if Usage::beyond(used, *limit) > 0 {
                let limit = limit.text();
                let message = format!(
                    "Container {name} exceeded its local ephemeral storage limit \"{limit}\". "
                );
                return Some(("ephemeralcontainerfs.limit", message));
            }
        }
        None
    }
}

fn is_met(threshold: &Threshold, seen: &Seen, with_reclaim: bool) -> bool {
    seen.get(&threshold.signal)
        .is_some_and(|&(available, capacity, _)| {
            threshold.is_met(available, capacity, with_reclaim)
        })
}

fn message(threshold: &Threshold, seen: &Seen, pod: &Pod, usage: Option<&Usage>) -> String {
    let (available, capacity, _) = seen[&threshold.signal];
    let counts = ["inodes", "pids"].contains(&threshold.resource());
    let family = if counts { Family::Tens } else { Family::Twos };
    let (resource, limit) = (threshold.resource(), threshold.value.of(capacity).text());
    let available = Amount::of(available, family).text();
    let mut said = format!(
        "The node was low on resource: {resource}. Threshold quantity: {limit}, available: {available}. "
    );
    let bytes = |figure: i64| Amount::of(figure, Family::Twos).text();
    let exceeds = |whose: &str, used: i64, request: Amount| {
        let (used, request) = (bytes(used), request.text());
        format!(
            "{whose} was using {used}, request is {request}, has larger consumption of {resource}. "
        )
    };
    let Some(usage) = usage.filter(|_| !counts) else {
        return said;
    };
    if let Some(request) = pod.own_memory.filter(|_| resource == "memory") {
        let pod = format!("Pod {}", pod.name);
        said.push_str(&exceeds(&pod, usage.memory, request));
    }
    for (name, requests) in &pod.containers {
        let Some([memory, rootfs, logs]) = usage.containers.get(name) else {
            continue;
        };
        let (used, request) = if resource == "memory" {
            (*memory, requests[0])
        } else {
            (rootfs + logs, requests[1])
        };
        if Usage::beyond(used, request) > 0 {
            said.push_str(&exceeds(&format!("Container {name}"), used, request));
        }
    }
    said
}

//! Evictions by the dozen: how fast they are, what is told of them, and what stays of the pods.

use std::env;
use std::time::Instant;

use brink::record::DecisionRecord;
use serde_json::{Value, json};

use crate::manifest::{GO, waiting};
use crate::support::{
    Cluster, Pod, available, groups_beside, has_shim, holds_in_time, id_of, write_inside,
};
use crate::told::{Agent, is_failed, uid_of};
use crate::watch::Watch;
use crate::{LAST_WORD, group_of, sleeper, wait_running};

/// Another number of evictions.
const COUNT: &str = "BRINK_EVICTIONS";
const MIB: u64 = 1 << 20;
const MS: f64 = 1e6;
/// All but so much must be available again before the next pod comes.
const SLACK: u64 = 20 * MIB;
/// An agent stops itself after so many evictions in so short a time, unless it is told that they are no mistake.
const MANY: &str = "limits: {burst: 60, refill: 100ms, most: 60, window: 1s}";

/// What a pod leaks, and how: anonymous memory, the same in two containers at once, or files in a volume of memory.
const KINDS: [(&str, &[&str]); 3] = [
    ("anonymous", &["exec dd if=/dev/zero of=/dev/null bs=250M"]),
    (
        "two containers",
        &[
            "exec dd if=/dev/zero of=/dev/null bs=150M",
            "exec dd if=/dev/zero of=/dev/null bs=140M",
        ],
    ),
    (
        "volume in memory",
        &["dd if=/dev/zero of=/m/leak bs=1M count=250; sleep 3600"],
    ),
];

/// A pod that leaks as soon as it is told to.
fn leaker(number: usize, scripts: &[&str]) -> Value {
    let resources = json!({ "limits": { "memory": "400Mi" }, "requests": { "memory": "8Mi" } });
    let name = format!("dozen-{}-{number}", std::process::id());
    let mut pod = waiting(&name, scripts, &resources);
    pod["metadata"]["labels"] = json!({ "brink-test": "dozens" });
    pod
}

/// An evicted pod, and what was measured.
struct Evicted<'a> {
    pod: Pod<'a>,
    kind: &'static str,
    uid: String,
    record: DecisionRecord,
}

impl Evicted<'_> {
    /// From the sample that showed the crossing to a stage, in milliseconds.
    fn after(&self, stage: &str) -> f64 {
        let nanos = self.record.since_sample(stage);
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds in nanoseconds, shown in milliseconds"
        )]
        let millis = nanos.unwrap_or_else(|| panic!("no {stage}: {:#?}", self.record)) as f64 / MS;
        millis
    }
}

/// Pods that leak, one after the other, each evicted and told; the kubelet takes them all apart.
#[test]
#[ignore = "slow: five minutes for forty evictions"]
fn evictions_by_the_dozen_are_fast_and_leave_nothing() {
    let cluster = cluster!(with_pods_here);
    let count = env::var(COUNT).map_or(40, |text| text.parse().expect(COUNT));
    assert!(
        count >= KINDS.len(),
        "{COUNT}: one of each kind at the least"
    );
    let bystander = cluster.pod(&sleeper(&format!("bystander-{}", std::process::id())));
    wait_running(&bystander);
    let of_all = ["--selector", "brink-test=dozens"];
    let mut phases = Watch::of(&cluster, &of_all, "{.metadata.name} {.status.phase}");
    let before = available();
    let (_line, agent) = Agent::with(&cluster, "enforce", "", MANY);
    let mut all = Vec::new();
    for number in 0..count {
        let (kind, scripts) = KINDS[number % KINDS.len()];
        let has_room = || available() + SLACK >= before;
        assert!(
            holds_in_time(has_room),
            "memory does not come back\n{}",
            agent.log()
        );
        all.push(evict(&cluster, &agent, (number, kind, scripts)));
    }
    let end = Instant::now() + LAST_WORD;
    assert!(holds_in_time(|| Instant::now() > end));
    assert_eq!(bystander.status()["phase"], "Running", "nobody else dies");
    all.iter().for_each(check);
    let restarts = all.iter().filter(|one| is_started_again(one)).count();
    let told = phases.told();
    let shown = all
        .iter()
        .filter(|one| is_shown_running_again(one, &told))
        .count();
    println!(
        "{count} evictions, {restarts} with a container started again, {shown} shown as Running once more"
    );
    assert!(
        restarts * 100 <= 3 * count,
        "in 97 of 100 nothing is started again"
    );
    report(&all);
}

/// Has one pod evicted, and waits until the kubelet has taken it apart.
fn evict<'a>(
    cluster: &'a Cluster,
    agent: &Agent,
    (number, kind, scripts): (usize, &'static str, &[&str]),
) -> Evicted<'a> {
    let pod = cluster.pod(&leaker(number, scripts));
    let uid = uid_of(&pod);
    let group = group_of(&pod.read().unwrap());
    let beside = groups_beside(&group);
    write_inside(&group, GO, "go");
    assert!(
        holds_in_time(|| agent.has_told(&uid)),
        "{}\n{}",
        pod.described(),
        agent.log()
    );
    assert!(holds_in_time(|| is_failed(&pod)), "{}", pod.described());
    let is_gone = || !group.exists() && groups_beside(&group).is_empty();
    assert!(holds_in_time(is_gone), "{}", pod.described());
    for group in &beside {
        assert!(
            holds_in_time(|| !has_shim(id_of(group))),
            "the shim of {} stays",
            group.display()
        );
    }
    Evicted {
        record: agent.decision(&uid).unwrap(),
        uid,
        pod,
        kind,
    }
}

/// It has failed for good and as a disruption.
fn check(evicted: &Evicted<'_>) {
    let Evicted {
        pod, uid, record, ..
    } = evicted;
    assert_eq!(record.victim.uid, *uid);
    assert!(is_failed(pod), "{}", pod.described());
}

/// A kubelet that has not heard of the eviction starts what was killed.
fn is_started_again(evicted: &Evicted<'_>) -> bool {
    let status = evicted.pod.status();
    let mut containers = status["containerStatuses"].as_array().into_iter().flatten();
    containers.any(|container| container["restartCount"] != 0)
}

/// A kubelet of this age writes a status that it made up before it heard over ours, and Brink writes `Failed` over that.
fn is_shown_running_again(evicted: &Evicted<'_>, lines: &[String]) -> bool {
    let pairs = lines.iter().filter_map(|line| line.split_once(' '));
    let own = pairs.filter(|(name, _)| *name == evicted.pod.name);
    let told: Vec<&str> = own.map(|(_, phase)| phase).collect();
    let first = told.iter().position(|phase| *phase == "Failed");
    let since = &told[first.unwrap_or_else(|| panic!("{}: {told:?}", evicted.pod.name))..];
    since.iter().any(|phase| *phase != "Failed")
}

/// The figures, each held to what it must reach.
fn report(all: &[Evicted<'_>]) {
    let of = |kind: Option<&str>, stage: &str| -> Vec<f64> {
        let chosen = all
            .iter()
            .filter(|one| kind.is_none_or(|kind| one.kind == kind));
        let mut values: Vec<f64> = chosen.map(|one| one.after(stage)).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let told = |values: &[f64]| {
        let [median, worst] = [values.len() / 2, values.len() - 1].map(|place| values[place]);
        format!("n={} p50 {median:.2} ms, worst {worst:.2} ms", values.len())
    };
    for (kind, _) in KINDS {
        for stage in ["lastSignal", "gone"] {
            println!(
                "{kind}: sample to {stage}: {}",
                told(&of(Some(kind), stage))
            );
        }
    }
    let [signals, gone] = ["lastSignal", "gone"].map(|stage| of(None, stage));
    println!("all: sample to lastSignal: {}", told(&signals));
    println!("all: sample to gone: {}", told(&gone));
    assert!(signals[signals.len() / 2] <= 5.0, "{}", told(&signals));
    let allowed = all.len() / 100;
    let tail = signals[signals.len() - 1 - allowed];
    assert!(tail <= 20.0, "{}", told(&signals));
    // Nobody has held more than half a gibibyte.
    assert!(gone[gone.len() / 2] <= 70.0, "{}", told(&gone));
}

//! Evictions by the dozen: how fast they are, what is told of them, and what stays of the pods.

use std::env;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Instant;

use brink::record::DecisionRecord;
use serde_json::{Value, json};

use crate::support::{
    Cluster, IMAGE, Pod, available, container_group, groups_beside, has_shim, holds_in_time, id_of,
};
use crate::told::{Agent, ROOM, is_failed, uid_of};
use crate::{LAST_WORD, sleeper, wait_running};

/// Another number of evictions.
const COUNT: &str = "BRINK_EVICTIONS";
const MIB: u64 = 1 << 20;
const MS: f64 = 1e6;
/// Of the room before the threshold so much must be there again before the next pod comes.
const ENOUGH: u64 = ROOM - 20 * MIB;

/// What a pod leaks, and how: anonymous memory, the same in two containers at once, or files in a volume of memory.
const KINDS: [(&str, &[&str]); 3] = [
    (
        "anonymous",
        &["sleep 4; exec dd if=/dev/zero of=/dev/null bs=250M"],
    ),
    (
        "two containers",
        &[
            "sleep 4; exec dd if=/dev/zero of=/dev/null bs=150M",
            "sleep 4; exec dd if=/dev/zero of=/dev/null bs=140M",
        ],
    ),
    (
        "volume in memory",
        &["sleep 4; dd if=/dev/zero of=/m/leak bs=1M count=250; sleep 3600"],
    ),
];

fn leaker(number: usize, scripts: &[&str]) -> Value {
    let container = |(at, script): (usize, &&str)| {
        json!({
            "name": format!("c{at}"),
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "args": ["sh", "-c", script],
            "resources": { "limits": { "memory": "400Mi" }, "requests": { "memory": "8Mi" } },
            "volumeMounts": [{ "name": "m", "mountPath": "/m" }],
        })
    };
    let containers: Vec<Value> = scripts.iter().enumerate().map(container).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": format!("dozen-{}-{number}", std::process::id()), "labels": { "brink-test": "dozens" } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": containers,
            "volumes": [{ "name": "m", "emptyDir": { "medium": "Memory" } }],
        },
    })
}

/// What the watch of all these pods tells: a name and a phase in each line.
struct Phases {
    child: Child,
    folder: tempfile::TempDir,
}

impl Phases {
    fn of(cluster: &Cluster) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let told = fs::File::create(folder.path().join("told")).unwrap();
        let mut command = cluster.command();
        let output = "jsonpath={.metadata.name} {.status.phase}{\"\\n\"}";
        command.args([
            "get",
            "pods",
            "--selector",
            "brink-test=dozens",
            "--watch",
            "-o",
            output,
        ]);
        command.env("HOME", folder.path());
        let child = command.stdin(Stdio::null()).stdout(told).spawn().unwrap();
        Self { child, folder }
    }

    /// The phases of a pod, in their order.
    fn told(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("told")).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let own = lines.filter(|(pod, _)| *pod == name);
        own.map(|(_, phase)| phase.to_owned()).collect()
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
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
#[ignore = "slow: five minutes for thirty evictions"]
fn evictions_by_the_dozen_are_fast_and_leave_nothing() {
    let cluster = cluster!(with_pods_here);
    let count = env::var(COUNT)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(30);
    let bystander = cluster.pod(&sleeper(&format!("bystander-{}", std::process::id())));
    wait_running(&bystander);
    let phases = Phases::of(&cluster);
    let before = available();
    let (_line, agent) = Agent::new(&cluster, "enforce", "");
    let mut all = Vec::new();
    for number in 0..count {
        let (kind, scripts) = KINDS[number % KINDS.len()];
        let has_room = || available() + (ROOM - ENOUGH) >= before;
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
    let restarts = all.iter().filter(|one| check(one, &phases)).count();
    println!("{count} evictions, {restarts} with a container started again");
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
    let found = pod.read().unwrap();
    let id = found["status"]["containerStatuses"][0]["containerID"]
        .as_str()
        .unwrap();
    // It leaks some seconds after it runs: until then its groups are there.
    let group = container_group(&uid, id.strip_prefix("containerd://").unwrap()).unwrap();
    let beside = groups_beside(&group);
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

/// Whether something of it was started again. It has failed for good and as a disruption, and nothing of it is left.
fn check(evicted: &Evicted<'_>, phases: &Phases) -> bool {
    let Evicted {
        pod, uid, record, ..
    } = evicted;
    assert_eq!(record.victim.uid, *uid);
    assert!(is_failed(pod), "{}", pod.described());
    let told = phases.told(&pod.name);
    let first = told.iter().position(|phase| phase == "Failed");
    let since = &told[first.unwrap_or_else(|| panic!("{}: {told:?}", pod.name))..];
    assert!(
        since.iter().all(|phase| phase == "Failed"),
        "{}: {told:?}",
        pod.name
    );
    let status = pod.status();
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    containers
        .into_iter()
        .any(|container| container["restartCount"] != 0)
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

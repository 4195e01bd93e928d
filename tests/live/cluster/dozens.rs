//! Evictions by the dozen: how fast they are, what is told of them, and what stays of the pods.

use std::env;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use brink::record::DecisionRecord;
use serde_json::{Value, json};

use crate::manifest::{GO, waiting};
use crate::running::Agent;
use crate::support::{
    Cluster, Pod, available, groups_beside, has_shim, holds_in_time, id_of, write_inside,
};
use crate::told::{is_failed, uid_of};
use crate::watch::Watch;
use crate::{LAST_WORD, group_of, sleeper, wait_running};

/// Another number of evictions.
const COUNT: &str = "BRINK_EVICTIONS";
/// Evictions where nobody asks for another number: what one of a hundred is allowed then means something.
const EVICTIONS: usize = 200;
/// Pods that are started together, and taken apart together: a kubelet takes seconds for either, however few they are.
const ROUND: usize = 5;
const MIB: u64 = 1 << 20;
const MS: f64 = 1e6;
/// All but so much must be available again before the next pod comes.
const SLACK: u64 = 60 * MIB;
/// An agent stops itself after so many evictions in so short a time, unless it is told that they are no mistake.
const MANY: &str = "limits: {burst: 60, refillInterval: 100ms, maxKills: 60, window: 1s}";

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

/// A pod that waits until it is told to leak.
struct Waiting<'a> {
    pod: Pod<'a>,
    kind: &'static str,
    uid: String,
    group: PathBuf,
    /// Of its other containers and its sandbox.
    beside: Vec<PathBuf>,
}

/// An evicted pod, and what was measured.
struct Evicted<'a> {
    waited: Waiting<'a>,
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
#[ignore = "slow: two hundred evictions, a hundred of which have taken 12.6 minutes on a busy machine"]
fn evictions_by_the_dozen_are_fast_and_leave_nothing() {
    let cluster = cluster!(with_pods_here);
    let count = env::var(COUNT).map_or(EVICTIONS, |text| text.parse().expect(COUNT));
    assert!(
        count >= KINDS.len(),
        "{COUNT}: one of each kind at the least"
    );
    let bystander = cluster.pod(&sleeper(&format!("bystander-{}", std::process::id())));
    wait_running(&bystander);
    let of_all = ["--selector", "brink-test=dozens"];
    let mut phases = Watch::of(&cluster, &of_all, "{.metadata.name} {.status.phase}");
    let before = available();
    let (_line, agent) = Agent::on_pods(&cluster, "enforce", "", MANY);
    let mut all = Vec::new();
    for first in (0..count).step_by(ROUND) {
        let numbers = first..count.min(first + ROUND);
        let has_room = || available() + SLACK >= before;
        let mut evicted = Vec::new();
        for waiting in start(&cluster, numbers) {
            assert!(
                holds_in_time(has_room),
                "memory does not come back\n{}",
                agent.log()
            );
            evicted.push(evict(&agent, waiting));
        }
        for one in evicted {
            wait_gone(&one);
            all.push(one);
        }
    }
    let end = Instant::now() + LAST_WORD;
    assert!(holds_in_time(|| Instant::now() > end));
    assert_eq!(bystander.status()["phase"], "Running", "nobody else dies");
    all.iter().for_each(check);
    let told = phases.told();
    let shown = all
        .iter()
        .filter(|one| is_shown_running_again(one, &told))
        .count();
    println!("{count} evictions, {shown} shown as Running once more");
    report(&all);
}

/// Starts the pods of these numbers, and waits until all of them run.
fn start(cluster: &Cluster, numbers: Range<usize>) -> Vec<Waiting<'_>> {
    let made = numbers.map(|number| {
        let (kind, scripts) = KINDS[number % KINDS.len()];
        (cluster.pod(&leaker(number, scripts)), kind)
    });
    let made: Vec<(Pod<'_>, &str)> = made.collect();
    let running = made.into_iter().map(|(pod, kind)| {
        let uid = uid_of(&pod);
        let group = group_of(&pod.read().unwrap());
        Waiting {
            beside: groups_beside(&group),
            pod,
            kind,
            uid,
            group,
        }
    });
    running.collect()
}

/// Has one pod evicted, and waits until that is told.
fn evict<'a>(agent: &Agent, waited: Waiting<'a>) -> Evicted<'a> {
    write_inside(&waited.group, GO, "go");
    assert!(
        holds_in_time(|| agent.has_told(&waited.uid)),
        "{}\n{}",
        waited.pod.described(),
        agent.log()
    );
    Evicted {
        record: agent.decision(&waited.uid).unwrap(),
        waited,
    }
}

/// Waits until the kubelet has taken it apart.
fn wait_gone(evicted: &Evicted<'_>) {
    let Waiting {
        pod, group, beside, ..
    } = &evicted.waited;
    assert!(holds_in_time(|| is_failed(pod)), "{}", pod.described());
    let is_gone = || !group.exists() && groups_beside(group).is_empty();
    assert!(holds_in_time(is_gone), "{}", pod.described());
    for group in beside {
        assert!(
            holds_in_time(|| !has_shim(id_of(group))),
            "the shim of {} stays",
            group.display()
        );
    }
}

/// It has failed for good and as a disruption.
fn check(evicted: &Evicted<'_>) {
    let Evicted { waited, record } = evicted;
    assert_eq!(record.victim.uid, waited.uid);
    assert!(is_failed(&waited.pod), "{}", waited.pod.described());
}

/// A kubelet that has not heard of the eviction starts what was killed.
fn is_started_again(evicted: &Evicted<'_>) -> bool {
    let status = evicted.waited.pod.status();
    let mut containers = status["containerStatuses"].as_array().into_iter().flatten();
    containers.any(|container| container["restartCount"] != 0)
}

/// A kubelet of this age writes a status that it made up before it heard over ours, and Brink writes `Failed` over that.
fn is_shown_running_again(evicted: &Evicted<'_>, lines: &[String]) -> bool {
    let pairs = lines.iter().filter_map(|line| line.split_once(' '));
    let own = pairs.filter(|(name, _)| *name == evicted.waited.pod.name);
    let told: Vec<&str> = own.map(|(_, phase)| phase).collect();
    let first = told.iter().position(|phase| *phase == "Failed");
    let since = &told[first.unwrap_or_else(|| panic!("{}: {told:?}", evicted.waited.pod.name))..];
    since.iter().any(|phase| *phase != "Failed")
}

/// The figures, each held to what it must reach.
fn report(all: &[Evicted<'_>]) {
    let of = |kind: Option<&str>, stage: &str| -> Vec<f64> {
        let chosen = all
            .iter()
            .filter(|one| kind.is_none_or(|kind| one.waited.kind == kind));
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
    let restarts = all.iter().filter(|one| is_started_again(one)).count();
    println!("{restarts} with a container started again");
    let worst_but_one_of_100 = signals[signals.len() - 1 - all.len() / 100];
    let figures = [
        (
            "sample to lastSignal, median, ms",
            signals[signals.len() / 2],
            5.0,
        ),
        (
            "sample to lastSignal, 99 of 100, ms",
            worst_but_one_of_100,
            20.0,
        ),
        // Nobody has held more than half a gibibyte.
        ("sample to gone, median, ms", gone[gone.len() / 2], 70.0),
        ("started again, of 100", share(restarts, all.len()), 3.0),
    ];
    for (figure, value, most) in figures {
        println!("{figure}: {value:.2}, at most {most}");
    }
    for (figure, value, most) in figures {
        assert!(value <= most, "{figure}: {value:.2}, at most {most}");
    }
}

/// So many of a hundred.
#[expect(clippy::cast_precision_loss, reason = "some hundreds")]
fn share(some: usize, all: usize) -> f64 {
    some as f64 * 100.0 / all as f64
}

//! What a record foretells of the kubelet, beside what a real kubelet then does: whom it evicts, and how long after.

use std::collections::BTreeSet;
use std::time::Duration;

use brink_host::clock::monotonic_ns;
use brink_tests::{skip, slowed};
use serde_json::{Value, json};

use crate::agent::observer;
use crate::kubelet::Evicting;
use crate::manifest::{container, pod_of};
use crate::order::{Classes, HIGH, SELECTOR, is_under_pressure, mix, number, settle};
use crate::running::Agent;
use crate::support::{Cluster, Pod, holds_in_time, node_available, write_inside};
use crate::watch::Watch;
use crate::{group_of, wait_running};

/// Another number of mixes, and another first one.
const MIXES: &str = "BRINK_PARITY_MIXES";
const SEED: &str = "BRINK_PARITY_SEED";
const MIB: u64 = 1 << 20;
/// What is left to the threshold before there is a mix: more than its pods and what runs for them take.
const ROOM: u64 = 450 * MIB;
/// How much is taken each second, and how much beyond the threshold: more than what others on the machine give back meanwhile.
const PIECE: u64 = 20 * MIB;
const BEYOND: u64 = 60 * MIB;
/// The file that the taker waits for; it says how many pieces it is to take.
const GO: &str = "/go";
/// A kubelet looks every 10 s, and may not have fresh figures at its first look.
const LOOKS: Duration = Duration::from_secs(25);

/// A pod that takes memory piece by piece, all of it within its request: it is never the first to go.
fn taker(name: &str) -> Value {
    // The reader never reads: what the writer has read, it keeps.
    let script = format!(
        "until [ -s {GO} ]; do sleep 0.2; done; for i in $(seq $(cat {GO})); do (dd if=/dev/zero bs={PIECE} count=1 | sleep \
         3600) & sleep 1; done; wait"
    );
    let resources = json!({ "requests": { "memory": "600Mi" } });
    let mut pod = pod_of(
        name,
        &[container("taker", &["sh", "-c", &script], &resources)],
    );
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["priorityClassName"] = json!(HIGH);
    pod
}

/// The first of the pods that the kubelet evicts.
fn first_evicted(phases: &Watch, pods: &[Pod<'_>]) -> Option<String> {
    let told = phases.told().into_iter();
    let mut evicted = told.filter_map(|line| Some(line.strip_suffix(" Evicted")?.to_owned()));
    evicted.find(|name| pods.iter().any(|pod| pod.name == *name))
}

/// One mix under memory that is taken slowly: Brink, which observes, writes down what it would do and what the kubelet would; and
/// then the kubelet does it.
fn check(
    cluster: &Cluster,
    agent: &Agent,
    phases: &Watch,
    (threshold, seed): (u64, u64),
) -> Duration {
    let pods = mix(cluster, seed);
    let taker = cluster.pod(&taker(&format!("taker-{}-{seed}", std::process::id())));
    let found = wait_running(&taker);
    settle(agent, &pods);
    let last = agent.decisions().iter().map(|record| record.order).max();
    let room = node_available().checked_sub(threshold);
    let amount = room.expect("there is room before") + BEYOND;
    let pieces = amount.div_ceil(PIECE).to_string();
    write_inside(&group_of(&found), GO, &pieces);
    let is_evicted = || first_evicted(phases, &pods).is_some();
    assert!(
        holds_in_time(is_evicted),
        "the kubelet evicts nobody\n{}",
        agent.log()
    );
    let told = monotonic_ns();
    let foretold = || {
        let records = agent.decisions().into_iter();
        let new = records.filter(|record| Some(record.order) > last && record.kubelet.is_some());
        new.min_by_key(|record| record.order)
    };
    assert!(holds_in_time(|| foretold().is_some()), "{}", agent.log());
    let record = foretold().unwrap();
    let decided = u64::try_from(record.decided.monotonic_ns).unwrap();
    let took = told.checked_sub(decided).expect("Brink sees it first");
    let took = Duration::from_nanos(took);
    let evicted = format!("default/{}", first_evicted(phases, &pods).unwrap());
    let view = record.kubelet.as_ref().unwrap();
    println!(
        "mix {seed}: {evicted} after {took:.1?}; {}",
        view.sentence()
    );
    assert_eq!(record.victim_name(), evicted, "{record:#?}");
    let named: BTreeSet<Option<&str>> = view
        .phases
        .iter()
        .map(|phase| phase.victim.as_deref())
        .collect();
    assert_eq!(named, [Some(evicted.as_str())].into(), "{view:#?}");
    assert!(took < slowed(LOOKS), "{took:?} after the crossing");
    took
}

/// Every phase of a poll that the record speaks of has the victim that the kubelet takes.
#[test]
#[ignore = "slow: a kubelet takes a minute for a mix"]
fn the_record_foretells_whom_a_kubelet_evicts() {
    let cluster = cluster!(with_pods_here);
    let _classes = Classes::of(&cluster);
    let reasons = &["/metadata/name", "/status/reason"];
    let phases = Watch::of(&cluster, ("labelSelector", SELECTOR), reasons);
    let Some(threshold) = node_available().checked_sub(ROOM) else {
        skip!("needs {ROOM} bytes of free memory");
    };
    let (_line, mut agent) = observer(
        &cluster,
        &format!(
            "memoryPolicy: kubelet\nheadroomHard: 0%\nenforceNodeAllocatable: []\nevictionHard: {{memory.available: \
             \"{threshold}\"}}\n"
        ),
    );
    agent.start();
    let _evicting = Evicting::below(threshold);
    let first = number(SEED, 1);
    let mut delays = Vec::new();
    for seed in first..first + number(MIXES, 2) {
        delays.push(check(&cluster, &agent, &phases, (threshold, seed)));
        let is_calm = || node_available() > threshold + ROOM / 2 && !is_under_pressure(&cluster);
        assert!(holds_in_time(is_calm), "the node stays under pressure");
    }
    delays.sort_unstable();
    println!("from the crossing to a kubelet's `Evicted`: {delays:.1?}");
}

//! Whom Brink would evict, and in which order, beside whom a real kubelet does evict: mixes of pods by a seed.

use std::env;
use std::thread::sleep;
use std::time::{Duration, Instant};

use brink_tests::{Chance, slowed};
use serde_json::{Value, json};

use crate::agent::observer;
use crate::kubelet::{Evicting, GRACE};
use crate::manifest::{container, pod_of};
use crate::running::Agent;
use crate::support::{Cluster, NODE, Pod, holds_in_time};
use crate::wait_running;
use crate::watch::Watch;

/// Another number of mixes, and another first one.
const MIXES: &str = "BRINK_ORDER_MIXES";
const SEED: &str = "BRINK_ORDER_SEED";
/// Pods of a mix.
const PODS: usize = 6;
/// What one pod holds more than another, in MiB: more than two readings of the same pod differ by.
const STEP: u64 = 6;
/// What every pod holds at the least, in bytes.
const LEAST: i64 = STEP.cast_signed() << 20;
/// A kubelet's figures of a pod are so old at the most.
const FIGURES: Duration = Duration::from_secs(20);
/// A kubelet evicts one pod at a time, and waits for its end, each time for no longer than this.
const EACH: Duration = Duration::from_secs(50);
/// Two priorities beside none.
pub(crate) const HIGH: &str = "brink-order-high";
const PRIORITIES: [(&str, i32); 2] = [("brink-order-low", 100), (HIGH, 2000)];
/// What chooses the pods of a mix.
pub(crate) const SELECTOR: &str = "brink-test=order";

/// Priority classes that are gone with this.
pub(crate) struct Classes<'a>(&'a Cluster);

impl<'a> Classes<'a> {
    pub(crate) fn of(cluster: &'a Cluster) -> Self {
        for (name, value) in PRIORITIES {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": { "name": name },
                "value": value,
                // Nobody makes room for anybody here.
                "preemptionPolicy": "Never",
            });
            cluster.kubectl(&["apply", "-f", "-"], &class.to_string());
        }
        Self(cluster)
    }
}

impl Drop for Classes<'_> {
    fn drop(&mut self) {
        for (name, _) in PRIORITIES {
            self.0
                .answers(&["delete", "priorityclass", name, "--ignore-not-found"]);
        }
    }
}

/// A pod that holds so many MiB from its start on, in one or two containers.
fn holder(name: &str, chance: &mut Chance, mib: u64) -> Value {
    let containers = 1 + chance.below(2);
    // One that requests nothing is not evicted but refused by a kubelet that starts anew under pressure.
    let request = 1024 * chance.one_of(&[1, 8, 24, 64]);
    let one = |number: u64| {
        // The reader never reads: what the writer has read, it keeps.
        let script = format!(
            "dd if=/dev/zero bs={}k count=1 | sleep 3600",
            mib * 1024 / containers
        );
        let resources = json!({ "requests": { "memory": format!("{}Ki", request / containers) } });
        container(&format!("c{number}"), &["sh", "-c", &script], &resources)
    };
    let containers: Vec<Value> = (0..containers).map(one).collect();
    let mut pod = pod_of(name, &containers);
    pod["metadata"]["labels"] = json!({ "brink-test": "order" });
    pod["spec"]["restartPolicy"] = json!("Never");
    let class = chance.one_of(&[None, Some(PRIORITIES[0].0), Some(PRIORITIES[1].0)]);
    if let Some(class) = class {
        pod["spec"]["priorityClassName"] = json!(class);
    }
    pod
}

/// The pods of a mix; no two hold the same.
pub(crate) fn mix(cluster: &Cluster, seed: u64) -> Vec<Pod<'_>> {
    let mut chance = Chance::new(seed);
    let mut sizes: Vec<u64> = (1..=PODS as u64).map(|number| number * STEP).collect();
    let made = (0..PODS).map(|number| {
        let place = usize::try_from(chance.below(sizes.len() as u64)).unwrap();
        let name = format!("order-{}-{seed}-{number}", std::process::id());
        cluster.pod(&holder(&name, &mut chance, sizes.swap_remove(place)))
    });
    made.collect()
}

/// Whether the agent knows a pod of a mix with all that it has taken.
fn knows_what_it_holds(agent: &Agent, pod: &Pod<'_>) -> bool {
    let ranked = agent.ranked(pod).and_then(|ranked| ranked.usage);
    ranked.is_some_and(|usage| usage >= LEAST)
}

/// Waits until all of them run, the agent knows what they hold, and so does any kubelet.
pub(crate) fn settle(agent: &Agent, pods: &[Pod<'_>]) {
    for pod in pods {
        wait_running(pod);
    }
    let known = || pods.iter().all(|pod| knows_what_it_holds(agent, pod));
    assert!(
        holds_in_time(known),
        "{:#?}\n{}",
        agent.ranking(),
        agent.log()
    );
    sleep(FIGURES);
}

/// Whether no pod is put on the node for want of memory.
pub(crate) fn is_under_pressure(cluster: &Cluster) -> bool {
    let taints = cluster.said(&["get", "node", NODE, "-o", "jsonpath={.spec.taints}"]);
    taints.contains("memory-pressure")
}

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// The names in the order in which the kubelet evicts them, all of them.
fn evicted(phases: &Watch, pods: &[Pod<'_>]) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut last = Instant::now();
    while order.len() < pods.len() {
        for line in phases.told() {
            let name = line.strip_suffix(" Evicted").unwrap_or_default();
            let is_ours = pods.iter().any(|pod| pod.name == name);
            if is_ours && !order.iter().any(|known| known == name) {
                order.push(name.to_owned());
                last = Instant::now();
            }
        }
        assert!(
            last.elapsed() < slowed(GRACE + FIGURES + EACH),
            "{order:?} of {}",
            pods.len()
        );
        sleep(Duration::from_millis(200));
    }
    order
}

/// Of each mix Brink's ranking is asked for when it stands, and then a kubelet that finds itself short of memory evicts pod after
/// pod. What is compared is the order of all of them.
#[test]
#[ignore = "slow: a kubelet takes two minutes for a mix"]
fn the_order_is_the_one_in_which_a_kubelet_evicts() {
    let cluster = cluster!(with_pods_here);
    let _classes = Classes::of(&cluster);
    let reasons = &["/metadata/name", "/status/reason"];
    let phases = Watch::of(&cluster, ("labelSelector", SELECTOR), reasons);
    let (_line, mut agent) = observer(&cluster, "");
    agent.start();
    let first = number(SEED, 1);
    for seed in first..first + number(MIXES, 2) {
        let pods = mix(&cluster, seed);
        settle(&agent, &pods);
        let mut ranking = agent.ranking();
        ranking.retain(|one| pods.iter().any(|pod| pod.name == one.name));
        let brink: Vec<&str> = ranking.iter().map(|one| one.name.as_str()).collect();
        let kubelet = {
            let _evicting = Evicting::everything();
            evicted(&phases, &pods)
        };
        println!("mix {seed}: {kubelet:?}");
        assert_eq!(phases.gaps(), 0, "behind one there is no order");
        assert_eq!(brink, kubelet, "mix {seed}: {ranking:#?}");
        drop(pods);
        let is_calm = || !is_under_pressure(&cluster);
        assert!(holds_in_time(is_calm), "the node stays under pressure");
    }
}

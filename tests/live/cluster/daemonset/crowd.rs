//! What an agent costs on a node with as many pods as a kubelet takes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use brink_tests::skip;
use serde_json::{Value, json};

use super::{MEMORY, figure, no_image};
use crate::installed::Installed;
use crate::sleeper;
use crate::support::{Cluster, PODS, holds_in_time};

/// What it spends of a core at most where nothing happens.
const AT_REST: f64 = 0.003;
/// Pods on a full node: as many as a kubelet takes, less the agent's own.
const CROWD: usize = 109;
/// The ordinary patience, so many times: some seconds for each pod on a small machine.
const TIMES: usize = 6;
/// From the last pod's start to the measurement, and its length.
const SETTLING: Duration = Duration::from_mins(1);
const WINDOW: Duration = Duration::from_mins(2);
/// Chooses the pods.
const OURS: &str = "--selector=brink-test=crowd";

/// Pods that are gone with this, those that have never been started too.
struct Crowd<'a>(&'a Cluster);

impl<'a> Crowd<'a> {
    fn of(cluster: &'a Cluster) -> Self {
        let pod = |number: usize| {
            let mut pod = sleeper(&format!("crowd-{}-{number}", std::process::id()));
            pod["metadata"]["labels"] = json!({ "brink-test": "crowd" });
            pod
        };
        let items: Vec<Value> = (0..CROWD).map(pod).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        let crowd = Self(cluster);
        cluster.kubectl(&["create", "-f", "-"], &list.to_string());
        crowd
    }

    fn running(&self) -> usize {
        let phases = "jsonpath={.items[*].status.phase}";
        let words = ["get", "pods", OURS, "-o", phases];
        let said = self.0.said(&words);
        said.split_whitespace()
            .filter(|phase| *phase == "Running")
            .count()
    }
}

impl Drop for Crowd<'_> {
    fn drop(&mut self) {
        let words = ["delete", "pods", OURS, "--grace-period=1", "--wait=false"];
        self.0.answers(&words);
        // They are there until the kubelet has taken them apart.
        let pods = || self.0.said(&["get", "pods", OURS, "-o", "name"]);
        (0..TIMES).any(|_| holds_in_time(|| pods().trim().is_empty()));
    }
}

#[test]
#[ignore = "slow: five minutes for a full node"]
fn a_full_node_costs_no_more_than_the_files_promise() {
    let cluster = cluster!(with_pods_here);
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let mut installed = Installed::new(&cluster, "observe");
    installed.configure(
        "brink-crowd",
        &format!("podsCgroup: {PODS}\nenforceNodeAllocatable: []\n"),
    );
    installed.apply();
    installed.wait_ready();
    let crowd = Crowd::of(&cluster);
    let is_full = || crowd.running() == CROWD;
    assert!(
        (0..TIMES).any(|_| holds_in_time(is_full)),
        "{} of {CROWD} run",
        crowd.running()
    );
    let name = installed.pod();
    let known = || installed.brink(&name, &["status"])["workloads"].as_u64() > Some(CROWD as u64);
    assert!(
        holds_in_time(known),
        "{:#}",
        installed.brink(&name, &["status"])
    );
    sleep(SETTLING);
    let cpu = || {
        figure(
            &installed.page(&name, "/metrics"),
            "process_cpu_seconds_total",
        )
    };
    let (before, began) = (cpu(), Instant::now());
    sleep(WINDOW);
    let spent = (cpu() - before) / began.elapsed().as_secs_f64();
    let page = installed.page(&name, "/metrics");
    let [resident, maps] =
        ["process_resident_memory_bytes", "brink_bpf_maps_bytes"].map(|name| figure(&page, name));
    println!(
        "{CROWD} pods: {resident} bytes resident, {maps} of maps, {:.3} % of a core",
        spent * 100.0
    );
    assert!(resident + maps <= MEMORY, "{resident} and {maps} bytes");
    assert!(spent <= AT_REST, "{:.3} % of a core", spent * 100.0);
}

//! What an agent costs on a node with as many pods as a kubelet takes.

use std::thread::sleep;
use std::time::{Duration, Instant};

use brink_tests::skip;
use serde_json::{Value, json};

use super::{MEMORY, figure, no_image};
use crate::figures::hold;
use crate::installed::Installed;
use crate::sleeper;
use crate::support::{Cluster, PODS, holds_in_time};

/// What it spends of a core at most where nothing happens, of 100.
const AT_REST: f64 = 0.3;
/// The two modes.
const VARIANTS: [&str; 2] = ["observe", "enforce"];
/// Pods on a full node: as many as a kubelet takes, less the agent's own.
const CROWD: usize = 109;
/// The ordinary patience, so many times: some seconds for each pod on a small machine.
const TIMES: usize = 6;
/// From the last pod's start to the measurement, and its length.
const SETTLING: Duration = Duration::from_mins(1);
const WINDOW: Duration = Duration::from_mins(2);
/// The server's count of what it has let through, and of whom; releases name the label in one way or the other.
const DISPATCHED: &str = "apiserver_flowcontrol_dispatched_requests_total{";
const OF_ACCOUNTS: [&str; 2] = [
    "flowSchema=\"service-accounts\"",
    "flow_schema=\"service-accounts\"",
];
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

/// What an agent at rest costs, and asks of the server.
struct Cost {
    variant: &'static str,
    resident: f64,
    maps: f64,
    /// Parts of a core.
    spent: f64,
    /// In the same time, by the server's own count.
    requests: f64,
}

impl Cost {
    /// Of the agent of a variant, once it knows the crowd.
    fn of(variant: &'static str, cluster: &Cluster) -> Self {
        let mut installed = Installed::new(cluster, variant);
        installed.configure(
            &format!("brink-crowd-{variant}"),
            &format!("podsCgroup: {PODS}\nenforceNodeAllocatable: []\n"),
        );
        installed.apply();
        installed.wait_ready();
        let name = installed.pod();
        let status = || installed.brink(&name, &["status"]);
        let known = || status()["workloads"].as_u64() > Some(CROWD as u64);
        assert!(holds_in_time(known), "{:#}", status());
        sleep(SETTLING);
        let page = || installed.page(&name, "/metrics");
        let cpu = |page: &str| figure(page, "process_cpu_seconds_total");
        let (before, began) = (cpu(&page()), Instant::now());
        let so_far = asked(cluster);
        assert!(so_far > 0.0, "the server has counted none of its requests");
        sleep(WINDOW);
        let requests = asked(cluster) - so_far;
        let page = page();
        let spent = (cpu(&page) - before) / began.elapsed().as_secs_f64();
        let [resident, maps] = ["process_resident_memory_bytes", "brink_bpf_maps_bytes"]
            .map(|name| figure(&page, name));
        Self {
            variant,
            resident,
            maps,
            spent,
            requests,
        }
    }
}

/// How many requests of service accounts outside of `kube-system` the server has let through so far: of all that have one on this cluster,
/// the agent alone asks it for anything. It counts no watch that is opened.
fn asked(cluster: &Cluster) -> f64 {
    let page = cluster.kubectl(&["get", "--raw", "/metrics"], "");
    let lines = page
        .lines()
        .filter_map(|line| line.strip_prefix(DISPATCHED));
    let own = lines.filter(|line| OF_ACCOUNTS.iter().any(|label| line.contains(label)));
    own.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

#[test]
#[ignore = "slow: nine minutes for a full node and two agents on it, one after the other"]
fn a_full_node_costs_no_more_than_the_files_promise() {
    let cluster = cluster!(with_pods_here);
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let crowd = Crowd::of(&cluster);
    let is_full = || crowd.running() == CROWD;
    assert!(
        (0..TIMES).any(|_| holds_in_time(is_full)),
        "{} of {CROWD} run",
        crowd.running()
    );
    let costs = VARIANTS.map(|variant| Cost::of(variant, &cluster));
    assert_eq!(crowd.running(), CROWD, "nobody is evicted at rest");
    let mebibytes = |bytes: f64| bytes / 1_048_576.0;
    for cost in &costs {
        println!(
            "{}, {CROWD} pods: {} bytes resident, {} of maps",
            cost.variant, cost.resident, cost.maps
        );
    }
    let figures: Vec<(String, f64, f64)> = costs
        .iter()
        .flat_map(|cost| {
            let all = mebibytes(cost.resident + cost.maps);
            let figures = [
                ("resident and maps, MiB", all, mebibytes(MEMORY)),
                ("of a core at rest, of 100", cost.spent * 100.0, AT_REST),
                ("requests but watches", cost.requests, 0.0),
            ];
            figures.map(|(what, value, most)| (format!("{}: {what}", cost.variant), value, most))
        })
        .collect();
    let figures: Vec<(&str, f64, f64)> = figures
        .iter()
        .map(|(what, value, most)| (what.as_str(), *value, *most))
        .collect();
    hold(&figures);
}

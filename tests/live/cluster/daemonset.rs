//! The agent as its manifests run it: a pod on every node, from the image that `cargo xtask image` makes.

mod components;
mod crowd;
mod handover;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use brink_tests::{agent_binary, schema::Schema, skip};
use serde_json::{Value, json};

use crate::installed::{Installed, NAMESPACE};
use crate::running::ROOM;
use crate::support::{Cluster, NODE, PODS, available, holds_in_time};
use crate::told::{condition, events, is_failed, leaker, uid_of};

/// What the manifests say that the agent needs at most, in bytes.
const MEMORY: f64 = 32.0 * 1_048_576.0;
/// What the overlay that is not privileged leaves out on purpose.
const LEFT_OUT: [&str; 2] = ["CAP_DAC_OVERRIDE", "CAP_SYS_RESOURCE"];

/// Every variant that is rendered.
const VARIANTS: [&str; 3] = ["observe", "enforce", "least-capability"];

/// What no variant may do.
const NEVER: [&[&str]; 6] = [
    &["delete", "pods"],
    &["create", "pods", "--subresource=eviction"],
    &["get", "secrets"],
    &["get", "nodes", "--subresource=proxy"],
    &["patch", "nodes"],
    &["patch", "pods"],
];
/// What all may do.
const ALWAYS: [&[&str]; 3] = [
    &["list", "pods"],
    &["watch", "nodes"],
    &["create", "events"],
];
/// What enforcing takes beyond that.
const ENFORCING: [&[&str]; 3] = [
    &["get", "pods"],
    &["patch", "pods", "--subresource=status"],
    &["patch", "nodes", "--subresource=status"],
];

/// Why the agent's image cannot be run there, if so.
fn no_image(cluster: &Cluster) -> Option<String> {
    let image = format!("localhost/brink:{}", env!("CARGO_PKG_VERSION"));
    let reason =
        format!("needs the image {image} on the node: `cargo xtask cluster test` gives it one");
    (!cluster.has_image(&image)).then_some(reason)
}

/// A figure of the page for scrapers.
fn figure(page: &str, name: &str) -> f64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
    line.parse().unwrap()
}

fn check_rights(installed: &Installed<'_>, granted: &[&[&str]], refused: &[&[&str]]) {
    for words in granted {
        assert!(installed.may(words), "{words:?}");
    }
    for words in refused {
        assert!(!installed.may(words), "{words:?}");
    }
}

/// Waits until the agent of a pod is in a mode.
#[track_caller]
fn wait_mode(installed: &Installed<'_>, pod: &str, mode: &str) {
    let status = || installed.brink(pod, &["status"]);
    assert!(
        holds_in_time(|| status()["mode"] == mode),
        "{:#}\n{}",
        status(),
        installed.described()
    );
}

/// What `brink doctor` says in a pod, where nothing it needs has failed.
#[track_caller]
fn doctor(installed: &Installed<'_>, pod: &str) -> Value {
    let doctor = installed.brink(pod, &["doctor"]);
    let checks = doctor["checks"].as_array().unwrap();
    let failed = checks.iter().filter(|check| check["state"] == "failed");
    let failed: Vec<&Value> = failed.collect();
    assert!(failed.is_empty(), "{failed:#?}");
    for id in ["rights.namespaces", "kubernetes.api"] {
        assert_eq!(check(&doctor, id)["state"], "ok", "{doctor:#}");
    }
    doctor
}

#[track_caller]
fn check<'a>(doctor: &'a Value, id: &str) -> &'a Value {
    let mut checks = doctor["checks"].as_array().unwrap().iter();
    checks.find(|check| check["id"] == id).unwrap()
}

/// A pod is made, admitted and placed before anybody looks for its image.
#[test]
fn every_variant_is_taken_by_the_server_and_the_enforcing_one_has_its_rights_and_a_pod() {
    let cluster = cluster!();
    let installed = Installed::new(&cluster, "enforce");
    let is_placed = || {
        let pods = installed.pods();
        let mut nodes = pods.iter().map(|pod| &pod["spec"]["nodeName"]);
        !pods.is_empty() && nodes.all(Value::is_string)
    };
    assert!(holds_in_time(is_placed), "{}", installed.described());
    check_rights(&installed, &[&ALWAYS[..], &ENFORCING].concat(), &NEVER);
    for variant in VARIANTS {
        installed.try_out(variant);
    }
}

#[test]
fn the_base_runs_on_every_node_observes_and_is_rolled_over() {
    let cluster = cluster!();
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let mut installed = Installed::new(&cluster, "observe");
    installed.wait_ready();
    let name = installed.pod();

    // It is in the machine's process ids and sees the node, and does nothing to it.
    let status = installed.brink(&name, &["status"]);
    let violations = Schema::published("status").violations(&status);
    assert!(violations.is_empty(), "{violations:#?}");
    assert_eq!(status["mode"], "observing", "{status:#}");
    let own = status["pid"].as_u64().unwrap();
    let command = fs::read_to_string(format!("/proc/{own}/comm")).unwrap();
    assert_eq!(command.trim(), "brink");
    // The kubelet's file is in no mount of the pod.
    let doctor = doctor(&installed, &name);
    let kubelet = check(&doctor, "kubelet.configuration");
    let found = kubelet["found"].as_str().unwrap();
    assert!(found.contains("/proc/"), "{kubelet:#}");

    // Whoever has the rights to asks it by its node.
    let folder = tempfile::tempdir().unwrap();
    let words = ["--node", NODE, "status", "-o", "json"];
    let told = cluster.plugin(folder.path(), &words);
    let said: Value = serde_json::from_slice(&told.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&told.stderr)));
    assert_eq!(said["pid"], status["pid"], "{said:#}");
    let told = cluster.plugin(folder.path(), &["--node", "nobody", "status"]);
    assert_eq!(
        told.status.code(),
        Some(4),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );

    // Probes and scrapers are answered by whoever asks, and told of no event.
    assert!(installed.page(&name, "/livez").starts_with("ok"));
    let page = installed.page(&name, "/metrics");
    let (resident, maps) = (
        figure(&page, "process_resident_memory_bytes"),
        figure(&page, "brink_bpf_maps_bytes"),
    );
    assert!(resident + maps <= MEMORY, "{resident} and {maps} bytes");
    let events = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:9820/proxy/v1/events");
    assert!(!cluster.answers(&["get", "--raw", &events]));
    check_rights(&installed, &ALWAYS, &[&NEVER[..], &ENFORCING].concat());

    // Another configuration goes over all nodes, and the lock to the agent that comes after.
    installed.configure("brink-other", "log: {level: debug}\n");
    installed.apply();
    installed.wait_ready();
    let is_over = || {
        let pods = installed.pods();
        let mut names = pods.iter().map(|pod| &pod["metadata"]["name"]);
        !pods.is_empty() && names.all(|other| *other != *name)
    };
    assert!(holds_in_time(is_over), "{}", installed.described());
    installed.wait_ready();
    wait_mode(&installed, &installed.pod(), "observing");
}

#[test]
fn enforcing_is_the_same_agent_with_the_rights_for_it() {
    let cluster = cluster!();
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let installed = Installed::new(&cluster, "enforce");
    installed.wait_ready();
    let name = installed.pod();
    wait_mode(&installed, &name, "enforcing");
    doctor(&installed, &name);
    check_rights(&installed, &[&ALWAYS[..], &ENFORCING].concat(), &NEVER);
}

/// What `kubectl brink` tells whoever has the rights to of an eviction by the agent of that name: asked of its node, and of all there are.
fn check_plugin(cluster: &Cluster, agent: &str, (pod, uid): (&str, &str)) {
    let folder = tempfile::tempdir().unwrap();
    for whom in [&["--node", NODE][..], &[]] {
        let ask = |words: &[&str]| {
            let told = cluster.plugin(folder.path(), &[whom, words].concat());
            let said = String::from_utf8(told.stdout).unwrap();
            let why = String::from_utf8_lossy(&told.stderr);
            assert!(told.status.success(), "{words:?}: {said}{why}");
            said
        };
        let read = |words: &[&str], schema: &str| -> Value {
            let said = ask(&[words, &["-o", "json"]].concat());
            let value = serde_json::from_str(&said)
                .unwrap_or_else(|error| panic!("{words:?}: {error}: {said}"));
            let violations = Schema::published(schema).violations(&value);
            assert!(violations.is_empty(), "{words:?}: {violations:#?}");
            value
        };

        // It is ranked as any other pod, and refuses.
        let ranking = read(&["rank"], "ranking");
        let workloads = ranking["workloads"].as_array().unwrap();
        let own = workloads.iter().find(|one| one["name"] == agent);
        let own = own.unwrap_or_else(|| panic!("no {agent}: {ranking:#}"));
        assert_eq!(own["refusal"], "critical", "{own:#}");
        let name = format!("{NAMESPACE}/{agent}");
        let why = read(&["explain", &name], "explanation");
        assert_eq!(why["workload"]["refusal"], "critical", "{why:#}");
        let latest = read(&["explain"], "decision");
        assert_eq!(latest["victim"]["uid"], uid, "{latest:#}");

        let list = read(&["incident"], "incident-list");
        let incidents = list["items"].as_array().unwrap();
        let is_its_own = |one: &&Value| one["workload"]["value"]["uid"] == uid;
        let incident = incidents.iter().find(is_its_own);
        let incident = incident.unwrap_or_else(|| panic!("none of {pod}: {list:#}"));
        let story = ask(&["incident", incident["id"].as_str().unwrap()]);
        assert!(story.contains(pod), "{story}");
        let told = ask(&["events", "--kind", "eviction-ordered", "-o", "json"]);
        let event: Value = serde_json::from_str(&told).expect("one event, in one line");
        assert_eq!(
            [&event["subject"]["uid"], &event["node"]],
            [&json!(uid), &json!(NODE)],
            "{event:#}"
        );
        let page = ask(&["top", "--once"]);
        let ranks = page.contains("Who would go now for memory.available");
        assert!(ranks && page.contains(pod), "{page}");
    }
}

/// A pod that leaks is evicted by the agent of another pod, with the rights that this has. With them it also says how the node stands,
/// and takes that away when it is uninstalled.
#[test]
fn the_agent_of_a_pod_evicts_and_tells_the_server() {
    let cluster = cluster!(with_pods_here);
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let mut installed = Installed::new(&cluster, "enforce");
    installed.wait_ready();
    let settings = format!(
        "memoryPolicy: kubelet\nheadroomHard: 0%\nnode: {{cgroup: {PODS}}}\nenforceNodeAllocatable: []\n\
         evictionHard: {{memory.available: \"{}\"}}\n",
        available() - ROOM
    );
    installed.configure("brink-evicts", &settings);
    installed.apply();
    installed.wait_ready();
    let name = installed.pod();
    wait_mode(&installed, &name, "enforcing");
    let pod = cluster.pod(&leaker("daemonset"));
    let uid = uid_of(&pod);
    let is_told = || is_failed(&pod) && events(&cluster, &uid, "Evicted").len() == 1;
    assert!(
        holds_in_time(is_told),
        "{}\n{}",
        pod.described(),
        installed.described()
    );
    let event = events(&cluster, &uid, "Evicted").remove(0);
    assert_eq!(
        event["source"],
        json!({ "component": "brink", "host": NODE })
    );
    assert_eq!(installed.pod(), name, "and lives on itself");
    check_plugin(&cluster, &name, (&pod.name, &uid));
    let said = || {
        condition(
            &cluster.get("node", NODE).unwrap(),
            "brink.dev/MemoryPressure",
        )
    };
    assert!(
        holds_in_time(|| said().is_some()),
        "{}",
        installed.described()
    );
    installed.end();
    assert_eq!(said(), None);
}

/// The signals have the same source as those of an agent that is root on the machine, and the guard is scheduled alike.
#[test]
fn without_privileges_the_capabilities_of_the_overlay_are_enough() {
    let cluster = cluster!();
    if let Some(reason) = no_image(&cluster) {
        skip!("{reason}");
    }
    let installed = Installed::new(&cluster, "least-capability");
    installed.wait_ready();
    let name = installed.pod();
    wait_mode(&installed, &name, "observing");
    let inside = doctor(&installed, &name);
    let lacking = check(&inside, "rights.capabilities")["found"].to_string();
    let is_part = |letter: char| letter.is_ascii_uppercase() || letter == '_';
    let words = lacking.split(|letter: char| !is_part(letter));
    let lacking: BTreeSet<&str> = words.filter(|word| word.starts_with("CAP_")).collect();
    assert_eq!(lacking, LEFT_OUT.into());

    let mut doctor = Command::new(agent_binary().unwrap());
    doctor.args([
        "doctor",
        "--move-guard-to-root-cpu-group",
        "true",
        "-o",
        "json",
    ]);
    let outside: Value = serde_json::from_slice(&doctor.output().unwrap().stdout).unwrap();
    for key in ["rung", "scheduling"] {
        assert_eq!(inside[key], outside[key], "{inside:#}");
    }
    check_rights(&installed, &ALWAYS, &[&NEVER[..], &ENFORCING].concat());
}

//! The `DaemonSet` as the agent needs it: configuration, sockets, ports, and never two that enforce.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use brink::config::{AgentConfig, RunMode, Sources, load};
use brink::disks::discover::DEFAULT;
use brink::guard::pods::PodsGroup;
use brink_core::node::engine::MemoryPolicy;
use brink_core::node::signal::Resource;
use brink_tests::skip;
use serde_json::Value;

use crate::manifests::{VARIANTS, container, documents, list, one, pod, rendered, text};

/// What the agent reads of a variant's `ConfigMap`, with these drop-ins of a component in place of, or beside, its own.
fn configured(variant: &str, more: &[(&str, &str)]) -> AgentConfig {
    let objects = rendered(variant);
    let data = one(&objects, "ConfigMap")["data"]
        .as_object()
        .unwrap()
        .clone();
    let mut files: BTreeMap<String, String> = data
        .into_iter()
        .map(|(name, text)| (name, text.as_str().unwrap().to_owned()))
        .collect();
    for (name, component) in more {
        let text = text(&format!("components/{component}/{name}"));
        // There is no kubelet's file where the tests run.
        let text = text.replace("/etc/kubelet/config.yaml", KUBELETS);
        files.insert((*name).to_owned(), text);
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let sources = Sources {
        config_dir: Some(folder.path().to_path_buf()),
        ..Sources::default()
    };
    let checked = load(&sources).unwrap_or_else(|faults| panic!("{variant}: {faults}"));
    assert!(
        checked.warnings.is_empty(),
        "{variant}: {:#?}",
        checked.warnings
    );
    checked.config
}

/// Why no configuration of a pod can be read here, if so: the agent's part for Kubernetes may be left out of a build.
fn left_out() -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("a.yaml"),
        "kubernetes: {enabled: true}\n",
    )
    .unwrap();
    let sources = Sources {
        config_dir: Some(folder.path().to_path_buf()),
        ..Sources::default()
    };
    let faults = load(&sources).err()?.to_string();
    faults.contains("--features kubernetes").then_some(faults)
}

const KUBELETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kubelet.yaml");

#[test]
fn the_configuration_is_in_order_and_only_one_variant_enforces() {
    if let Some(reason) = left_out() {
        skip!("{reason}");
    }
    for (variant, _) in VARIANTS {
        let mode = if variant == "enforce" {
            RunMode::Enforce
        } else {
            RunMode::Observe
        };
        assert_eq!(configured(variant, &[]).mode, mode, "{variant}");
    }
}

#[test]
fn the_kubelets_thresholds_stand_in_for_ours() {
    if let Some(reason) = left_out() {
        skip!("{reason}");
    }
    let raised = |config: &AgentConfig| -> Vec<String> {
        let raised = config.raised.iter();
        raised.map(|raised| raised.signal.clone()).collect()
    };
    assert_eq!(raised(&configured("observe", &[])), [""; 0]);
    for component in ["kubelet-config", "kubelet-configz"] {
        let config = configured("observe", &[("20-thresholds.yaml", component)]);
        assert_eq!(raised(&config), ["memory.available"]);
        let asks = component == "kubelet-configz";
        assert_eq!(config.kubernetes.asks_kubelet(), asks);
    }
}

/// Whoever waits for headroom, as a machine without a kubelet wants it, comes after a kubelet that does not.
#[test]
fn every_variant_goes_by_the_kubelets_policy_and_by_the_kubelets_group_of_all_pods() {
    if let Some(reason) = left_out() {
        skip!("{reason}");
    }
    let kubelets = ["kubelet-config", "kubelet-configz"].map(|one| ("20-thresholds.yaml", one));
    for (variant, _) in VARIANTS {
        for of_kubelet in [&[][..], &kubelets[..1], &kubelets[1..]] {
            let config = configured(variant, of_kubelet);
            let policy = config.memory_policy;
            assert_eq!(policy, MemoryPolicy::Kubelet, "{variant} {of_kubelet:?}");
            let pods = config.pods();
            assert_eq!(pods, PodsGroup::Kubelets, "{variant} {of_kubelet:?}");
        }
    }
}

#[test]
fn a_threshold_on_a_disk_is_there_only_where_the_disk_is_mounted() {
    if let Some(reason) = left_out() {
        skip!("{reason}");
    }
    let on_disks = |config: &AgentConfig| {
        let thresholds = config.policy.thresholds().iter();
        let on_disks = thresholds.filter(|threshold| {
            matches!(
                threshold.signal.resource(),
                Resource::EphemeralStorage | Resource::Inodes
            )
        });
        on_disks.count()
    };
    let kubelets = ["kubelet-config", "kubelet-configz"].map(|one| ("20-thresholds.yaml", one));
    for (variant, _) in VARIANTS {
        for of_kubelet in [&[][..], &kubelets[..1], &kubelets[1..]] {
            let config = configured(variant, of_kubelet);
            assert_eq!(on_disks(&config), 0, "{variant} {of_kubelet:?}");
            let disks = [&[("15-disks.yaml", "disks")], of_kubelet].concat();
            let config = configured(variant, &disks);
            assert!(on_disks(&config) > 0, "{variant} {of_kubelet:?}");
        }
    }
}

#[test]
fn what_is_to_be_measured_of_disks_is_mounted() {
    if let Some(reason) = left_out() {
        skip!("{reason}");
    }
    let config = configured("observe", &[("15-disks.yaml", "disks")]);
    let mounts = documents(&text("components/disks/mounts.yaml"));
    let mounts = list(&container(&mounts)["volumeMounts"]);
    let mounted: Vec<&str> = mounts
        .iter()
        .filter_map(|mount| mount["mountPath"].as_str())
        .collect();
    let is_seen = |path: &Path| mounted.iter().any(|folder| path.starts_with(folder));
    let wanted = [
        config.filesystems.nodefs.unwrap(),
        config.runtime.endpoint.unwrap(),
        config
            .storage
            .kubelet_root
            .unwrap_or_else(|| DEFAULT.into())
            .join("pods"),
        config.storage.pod_logs,
        "/var/lib/containerd".into(),
    ];
    for path in wanted {
        assert!(is_seen(&path), "{path:?} is not in {mounted:?}");
    }
}

fn variable(container: &Value, name: &str) -> Option<String> {
    let variables = list(&container["env"]);
    let found = variables.iter().find(|variable| variable["name"] == name)?;
    found["value"].as_str().map(str::to_owned)
}

#[test]
fn sockets_and_port_are_where_they_are_looked_for() {
    if let Some(reason) = left_out() {
        skip!("{reason}");
    }
    for (variant, _) in VARIANTS {
        let (config, objects) = (configured(variant, &[]), rendered(variant));
        let container = container(&objects);
        let told = |name| variable(container, name).map(Into::into);
        assert_eq!(told("BRINK_SOCKET"), Some(config.paths.socket.clone()));
        assert_eq!(
            told("BRINK_EVENTS_SOCKET"),
            Some(config.events.socket.clone())
        );
        let port = config
            .metrics_listen
            .map(|address: SocketAddr| address.port());
        let port = port.map(u64::from);
        assert_eq!(container["ports"][0]["containerPort"].as_u64(), port);
        let annotations =
            &one(&objects, "DaemonSet")["spec"]["template"]["metadata"]["annotations"];
        let scraped = annotations["prometheus.io/port"].as_str().unwrap();
        assert_eq!(scraped.parse().ok(), port);
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let asked = &container[probe]["httpGet"];
            assert_eq!(asked["port"], container["ports"][0]["name"], "{probe}");
            let path = asked["path"].as_str().unwrap();
            assert!(["/livez", "/readyz"].contains(&path), "{probe}");
        }
        // What a standing agent is restarted for is not asked of one that merely waits.
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
    }
}

/// The lock is in a folder of the node, and the next agent can run beside this one: their sockets are each pod's own.
#[test]
fn the_node_is_never_without_an_agent_and_never_has_two_that_enforce() {
    if let Some(reason) = left_out() {
        skip!("{reason}");
    }
    for (variant, _) in VARIANTS {
        let (config, objects) = (configured(variant, &[]), rendered(variant));
        let set = &one(&objects, "DaemonSet")["spec"];
        let strategy = &set["updateStrategy"];
        assert_eq!(strategy["type"], "RollingUpdate");
        assert_eq!(strategy["rollingUpdate"]["maxSurge"], 1);
        assert_eq!(strategy["rollingUpdate"]["maxUnavailable"], 0);
        let volume_at = |path: &Path| {
            let mounts = list(&container(&objects)["volumeMounts"]).iter();
            let mount = mounts
                .filter(|mount| path.starts_with(mount["mountPath"].as_str().unwrap()))
                .max_by_key(|mount| mount["mountPath"].as_str().unwrap().len());
            let name = &mount.unwrap()["name"];
            let volumes = list(&pod(&objects)["volumes"]).iter();
            volumes
                .clone()
                .find(|volume| volume["name"] == *name)
                .unwrap()
        };
        assert!(volume_at(&config.paths.state_dir)["hostPath"].is_object());
        assert!(volume_at(&config.events.journal.path)["hostPath"].is_object());
        for socket in [&config.paths.socket, &config.events.socket] {
            assert!(
                volume_at(socket)["emptyDir"].is_object(),
                "{}",
                socket.display()
            );
        }
        assert_eq!(
            pod(&objects)["hostNetwork"],
            Value::Null,
            "ports would be the node's"
        );
    }
}

#[test]
fn pods_are_where_every_node_needs_them_and_hear_of_no_service() {
    for (variant, _) in VARIANTS {
        let objects = rendered(variant);
        let pod = pod(&objects);
        assert_eq!(pod["priorityClassName"], "system-node-critical");
        assert_eq!(
            list(&pod["tolerations"]),
            [serde_json::json!({ "operator": "Exists" })]
        );
        // A service called brink would set BRINK_PORT and its like, which look like settings of the agent.
        assert_eq!(pod["enableServiceLinks"], false);
        let quota = one(&objects, "ResourceQuota");
        let scope = &quota["spec"]["scopeSelector"]["matchExpressions"][0];
        assert_eq!(scope["values"][0], pod["priorityClassName"]);
        let namespace = &one(&objects, "Namespace")["metadata"];
        assert_eq!(
            namespace["labels"]["pod-security.kubernetes.io/enforce"],
            "privileged"
        );
        for kind in ["DaemonSet", "ConfigMap", "ServiceAccount", "ResourceQuota"] {
            assert_eq!(
                one(&objects, kind)["metadata"]["namespace"],
                namespace["name"],
                "{kind}"
            );
        }
    }
}

#[test]
fn the_image_is_the_one_that_is_made() {
    let image = format!("localhost/brink:{}", env!("CARGO_PKG_VERSION"));
    for (variant, _) in VARIANTS {
        let objects = rendered(variant);
        assert_eq!(container(&objects)["image"], image.as_str());
        let version =
            &one(&objects, "DaemonSet")["metadata"]["labels"]["app.kubernetes.io/version"];
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }
}

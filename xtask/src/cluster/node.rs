//! The node of a cluster: containerd and a kubelet in a mount namespace of their own.
//!
//! It ends with the last of them and takes every mount along, those of containers, of volumes and of network namespaces.
use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, bail};
use serde_json::json;

use super::{
    groups::NAME,
    image::{PAUSE, TEST},
    launch::{Kubectl, Launcher},
    machine::{self, ADDRESS, PODS, binds},
    pki::{NODE, Pki, kubeconfig_of},
    state::PROGRAMS,
};

/// Where the name server would be.
const NAMES: &str = "198.18.0.10";
/// Longest time for one part to be ready.
const PATIENCE: Duration = Duration::from_mins(2);
/// Holds the namespace: mounts what it is told, pair by pair, and stays.
const HOLD: &str = r#"mount --make-rshared /
while [ "$#" -gt 0 ]; do mount --bind "$1" "$2" || exit 1; shift 2; done
exec sleep infinity"#;
/// Starts a kubelet again whenever it ends, as a service manager does: a test may give it another configuration and end it.
const KEEP: &str = r#"while :; do "$@"; sleep 1; done"#;
/// What the holder is called once everything is mounted.
const HELD: &str = "sleep";
/// The bit of the capability without which a process makes itself no safer from the OOM killer.
const SYS_RESOURCE: u32 = 24;

/// Starts it, and waits until the API server knows it as ready.
///
/// # Errors
/// When a part ends, or is not ready in time.
pub(super) fn start(launcher: &mut Launcher, pki: &Pki) -> anyhow::Result<()> {
    let namespace = hold(launcher)?;
    containerd(launcher, &namespace)?;
    kubelet(launcher, pki, &namespace)
}

/// Whether the API server says that the node is ready.
pub(super) fn is_ready(kubectl: &Kubectl) -> bool {
    let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    kubectl
        .ask(&["get", "node", NODE, "-o", path])
        .is_some_and(|status| status == "True")
}

/// Where containerd listens, seen from outside the node.
pub(super) fn socket(folder: &Path) -> std::path::PathBuf {
    machine::folder_of(folder, "/run/containerd").join("containerd.sock")
}

/// Makes the namespace, and says how it is entered.
fn hold(launcher: &mut Launcher) -> anyhow::Result<String> {
    let pairs = binds(&launcher.folder);
    let pairs: Vec<String> = pairs
        .into_iter()
        .flat_map(|(own, place)| [own.display().to_string(), place.to_owned()])
        .collect();
    let mut words = vec![
        "unshare",
        "--mount",
        "--propagation",
        "slave",
        "sh",
        "-c",
        HOLD,
        "sh",
    ];
    words.extend(pairs.iter().map(String::as_str));
    let holder = launcher.start_as("holder", &words)?;
    let name = format!("/proc/{}/comm", holder.pid);
    launcher.wait(&holder, PATIENCE, || {
        fs::read_to_string(&name).is_ok_and(|name| name.trim() == HELD)
    })?;
    Ok(format!("--mount=/proc/{}/ns/mnt", holder.pid))
}

fn containerd(launcher: &mut Launcher, namespace: &str) -> anyhow::Result<()> {
    let networks = launcher.folder("node/networks")?;
    launcher.write("node/networks/10-pods.conflist", &network())?;
    let plugins = launcher.bundle.network_plugins();
    let config = format!(
        "version = 2
[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '{pause}'
  restrict_oom_score_adj = {restrict}
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.grpc.v1.cri'.cni]
    bin_dir = '{plugins}'
    conf_dir = '{networks}'
[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd/opt'
",
        pause = PAUSE.name,
        restrict = !has_capability(SYS_RESOURCE),
        plugins = plugins.display(),
        networks = networks.display(),
    );
    let config = launcher.write("node/containerd.toml", &config)?;
    let program = launcher.bundle.program("containerd").display().to_string();
    let config = config.display().to_string();
    let containerd = launcher.start_as(
        "containerd",
        &["nsenter", namespace, &program, "--config", &config],
    )?;
    let mut answers = ctr(launcher);
    answers.arg("version");
    launcher.wait(&containerd, PATIENCE, || {
        answers.output().is_ok_and(|answer| answer.status.success())
    })?;
    for image in [&PAUSE, &TEST] {
        let archive = launcher.bundle.images().join(image.file);
        let mut import = ctr(launcher);
        let answer = import
            .args(["images", "import"])
            .arg(&archive)
            .output()
            .context("starting ctr")?;
        if !answer.status.success() {
            bail!(
                "containerd does not take the image {}: {}",
                image.name,
                String::from_utf8_lossy(&answer.stderr).trim()
            );
        }
    }
    Ok(())
}

/// containerd's own client, in the namespace that a kubelet's containers are in.
fn ctr(launcher: &Launcher) -> Command {
    let mut command = launcher.helper("ctr");
    command
        .arg("--address")
        .arg(socket(&launcher.folder))
        .args(["--namespace", "k8s.io"]);
    command
}

/// Gives the images of an archive to the node of a cluster that is up.
///
/// # Errors
/// When there is none, or its containerd does not take them.
pub(super) fn load(folder: &Path, archive: &Path) -> anyhow::Result<()> {
    let program = folder.join(PROGRAMS).join("ctr");
    let mut import = Command::new(&program);
    import.arg("--address").arg(socket(folder));
    import
        .args(["--namespace", "k8s.io", "images", "import"])
        .arg(archive);
    let answer = import.output();
    let answer =
        answer.with_context(|| format!("starting {}: is a cluster up?", program.display()))?;
    if !answer.status.success() {
        let said = String::from_utf8_lossy(&answer.stderr);
        bail!(
            "containerd does not take {}: {}",
            archive.display(),
            said.trim()
        );
    }
    print!("{}", String::from_utf8_lossy(&answer.stdout));
    Ok(())
}

fn kubelet(launcher: &mut Launcher, pki: &Pki, namespace: &str) -> anyhow::Result<()> {
    let resolver = launcher.write(
        "node/resolv.conf",
        "# There is no name server in this cluster.\n",
    )?;
    let manifests = launcher.folder("node/manifests")?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "healthzPort": 0,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki.file("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": pki.file(&format!("{NODE}.crt")),
        "tlsPrivateKeyFile": pki.file(&format!("{NODE}.key")),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{NAME}"),
        "failSwapOn": false,
        // Packets are nobody's business here.
        "makeIPTablesUtilChains": false,
        "resolvConf": resolver,
        // Nobody answers there; without one, every pod comes with a warning.
        "clusterDNS": [NAMES],
        "clusterDomain": "cluster.local",
        "staticPodPath": manifests,
        // Images come from nowhere else, and must not go when the machine's disk is full.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
    });
    // Every YAML reader takes JSON.
    let config = launcher.write("node/kubelet.yaml", &format!("{config:#}\n"))?;
    let program = launcher.bundle.program("kubelet").display().to_string();
    let arguments = [
        format!("--config={}", config.display()),
        format!("--kubeconfig={}", pki.file(&kubeconfig_of(NODE)).display()),
        format!("--hostname-override={NODE}"),
        format!("--node-ip={ADDRESS}"),
        "--container-runtime=remote".to_owned(),
        "--container-runtime-endpoint=unix:///run/containerd/containerd.sock".to_owned(),
        format!("--pod-infra-container-image={}", PAUSE.name),
        "--volume-plugin-dir=/var/lib/kubelet/volume-plugins".to_owned(),
    ];
    let words = ["nsenter", namespace, "sh", "-c", KEEP, "sh", &program]
        .into_iter()
        .chain(arguments.iter().map(String::as_str));
    let kubelet = launcher.start_as("kubelet", &words.collect::<Vec<_>>())?;
    let kubectl = launcher.kubectl();
    launcher.wait(&kubelet, PATIENCE, || is_ready(&kubectl))
}

/// A line from each pod to the node: when a pod's network namespace goes, so does its line, and nothing stays on the node.
fn network() -> String {
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": "/var/lib/cni/addresses",
                "ranges": [[{ "subnet": PODS }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    format!("{network:#}\n")
}

/// Whether we have a capability, by the kernel's own word.
fn has_capability(bit: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set & (1 << bit) != 0)
}

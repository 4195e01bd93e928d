//! The control plane of a cluster: etcd, API server, controller manager and scheduler, each ready before the next begins.
use std::{
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use super::{
    launch::Launcher,
    machine::{ADDRESS, SERVICES},
    pki::{Pki, kubeconfig_of},
};

/// The ports of etcd on the usual loopback address, where no pod finds them: for clients, and for peers it has not got.
pub(super) const ETCD: [u16; 2] = [12379, 12380];
/// The API server's program, and its name among the cluster's processes.
pub(super) const API_SERVER: &str = "kube-apiserver";
/// Longest time for one of them to be ready.
const PATIENCE: Duration = Duration::from_mins(2);

/// Starts it.
///
/// # Errors
/// When one of them ends, or is not ready in time.
pub(super) fn start(launcher: &mut Launcher, pki: &Pki) -> anyhow::Result<()> {
    etcd(launcher)?;
    api_server(launcher, pki)?;
    let plugins = launcher.folder("volume-plugins")?;
    let managers = [
        (
            "kube-controller-manager",
            "controller-manager",
            for_controllers(pki, &plugins),
        ),
        ("kube-scheduler", "scheduler", Vec::new()),
    ];
    let mut last = None;
    for (program, identity, more) in managers {
        let config = pki.file(&kubeconfig_of(identity)).display().to_string();
        let mut arguments = [
            "kubeconfig",
            "authentication-kubeconfig",
            "authorization-kubeconfig",
        ]
        .map(|name| format!("--{name}={config}"))
        .to_vec();
        // Neither serves anything to anybody, and there is no second to lead.
        arguments
            .extend(["--secure-port=0", "--port=0", "--leader-elect=false"].map(str::to_owned));
        arguments.extend(more);
        last = Some(launcher.start(program, &arguments)?);
    }
    let kubectl = launcher.kubectl();
    // Without it no pod is taken; a controller makes it.
    let is_there = || kubectl.ask(&["get", "serviceaccount", "default"]).is_some();
    last.map_or(Ok(()), |last| launcher.wait(&last, PATIENCE, is_there))
}

fn etcd(launcher: &mut Launcher) -> anyhow::Result<()> {
    let data = launcher.folder("etcd")?;
    let [clients, peers] = ETCD.map(|port| format!("http://127.0.0.1:{port}"));
    let arguments = [
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        // What a crash of the machine loses is of no value.
        "--unsafe-no-fsync".to_owned(),
    ];
    let etcd = launcher.start("etcd", &arguments)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ETCD[0]));
    launcher.wait(&etcd, PATIENCE, || TcpStream::connect(address).is_ok())
}

/// Starts the API server alone.
///
/// # Errors
/// As [`start`].
pub(super) fn api_server(launcher: &mut Launcher, pki: &Pki) -> anyhow::Result<()> {
    let file = |name: &str| pki.file(name).display().to_string();
    let arguments = [
        format!("--bind-address={ADDRESS}"),
        format!("--advertise-address={ADDRESS}"),
        // The port of the service: pods reach the server itself under the service's address, without a proxy.
        "--secure-port=443".to_owned(),
        "--insecure-port=0".to_owned(),
        format!("--etcd-servers=http://127.0.0.1:{}", ETCD[0]),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!(
            "--kubelet-client-certificate={}",
            file("apiserver-to-kubelet.crt")
        ),
        format!("--kubelet-client-key={}", file("apiserver-to-kubelet.key")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!(
            "--service-account-signing-key-file={}",
            file("accounts.key")
        ),
    ];
    let server = launcher.start(API_SERVER, &arguments)?;
    let kubectl = launcher.kubectl();
    launcher.wait(&server, PATIENCE, || {
        kubectl.ask(&["get", "--raw", "/readyz"]).is_some()
    })
}

fn for_controllers(pki: &Pki, plugins: &Path) -> Vec<String> {
    let file = |name: &str| pki.file(name).display().to_string();
    vec![
        "--use-service-account-credentials=true".to_owned(),
        // It would otherwise make a folder under /usr.
        format!("--flex-volume-plugin-dir={}", plugins.display()),
        format!(
            "--service-account-private-key-file={}",
            file("accounts.key")
        ),
        format!("--root-ca-file={}", file("ca.crt")),
    ]
}

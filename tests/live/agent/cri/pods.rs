//! What makes pods in a runtime, as a kubelet would: the calls that the agent itself does not know.

use std::path::Path;
use std::time::{Duration, Instant};

use brink_cri::call::Call;
use brink_cri::client::{Client, Runtime as _};
use brink_cri::fault::CriError;
use brink_cri::generated::{ContainerMetadata, ImageSpec, PodSandboxMetadata};
use brink_cri::layout::Places;
use brink_cri::state::{Container, Layers, State};
use brink_tests::slowed;
use prost::Message;

/// The number of a namespace that is the node's.
const OF_NODE: i32 = 2;
/// The label that a kubelet writes on what it makes.
const POD_UID: &str = "io.kubernetes.pod.uid";

#[derive(Clone, PartialEq, Message)]
struct Namespaces {
    #[prost(int32, tag = "1")]
    network: i32,
    #[prost(int32, tag = "2")]
    pid: i32,
    #[prost(int32, tag = "3")]
    ipc: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Security {
    #[prost(message, optional, tag = "1")]
    namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxSandbox {
    #[prost(string, tag = "1")]
    cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    security: Option<Security>,
}

#[derive(Clone, PartialEq, Message)]
struct SandboxConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "3")]
    log_directory: String,
    #[prost(map = "string, string", tag = "6")]
    labels: std::collections::HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxSandbox>,
}

#[derive(Clone, PartialEq, Message)]
struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    config: Option<SandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct Identity {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxSecurity {
    #[prost(message, optional, tag = "3")]
    namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxContainer {
    #[prost(message, optional, tag = "2")]
    security: Option<LinuxSecurity>,
}

#[derive(Clone, PartialEq, Message)]
struct Mount {
    #[prost(string, tag = "1")]
    container_path: String,
    #[prost(string, tag = "2")]
    host_path: String,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    mounts: Vec<Mount>,
    #[prost(map = "string, string", tag = "9")]
    labels: std::collections::HashMap<String, String>,
    #[prost(string, tag = "11")]
    log_path: String,
    #[prost(message, optional, tag = "15")]
    linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    sandbox: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    sandbox_config: Option<SandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct StartContainer {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

impl Call for RunPodSandbox {
    const PATH: &'static str = "/runtime.v1.RuntimeService/RunPodSandbox";
    type Answer = Identity;
}

impl Call for CreateContainer {
    const PATH: &'static str = "/runtime.v1.RuntimeService/CreateContainer";
    type Answer = Identity;
}

impl Call for StartContainer {
    const PATH: &'static str = "/runtime.v1.RuntimeService/StartContainer";
    type Answer = Nothing;
}

impl SandboxConfig {
    fn of((name, uid): (&str, &str), cgroup_parent: &str) -> Self {
        let namespaces = Namespaces {
            network: OF_NODE,
            pid: 0,
            ipc: OF_NODE,
        };
        Self {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.to_owned(),
                namespace: "test".to_owned(),
                attempt: 0,
            }),
            linux: Some(LinuxSandbox {
                cgroup_parent: cgroup_parent.to_owned(),
                security: Some(Security {
                    namespaces: Some(namespaces),
                }),
            }),
            ..Self::default()
        }
    }
}

impl ContainerConfig {
    fn of((name, attempt): (&str, u32), image: &str, command: &[&str]) -> Self {
        let namespaces = Namespaces {
            network: OF_NODE,
            pid: 1,
            ipc: OF_NODE,
        };
        Self {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
                attempt,
            }),
            image: Some(ImageSpec {
                image: image.to_owned(),
                ..ImageSpec::default()
            }),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            linux: Some(LinuxContainer {
                security: Some(LinuxSecurity {
                    namespaces: Some(namespaces),
                }),
            }),
            ..Self::default()
        }
    }
}

/// A pod with its sandbox, on the node's network, so that it needs none of its own.
#[derive(Debug)]
pub(crate) struct Pod {
    sandbox: String,
    config: SandboxConfig,
}

impl Pod {
    /// Makes one; with a kubelet's label if one is to have made it.
    pub(crate) async fn make(
        client: &Client,
        name: &str,
        cgroup_parent: &str,
        is_kubelets: bool,
    ) -> Result<Self, CriError> {
        let mut config = SandboxConfig::of((name, name), cgroup_parent);
        let label = is_kubelets.then(|| (POD_UID.to_owned(), name.to_owned()));
        config.labels.extend(label);
        Self::begin(client, config).await
    }

    /// Makes one as a kubelet does, by name and uid, with a folder for the logs of its containers.
    pub(crate) async fn make_logging(
        client: &Client,
        (name, uid): (&str, &str),
        cgroup_parent: &str,
        logs: &Path,
    ) -> Result<Self, CriError> {
        let mut config = SandboxConfig::of((name, uid), cgroup_parent);
        config.labels.insert(POD_UID.to_owned(), uid.to_owned());
        config.log_directory = logs.display().to_string();
        Self::begin(client, config).await
    }

    async fn begin(client: &Client, config: SandboxConfig) -> Result<Self, CriError> {
        let request = RunPodSandbox {
            config: Some(config.clone()),
        };
        let sandbox = client.ask(request).await?.id;
        Ok(Self { sandbox, config })
    }

    /// Makes a container in it that runs a command, and starts it.
    pub(crate) async fn run(
        &self,
        client: &Client,
        attempt: u32,
        image: &str,
        command: &[&str],
    ) -> Result<String, CriError> {
        let config = ContainerConfig::of(("app", attempt), image, command);
        self.start(client, config).await
    }

    /// The same as a kubelet does it: under its own name, with a log, and with a folder of the node's where it sees one.
    pub(crate) async fn run_logging(
        &self,
        client: &Client,
        name: &str,
        (image, command): (&str, &[&str]),
        (folder, inside): (&Path, &str),
    ) -> Result<String, CriError> {
        let mut config = ContainerConfig::of((name, 0), image, command);
        config.log_path = format!("{name}/0.log");
        config.mounts.push(Mount {
            container_path: inside.to_owned(),
            host_path: folder.display().to_string(),
        });
        self.start(client, config).await
    }

    async fn start(&self, client: &Client, config: ContainerConfig) -> Result<String, CriError> {
        let config = ContainerConfig {
            labels: self.config.labels.clone(),
            ..config
        };
        let request = CreateContainer {
            sandbox: self.sandbox.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        let id = client.ask(request).await?.id;
        client.ask(StartContainer { id: id.clone() }).await?;
        Ok(id)
    }
}

/// Waits until these containers have ended, and tells what there is then.
pub(crate) async fn ended(client: &Client, ids: &[&String]) -> State {
    let until = Instant::now() + slowed(Duration::from_secs(20));
    loop {
        let state = client.read().await.expect("an answer");
        let alive = |one: &&Container| ids.contains(&&one.id) && !one.is_dead();
        if !state.containers.iter().any(|one| alive(&one)) {
            return state;
        }
        assert!(Instant::now() < until, "{state:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What containers have written, once the runtime has seen so many bytes of this one.
pub(crate) async fn written(client: &Client, container: &str, least: u64) -> Layers {
    let until = Instant::now() + slowed(Duration::from_secs(20));
    loop {
        let layers = client.layers().await.expect("an answer");
        if layers
            .get(container)
            .is_some_and(|layer| layer.bytes >= least)
        {
            return layers;
        }
        assert!(Instant::now() < until, "{layers:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Where images and layers lie, once the runtime says so: at first it has looked at nothing.
pub(crate) async fn placed(client: &Client) -> Places {
    let until = Instant::now() + slowed(Duration::from_secs(20));
    loop {
        match client.places().await {
            Ok(places) => return places,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

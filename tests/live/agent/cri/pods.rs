//! What makes pods in a runtime, as a kubelet would: the calls that the agent itself does not know.

use std::time::{Duration, Instant};

use brink_cri::call::Call;
use brink_cri::client::{Client, Runtime as _};
use brink_cri::fault::CriError;
use brink_cri::generated::{ContainerMetadata, ImageSpec, PodSandboxMetadata};
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
struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    image: Option<ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    command: Vec<String>,
    #[prost(map = "string, string", tag = "9")]
    labels: std::collections::HashMap<String, String>,
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
        let namespaces = Namespaces {
            network: OF_NODE,
            pid: 0,
            ipc: OF_NODE,
        };
        let label = is_kubelets.then(|| (POD_UID.to_owned(), name.to_owned()));
        let config = SandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: name.to_owned(),
                namespace: "test".to_owned(),
                attempt: 0,
            }),
            labels: label.into_iter().collect(),
            linux: Some(LinuxSandbox {
                cgroup_parent: cgroup_parent.to_owned(),
                security: Some(Security {
                    namespaces: Some(namespaces),
                }),
            }),
        };
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
        let namespaces = Namespaces {
            network: OF_NODE,
            pid: 1,
            ipc: OF_NODE,
        };
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: "app".to_owned(),
                attempt,
            }),
            image: Some(ImageSpec {
                image: image.to_owned(),
                ..ImageSpec::default()
            }),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            labels: self.config.labels.clone(),
            linux: Some(LinuxContainer {
                security: Some(LinuxSecurity {
                    namespaces: Some(namespaces),
                }),
            }),
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

//! What a runtime holds, as facts: containers, sandboxes and images, read from its messages once and for all.

use std::collections::{BTreeMap, BTreeSet};

use brink_core::base::Moment;

use crate::generated::{
    Container as ContainerMessage, ContainerState, ContainerStatus, Image as ImageMessage,
    ImageSpec, PodSandbox, PodSandboxState,
};

/// The label by which a kubelet notes whose a container is; what has it, a kubelet made.
const POD_UID: &str = "io.kubernetes.pod.uid";
/// The same for the pod's name and namespace.
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// The annotation by which a kubelet notes where it has a pod from: `api`, `file` or `http`.
const SOURCE: &str = "kubernetes.io/config.source";
/// Some runtimes write it before an identity, and some leave it out.
const DIGEST: &str = "sha256:";

/// Everything a runtime holds, as of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Every container, in whatever state.
    pub containers: Vec<Container>,
    /// Every sandbox of a pod.
    pub sandboxes: Vec<Sandbox>,
    /// Every image.
    pub images: Vec<Image>,
    /// What the runtime says it makes sandboxes of.
    pub sandbox_images: Vec<String>,
}

/// Whose a container is; without a kubelet's labels the fields are what the sandbox has, or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Its identity.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether its kubelet has it from the API, so that this knows of it as long as it is to be there. Of a static pod the API has
    /// an image under another identity, or nothing.
    pub is_of_api: bool,
}

/// What a container is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It was made and not started; it may be at any moment.
    Created,
    /// It runs.
    Running,
    /// It has ended, and never runs again.
    Exited,
    /// The runtime does not know, or says something newer than we do: it may run.
    Unknown,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// What the runtime calls it.
    pub id: String,
    /// Whose it is.
    pub pod: Pod,
    /// What it is called in its pod.
    pub name: String,
    /// How many of that name there were in the sandbox before.
    pub attempt: u32,
    /// What it is doing.
    pub standing: Standing,
    /// When it was made, by the runtime's clock.
    pub created_at: Moment,
    /// Whether a kubelet made it.
    pub is_kubelets: bool,
    /// All names of all images that it uses: its own and those that are mounted in it.
    pub images: BTreeSet<String>,
}

/// One sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// What the runtime calls it.
    pub id: String,
    /// Whose it is.
    pub pod: Pod,
    /// Whether containers can run in it.
    pub is_ready: bool,
    /// Whether a kubelet made it.
    pub is_kubelets: bool,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// What the runtime calls it.
    pub id: String,
    /// Its names, with tags and with digests.
    pub names: Vec<String>,
    /// How large the runtime says it is, in bytes; layers that it shares with others count for each of them.
    pub bytes: u64,
    /// Whether nobody should remove it for want of space.
    pub is_pinned: bool,
    /// For which runtime handler it was fetched; empty for any.
    pub handler: String,
}

/// What a container has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// When that was measured, in nanoseconds since 1970; 0 where the runtime does not say.
    pub at: i64,
}

/// What a container has written, by its identity, as far as the runtime says.
pub type Layers = BTreeMap<String, Written>;

impl Standing {
    /// Of the message's number; one that we do not know is [`Self::Unknown`].
    pub fn of(number: i32) -> Self {
        match ContainerState::try_from(number) {
            Ok(ContainerState::ContainerCreated) => Self::Created,
            Ok(ContainerState::ContainerRunning) => Self::Running,
            Ok(ContainerState::ContainerExited) => Self::Exited,
            Ok(ContainerState::ContainerUnknown) | Err(_) => Self::Unknown,
        }
    }
}

impl Container {
    /// Whether it has ended. One that was only created is not dead: it is about to start; nor is one that nobody can name.
    pub fn is_dead(&self) -> bool {
        self.standing == Standing::Exited && !self.id.is_empty()
    }

    /// Whether it uses this image, by whatever name.
    pub fn uses(&self, image: &Image) -> bool {
        self.images.iter().any(|name| image.is_called(name))
    }
}

impl Image {
    /// Whether this is one of its names, or its identity.
    pub fn is_called(&self, name: &str) -> bool {
        bare(&self.id) == bare(name) || self.names.iter().any(|own| own == name)
    }

    /// The name that people know it by: the first, or its identity.
    pub fn in_words(&self) -> &str {
        self.names.first().unwrap_or(&self.id)
    }
}

impl State {
    /// Whether a kubelet owns this runtime: it holds something that one has made.
    pub fn is_kubelets(&self) -> bool {
        self.containers.iter().any(|one| one.is_kubelets)
            || self.sandboxes.iter().any(|one| one.is_kubelets)
    }

    /// From what the runtime answered, in a fixed order: runtimes have none. `mounted` has the names of images that are mounted in a container, by its identity.
    pub fn of(
        containers: Vec<ContainerMessage>,
        sandboxes: Vec<PodSandbox>,
        images: Vec<ImageMessage>,
        mounted: &BTreeMap<String, Vec<String>>,
    ) -> Self {
        let mut containers = containers;
        containers.sort_by(|one, other| one.id.cmp(&other.id));
        let mut images: Vec<Image> = images.into_iter().filter_map(image).collect();
        images.sort_by(|one, other| (&one.id, &one.handler).cmp(&(&other.id, &other.handler)));
        let sandboxes: BTreeMap<String, Sandbox> = sandboxes
            .into_iter()
            .map(|message| (message.id.clone(), sandbox(message)))
            .collect();
        let containers = containers.into_iter().map(|message| {
            let of_sandbox = sandboxes.get(&message.pod_sandbox_id);
            let mounted = mounted.get(&message.id);
            let pod = of_sandbox.map(|sandbox| sandbox.pod.clone());
            container(message, pod.unwrap_or_default(), mounted)
        });
        Self {
            containers: containers.collect(),
            images,
            sandbox_images: Vec::new(),
            sandboxes: sandboxes.into_values().collect(),
        }
    }
}

/// The names of the images that are mounted in a container.
pub fn mounted(status: &ContainerStatus) -> Vec<String> {
    let specs = status.mounts.iter().filter_map(|one| one.image.as_ref());
    specs.flat_map(names).collect()
}

fn names(spec: &ImageSpec) -> impl Iterator<Item = String> {
    let names = [spec.image.clone(), spec.user_specified_image.clone()];
    names.into_iter().filter(|name| !name.is_empty())
}

fn container(message: ContainerMessage, sandbox: Pod, mounted: Option<&Vec<String>>) -> Container {
    let label = |key: &str, else_: String| message.labels.get(key).cloned().unwrap_or(else_);
    let found = [message.image_ref.clone(), message.image_id.clone()];
    let found = found.into_iter().filter(|name| !name.is_empty());
    let asked = message.image.iter().flat_map(names);
    let images = found
        .chain(asked)
        .chain(mounted.into_iter().flatten().cloned());
    let metadata = message.metadata.clone().unwrap_or_default();
    Container {
        images: images.collect(),
        pod: Pod {
            uid: label(POD_UID, sandbox.uid),
            namespace: label(POD_NAMESPACE, sandbox.namespace),
            name: label(POD_NAME, sandbox.name),
            is_of_api: sandbox.is_of_api,
        },
        name: metadata.name,
        attempt: metadata.attempt,
        standing: Standing::of(message.state),
        created_at: Moment::from_nanos(message.created_at),
        is_kubelets: message.labels.contains_key(POD_UID),
        id: message.id,
    }
}

fn sandbox(message: PodSandbox) -> Sandbox {
    let metadata = message.metadata.unwrap_or_default();
    Sandbox {
        id: message.id,
        pod: Pod {
            uid: metadata.uid,
            namespace: metadata.namespace,
            name: metadata.name,
            is_of_api: message
                .annotations
                .get(SOURCE)
                .is_some_and(|of| of == "api"),
        },
        is_ready: message.state == i32::from(PodSandboxState::SandboxReady),
        is_kubelets: message.labels.contains_key(POD_UID),
    }
}

/// `None` for one that nobody could name to have it removed.
fn image(message: ImageMessage) -> Option<Image> {
    let names = message.repo_tags.into_iter().chain(message.repo_digests);
    (!message.id.is_empty()).then(|| Image {
        id: message.id,
        names: names.collect(),
        bytes: message.size,
        is_pinned: message.pinned,
        handler: message.spec.unwrap_or_default().runtime_handler,
    })
}

/// An identity without the word before it.
fn bare(id: &str) -> &str {
    id.strip_prefix(DIGEST).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::generated::{ContainerMetadata, Mount, PodSandboxMetadata};

    fn labels(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        pairs.iter().map(owned).collect()
    }

    fn spec(image: &str) -> ImageSpec {
        ImageSpec {
            image: image.to_owned(),
            ..ImageSpec::default()
        }
    }

    #[test]
    fn what_a_container_uses_has_many_names() {
        let message = ContainerMessage {
            id: "c".to_owned(),
            image: Some(ImageSpec {
                user_specified_image: "busybox:1".to_owned(),
                ..spec("sha256:aa")
            }),
            image_ref: "docker.io/library/busybox@sha256:bb".to_owned(),
            image_id: String::new(),
            ..ContainerMessage::default()
        };
        let status = ContainerStatus {
            mounts: vec![
                Mount::default(),
                Mount {
                    image: Some(spec("models:7")),
                    ..Mount::default()
                },
            ],
            ..ContainerStatus::default()
        };
        let mounts = BTreeMap::from([("c".to_owned(), mounted(&status))]);
        let state = State::of(vec![message], Vec::new(), Vec::new(), &mounts);
        let container = &state.containers[0];
        let check = |id: &str, names: &[&str], expected: bool| {
            let image = Image {
                id: id.to_owned(),
                names: names.iter().map(|&name| name.to_owned()).collect(),
                ..Image::default()
            };
            assert_eq!(container.uses(&image), expected, "{image:?}");
        };
        check("sha256:aa", &[], true);
        check("aa", &[], true);
        check("x", &["busybox:1"], true);
        check("x", &["docker.io/library/busybox@sha256:bb"], true);
        check("x", &["models:7"], true);
        check("x", &["busybox:2"], false);
        check("", &[], false);
    }

    #[test]
    fn a_kubelets_labels_say_whose_a_container_is_and_else_its_sandbox_does() {
        let message = |id: &str, labels| ContainerMessage {
            id: id.to_owned(),
            pod_sandbox_id: "s".to_owned(),
            metadata: Some(ContainerMetadata {
                name: "app".to_owned(),
                attempt: 2,
            }),
            labels,
            ..ContainerMessage::default()
        };
        let of_kubelet = labels(&[(POD_UID, "u1"), (POD_NAME, "p1"), (POD_NAMESPACE, "n1")]);
        let containers = vec![message("a", of_kubelet), message("b", HashMap::new())];
        let sandboxes = vec![PodSandbox {
            id: "s".to_owned(),
            metadata: Some(PodSandboxMetadata {
                name: "p2".to_owned(),
                uid: "u2".to_owned(),
                namespace: "n2".to_owned(),
                attempt: 0,
            }),
            state: PodSandboxState::SandboxNotready.into(),
            ..PodSandbox::default()
        }];
        let state = State::of(containers, sandboxes, Vec::new(), &BTreeMap::new());
        let found = state
            .containers
            .iter()
            .map(|one| (&*one.pod.uid, &*one.pod.name));
        assert_eq!(found.collect::<Vec<_>>(), [("u1", "p1"), ("u2", "p2")]);
        assert_eq!(
            (&*state.containers[0].name, state.containers[0].attempt),
            ("app", 2)
        );
        assert!(state.is_kubelets() && !state.sandboxes[0].is_ready);
        let without = State {
            containers: state.containers[1..].to_vec(),
            ..state
        };
        assert!(!without.is_kubelets());
    }

    #[test]
    fn a_pod_is_the_apis_where_its_kubelet_says_so() {
        let is_of_api = |source: Option<&str>| {
            let source = source.map(|source| (SOURCE.to_owned(), source.to_owned()));
            let sandbox = PodSandbox {
                id: "s".to_owned(),
                annotations: source.into_iter().collect(),
                ..PodSandbox::default()
            };
            let container = ContainerMessage {
                pod_sandbox_id: "s".to_owned(),
                labels: labels(&[(POD_UID, "u")]),
                ..ContainerMessage::default()
            };
            let state = State::of(vec![container], vec![sandbox], Vec::new(), &BTreeMap::new());
            state.containers[0].pod.is_of_api
        };
        assert!(is_of_api(Some("api")));
        assert!(!is_of_api(Some("file")) && !is_of_api(None));
    }

    #[test]
    fn a_state_that_nobody_knows_is_not_dead() {
        for (number, expected) in [
            (0, Standing::Created),
            (1, Standing::Running),
            (2, Standing::Exited),
            (3, Standing::Unknown),
            (7, Standing::Unknown),
        ] {
            assert_eq!(Standing::of(number), expected);
        }
    }
}

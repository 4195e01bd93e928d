//! What a container runtime answers: a pod that is over, one that lives, and their images.

use brink_cri::call::Message;
use brink_cri::generated as cri;

use super::write;

/// Field 15, a number, 10.
const UNKNOWN: [u8; 2] = [0x78, b'\n'];

fn spec(image: &str) -> cri::ImageSpec {
    cri::ImageSpec {
        image: image.to_owned(),
        ..cri::ImageSpec::default()
    }
}

fn container(id: &str, image: &str, state: cri::ContainerState, attempt: u32) -> cri::Container {
    cri::Container {
        id: id.to_owned(),
        pod_sandbox_id: "s".to_owned(),
        metadata: Some(cri::ContainerMetadata {
            name: "app".to_owned(),
            attempt,
        }),
        image: Some(spec(image)),
        image_ref: image.to_owned(),
        state: state.into(),
        created_at: 1_795_000_000_000_000_000,
        labels: [("io.kubernetes.pod.uid", "u")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        image_id: String::new(),
    }
}

fn image(id: &str, tag: &str, pinned: bool) -> cri::Image {
    cri::Image {
        id: id.to_owned(),
        repo_tags: vec![tag.to_owned()],
        repo_digests: vec![format!("{tag}@{id}")],
        size: 7 << 20,
        spec: Some(spec(tag)),
        pinned,
    }
}

pub(super) fn answers() {
    let containers = cri::ListContainersResponse {
        containers: vec![
            container("a", "sha256:aa", cri::ContainerState::ContainerExited, 0),
            container("b", "sha256:aa", cri::ContainerState::ContainerExited, 1),
            container("c", "sha256:bb", cri::ContainerState::ContainerRunning, 2),
        ],
    };
    let images = cri::ListImagesResponse {
        images: vec![
            image("sha256:aa", "localhost/a:1", false),
            image("sha256:bb", "localhost/b:1", false),
            image("sha256:cc", "localhost/pause:1", true),
            image("sha256:dd", "localhost/d:1", false),
        ],
    };
    let sandboxes = cri::ListPodSandboxResponse {
        items: vec![cri::PodSandbox {
            id: "s".to_owned(),
            metadata: Some(cri::PodSandboxMetadata {
                name: "web".to_owned(),
                uid: "u".to_owned(),
                namespace: "shop".to_owned(),
                attempt: 0,
            }),
            state: cri::PodSandboxState::SandboxReady.into(),
            ..cri::PodSandbox::default()
        }],
    };
    let status = cri::ContainerStatusResponse {
        status: Some(cri::ContainerStatus {
            id: "c".to_owned(),
            mounts: vec![cri::Mount {
                container_path: "/d".to_owned(),
                image: Some(spec("localhost/d:1")),
            }],
            ..cri::ContainerStatus::default()
        }),
    };
    let place = cri::FilesystemUsage {
        timestamp: 1_795_000_000_000_000_000,
        fs_id: Some(cri::FilesystemIdentifier {
            mountpoint: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs".to_owned(),
        }),
        used_bytes: Some(cri::UInt64Value { value: 9 << 30 }),
        inodes_used: Some(cri::UInt64Value { value: 70_000 }),
    };
    let places = cri::ImageFsInfoResponse {
        image_filesystems: vec![place],
        container_filesystems: Vec::new(),
    };
    let parts = [
        ("containers", containers.encode_to_vec()),
        ("images", images.encode_to_vec()),
        ("sandboxes", sandboxes.encode_to_vec()),
        ("status", status.encode_to_vec()),
        ("places", places.encode_to_vec()),
    ];
    let mut bytes = Vec::new();
    for (name, message) in parts {
        bytes.extend(format!("=== {name}\n").into_bytes());
        bytes.extend(message);
        // A field that nobody knows, which ends with the line that the next name needs.
        bytes.extend(UNKNOWN);
    }
    write("runtime", "a-pod", &bytes);
}

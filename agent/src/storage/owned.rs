//! Where a workload keeps its files: folders that were named, or those that a kubelet makes for a pod.

use std::path::{Path, PathBuf};

use brink_core::node::workload::{VolumeSource, Workload};
use brink_host::disk::Folder;

use crate::config::Storage;
use crate::disks::discover::DEFAULT;

/// Where the folders are, as this process sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    root: PathBuf,
    /// Of the kubelet: `pods/<uid>/volumes` is below it.
    kubelet: PathBuf,
    /// Whether the configuration names that one.
    is_configured: bool,
    /// Of the logs of its pods.
    logs: PathBuf,
}

/// What is known of a workload's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// These folders, as the node sees them.
    Directories(Vec<PathBuf>),
    /// What a kubelet makes for a pod.
    AsKubelet {
        /// Whether it has a user namespace of its own: only then nobody in it can give its files another project's quota.
        has_user_namespace: bool,
    },
}

/// What a folder is to its workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// A volume, by its name.
    Volume(String),
    /// The logs of a container, by its name.
    Logs(String),
    /// The logs of the pod, those of its containers among them.
    PodLogs,
}

/// A folder of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub part: Part,
    /// Where it is.
    pub folder: Folder,
}

/// All that belongs to one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    /// Whose it is.
    pub uid: String,
    /// Its folders.
    pub pieces: Vec<Piece>,
    /// Its file of host names, which a kubelet makes and counts.
    pub hosts_file: Option<PathBuf>,
    /// Names and ids of its containers: for what a runtime says of their writable layers, and for who is killed in them.
    pub containers: Vec<(String, String)>,
}

impl Places {
    /// Those of a configuration.
    pub fn new(root: &Path, storage: &Storage) -> Self {
        let kubelet = storage.kubelet_root.as_deref();
        Self {
            root: root.to_path_buf(),
            kubelet: within(root, kubelet.unwrap_or(Path::new(DEFAULT))),
            is_configured: kubelet.is_some(),
            logs: within(root, &storage.pod_logs),
        }
    }

    /// Takes the folder that the kubelet names, unless the configuration names one.
    pub fn take(&mut self, kubelets: &Path) {
        if !self.is_configured {
            self.kubelet = within(&self.root, kubelets);
        }
    }

    /// The usual ones below a root.
    pub fn under(root: &Path) -> Self {
        Self::new(root, &Storage::default())
    }
}

/// An absolute path of the node as it is seen here.
fn within(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

impl Owned {
    /// What belongs to `workload`.
    pub fn of(places: &Places, workload: &Workload, keeps: &Keeps) -> Self {
        let owned = Self {
            uid: workload.uid.clone(),
            ..Self::default()
        };
        match keeps {
            Keeps::Directories(directories) => Self {
                pieces: directories
                    .iter()
                    .map(|path| directory(&places.root, path))
                    .collect(),
                ..owned
            },
            Keeps::AsKubelet { has_user_namespace } => {
                owned.by_kubelet(places, workload, *has_user_namespace)
            }
        }
    }

    /// The same with the names and ids of its containers.
    #[must_use]
    pub fn with_containers(self, containers: Vec<(String, String)>) -> Self {
        Self { containers, ..self }
    }

    /// Whether it is no pod of a kubelet's, and has no containers that are known.
    pub fn has_folders_alone(&self) -> bool {
        let is_log = |piece: &Piece| matches!(piece.part, Part::Logs(_) | Part::PodLogs);
        self.containers.is_empty() && !self.pieces.iter().any(is_log)
    }

    /// Names come from manifests: one that could lead elsewhere has no folder.
    fn by_kubelet(self, places: &Places, pod: &Workload, has_user_namespace: bool) -> Self {
        let Workload {
            namespace,
            name,
            uid,
            ..
        } = pod;
        if ![namespace, name, uid].into_iter().all(|one| is_name(one)) {
            return self;
        }
        let folder = places.kubelet.join("pods").join(uid);
        let logs = places.logs.join(format!("{namespace}_{name}_{uid}"));
        let volumes = pod.volumes.iter().filter_map(|volume| {
            let plugin = plugin_of(volume.source).filter(|_| is_name(&volume.name))?;
            let path = folder.join("volumes").join(plugin).join(&volume.name);
            Some(Piece {
                part: Part::Volume(volume.name.clone()),
                folder: plain(path, has_user_namespace),
            })
        });
        let containers = pod.containers.iter().map(|container| &container.name);
        let of_containers = containers.filter(|name| is_name(name)).map(|name| Piece {
            part: Part::Logs(name.clone()),
            folder: plain(logs.join(name), false),
        });
        let of_pod = Piece {
            part: Part::PodLogs,
            folder: plain(logs.clone(), false),
        };
        Self {
            pieces: volumes.chain(of_containers).chain([of_pod]).collect(),
            hosts_file: Some(folder.join("etc-hosts")),
            ..self
        }
    }
}

/// The folder among a pod's volumes in which a kubelet keeps those that it measures and that count somewhere. What is in memory
/// is the pod's memory, and has a folder only to be held against its limit; host paths a kubelet does not measure.
const fn plugin_of(source: VolumeSource) -> Option<&'static str> {
    match source {
        VolumeSource::EmptyDir {
            on_disk: true,
            size_limit: _,
        }
        | VolumeSource::EmptyDir {
            on_disk: false,
            size_limit: Some(_),
        } => Some("kubernetes.io~empty-dir"),
        VolumeSource::ConfigMap => Some("kubernetes.io~configmap"),
        VolumeSource::GitRepo => Some("kubernetes.io~git-repo"),
        VolumeSource::EmptyDir { .. }
        | VolumeSource::HostPath
        | VolumeSource::Directory
        | VolumeSource::Other => None,
    }
}

fn directory(root: &Path, path: &Path) -> Piece {
    Piece {
        part: Part::Volume(path.display().to_string()),
        // Whoever writes there may have the rights to change quotas.
        folder: plain(within(root, path), false),
    }
}

fn plain(path: PathBuf, quota: bool) -> Folder {
    Folder {
        path,
        quota,
        written_directly: true,
    }
}

/// Whether a text is the name of one file, and of no other place.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use brink_core::base::Quantity;
    use brink_core::node::workload::{Container, Volume};

    use super::*;

    fn volume(name: &str, source: VolumeSource) -> Volume {
        Volume {
            name: name.to_owned(),
            source,
        }
    }

    fn empty_dir(on_disk: bool, limit: Option<i64>) -> VolumeSource {
        VolumeSource::EmptyDir {
            on_disk,
            size_limit: limit.map(Quantity::from_bytes),
        }
    }

    fn pod(uid: &str) -> Workload {
        Workload {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: uid.to_owned(),
            containers: vec![Container {
                name: "app".to_owned(),
                ..Container::default()
            }],
            volumes: vec![
                volume("scratch", empty_dir(true, None)),
                volume("shm", empty_dir(false, None)),
                volume("bounded", empty_dir(false, Some(1))),
                volume("settings", VolumeSource::ConfigMap),
                volume("host", VolumeSource::HostPath),
                volume("secret", VolumeSource::Other),
                volume("../../x", empty_dir(true, None)),
            ],
            ..Workload::default()
        }
    }

    fn paths(owned: &Owned) -> Vec<String> {
        let pieces = owned.pieces.iter();
        pieces
            .map(|piece| piece.folder.path.display().to_string())
            .collect()
    }

    #[test]
    fn a_kubelets_pod_has_the_kubelets_folders() {
        let keeps = Keeps::AsKubelet {
            has_user_namespace: true,
        };
        let owned = Owned::of(&Places::under(Path::new("/host")), &pod("12-ab"), &keeps);
        let volumes = "/host/var/lib/kubelet/pods/12-ab/volumes";
        assert_eq!(
            paths(&owned),
            [
                format!("{volumes}/kubernetes.io~empty-dir/scratch"),
                format!("{volumes}/kubernetes.io~empty-dir/bounded"),
                format!("{volumes}/kubernetes.io~configmap/settings"),
                "/host/var/log/pods/shop_web_12-ab/app".to_owned(),
                "/host/var/log/pods/shop_web_12-ab".to_owned(),
            ]
        );
        assert!(!owned.has_folders_alone());
        let quotas: Vec<bool> = owned.pieces.iter().map(|one| one.folder.quota).collect();
        assert_eq!(quotas, [true, true, true, false, false]);
        assert_eq!(
            owned.hosts_file.as_deref(),
            Some(Path::new("/host/var/lib/kubelet/pods/12-ab/etc-hosts"))
        );
    }

    #[test]
    fn a_name_that_leads_elsewhere_has_no_folder() {
        let keeps = Keeps::AsKubelet {
            has_user_namespace: false,
        };
        for uid in ["..", "", "a/b"] {
            let owned = Owned::of(&Places::under(Path::new("/")), &pod(uid), &keeps);
            assert_eq!(paths(&owned), [""; 0], "{uid}");
        }
    }

    #[test]
    fn folders_that_were_named_are_below_the_root_and_no_quota_answers_for_them() {
        let keeps = Keeps::Directories(vec![PathBuf::from("/srv/a")]);
        let owned = Owned::of(&Places::under(Path::new("/host")), &pod("u"), &keeps);
        assert_eq!(paths(&owned), ["/host/srv/a"]);
        assert!(owned.has_folders_alone());
        let container = vec![("app".to_owned(), "id".to_owned())];
        assert!(!owned.clone().with_containers(container).has_folders_alone());
        let [piece] = &owned.pieces[..] else {
            panic!("{owned:?}");
        };
        assert_eq!(piece.part, Part::Volume("/srv/a".to_owned()));
        assert!(!piece.folder.quota && piece.folder.written_directly);
    }
}

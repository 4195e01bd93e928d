//! Where filesystems are measured: where the configuration says, or the kubelet and the container runtime.

use std::path::{Path, PathBuf};

use super::answer::Folders;
use crate::config::Filesystems;
use crate::doctor::facts::kubelet::{Running, flags, running};
use crate::guard::disks::Role;

/// The kubelet's default.
pub const DEFAULT: &str = "/var/lib/kubelet";

/// The kubelet's root directory, as the node names it: by its command line, then its default if that is there, and the root
/// of the node where there is no kubelet.
pub fn kubelet_root(root: &Path) -> PathBuf {
    root_of(running(root).ok().flatten().as_ref(), root)
}

/// Where a kubelet that runs has its files: where its command line says, or else its default. One without a single argument is taken
/// for one whose command line cannot be read: nothing is known of it.
pub fn folder_of(kubelet: &Running) -> Option<PathBuf> {
    let folder = || root_dir(kubelet).unwrap_or_else(|| PathBuf::from(DEFAULT));
    (!kubelet.arguments.is_empty()).then(folder)
}

/// The root directory that a kubelet's command line names.
fn root_dir(kubelet: &Running) -> Option<PathBuf> {
    let value = flags::value(&kubelet.arguments, "--root-dir");
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

fn root_of(kubelet: Option<&Running>, root: &Path) -> PathBuf {
    let flag = kubelet.and_then(root_dir);
    let default = || {
        let is_there = kubelet.is_some() || below(root, Path::new(DEFAULT)).is_dir();
        is_there.then(|| PathBuf::from(DEFAULT))
    };
    flag.or_else(default).unwrap_or_else(|| PathBuf::from("/"))
}

/// The folder of each role, as this process sees it; none where there is no such thing to be known. `kubelets` is the kubelet's
/// own, asked where the configuration names none, and `told` what the container runtime says.
pub fn folders(
    root: &Path,
    configured: &Filesystems,
    kubelets: impl FnOnce() -> PathBuf,
    told: Folders,
) -> [(Role, Option<PathBuf>); 3] {
    let nodefs = configured.nodefs.clone().unwrap_or_else(kubelets);
    let images = configured.imagefs.clone().or(told.images);
    let layers = configured.containerfs.clone().or(told.layers);
    let all = [
        (Role::Nodefs, Some(nodefs)),
        (Role::Imagefs, images),
        (Role::Containerfs, layers),
    ];
    all.map(|(role, path)| (role, path.map(|path| below(root, &path))))
}

/// A path of the node's as this process sees it.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_kubelet_it_is_the_root_unless_one_has_been_there() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(kubelet_root(root.path()), Path::new("/"));
        std::fs::create_dir_all(root.path().join("var/lib/kubelet")).unwrap();
        assert_eq!(kubelet_root(root.path()), Path::new(DEFAULT));
    }

    #[test]
    fn the_kubelets_own_word_counts_first() {
        let root = tempfile::tempdir().unwrap();
        let kubelet = |arguments: &[&str]| Running {
            pid: 77,
            name: "kubelet".to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
        };
        let silent = kubelet(&["--v=2"]);
        assert_eq!(root_of(Some(&silent), root.path()), Path::new(DEFAULT));
        let found = root_of(Some(&kubelet(&["--root-dir=/srv/kubelet"])), root.path());
        assert_eq!(found, Path::new("/srv/kubelet"));
    }

    #[test]
    fn paths_of_the_node_are_below_its_root() {
        let below = |path| below(Path::new("/host"), Path::new(path));
        assert_eq!(below("/var/lib"), Path::new("/host/var/lib"));
        assert_eq!(below("/"), Path::new("/host"));
    }
}

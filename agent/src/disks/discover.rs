//! Where the node's filesystems are: where the configuration says, or the kubelet and the container runtime.

use std::path::{Path, PathBuf};

use brink_host::process::essential::{Essential, is_still_there};

use super::answer::Folders;
use crate::config::Filesystems;
use crate::doctor::facts::kubelet::{Running, flags, kubelets_process, told_by};

/// The kubelet's default.
pub const DEFAULT: &str = "/var/lib/kubelet";

/// What is known of it from one look to the next. By default nothing is, and nothing was configured.
///
/// The last word counts until there is another one: a kubelet or a runtime that is away for a while has not moved its files.
#[derive(Debug, Default)]
pub struct Discovery {
    root: PathBuf,
    pub(super) configured: Filesystems,
    /// The kubelet that was found last.
    kubelet: Option<Essential>,
    /// Where the kubelet has its files, as one that ran said last.
    said: Option<PathBuf>,
    /// What is taken for that as long as none has run.
    guessed: Option<PathBuf>,
    /// Where images and writable layers lie, as the runtime said last.
    pub(super) told: Folders,
}

impl Discovery {
    /// Of the node with that root, where nobody has been asked yet.
    pub fn new(root: PathBuf, configured: Filesystems) -> Self {
        Self {
            root,
            configured,
            ..Self::default()
        }
    }

    /// Takes what the container runtime says, if it does.
    pub fn hear_runtime(&mut self, told: Option<Folders>) {
        if let Some(told) = told {
            self.told = told;
        }
    }

    /// Whether any folder is where the kubelet has it: the configuration names none for nodefs.
    pub const fn follows_kubelet(&self) -> bool {
        self.configured.nodefs.is_none()
    }

    /// Whether the kubelet that was found last still runs; where it has its files is known anew then. Reads a few small files.
    pub fn ask_kubelet(&mut self) -> bool {
        let root = &self.root;
        let known = self.kubelet.take();
        self.kubelet = known.filter(|kubelet| is_still_there(root, kubelet));
        let Some(kubelet) = &self.kubelet else {
            return false;
        };
        let said = folder_of(&told_by(root, kubelet)).or_else(|| self.said.take());
        self.said = Some(said.unwrap_or_else(|| PathBuf::from(DEFAULT)));
        true
    }

    /// Asks the kubelet, and looks for another one among all processes where that is gone. Whether one runs; none where nobody can
    /// tell.
    pub fn find_kubelet(&mut self) -> Option<bool> {
        if self.ask_kubelet() {
            return Some(true);
        }
        self.kubelet = kubelets_process(&self.root).ok()?;
        Some(self.ask_kubelet())
    }

    /// The folder of each role, in their order, as this process sees it; none where there is no such thing to be known.
    pub fn folders(&mut self) -> [Option<PathBuf>; 3] {
        let nodefs = self.configured.nodefs.clone();
        let nodefs = nodefs.unwrap_or_else(|| self.kubelets());
        let Filesystems {
            imagefs,
            containerfs,
            ..
        } = &self.configured;
        let images = imagefs.as_ref().or(self.told.images.as_ref());
        let layers = containerfs.as_ref().or(self.told.layers.as_ref());
        [Some(&nodefs), images, layers].map(|path| Some(below(&self.root, path?)))
    }

    /// The kubelet's own folder, as the node names it. Where none has run yet it is the default, if that is there, and else the root of
    /// the node.
    fn kubelets(&mut self) -> PathBuf {
        if let Some(said) = &self.said {
            return said.clone();
        }
        let root = &self.root;
        let guess = || {
            let is_there = below(root, Path::new(DEFAULT)).is_dir();
            PathBuf::from(if is_there { DEFAULT } else { "/" })
        };
        self.guessed.get_or_insert_with(guess).clone()
    }
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

/// A path of the node's as this process sees it.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{add_process, end_process};

    const KUBELET: u32 = 4_000_000;

    /// A machine on which we run alone, and what is known of it.
    fn machine() -> (tempfile::TempDir, Discovery) {
        let machine = tempfile::tempdir().unwrap();
        add_process(machine.path(), std::process::id(), "brink", &[]);
        let discovery = Discovery::new(machine.path().to_path_buf(), Filesystems::default());
        (machine, discovery)
    }

    #[track_caller]
    fn check(discovery: &mut Discovery, runs: Option<bool>, folder: &str) {
        assert_eq!(discovery.find_kubelet(), runs);
        let expected = below(&discovery.root, Path::new(folder));
        assert_eq!(discovery.folders(), [Some(expected), None, None]);
    }

    #[test]
    fn without_a_kubelet_it_is_the_root_unless_one_has_been_there() {
        let (machine, mut discovery) = machine();
        check(&mut discovery, Some(false), "/");
        std::fs::create_dir_all(machine.path().join("var/lib/kubelet")).unwrap();
        let mut later = Discovery::new(machine.path().to_path_buf(), Filesystems::default());
        check(&mut later, Some(false), DEFAULT);
        end_process(machine.path(), std::process::id());
        check(&mut later, None, DEFAULT);
    }

    #[test]
    fn a_kubelet_that_comes_later_or_anew_is_followed_and_one_that_goes_leaves_its_folder() {
        let (machine, mut discovery) = machine();
        let kubelet = |pid, arguments: &[&str]| {
            add_process(machine.path(), pid, "kubelet", arguments);
        };
        check(&mut discovery, Some(false), "/");
        kubelet(KUBELET, &["--root-dir=/srv/kubelet"]);
        assert!(!discovery.ask_kubelet(), "nobody has looked for it");
        check(&mut discovery, Some(true), "/srv/kubelet");
        // Another process, before it is looked for.
        kubelet(KUBELET + 1, &["--v=2"]);
        check(&mut discovery, Some(true), "/srv/kubelet");
        end_process(machine.path(), KUBELET);
        assert!(!discovery.ask_kubelet(), "it is gone");
        check(&mut discovery, Some(true), DEFAULT);
        assert!(discovery.ask_kubelet());
        kubelet(KUBELET + 1, &["--root-dir=/srv/other"]);
        check(&mut discovery, Some(true), "/srv/other");
        end_process(machine.path(), KUBELET + 1);
        check(&mut discovery, Some(false), "/srv/other");
    }

    #[test]
    fn of_a_kubelet_that_says_nothing_the_default_counts_or_what_another_has_said() {
        let (machine, mut discovery) = machine();
        check(&mut discovery, Some(false), "/");
        add_process(machine.path(), KUBELET, "kubelet", &[]);
        check(&mut discovery, Some(true), DEFAULT);
        add_process(machine.path(), KUBELET, "kubelet", &["--root-dir", "/srv"]);
        check(&mut discovery, Some(true), "/srv");
        add_process(machine.path(), KUBELET, "kubelet", &[]);
        check(&mut discovery, Some(true), "/srv");
    }

    #[test]
    fn what_was_configured_counts_first_and_then_what_the_runtime_said_last() {
        let configured = Filesystems {
            nodefs: Some("/a".into()),
            imagefs: None,
            containerfs: Some("/c".into()),
        };
        let mut discovery = Discovery::new("/host".into(), configured);
        assert!(!discovery.follows_kubelet());
        let folders = |images: Option<&str>| {
            [Some("/host/a"), images, Some("/host/c")].map(|path| path.map(PathBuf::from))
        };
        assert_eq!(discovery.folders(), folders(None));
        let told = Folders {
            images: Some("/images".into()),
            layers: Some("/layers".into()),
        };
        for told in [Some(told), None] {
            discovery.hear_runtime(told);
            assert_eq!(discovery.folders(), folders(Some("/host/images")));
        }
    }

    #[test]
    fn paths_of_the_node_are_below_its_root() {
        let below = |path| below(Path::new("/host"), Path::new(path));
        assert_eq!(below("/var/lib"), Path::new("/host/var/lib"));
        assert_eq!(below("/"), Path::new("/host"));
    }
}

//! Where a node's filesystems lie: which folders of workloads are on nodefs, and whether images have a disk of their own.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use brink_core::node::observe::Layout;
use brink_host::disk::Filesystem;
use brink_host::disk::filesystem::FilesystemKind;
use tracing::debug;

use crate::config::Filesystems;
use crate::disks::answer::Folders;
use crate::disks::discover::{folders, kubelet_root};
use crate::disks::plan::{Laid, Measured, are_same, plan};

/// For the answers of the filesystems; what comes later is taken at the next round.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is known of them. By default nothing is, and nothing is looked for.
#[derive(Default)]
pub(super) struct Ground {
    root: PathBuf,
    filesystems: Filesystems,
    kubelets: Option<PathBuf>,
    /// What the container runtime has said last.
    told: Option<Folders>,
    /// Who asks them: one at a time, as long as that takes.
    asked: Option<Receiver<[Option<Filesystem>; 3]>>,
    nodefs: Option<Filesystem>,
    layout: Option<Layout>,
}

impl Ground {
    /// That of a node, which has not been looked at yet.
    pub(super) fn new(root: PathBuf, filesystems: Filesystems) -> Self {
        Self {
            root,
            filesystems,
            ..Self::default()
        }
    }

    /// Looks at it, with what a runtime tells of where images and layers lie, if it does.
    pub(super) fn look(&mut self, told: Option<Folders>) {
        self.told = told.or(self.told.take());
        if self.asked.is_none() {
            self.asked = self.ask();
        }
        let answer = self
            .asked
            .as_ref()
            .map(|asked| asked.recv_timeout(PATIENCE));
        match answer {
            Some(Ok(found)) => self.take(found),
            Some(Err(RecvTimeoutError::Timeout)) => return,
            Some(Err(RecvTimeoutError::Disconnected)) | None => {}
        }
        self.asked = None;
    }

    /// Whoever asks is held by a filesystem that does not answer.
    fn ask(&mut self) -> Option<Receiver<[Option<Filesystem>; 3]>> {
        let paths = self.paths();
        let (sender, answer) = channel();
        let asks = move || {
            let found = paths.map(|path| Filesystem::read(path.as_deref()?).ok());
            let _nobody_waits = sender.send(found);
        };
        let thread = std::thread::Builder::new().name("brink-ground".to_owned());
        let started = thread.stack_size(64 << 10).spawn(asks);
        let started = started.inspect_err(|error| debug!(%error, "filesystems are not looked at"));
        started.is_ok().then_some(answer)
    }

    fn paths(&mut self) -> [Option<PathBuf>; 3] {
        let root = &self.root;
        let kubelets = &mut self.kubelets;
        let kubelets = || kubelets.get_or_insert_with(|| kubelet_root(root)).clone();
        let told = self.told.clone().unwrap_or_default();
        folders(root, &self.filesystems, kubelets, told).map(|(_, path)| path)
    }

    fn take(&mut self, found: [Option<Filesystem>; 3]) {
        let known = self.paths().map(|path| path.is_some());
        let [nodefs, images, layers] = found;
        let (has_images, is_whole) = (known[1], known == found.map(|one| one.is_some()));
        if has_images && is_whole {
            let measured = Measured {
                nodefs,
                images,
                layers,
            };
            self.layout = Some(plan(known, &measured, Laid::default()).0.layout);
        }
        self.nodefs = nodefs.or(self.nodefs);
    }

    /// Whether a folder is known to lie on another filesystem than nodefs. An overlay has the room of the filesystem below it,
    /// and does not say which that is.
    pub(super) fn is_elsewhere(&self, folder: &Path) -> bool {
        let nodefs = self
            .nodefs
            .filter(|nodefs| nodefs.kind != FilesystemKind::OVERLAY);
        let found = nodefs.zip(Filesystem::read(folder).ok());
        found.is_some_and(|(nodefs, found)| !are_same(Some(&nodefs), Some(&found)))
    }

    /// The layout that limits of containers go by. Where that is not known nobody goes for what counts in one of them alone.
    pub(super) fn layout(&self) -> Layout {
        self.layout.unwrap_or(Layout::DedicatedImagefs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another filesystem than any folder that a test can make.
    const ELSEWHERE: &str = "/proc";

    fn ground(folder: &Path) -> Ground {
        let filesystems = Filesystems {
            nodefs: Some(folder.to_path_buf()),
            ..Filesystems::default()
        };
        Ground::new(PathBuf::from("/"), filesystems)
    }

    #[test]
    fn folders_on_another_filesystem_are_elsewhere_once_nodefs_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("a");
        std::fs::create_dir(&inside).unwrap();
        let mut ground = ground(folder.path());
        assert!(!ground.is_elsewhere(Path::new(ELSEWHERE)));
        ground.look(None);
        assert!(!ground.is_elsewhere(&inside));
        assert!(!ground.is_elsewhere(Path::new("/nowhere/at/all")));
        for (kind, expected) in [
            (FilesystemKind::EXT4, true),
            (FilesystemKind::OVERLAY, false),
        ] {
            let nodefs = ground.nodefs.unwrap();
            ground.nodefs = Some(Filesystem { kind, ..nodefs });
            assert_eq!(
                ground.is_elsewhere(Path::new(ELSEWHERE)),
                expected,
                "{kind}"
            );
        }
    }

    #[test]
    fn a_layout_is_known_once_somebody_says_where_images_are_and_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut ground = ground(folder.path());
        let told = |path: &Path| {
            Some(Folders {
                images: Some(path.to_path_buf()),
                layers: None,
            })
        };
        ground.look(None);
        assert_eq!(ground.layout, None);
        assert!(ground.layout().has_dedicated_imagefs());
        ground.look(told(Path::new("/nowhere/at/all")));
        assert_eq!(ground.layout, None);
        ground.look(told(folder.path()));
        assert_eq!(ground.layout, Some(Layout::Single));
        ground.look(None);
        assert_eq!(ground.layout, Some(Layout::Single));
        ground.look(told(Path::new(ELSEWHERE)));
        assert_eq!(ground.layout, Some(Layout::DedicatedImagefs));
    }
}

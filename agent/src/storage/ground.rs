//! Where a node's filesystems lie: which folders of workloads are on nodefs, and whether images have a disk of their own.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use brink_core::node::observe::Layout;
use brink_host::disk::Filesystem;
use brink_host::disk::filesystem::FilesystemKind;
use tracing::debug;

use crate::config::Filesystems;
use crate::disks::answer::Folders;
use crate::disks::discover::Discovery;
use crate::disks::plan::{Laid, Measured, are_same, plan};
use crate::guard::disks::Role;

/// For the answers of the filesystems; what comes later is taken at the next round.
const PATIENCE: Duration = Duration::from_secs(1);
/// A kubelet is looked for so often at most: all processes are gone through for it.
const SEARCH: Duration = Duration::from_secs(30);
/// As long as no layout is known nobody goes for what counts in one of them alone.
const UNKNOWN: Laid = Laid {
    layout: Layout::DedicatedImagefs,
    layers_apart: false,
};

/// What is known of them. By default nothing is, and nothing is looked for.
#[derive(Default)]
pub(super) struct Ground {
    discovery: Discovery,
    /// When the kubelet was looked for last.
    searched: Option<Instant>,
    /// The folders of the three roles, as of the last look.
    folders: [Option<PathBuf>; 3],
    /// Who asks their filesystems: one at a time, as long as that takes.
    asked: Option<Receiver<[Option<Filesystem>; 3]>>,
    nodefs: Option<Filesystem>,
    laid: Option<Laid>,
}

impl Ground {
    /// That of a node, which has not been looked at yet.
    pub(super) fn new(root: PathBuf, filesystems: Filesystems) -> Self {
        Self {
            discovery: Discovery::new(root, filesystems),
            ..Self::default()
        }
    }

    /// Looks at it, with what a runtime tells of where images and layers lie, if it does.
    pub(super) fn look(&mut self, told: Option<Folders>, now: Instant) {
        self.discovery.hear_runtime(told);
        self.follow_kubelet(now);
        self.turn();
        if self.asked.is_none() {
            self.asked = ask(self.folders.clone());
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

    /// One that is known is asked at each look, which costs next to nothing.
    fn follow_kubelet(&mut self, now: Instant) {
        if !self.discovery.follows_kubelet() || self.discovery.ask_kubelet() {
            return;
        }
        let since = |searched| now.saturating_duration_since(searched);
        if self.searched.is_none_or(|at| since(at) >= SEARCH) {
            self.searched = Some(now);
            let _whether_it_runs = self.discovery.find_kubelet();
        }
    }

    /// Turns to where the folders are now: what was seen of nodefs in another place is none of it, and whoever still asks there is left
    /// to a filesystem that does not answer.
    fn turn(&mut self) {
        let before = std::mem::replace(&mut self.folders, self.discovery.folders());
        if before == self.folders {
            return;
        }
        self.asked = None;
        let nodefs = Role::Nodefs as usize;
        if before[nodefs] != self.folders[nodefs] {
            self.nodefs = None;
        }
    }

    fn take(&mut self, found: [Option<Filesystem>; 3]) {
        let known = self.folders.each_ref().map(Option::is_some);
        let [nodefs, images, layers] = found;
        let measured = Measured {
            nodefs,
            images,
            layers,
        };
        // Without images there is nothing to be laid out.
        if known[Role::Imagefs as usize] {
            let (laid, _) = plan(known, &measured, self.laid());
            self.laid = Some(laid);
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

    /// The layout that limits of containers go by.
    pub(super) fn layout(&self) -> Layout {
        self.laid().layout
    }

    fn laid(&self) -> Laid {
        self.laid.unwrap_or(UNKNOWN)
    }
}

/// Whoever asks is held by a filesystem that does not answer.
fn ask(folders: [Option<PathBuf>; 3]) -> Option<Receiver<[Option<Filesystem>; 3]>> {
    let (sender, answer) = channel();
    let asks = move || {
        let found = folders.map(|path| Filesystem::read(path.as_deref()?).ok());
        let _nobody_waits = sender.send(found);
    };
    let thread = std::thread::Builder::new().name("brink-ground".to_owned());
    let started = thread.stack_size(64 << 10).spawn(asks);
    let started = started.inspect_err(|error| debug!(%error, "filesystems are not looked at"));
    started.is_ok().then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{add_process, end_process};

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
        ground.look(None, Instant::now());
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
        let mut check = |told: Option<Folders>, expected: Layout| {
            ground.look(told, Instant::now());
            assert_eq!(ground.layout(), expected);
        };
        let unknown = Layout::DedicatedImagefs;
        check(None, unknown);
        check(told(Path::new("/nowhere/at/all")), unknown);
        check(told(folder.path()), Layout::Single);
        check(None, Layout::Single);
        check(told(Path::new("/nowhere/at/all")), Layout::Single);
        check(told(Path::new(ELSEWHERE)), Layout::DedicatedImagefs);
    }

    #[test]
    fn nodefs_is_where_the_kubelet_has_it_also_one_that_comes_later_or_with_another_folder() {
        const PIDS: [u32; 2] = [4_000_000, 4_000_001];
        let machine = tempfile::tempdir().unwrap();
        let root = machine.path();
        let (one, two) = (root.join("srv/one"), root.join("srv/two"));
        std::fs::create_dir_all(&one).unwrap();
        add_process(root, std::process::id(), "brink", &[]);
        let mut ground = Ground::new(root.to_path_buf(), Filesystems::default());
        let began = Instant::now();
        let check = |ground: &mut Ground, periods: u32, folder: &Path, is_known: bool| {
            ground.look(None, began + SEARCH * periods / 2);
            let nodefs = (ground.folders[0].as_deref(), ground.nodefs.is_some());
            assert_eq!(nodefs, (Some(folder), is_known), "{periods}");
        };
        check(&mut ground, 0, root, true);
        add_process(root, PIDS[0], "kubelet", &["--root-dir=/srv/one"]);
        check(&mut ground, 1, root, true);
        check(&mut ground, 2, &one, true);
        assert!(!ground.is_elsewhere(&one));
        end_process(root, PIDS[0]);
        check(&mut ground, 3, &one, true);
        add_process(root, PIDS[1], "kubelet", &["--root-dir=/srv/two"]);
        check(&mut ground, 4, &two, false);
        assert!(!ground.is_elsewhere(&one), "nobody knows what nodefs is");
        std::os::unix::fs::symlink(ELSEWHERE, &two).unwrap();
        check(&mut ground, 5, &two, true);
        assert!(ground.is_elsewhere(&one) && !ground.is_elsewhere(&two));
        end_process(root, PIDS[1]);
        check(&mut ground, 6, &two, true);
    }
}

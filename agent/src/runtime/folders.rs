//! Folders whose files are watched, and whether the kernel still tells of them.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;
use tracing::warn;

use super::heard;

/// A folder by its file system and its number there: one that was made anew is another.
type Identity = (u64, u64);

/// Folders that are watched.
#[derive(Debug, Default)]
pub(super) struct Folders {
    inotify: Option<OwnedFd>,
    folders: Vec<Folder>,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// What was there when we began.
    found: Option<Identity>,
    /// The kernel's number for the watch; none if it cannot be watched.
    watch: Option<i32>,
}

impl Folders {
    /// Watches what can be watched; the rest is said.
    pub(super) fn watch(paths: &[&Path]) -> Self {
        let inotify = heard::open()
            .inspect_err(|errno| warn!(%errno, "files cannot be watched; they are looked at again and again"))
            .ok();
        let folder = |path: &&Path| Folder {
            path: path.to_path_buf(),
            found: identity(path),
            watch: inotify.as_ref().and_then(|inotify| add(inotify, path)),
        };
        let folders = paths.iter().map(folder).collect();
        Self { inotify, folders }
    }

    /// Readable when something has happened.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Tells the folders in which something has happened since the last time.
    pub(super) fn drain(&self, mut tell: impl FnMut(&Path)) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        heard::each(inotify, |watch| {
            let of = |folder: &&Folder| watch.is_none() || folder.watch == watch;
            self.folders
                .iter()
                .filter(of)
                .for_each(|folder| tell(&folder.path));
        });
    }

    /// Whether the kernel tells what happens in the folder now at that path.
    pub(super) fn tell_of(&self, path: &Path) -> bool {
        let mut folders = self.folders.iter();
        folders.any(|folder| folder.path == path && folder.is_told())
    }

    /// Whether the kernel tells what happens in all of them.
    pub(super) fn tell_of_all(&self) -> bool {
        let mut folders = self.folders.iter();
        folders.all(Folder::is_told)
    }

    /// Whether one of them was made, or made anew, since we began: it is worth beginning again.
    pub(super) fn are_others(&self) -> bool {
        let mut folders = self.folders.iter();
        folders.any(|folder| folder.is_other() && identity(&folder.path).is_some())
    }
}

impl Folder {
    fn is_told(&self) -> bool {
        self.watch.is_some() && !self.is_other()
    }

    fn is_other(&self) -> bool {
        identity(&self.path) != self.found
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn add(inotify: &OwnedFd, path: &Path) -> Option<i32> {
    use inotify::WatchFlags as On;
    let inside = On::CREATE | On::DELETE | On::CLOSE_WRITE | On::MOVED_TO | On::MOVED_FROM;
    // Who has taken the folder itself away may put another in its place, of which this watch tells nothing.
    let changes = inside | On::MOVE_SELF | On::DELETE_SELF;
    let added = inotify::add_watch(inotify, path, changes);
    if let Err(errno) = &added {
        warn!(%errno, folder = %path.display(), "a folder cannot be watched; it is looked at again and again");
    }
    added.ok()
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    use super::*;

    #[test]
    fn what_happens_is_told_until_the_folder_is_another() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("state");
        fs::create_dir(&path).unwrap();
        let folders = Folders::watch(&[&path]);
        assert!(folders.tell_of(&path) && folders.tell_of_all() && !folders.are_others());
        assert!(!folders.tell_of(parent.path()), "nobody asked for that one");
        let happened = || {
            let mut count = 0;
            folders.drain(|told| count += usize::from(told == path));
            count > 0
        };
        assert!(!happened());
        fs::write(path.join("pause"), "").unwrap();
        assert!(happened() && !happened());

        // The old one is kept for its number: a new one is sure to get another.
        fs::rename(&path, parent.path().join("old")).unwrap();
        assert!(!folders.tell_of(&path) && !folders.tell_of_all());
        assert!(!folders.are_others(), "there is nothing to watch yet");
        fs::create_dir(&path).unwrap();
        assert!(!folders.tell_of(&path) && folders.are_others());
        let again = Folders::watch(&[&path]);
        assert!(again.tell_of(&path) && !again.are_others());
    }

    #[test]
    fn a_folder_that_is_not_there_is_not_told_of() {
        let parent = tempfile::tempdir().unwrap();
        let (there, missing) = (parent.path(), parent.path().join("missing"));
        let folders = Folders::watch(&[there, &missing]);
        assert!(folders.tell_of(there) && !folders.tell_of(&missing));
        assert!(!folders.tell_of_all() && !folders.are_others());
        fs::create_dir(&missing).unwrap();
        assert!(folders.are_others());
    }

    #[test]
    fn a_folder_that_is_taken_away_wakes_whoever_waits() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        let is_readable = |folders: &Folders| {
            let fd = PollFd::from_borrowed_fd(folders.fd().unwrap(), PollFlags::IN);
            poll(&mut [fd], Some(&Timespec::default())).unwrap() == 1
        };
        for take_away in [
            |from: &Path, to: &Path| fs::rename(from, to).unwrap(),
            |from: &Path, _: &Path| fs::remove_dir(from).unwrap(),
        ] {
            fs::create_dir(path("state")).unwrap();
            let folders = Folders::watch(&[&path("state")]);
            assert!(!is_readable(&folders));
            take_away(&path("state"), &path("old"));
            assert!(is_readable(&folders));
        }
    }
}

//! A change feed for each mount that watched folders lie on, begun with the first of them and ended with the last.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::disk::feed::{Feed, FeedCounts, NoFeed};
use crate::disk::usage::Identity;

/// Feeds at once: the kernel lets a user have 128 queues, for all programs.
const MOST: usize = 32;
/// Folders looked at upwards for the place of a mount.
const HIGHEST: usize = 4096;
/// What the kernel tells is read so often at least while folders are measured, so that its queues do not run over.
const OFTEN: Duration = Duration::from_millis(500);
/// How long a refusal is believed.
const AGAIN: Duration = Duration::from_mins(10);

/// Whether a mount is listened to.
#[derive(Debug)]
enum Listening {
    Feed(Box<Feed>),
    Refused { why: NoFeed, at: Instant },
}

#[derive(Debug)]
struct Watched {
    mount: PathBuf,
    identity: Identity,
}

/// All feeds, and which of them each folder belongs to.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    mounts: HashMap<PathBuf, Listening>,
    folders: HashMap<PathBuf, Watched>,
    /// What feeds that have ended had seen.
    ended: FeedCounts,
    /// When all queues were read last.
    drained: Option<Instant>,
}

impl Feeds {
    /// Sees to it that a folder is watched, if it can be: the folder of that path, with this identity, open as `dir`. While
    /// that is open its filesystem stays, and with it a mark that is there now.
    pub(super) fn watch(
        &mut self,
        path: &Path,
        identity: Identity,
        dir: BorrowedFd<'_>,
        now: Instant,
    ) {
        if let Some(watched) = self.folders.get(path) {
            let stands = match self.mounts.get(&watched.mount) {
                Some(Listening::Feed(feed)) => {
                    watched.identity == identity && feed.listens_to(identity.device)
                }
                Some(Listening::Refused { at, .. }) => {
                    now.saturating_duration_since(*at) < AGAIN && watched.identity == identity
                }
                None => false,
            };
            if stands {
                return;
            }
            self.forget(path);
        }
        let Ok(mount) = mount_of(path, dir) else {
            return;
        };
        self.listen(&mount, identity.device, now);
        if let Some(Listening::Feed(feed)) = self.mounts.get_mut(&mount) {
            feed.watch(identity.inode);
        }
        let watched = Watched { mount, identity };
        self.folders.insert(path.to_path_buf(), watched);
    }

    /// Whether a folder has changed since this was last asked; `None` if nobody tells.
    pub(super) fn take_change(&mut self, path: &Path) -> Option<bool> {
        let Watched { mount, identity } = self.folders.get(path)?;
        let Some(Listening::Feed(feed)) = self.mounts.get_mut(mount) else {
            return None;
        };
        feed.drain();
        Some(feed.take(identity.inode))
    }

    /// Reads all queues, unless that was done just now.
    pub(super) fn keep_up(&mut self) {
        if self.drained.is_none_or(|at| at.elapsed() >= OFTEN) {
            self.drain();
        }
    }

    pub(super) fn drain(&mut self) {
        self.drained = Some(Instant::now());
        for listening in self.mounts.values_mut() {
            if let Listening::Feed(feed) = listening {
                feed.drain();
            }
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Path) -> bool) {
        let paths = self.folders.keys().filter(|path| !keep(path));
        for path in paths.cloned().collect::<Vec<_>>() {
            self.forget(&path);
        }
    }

    pub(super) fn counts(&self) -> (usize, FeedCounts) {
        let feeds = self
            .mounts
            .values()
            .filter_map(|listening| match listening {
                Listening::Feed(feed) => Some(feed.counts()),
                Listening::Refused { .. } => None,
            });
        feeds.fold((0, self.ended), |(number, sum), counts| {
            (number + 1, sum.plus(counts))
        })
    }

    pub(super) fn refusals(&self) -> impl Iterator<Item = (&Path, String)> {
        self.mounts
            .iter()
            .filter_map(|(mount, listening)| match listening {
                Listening::Feed(_) => None,
                Listening::Refused { why, .. } => Some((mount.as_path(), why.to_string())),
            })
    }

    fn listen(&mut self, mount: &Path, device: u64, now: Instant) {
        let stands = match self.mounts.get(mount) {
            Some(Listening::Feed(feed)) => feed.listens_to(device),
            Some(Listening::Refused { at, .. }) => now.saturating_duration_since(*at) < AGAIN,
            None => false,
        };
        if stands {
            return;
        }
        self.end(mount);
        let feeds = self.counts().0;
        let begun = if feeds < MOST {
            Feed::open(mount)
        } else {
            Err(NoFeed::TooMany)
        };
        let listening = match begun {
            Ok(feed) => Listening::Feed(Box::new(feed)),
            Err(why) => Listening::Refused { why, at: now },
        };
        self.mounts.insert(mount.to_path_buf(), listening);
    }

    /// Ends a feed. Its folders are watched again as they are opened the next time.
    fn end(&mut self, mount: &Path) {
        if let Some(Listening::Feed(feed)) = self.mounts.remove(mount) {
            self.ended = self.ended.plus(feed.counts());
        }
        self.folders.retain(|_, watched| watched.mount != mount);
    }

    fn forget(&mut self, path: &Path) {
        let Some(Watched { mount, identity }) = self.folders.remove(path) else {
            return;
        };
        if let Some(Listening::Feed(feed)) = self.mounts.get_mut(&mount) {
            feed.forget(identity.inode);
        }
        if !self.folders.values().any(|other| other.mount == mount) {
            self.end(&mount);
        }
    }
}

/// The first folder of the mount that a folder lies on. Handles are opened by it: another mount of the same filesystem may
/// not show what is above them.
fn mount_of(path: &Path, dir: BorrowedFd<'_>) -> Result<PathBuf, Errno> {
    let path = fs::canonicalize(path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = |dir: BorrowedFd<'_>| {
        rustix::fs::openat2(dir, c"..", flags, Mode::empty(), ResolveFlags::NO_XDEV)
    };
    let mut current = dir.try_clone_to_owned().map_err(|_| Errno::MFILE)?;
    let mut ancestors = path.ancestors().take(HIGHEST);
    let mut place = ancestors.next().ok_or(Errno::NOENT)?;
    for ancestor in ancestors {
        current = match above(current.as_fd()) {
            Ok(above) => above,
            Err(Errno::XDEV) => break,
            Err(errno) => return Err(errno),
        };
        place = ancestor;
    }
    Ok(place.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_mount_is_its_first_folder() {
        let root = tempfile::tempdir().expect("temporary folder");
        let path = root.path().join("a/b");
        fs::create_dir_all(&path).expect("folders");
        let dir = fs::File::open(&path).expect("a folder");
        let mount = mount_of(&path, dir.as_fd()).expect("a mount");
        assert!(path.starts_with(&mount) && mount != path, "{mount:?}");
        let proc = fs::File::open("/proc/self").expect("a folder");
        let mount = mount_of(Path::new("/proc/self"), proc.as_fd()).expect("a mount");
        assert_eq!(mount, Path::new("/proc"));
    }
}

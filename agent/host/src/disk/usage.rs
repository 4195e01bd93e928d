//! What folders use, each by the way that costs least.
//!
//! That is the filesystem's own books, the last answer where nothing has changed since, or a walk.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::disk::error::DiskError;
use crate::disk::feed::FeedCounts;
use crate::disk::feeds::Feeds;
use crate::disk::folder;
use crate::disk::pace::Pace;
use crate::disk::quota::{self, ProjectId};
use crate::disk::tally::Gaps;
use crate::disk::walk::{WalkLimits, walk_open};

/// How a figure was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The filesystem counts it as it writes.
    Quota,
    /// Every file was looked at.
    Walk,
    /// As at the last walk: the change feed has told of nothing since.
    Unchanged,
}

/// What a folder uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
    /// How they were come by.
    pub method: Method,
    /// How long that took.
    pub took: Duration,
    /// What makes them less than exact.
    pub gaps: Gaps,
}

/// A folder to be measured.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Folder {
    /// Where it is. The last part is no link.
    pub path: PathBuf,
    /// Whether a project quota may answer, if the folder has one: not if those who write to it may give their files another
    /// project, as owners may in the machine's own user namespace.
    pub quota: bool,
    /// Whether its files are written by its own filesystem. What is written through an overlay is hidden by some kernels
    /// from the change feed of the filesystem below: the upper folder of a container is then to be walked each time.
    pub written_directly: bool,
}

/// How folders are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageSettings {
    /// Whether change feeds are used where they can be had.
    pub feed: bool,
    /// The pace of walks where there is a feed.
    pub pace_with_feed: Pace,
    /// The pace of walks where there is none.
    pub pace_without_feed: Pace,
    /// How long a walk may take.
    pub within: Duration,
    /// How long a walk may be answered from: a feed does not see everything.
    pub trust: Duration,
}

impl Default for UsageSettings {
    fn default() -> Self {
        Self {
            feed: true,
            pace_with_feed: Pace::WITH_FEED,
            pace_without_feed: Pace::WITHOUT_FEED,
            within: Duration::from_mins(10),
            trust: Duration::from_mins(15),
        }
    }
}

/// A folder that was opened under its path: another one in its place is another folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) device: u64,
    pub(super) inode: u64,
}

#[derive(Debug)]
struct Known {
    identity: Identity,
    project: Option<ProjectId>,
    walked: Option<LastWalk>,
}

#[derive(Debug, Clone, Copy)]
struct LastWalk {
    usage: Usage,
    began: Instant,
}

/// Measures folders, one after the other, on a thread that may wait: see [`crate::disk::calm`].
#[derive(Debug)]
pub struct UsageMeter {
    settings: UsageSettings,
    known: HashMap<PathBuf, Known>,
    feeds: Feeds,
}

impl UsageMeter {
    /// Knows no folders yet.
    pub fn new(settings: UsageSettings) -> Self {
        Self {
            settings,
            known: HashMap::new(),
            feeds: Feeds::default(),
        }
    }

    /// Makes a folder known. All should be before the first is measured: two that have the same project are both walked, and
    /// so they are only if both are known.
    ///
    /// # Errors
    /// [`DiskError`] when it cannot be opened; it is not known then.
    pub fn watch(&mut self, folder: &Folder, now: Instant) -> Result<(), DiskError> {
        self.open(folder, now).map(drop)
    }

    /// Measures a folder. `stop` is looked at between the slices of a walk, and the change feeds of all are read meanwhile.
    ///
    /// # Errors
    /// [`DiskError`] when it cannot be opened; it is not known then.
    pub fn measure(
        &mut self,
        folder: &Folder,
        now: Instant,
        stop: &AtomicBool,
    ) -> Result<Usage, DiskError> {
        let began = Instant::now();
        self.feeds.keep_up();
        let dir = self.open(folder, now)?;
        if let Some(usage) = self.by_quota(folder, &dir) {
            return Ok(Usage {
                took: began.elapsed(),
                ..usage
            });
        }
        let Some(known) = self.known.get_mut(&folder.path) else {
            return Err(DiskError::of(
                "find",
                &folder.path,
                rustix::io::Errno::NOENT,
            ));
        };
        // Asked before the walk: what changes while it goes on is told the next time.
        let told = self.feeds.take_change(&folder.path);
        if let (Some(false), Some(last)) = (told, known.walked)
            && now.saturating_duration_since(last.began) < self.settings.trust
        {
            return Ok(Usage {
                method: Method::Unchanged,
                took: began.elapsed(),
                ..last.usage
            });
        }
        let limits = WalkLimits {
            pace: match told {
                Some(_) => self.settings.pace_with_feed,
                None => self.settings.pace_without_feed,
            },
            within: self.settings.within,
        };
        known.walked = None;
        let feeds = &mut self.feeds;
        // Who is quiet would be walked for nothing, had a queue run over meanwhile.
        let walked = walk_open(dir, &folder.path, limits, stop, &mut || feeds.keep_up())?;
        let usage = Usage {
            bytes: walked.bytes,
            inodes: walked.inodes,
            method: Method::Walk,
            took: walked.took,
            gaps: walked.gaps,
        };
        // What was not looked at, or can grow elsewhere, is no answer for the next time.
        if !walked.gaps.is_partial() && !walked.has_links_elsewhere && folder.written_directly {
            known.walked = Some(LastWalk { usage, began: now });
        }
        Ok(usage)
    }

    /// Reads what the change feeds have to tell, every second or so where nothing is measured, so that their queues do not run over.
    pub fn listen(&mut self) {
        self.feeds.drain();
    }

    /// Forgets all folders but those that are still there to be measured.
    pub fn retain(&mut self, keep: impl Fn(&Path) -> bool) {
        self.known.retain(|path, _| keep(path));
        self.feeds.retain(keep);
    }

    /// Filesystems with a change feed, and what these have seen together.
    pub fn feeds(&self) -> (usize, FeedCounts) {
        self.feeds.counts()
    }

    /// Why folders have no change feed, a line for each mount without one.
    pub fn without_feed(&self) -> impl Iterator<Item = (&Path, String)> {
        self.feeds.refusals()
    }

    fn open(&mut self, folder: &Folder, now: Instant) -> Result<OwnedFd, DiskError> {
        let opened = folder::open(&folder.path).and_then(|dir| {
            let stat = rustix::fs::fstat(&dir)
                .map_err(|errno| DiskError::of("look at", &folder.path, errno))?;
            let identity = Identity {
                device: stat.st_dev,
                inode: stat.st_ino,
            };
            Ok((dir, identity))
        });
        let (dir, identity) = opened.inspect_err(|_| self.retain_others(&folder.path))?;
        // The id can be given at any time.
        let project = folder.quota.then(|| quota::project(dir.as_fd()).ok());
        let known = self.known.entry(folder.path.clone());
        let known = known.or_insert(Known {
            identity,
            project: None,
            walked: None,
        });
        known.project = project.flatten();
        if known.identity != identity {
            (known.identity, known.walked) = (identity, None);
        }
        if self.settings.feed && folder.written_directly {
            self.feeds.watch(&folder.path, identity, dir.as_fd(), now);
        }
        Ok(dir)
    }

    fn retain_others(&mut self, path: &Path) {
        self.known.remove(path);
        self.feeds.retain(|other| other != path);
    }

    fn by_quota(&self, folder: &Folder, dir: &OwnedFd) -> Option<Usage> {
        let known = self.known.get(&folder.path)?;
        let project = known.project?;
        let sharing = self.known.values().filter(|other| {
            other.identity.device == known.identity.device && other.project == Some(project)
        });
        // It is one of them itself.
        if sharing.count() > 1 {
            return None;
        }
        let found = quota::usage(dir, project).ok()?;
        Some(Usage {
            bytes: found.bytes,
            inodes: found.inodes,
            method: Method::Quota,
            took: Duration::ZERO,
            gaps: Gaps::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn meter() -> UsageMeter {
        UsageMeter::new(UsageSettings {
            feed: false,
            pace_without_feed: Pace::UNBOUNDED,
            ..UsageSettings::default()
        })
    }

    fn folder(path: &Path) -> Folder {
        Folder {
            path: path.to_path_buf(),
            quota: true,
            written_directly: true,
        }
    }

    fn measure(meter: &mut UsageMeter, path: &Path) -> Result<Usage, DiskError> {
        meter.measure(&folder(path), Instant::now(), &AtomicBool::new(false))
    }

    #[test]
    fn without_feed_and_quota_every_look_is_a_walk() {
        let root = tempfile::tempdir().expect("temporary folder");
        let mut meter = meter();
        let first = measure(&mut meter, root.path()).expect("a folder");
        assert_eq!((first.inodes, first.method), (1, Method::Walk));
        fs::write(root.path().join("file"), vec![1; 100_000]).expect("a file");
        let second = measure(&mut meter, root.path()).expect("a folder");
        assert_eq!((second.inodes, second.method), (2, Method::Walk));
        assert!(second.bytes >= first.bytes + 100_000 && second.gaps.is_exact());
        assert_eq!(meter.feeds(), (0, FeedCounts::default()));
    }

    #[test]
    fn a_folder_that_went_is_forgotten_and_another_one_begins_anew() {
        let root = tempfile::tempdir().expect("temporary folder");
        let path = root.path().join("a");
        let mut meter = meter();
        assert_eq!(
            measure(&mut meter, &path).expect_err("not there").label(),
            "missing"
        );
        fs::create_dir(&path).expect("a folder");
        measure(&mut meter, &path).expect("a folder");
        assert_eq!(meter.known.len(), 1);
        fs::remove_dir(&path).expect("removed");
        measure(&mut meter, &path).expect_err("gone");
        assert_eq!(meter.known.len(), 0);
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_forgotten() {
        let root = tempfile::tempdir().expect("temporary folder");
        let mut meter = meter();
        for name in ["a", "b"] {
            let path = root.path().join(name);
            fs::create_dir(&path).expect("a folder");
            meter
                .watch(&folder(&path), Instant::now())
                .expect("a folder");
        }
        meter.retain(|path| path.ends_with("a"));
        let left: Vec<_> = meter.known.keys().collect();
        assert_eq!(left, [&root.path().join("a")]);
    }
}

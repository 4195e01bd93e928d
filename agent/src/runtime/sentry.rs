//! The sentry: sees what is made in the cgroups of evicted pods, and tells the guard of each container at once.
//!
//! The kernel tells of a new cgroup by inotify, so this needs no kernel program, and is faster than a new roster: a kubelet that
//! has not heard of the eviction starts a container whose first process comes into its cgroup a moment after that was made.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brink_host::cgroup::walk::groups_below;
use brink_host::cgroup::{Controller, Layout};
use brink_host::kill::KillTarget;
use brink_host::process::wards::Ward;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use rustix::time::Timespec;
use tracing::{debug, warn};

use super::heard;
use crate::backend::parts::{Judge, Judged};
use crate::guard::again::Newcomer;
use crate::guard::ports::{Command, Ports};
use crate::guard::roster::Group;

/// Pods that are watched at a time; the oldest makes room.
const MOST: usize = 64;
/// A pod is watched for so long: longer than what is started in it belongs to its eviction.
const WATCHED: Duration = Duration::from_mins(6);
/// Those that need no watching any more are looked for so often.
const PRUNED: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};
/// Groups of one pod; more are not expected.
const GROUPS: usize = 4096;

/// Watches evicted pods.
pub struct Sentry {
    root: PathBuf,
    layout: Layout,
    ports: Arc<Ports>,
    inotify: Option<OwnedFd>,
    watched: Vec<Watched>,
}

/// An evicted pod.
struct Watched {
    group: Arc<Group>,
    /// The kernel's number for the watch.
    watch: i32,
    since: Instant,
    /// Paths of what was there, or was told.
    seen: Vec<String>,
}

impl Sentry {
    /// One that watches nobody yet.
    pub fn new(root: &Path, layout: Layout, ports: Arc<Ports>) -> Self {
        let inotify = heard::open()
            .inspect_err(|errno| {
                warn!(%errno, "evicted pods cannot be watched; what is started in them again is found later");
            })
            .ok();
        Self {
            root: root.to_path_buf(),
            layout,
            ports,
            inotify,
            watched: Vec::new(),
        }
    }

    /// Runs until the port brings its end.
    pub fn run(mut self) {
        loop {
            self.wait();
            self.ports.evicted.hush();
            while let Some(evicted) = self.ports.evicted.take() {
                match evicted {
                    Some(group) => self.follow(group),
                    None => return,
                }
            }
            self.hear();
            self.prune();
        }
    }

    fn wait(&self) {
        let fds = [Some(self.ports.evicted.as_fd()), self.fd()];
        let fds = fds.into_iter().flatten();
        let mut polled: Vec<PollFd<'_>> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = (!self.watched.is_empty()).then_some(PRUNED);
        // An interrupted wait is an early one.
        let _interrupted = poll(&mut polled, timeout.as_ref());
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(|fd| fd.as_fd())
    }

    /// Watches a pod that is evicted, or goes on with one that is watched already.
    fn follow(&mut self, group: Arc<Group>) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let id = group.target.id();
        self.watched
            .retain(|known| known.group.target.dir().is_alive());
        let path = group.target.dir().path();
        let watch = match inotify::add_watch(inotify, path, inotify::WatchFlags::CREATE) {
            Ok(watch) => watch,
            Err(errno) => {
                // A pod that is gone already is no loss.
                debug!(%errno, path = %path.display(), "an evicted pod cannot be watched");
                return;
            }
        };
        let seen = group.paths.clone();
        let mut watched = Watched {
            group,
            watch,
            since: Instant::now(),
            seen,
        };
        if let Some(known) = self
            .watched
            .iter()
            .position(|known| known.group.target.id() == id)
        {
            watched.seen.extend(self.watched.remove(known).seen);
        } else if self.watched.len() == MOST {
            let oldest = self.watched.remove(0);
            let _gone = inotify::remove_watch(inotify, oldest.watch);
        }
        self.watched.push(watched);
        // What was made between the roster and now.
        self.look(self.watched.len() - 1);
    }

    /// Looks into every pod in which something was made.
    fn hear(&mut self) {
        let mut places = Vec::new();
        if let Some(inotify) = &self.inotify {
            heard::each(inotify, |watch| {
                let of = |(_, known): &(usize, &Watched)| watch.is_none_or(|it| known.watch == it);
                let found = self.watched.iter().enumerate().filter(of);
                places.extend(found.map(|(place, _)| place));
            });
        }
        places.sort_unstable();
        places.dedup();
        for place in places {
            self.look(place);
        }
    }

    /// Tells the guard of what is new in a pod, if it is a container.
    fn look(&mut self, place: usize) {
        let Some(watched) = self.watched.get_mut(place) else {
            return;
        };
        let Ok(hierarchy) = self.layout.require(Controller::Memory) else {
            return;
        };
        let pod = watched.group.target.dir().group();
        let Ok(groups) = groups_below(hierarchy, pod, GROUPS) else {
            return;
        };
        let family: Vec<&str> = groups.iter().map(String::as_str).collect();
        let known = known_of(&watched.group);
        let mut judge = Judge::new(&self.root, (hierarchy, self.layout.home()), &known);
        let parts = judge.pod(&family, &[]);
        for path in &parts.containers {
            if watched.seen.contains(path) {
                continue;
            }
            watched.seen.push(path.clone());
            // One that is gone already needs no end.
            let Ok(target) = KillTarget::open(&self.layout, path) else {
                continue;
            };
            debug!(path, "a container was made in an evicted pod");
            let newcomer = Box::new(Newcomer {
                pod: watched.group.target.id().0,
                target,
            });
            if self
                .ports
                .commands
                .send(Command::Newcomer(newcomer))
                .is_err()
            {
                warn!(
                    path,
                    "the guard's queue is full; a container in an evicted pod is found with the next roster"
                );
            }
        }
    }

    fn prune(&mut self) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        self.watched.retain(|known| {
            let stays = known.since.elapsed() < WATCHED && known.group.target.dir().is_alive();
            if !stays {
                // The kernel has taken it away with the group.
                let _gone = inotify::remove_watch(inotify, known.watch);
            }
            stays
        });
    }
}

/// What the roster knew of a pod.
fn known_of(group: &Group) -> Judged {
    let Some(pod) = &group.pod else {
        return Judged::new();
    };
    let containers = pod.containers.iter().map(|target| {
        let path = target.dir().group().to_owned();
        (path, Ward::Container)
    });
    let sandboxes = pod.sandboxes.iter();
    let sandboxes = sandboxes.map(|path| (path.clone(), Ward::Sandbox));
    containers.chain(sandboxes).collect()
}

#[cfg(test)]
#[path = "sentry_tests.rs"]
mod tests;

//! Who of the victims has exited: the kernel tells by a descriptor of each.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

use super::correlate::Who;

/// Victims that are watched by a descriptor at a time; the others are looked at in turn.
const MOST: usize = 512;

/// The victims that have not exited.
#[derive(Debug, Default)]
pub(super) struct Watched(Vec<(Who, Option<OwnedFd>)>);

impl Watched {
    /// Watches a process.
    pub(super) fn add(&mut self, who: Who) {
        let fd = (self.0.len() < MOST).then(|| open(who.pid).ok()).flatten();
        self.0.push((who, fd));
    }

    /// Watches it no longer.
    pub(super) fn remove(&mut self, who: Who) {
        self.0.retain(|(watched, _)| !watched.may_be(who));
    }

    /// Whether its exit will be told by a descriptor.
    pub(super) fn has(&self, who: Who) -> bool {
        let mut watched = self.0.iter();
        watched.any(|(watched, fd)| watched.may_be(who) && fd.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The descriptors that become readable as their process exits.
    pub(super) fn fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let open = self.0.iter().filter_map(|(_, fd)| fd.as_ref());
        open.map(|fd| PollFd::new(fd, PollFlags::IN))
    }

    /// Those that have exited; they are watched no longer.
    pub(super) fn exited(&mut self) -> Vec<Who> {
        let (gone, living) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(has_exited);
        self.0 = living;
        let gone: Vec<(Who, Option<OwnedFd>)> = gone;
        gone.into_iter().map(|(who, _)| who).collect()
    }
}

fn has_exited((who, fd): &(Who, Option<OwnedFd>)) -> bool {
    match fd {
        Some(fd) => is_readable(fd),
        None => match open(who.pid) {
            Ok(fd) => is_readable(&fd),
            Err(errno) => errno == Errno::SRCH,
        },
    }
}

fn is_readable(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

fn open(pid: u32) -> Result<OwnedFd, Errno> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_exit_is_seen_before_anybody_has_reaped() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut watched = Watched::default();
        let pid = child.id();
        let who = |start| Who { pid, start };
        watched.add(who(Some(5)));
        watched.remove(who(Some(4)));
        assert!(!watched.has(who(Some(4))), "it had that id before");
        assert!(watched.has(who(Some(5))) && watched.has(who(None)));
        assert!(watched.exited().is_empty(), "it waits for its input");
        drop(child.stdin.take());
        let mut fds: Vec<PollFd<'_>> = watched.fds().collect();
        poll(&mut fds, None).unwrap();
        drop(fds);
        assert_eq!(watched.exited(), [who(Some(5))]);
        assert!(watched.is_empty());
        child.wait().unwrap();
        watched.add(who(None));
        assert_eq!(watched.exited(), [who(None)], "nobody has that id now");
    }
}

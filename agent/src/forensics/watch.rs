//! Who of the victims has exited: the kernel tells by a descriptor of each.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

/// Victims that are watched by a descriptor at a time; the others are looked at in turn.
const MOST: usize = 512;

/// The victims that have not exited.
#[derive(Debug, Default)]
pub(super) struct Watched(Vec<(u32, Option<OwnedFd>)>);

impl Watched {
    /// Watches a process.
    pub(super) fn add(&mut self, pid: u32) {
        let fd = (self.0.len() < MOST).then(|| open(pid).ok()).flatten();
        self.0.push((pid, fd));
    }

    /// Watches it no longer.
    pub(super) fn remove(&mut self, pid: u32) {
        self.0.retain(|(watched, _)| *watched != pid);
    }

    /// Whether its exit will be told by a descriptor.
    pub(super) fn has(&self, pid: u32) -> bool {
        let mut watched = self.0.iter();
        watched.any(|(watched, fd)| *watched == pid && fd.is_some())
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
    pub(super) fn exited(&mut self) -> Vec<u32> {
        let (gone, living) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(has_exited);
        self.0 = living;
        let gone: Vec<(u32, Option<OwnedFd>)> = gone;
        gone.into_iter().map(|(pid, _)| pid).collect()
    }
}

fn has_exited((pid, fd): &(u32, Option<OwnedFd>)) -> bool {
    match fd {
        Some(fd) => is_readable(fd),
        None => match open(*pid) {
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
        watched.add(child.id());
        assert!(watched.exited().is_empty(), "it waits for its input");
        drop(child.stdin.take());
        let mut fds: Vec<PollFd<'_>> = watched.fds().collect();
        poll(&mut fds, None).unwrap();
        drop(fds);
        assert_eq!(watched.exited(), [child.id()]);
        assert!(watched.is_empty());
        child.wait().unwrap();
        watched.add(child.id());
        assert_eq!(watched.exited(), [child.id()], "nobody has that id now");
    }
}

//! The one system call that gives a dying process's memory back early: `process_mrelease` (Linux 5.15).
#![expect(unsafe_code, reason = "neither rustix nor nix wraps process_mrelease")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// What became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Its private memory was given back, by us or by the kernel's own reaper before us.
    Released,
    /// It has no memory any more: it was faster. As good as released.
    AlreadyGone,
    /// Not now: its memory is locked by somebody (EAGAIN), or the signal has not arrived, or a process outside the
    /// kill shares its memory, or it dumps core (EINVAL; the kernel does not tell these apart).
    NotNow(Errno),
    /// The kernel has no such call, or a filter forbids it.
    Unsupported(Errno),
    /// Anything else.
    Failed(Errno),
}

/// Gives back the private memory of a process that has SIGKILL pending. Takes as long as the freeing takes.
pub fn process_mrelease(process: impl AsFd) -> Release {
    // SAFETY: needed because no safe wrapper exists. The call takes a descriptor, which is open for as long as we
    // borrow it, and no flags; it touches no memory of ours.
    let answer =
        unsafe { libc::syscall(libc::SYS_process_mrelease, process.as_fd().as_raw_fd(), 0) };
    if answer == 0 {
        return Release::Released;
    }
    let errno = Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL);
    match errno {
        Errno::SRCH => Release::AlreadyGone,
        Errno::AGAIN | Errno::INVAL | Errno::INTR => Release::NotNow(errno),
        Errno::NOSYS | Errno::PERM => Release::Unsupported(errno),
        errno => Release::Failed(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_is_left_alone() {
        let own = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())
            .expect("our own");
        assert_eq!(process_mrelease(&pidfd), Release::NotNow(Errno::INVAL));
    }

    #[test]
    fn what_is_no_process_is_a_failure() {
        let file = std::fs::File::open("/proc/self/status").expect("open");
        assert_eq!(process_mrelease(&file), Release::Failed(Errno::BADF));
    }
}

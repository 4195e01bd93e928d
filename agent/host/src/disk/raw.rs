//! System calls of disks that have no safe wrapper.
#![expect(unsafe_code, reason = "rustix wraps none of these calls")]

use std::io;

use libc::{c_int, c_long};
use rustix::io::Errno;

/// Puts the calling thread into the idle class of I/O (`linux/ioprio.h`).
///
/// Schedulers that know priorities (bfq, mq-deadline) then serve it when nobody else asks; `none` does not look.
pub(super) fn set_idle_io() -> Result<(), Errno> {
    const WHO_PROCESS: c_int = 1;
    const THIS_THREAD: c_int = 0;
    const CLASS_IDLE: c_int = 3 << 13;
    // SAFETY: needed because no safe wrapper exists. The call takes three numbers and touches no memory of ours.
    let answer =
        unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, THIS_THREAD, CLASS_IDLE) };
    check(answer).map(drop)
}

/// The class and level of I/O of the calling thread, as the kernel packs them.
#[cfg(test)]
pub(super) fn io_priority() -> Result<c_long, Errno> {
    // SAFETY: needed because no safe wrapper exists. The call takes two numbers and touches no memory of ours.
    check(unsafe { libc::syscall(libc::SYS_ioprio_get, 1 as c_int, 0 as c_int) })
}

fn check(answer: c_long) -> Result<c_long, Errno> {
    if answer >= 0 {
        return Ok(answer);
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

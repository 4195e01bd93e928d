//! System calls of disks that have no safe wrapper.
#![expect(unsafe_code, reason = "rustix wraps none of these calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_long, c_uint};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};
use rustix::process::Pid;

use crate::disk::feed::events::{FolderHandle, LONGEST_HANDLE};
use crate::disk::quota::ProjectUsage;

/// To a call about classes of I/O a thread is a process (`linux/ioprio.h`, as all of these).
const WHO_PROCESS: c_int = 1;
const CLASS_IDLE: c_int = 3;
/// The level within a class stands below it.
const CLASS_SHIFT: c_int = 13;

/// Puts the calling thread into the idle class of I/O.
///
/// Schedulers that know priorities (bfq, mq-deadline) then serve it when nobody else asks; `none` does not look.
pub(super) fn set_idle_io() -> Result<(), Errno> {
    const THIS_THREAD: c_int = 0;
    const IDLE: c_int = CLASS_IDLE << CLASS_SHIFT;
    // SAFETY: needed because no safe wrapper exists. The call takes three numbers and touches no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, THIS_THREAD, IDLE) };
    check(answer).map(drop)
}

/// The class and level of I/O of a thread, as the kernel packs them; of the calling one, if none is named.
pub(super) fn io_priority(thread: Option<Pid>) -> Result<c_long, Errno> {
    let thread: c_int = Pid::as_raw(thread);
    // SAFETY: needed because no safe wrapper exists. The call takes two numbers and touches no memory of ours.
    check(unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, thread) })
}

/// Whether that is the idle class.
pub(super) fn is_idle_class(packed: c_long) -> bool {
    packed >> CLASS_SHIFT == c_long::from(CLASS_IDLE)
}

/// What a file says of its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProjectAttributes {
    pub(super) flags: u32,
    pub(super) project: u32,
}

impl ProjectAttributes {
    /// Whether what is made in it gets its project.
    pub(super) fn is_inherited(self) -> bool {
        const PROJECT_INHERIT: u32 = 0x200;
        self.flags & PROJECT_INHERIT != 0
    }
}

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ExtendedAttributes {
    flags: u32,
    _extent_size: u32,
    _extents: u32,
    project: u32,
    _cow_extent_size: u32,
    _padding: [u8; 8],
}

/// Reads the project of an open file (`FS_IOC_FSGETXATTR`).
pub(super) fn project_attributes(file: BorrowedFd<'_>) -> Result<ProjectAttributes, Errno> {
    const REQUEST: Opcode = opcode::read::<ExtendedAttributes>(b'X', 31);
    // SAFETY: needed because no safe wrapper exists. The request and the layout of what it fills in are those of linux/fs.h.
    let request = unsafe { Getter::<REQUEST, ExtendedAttributes>::new() };
    // SAFETY: as above; the kernel writes a whole structure of plain numbers, or nothing and an error.
    let found = unsafe { ioctl(file, request) }?;
    Ok(ProjectAttributes {
        flags: found.flags,
        project: found.project,
    })
}

/// `struct if_dqblk` of `linux/quota.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct QuotaBlock {
    _bytes_hard: u64,
    _bytes_soft: u64,
    bytes: u64,
    _inodes_hard: u64,
    _inodes_soft: u64,
    inodes: u64,
    _bytes_time: u64,
    _inodes_time: u64,
    valid: u32,
}

/// Asks the filesystem of an open file what a project uses (`quotactl_fd`, Linux 5.14).
pub(super) fn project_usage(file: BorrowedFd<'_>, project: u32) -> Result<ProjectUsage, Errno> {
    const GET_QUOTA: u32 = 0x80_0007;
    const OF_PROJECT: u32 = 2;
    const SPACE_AND_INODES: u32 = 2 | 8;
    let mut block = QuotaBlock::default();
    // SAFETY: needed because no safe wrapper exists. The descriptor is open for as long as we borrow it, and the kernel writes
    // one if_dqblk, whose layout QuotaBlock has, to a block that is ours alone.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            file.as_raw_fd(),
            (GET_QUOTA << 8) | OF_PROJECT,
            project,
            &raw mut block,
        )
    };
    check(answer)?;
    if block.valid & SPACE_AND_INODES != SPACE_AND_INODES {
        return Err(Errno::NODATA);
    }
    Ok(ProjectUsage {
        bytes: block.bytes,
        inodes: block.inodes,
    })
}

/// Makes a queue of events that each tell the folder they happened in by its handle (`FAN_REPORT_DIR_FID`, Linux 5.9).
pub(super) fn fanotify_of_folders() -> Result<OwnedFd, Errno> {
    const FLAGS: c_uint =
        libc::FAN_CLASS_NOTIF | libc::FAN_REPORT_DIR_FID | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
    const NO_FILES_ARE_OPENED: c_uint = 0;
    // SAFETY: needed because no safe wrapper exists. The call takes two numbers and touches no memory of ours.
    let answer = check(unsafe { libc::fanotify_init(FLAGS, NO_FILES_ARE_OPENED) }.into())?;
    descriptor(answer)
}

/// Has all events of a mask on the filesystem of an open file put into a queue.
pub(super) fn mark_filesystem(
    queue: BorrowedFd<'_>,
    place: BorrowedFd<'_>,
    mask: u64,
) -> Result<(), Errno> {
    // SAFETY: needed because no safe wrapper exists. Both descriptors are open for as long as we borrow them, and no path is
    // given: the mark goes where the second leads.
    let answer = unsafe {
        libc::fanotify_mark(
            queue.as_raw_fd(),
            libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM,
            mask,
            place.as_raw_fd(),
            ptr::null(),
        )
    };
    check(answer.into()).map(drop)
}

/// `struct file_handle` with room for the longest.
#[repr(C, align(8))]
struct RawHandle([u8; 8 + LONGEST_HANDLE]);

/// Opens a folder by what its filesystem calls it, as a place alone (`O_PATH`). `place` is anything open on that filesystem.
pub(super) fn open_by_handle(
    place: BorrowedFd<'_>,
    folder: FolderHandle<'_>,
) -> Result<OwnedFd, Errno> {
    const FLAGS: c_int = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let mut handle = RawHandle([0; 8 + LONGEST_HANDLE]);
    let bytes = folder.as_bytes();
    handle
        .0
        .get_mut(..bytes.len())
        .ok_or(Errno::INVAL)?
        .copy_from_slice(bytes);
    // SAFETY: needed because no safe wrapper exists. The handle is aligned, ours alone, and a FolderHandle is as long as its
    // head says, so that the kernel reads no further than the buffer goes.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            place.as_raw_fd(),
            &raw mut handle,
            FLAGS,
        )
    };
    descriptor(check(answer)?)
}

fn descriptor(answer: c_long) -> Result<OwnedFd, Errno> {
    let number = c_int::try_from(answer).map_err(|_| Errno::BADF)?;
    // SAFETY: the kernel has just opened it for the call whose answer it is, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn check(answer: c_long) -> Result<c_long, Errno> {
    if answer >= 0 {
        return Ok(answer);
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL))
}

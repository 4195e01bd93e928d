//! What a hog needs that has no safe form: its memory in pages of a chosen size, and bare forks.
#![expect(
    unsafe_code,
    reason = "anonymous mappings, madvise, mlock and fork have no safe form"
)]

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{
    Pid, Signal, WaitOptions, getppid, kill_process, set_parent_process_death_signal,
};

/// The size of pages a region is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// 4K (or what the machine's base page is).
    Base,
    /// 2M (or what the machine's huge page is), where the kernel has them to give.
    Huge,
}

/// Memory that is not there until it is touched.
#[derive(Debug)]
pub(super) struct Region {
    start: NonNull<u8>,
    length: usize,
}

impl Region {
    pub(super) fn new(length: usize, pages: Pages) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: needed because no safe wrapper exists. The kernel chooses the address, so no other memory is touched.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, access, flags) }?;
        let region = Self {
            start: NonNull::new(mapped.cast()).ok_or(Errno::FAULT)?,
            length,
        };
        let advice = match pages {
            Pages::Base => Advice::LinuxNoHugepage,
            Pages::Huge => Advice::LinuxHugepage,
        };
        // SAFETY: needed because no safe wrapper exists. The range is exactly the mapping made above, and this advice
        // changes no contents.
        match unsafe { rustix::mm::madvise(mapped, length, advice) } {
            // A kernel without huge pages has only base pages.
            Err(Errno::INVAL) if pages == Pages::Base => Ok(region),
            answer => answer.map(|()| region),
        }
    }

    /// The pages of a file that nobody else has open, and that stays as long as it is.
    pub(super) fn of(file: File, length: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (place, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: needed because no safe wrapper exists. The kernel chooses the address, so no other memory is touched.
        let mapped = unsafe { rustix::mm::mmap(place, length, access, flags, &file, 0) }?;
        // The mapping holds it open from here on, and nobody can cut it short any more.
        drop(file);
        Ok(Self {
            start: NonNull::new(mapped.cast()).ok_or(Errno::FAULT)?,
            length,
        })
    }

    /// The memory. Writing to a page makes the kernel find one.
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: needed to see the mapping as bytes. It is `length` bytes, zero until written, and lives as long as
        // `self`, whose exclusive borrow makes this one exclusive; a file that is mapped is nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Locks a part of it, which makes the kernel find its pages. The range must be inside.
    pub(super) fn lock(&mut self, from: usize, length: usize) -> Result<(), Errno> {
        let part = self
            .as_mut_slice()
            .get_mut(from..from + length)
            .ok_or(Errno::INVAL)?;
        // SAFETY: needed because no safe wrapper exists. The range is a part of our own mapping.
        unsafe { rustix::mm::mlock(part.as_mut_ptr().cast(), length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: needed because no safe wrapper exists. The range is the mapping of this value, and nothing borrows from
        // it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Which of the two processes we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forked {
    Parent { child: i32 },
    Child,
}

/// Makes a copy of this process, which must have no other thread: in the copy, only this one would go on.
pub(super) fn fork() -> Result<Forked, Errno> {
    // SAFETY: needed because no safe wrapper exists. A hog has one thread (`fork_load` checks), so no lock can be held
    // by a thread that the copy lacks.
    match unsafe { libc::fork() } {
        0 => Ok(Forked::Child),
        child if child > 0 => Ok(Forked::Parent { child }),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
    }
}

/// The stack of a process that does nothing, in 16 bytes as the machine aligns it: the kernel's own frame for a signal fits in.
#[repr(align(16))]
struct Stack([u8; 16 << 10]);

/// Makes processes that share our memory and end at once.
pub(super) struct Briefly(Box<Stack>);

impl Briefly {
    pub(super) fn new() -> Self {
        Self(Box::new(Stack([0; 16 << 10])))
    }

    /// Makes one; this thread stands still until it has ended. It is to be waited for.
    pub(super) fn bear(&mut self) -> Result<i32, Errno> {
        extern "C" fn end(_: *mut libc::c_void) -> libc::c_int {
            0
        }
        let stack = self.0.0.as_mut_ptr_range().end.cast();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: needed because no safe wrapper exists. The child runs `end` on a stack of its own, which lives as long as
        // this value, and touches nothing of ours; the kernel lets us go on when it has ended.
        match unsafe { libc::clone(end, stack, flags, std::ptr::null_mut()) } {
            child if child > 0 => Ok(child),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
        }
    }
}

/// How long a process that outlives us holds our memory, in microseconds: longer than the dead are waited for of whom nobody has any,
/// and much shorter than those of whom somebody has.
const OUTLIVES_MICROS: libc::useconds_t = 60_000;

/// When a process that shares our memory ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// With us.
    WithUs,
    /// [`OUTLIVES_MICROS`] after us: it holds the memory for so long.
    AfterUs,
}

/// A process that shares our memory and does nothing.
pub(super) struct Twin {
    child: i32,
    _stack: Box<Stack>,
}

impl Twin {
    pub(super) fn bear(ends: Ends) -> Result<Self, Errno> {
        extern "C" fn rest(_: *mut libc::c_void) -> libc::c_int {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            loop {
                // SAFETY: needed because no safe wrapper exists. The call touches no memory but the word for its error.
                unsafe { libc::pause() };
            }
        }
        extern "C" fn outlive(_: *mut libc::c_void) -> libc::c_int {
            let parent = getppid();
            let pause = |micros| {
                // SAFETY: needed because the stack is too small to reckon with what a wrapper does. The call touches no
                // memory but the word for its error.
                unsafe { libc::usleep(micros) };
            };
            while getppid() == parent {
                pause(1_000);
            }
            pause(OUTLIVES_MICROS);
            0
        }
        let run = match ends {
            Ends::WithUs => rest,
            Ends::AfterUs => outlive,
        };
        let mut stack = Box::new(Stack([0; 16 << 10]));
        let top = stack.0.as_mut_ptr_range().end.cast();
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        // SAFETY: needed because no safe wrapper exists. The child runs on a stack of its own, which is given back
        // only when it has ended, and writes to nothing else but the word in which a call leaves its error.
        match unsafe { libc::clone(run, top, flags, std::ptr::null_mut()) } {
            child if child > 0 => Ok(Self {
                child,
                _stack: stack,
            }),
            _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
        }
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        let child = Pid::from_raw(self.child);
        let _gone = child.map(|child| kill_process(child, Signal::KILL));
        let _reaped = rustix::process::waitpid(child, WaitOptions::empty());
    }
}

/// Ends this process at once, without running what was set up to run at its end (that is the parent's).
pub(super) fn exit_now() -> ! {
    // SAFETY: needed because `std::process::exit` runs the parent's exit handlers. The call does not return and touches
    // no memory.
    unsafe { libc::_exit(0) }
}

/// Lets the kernel clear away ended children by itself.
pub(super) fn reap_automatically() {
    // SAFETY: needed because no safe wrapper exists. SIG_IGN installs no handler, so no code of ours runs in a signal.
    let _previous = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

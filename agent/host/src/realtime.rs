//! Real-time standing of a thread: `SCHED_FIFO` or why not, nice as the rung below, locked memory, trimmed heap.
#![expect(
    unsafe_code,
    reason = "sched_setscheduler and malloc_trim have no safe wrapper among our dependencies"
)]

use std::fmt;
use std::hint::black_box;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::mm::MlockAllFlags;

use crate::cgroup::layout::Layout;
use crate::error::HostError;

pub mod group;
pub mod oom_score;
pub mod program;
pub mod refusal;

pub use refusal::FifoRefusal;

/// A `SCHED_FIFO` priority. The kernel's own interrupt threads run at 50; above it we could keep the disk from answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FifoPriority(u8);

impl FifoPriority {
    /// The guard's: just under the interrupt threads.
    pub const GUARD: Self = Self(49);
    /// The threads that give a victim's memory back, under the guard.
    pub const RELEASE: Self = Self(40);

    /// A priority of 1 to 99.
    pub const fn new(priority: u8) -> Option<Self> {
        if 1 <= priority && priority <= 99 {
            Some(Self(priority))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// How the calling thread is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduling {
    /// `SCHED_FIFO`.
    Fifo(FifoPriority),
    /// The ordinary policy at this nice value (−20 goes first, 19 last).
    Nice(i32),
}

impl fmt::Display for Scheduling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo(priority) => write!(out, "SCHED_FIFO {}", priority.get()),
            Self::Nice(nice) => write!(out, "nice {nice}"),
        }
    }
}

/// What a thread got when it asked for real time.
#[derive(Debug)]
pub struct Standing {
    /// What it has.
    pub scheduling: Scheduling,
    /// Why `SCHED_FIFO` was refused, where it was, even if a move to the root cpu group then helped.
    pub refused: Option<FifoRefusal>,
    /// The cpu group the thread was moved out of.
    pub moved_from: Option<String>,
    /// What failed on the way down, in words.
    pub troubles: Vec<String>,
}

/// Gives the calling thread `SCHED_FIFO`, or failing that nice −20, and tells which and why.
///
/// `may_move` lets this one thread move itself to the root cpu group when its own has no real-time run time: all
/// other threads, and all other controllers of this one, stay where they are.
pub fn raise_thread(
    root: &Path,
    layout: &Layout,
    priority: FifoPriority,
    may_move: bool,
) -> Standing {
    let mut standing = Standing {
        scheduling: Scheduling::Nice(nice()),
        refused: None,
        moved_from: None,
        troubles: Vec::new(),
    };
    match set_fifo(priority) {
        Ok(()) => standing.scheduling = Scheduling::Fifo(priority),
        Err(errno) => {
            let refusal = refusal::diagnose(&refusal::Facts::gather(root, layout, priority, errno));
            if may_move && matches!(refusal, FifoRefusal::NoGroupRuntime { .. }) {
                match group::move_thread_to_root(root, layout)
                    .and_then(|from| after_move(from, priority))
                {
                    Ok(from) => {
                        standing.scheduling = Scheduling::Fifo(priority);
                        standing.moved_from = Some(from);
                    }
                    Err(error) => standing.troubles.push(error.to_string()),
                }
            }
            standing.refused = Some(refusal);
        }
    }
    if let Scheduling::Nice(_) = standing.scheduling {
        if let Err(errno) = rustix::process::setpriority_process(None, -20) {
            standing.troubles.push(format!("nice -20 refused: {errno}"));
        }
        standing.scheduling = Scheduling::Nice(nice());
    }
    standing
}

fn after_move(from: String, priority: FifoPriority) -> Result<String, HostError> {
    match set_fifo(priority) {
        Ok(()) => Ok(from),
        Err(errno) => Err(HostError::Call {
            what: "SCHED_FIFO in the root cpu group",
            source: errno.into(),
        }),
    }
}

/// The calling thread's nice value; 0 when the kernel does not tell.
fn nice() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// Gives the calling thread `SCHED_FIFO`. Threads and processes it starts do not inherit it.
///
/// # Errors
/// The kernel's error number; [`refusal::diagnose`] tells what it means.
pub fn set_fifo(priority: FifoPriority) -> Result<(), Errno> {
    schedule(libc::SCHED_FIFO, i32::from(priority.get()))
}

/// Puts the calling thread ahead of ordinary ones (nice −20 to −1), or back (0). Threads and processes it starts do not
/// inherit it. Returns the nice value before.
///
/// # Errors
/// The kernel's error number: `EACCES` or `EPERM` without `CAP_SYS_NICE` or a large enough `RLIMIT_NICE`.
pub fn set_nice(value: i32) -> Result<i32, Errno> {
    let before = nice();
    schedule(libc::SCHED_OTHER, 0)?;
    rustix::process::setpriority_process(None, value)?;
    Ok(before)
}

fn schedule(policy: i32, priority: i32) -> Result<(), Errno> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: needed because no safe wrapper exists. The system call (not the C library's function, which in musl always
    // fails) reads one `sched_param`, which lives until after the call; thread 0 is the calling thread.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            policy,
            &raw const parameters,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// How the calling thread is scheduled now.
///
/// # Errors
/// [`HostError::Call`].
pub fn scheduling() -> Result<Scheduling, HostError> {
    let failed = |errno: Errno| HostError::Call {
        what: "reading the scheduling policy",
        source: errno.into(),
    };
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: needed because no safe wrapper exists. The call takes only the number of a thread, 0 for the calling one.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    if policy < 0 {
        return Err(failed(last_errno()));
    }
    // SAFETY: needed because no safe wrapper exists. The call fills one `sched_param`, which we own exclusively.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut parameters) };
    if answer != 0 {
        return Err(failed(last_errno()));
    }
    let is_fifo = policy & !i64::from(libc::SCHED_RESET_ON_FORK) == i64::from(libc::SCHED_FIFO);
    let priority = u8::try_from(parameters.sched_priority)
        .ok()
        .and_then(FifoPriority::new);
    Ok(match priority {
        Some(priority) if is_fifo => Scheduling::Fifo(priority),
        _ => Scheduling::Nice(nice()),
    })
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Locks every page of this process that is there, and every further one when it is first touched: what is never
/// touched is never paid for.
///
/// # Errors
/// [`HostError::Unsupported`] when `RLIMIT_MEMLOCK` is too small and `CAP_IPC_LOCK` is missing.
pub fn lock_memory() -> Result<(), HostError> {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(flags).map_err(|errno| match errno {
        Errno::NOMEM | Errno::PERM => HostError::Unsupported {
            what: "locked memory",
            why: format!(
                "{errno}: CAP_IPC_LOCK is missing and RLIMIT_MEMLOCK (LimitMEMLOCK=) is too small"
            ),
        },
        errno => HostError::Call {
            what: "mlockall",
            source: errno.into(),
        },
    })
}

/// Touches this much of the calling thread's stack, so that no page of it has to be found when memory is short.
///
/// The stack must be larger than `BYTES`, with room for the caller's own frames.
#[inline(never)]
pub fn prefault_stack<const BYTES: usize>() {
    let mut touched = [0u8; BYTES];
    for byte in touched.iter_mut().step_by(4096) {
        *byte = 1;
    }
    black_box(&touched);
}

/// Touches all the room of an empty buffer, so that none of its pages has to be found when memory is short.
pub fn prefault_buffer<T: Clone>(buffer: &mut Vec<T>, filler: &T) {
    buffer.resize(buffer.capacity(), filler.clone());
    black_box(&mut *buffer);
    buffer.clear();
}

/// Makes the allocator return what is freed at the end of the heap, whatever was freed before, and have one heap for all
/// threads (glibc only; to be called before there are any). By itself it keeps as much as the largest piece that was ever freed,
/// and has a heap for each thread, whose free pages do not go back to the kernel once memory is locked: under many events they
/// add up. The guard takes no memory, so it never waits for the heap.
pub fn keep_heap_small() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [(libc::M_TRIM_THRESHOLD, 128 << 10), (libc::M_ARENA_MAX, 1)] {
        // SAFETY: needed because no safe wrapper exists. The function may be called at any time from any thread.
        let _refused = unsafe { libc::mallopt(option, value) };
    }
}

/// Returns free heap to the kernel once start-up is over, so that what is locked is what is used (glibc only).
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: needed because no safe wrapper exists. The function may be called at any time from any thread and only
    // returns free memory; 0 is how much to keep at the top.
    let _anything_returned = unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_the_kernels() {
        assert_eq!(FifoPriority::new(0), None);
        assert_eq!(FifoPriority::new(100), None);
        assert_eq!(FifoPriority::new(99).map(FifoPriority::get), Some(99));
        assert!(FifoPriority::RELEASE < FifoPriority::GUARD);
    }

    #[test]
    fn an_ordinary_thread_says_so() {
        assert!(matches!(
            scheduling().expect("readable"),
            Scheduling::Nice(-20..=19)
        ));
        assert_eq!(
            Scheduling::Fifo(FifoPriority::GUARD).to_string(),
            "SCHED_FIFO 49"
        );
        assert_eq!(Scheduling::Nice(-20).to_string(), "nice -20");
    }

    #[test]
    fn heap_and_stack_can_be_prepared_at_any_time() {
        keep_heap_small();
        prefault_stack::<65536>();
        trim_heap();
    }
}

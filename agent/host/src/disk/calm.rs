//! A thread that measures disks and competes with nobody: idle class of I/O, last in line for a processor.

use rustix::io::Errno;
use rustix::process::Pid;

use crate::disk::raw;

/// Last in line among ordinary threads.
const NICEST: i32 = 19;

/// What a thread got when it asked to go behind all others. Either may be refused by a filter on system calls; the pace of
/// the walk holds all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calm {
    /// Idle class of I/O.
    pub io: Result<(), Errno>,
    /// Nice 19.
    pub processor: Result<(), Errno>,
}

/// Puts the calling thread behind all others, for good: the way back takes rights.
pub fn calm_thread() -> Calm {
    Calm {
        io: raw::set_idle_io(),
        // To the kernel a thread is a process here.
        processor: rustix::process::setpriority_process(None, NICEST),
    }
}

/// Whether a thread is in the idle class of I/O; the calling one, if none is named.
///
/// # Errors
/// What the kernel says of it: there may be no such thread.
pub fn is_idle(thread: Option<Pid>) -> Result<bool, Errno> {
    raw::io_priority(thread).map(raw::is_idle_class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_behind_all_others_alone() {
        let before = raw::io_priority(None);
        let inside = std::thread::spawn(|| (calm_thread(), is_idle(None)));
        let (calm, is_idle) = inside.join().expect("a thread");
        assert_eq!(
            calm,
            Calm {
                io: Ok(()),
                processor: Ok(())
            }
        );
        assert_eq!(is_idle, Ok(true));
        assert_eq!(raw::io_priority(None), before, "another thread");
    }
}

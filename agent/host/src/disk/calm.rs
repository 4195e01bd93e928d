//! A thread that measures disks and competes with nobody: idle class of I/O, last in line for a processor.

use rustix::io::Errno;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_behind_all_others_alone() {
        let before = raw::io_priority();
        let inside = std::thread::spawn(|| (calm_thread(), raw::io_priority()));
        let (calm, priority) = inside.join().expect("a thread");
        assert_eq!(
            calm,
            Calm {
                io: Ok(()),
                processor: Ok(())
            }
        );
        assert_eq!(priority.map(|packed| packed >> 13), Ok(3), "the idle class");
        assert_eq!(raw::io_priority(), before, "another thread");
    }
}

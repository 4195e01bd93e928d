//! What a thread that sleeps is woken with.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Rings for one thread, which hears it in a `poll`; and ends that thread.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    stop: AtomicBool,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// When the kernel has no event descriptor for us.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            fd: eventfd(0, flags)?,
            stop: false.into(),
        })
    }

    /// Makes the thread look at everything now.
    pub fn ring(&self) {
        // A bell that cannot be rung has been rung more often than its counter holds, and not heard.
        let _rung_already = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Silences it until it is rung again.
    pub fn hush(&self) {
        let mut rings = [0; 8];
        let _silent = rustix::io::read(&self.fd, &mut rings);
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the thread is to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

//! What inotify has told: of which watches, or of any.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader};
use rustix::io::Errno;

/// An inotify that nobody waits for when it is read.
///
/// # Errors
/// As the kernel says it: there may be too many.
pub(super) fn open() -> Result<OwnedFd, Errno> {
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
}

/// Tells the watch of each event since the last time; none where any of them may be meant, as some were lost.
pub(super) fn each(inotify: &OwnedFd, mut tell: impl FnMut(Option<i32>)) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(inotify, &mut buffer);
    while let Ok(event) = events.next() {
        let is_any = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
        tell((!is_any).then(|| event.wd()));
    }
}

//! What the kernel tells of changes on a disk.

use brink_host::disk::feed::FeedCounts;

use crate::Taken;

/// The head of an event, bytes: nothing shorter is one.
const HEAD: usize = 24;

/// One reading of fanotify's queue.
pub(crate) fn changes(bytes: &[u8]) -> Taken {
    let FeedCounts { events, lost } = FeedCounts::of(bytes);
    assert!(lost <= events);
    let most = bytes.len() / HEAD + 1;
    assert!(usize::try_from(events).is_ok_and(|events| events <= most));
    // Whatever is not understood has to be told as lost, or a change would be missed.
    assert!(bytes.is_empty() || events > 0);
    Taken::from_accepted(events > 0 && lost == 0)
}

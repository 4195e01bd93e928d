//! How short a node became while a load ran: its files, read every few milliseconds.
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{JoinHandle, sleep},
    time::Duration,
};

use brink::guard::{self, files::NodeFiles};

/// From one look to the next.
const PERIOD: Duration = Duration::from_millis(2);

/// The least there was, in bytes; nothing if it was never known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Lowest {
    /// Of `memory.available`.
    pub(super) available: Option<i64>,
    /// Of headroom.
    pub(super) headroom: Option<i64>,
}

impl Lowest {
    fn seen(self, available: Option<i64>, headroom: Option<i64>) -> Self {
        let less = |known: Option<i64>, seen: Option<i64>| known.into_iter().chain(seen).min();
        Self {
            available: less(self.available, available),
            headroom: less(self.headroom, headroom),
        }
    }
}

/// A watch that is under way.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Lowest>,
}

impl Watch {
    /// Watches from now on.
    pub(super) fn start(files: NodeFiles) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut lowest = Lowest::default();
            while !stopped.load(Ordering::Relaxed) {
                if let Ok(figures) = files.read(guard::now()) {
                    let available = figures.memory.map(|seen| seen.available);
                    lowest = lowest.seen(available, figures.headroom);
                }
                sleep(PERIOD);
            }
            lowest
        });
        Self { stop, thread }
    }

    /// Ends it.
    pub(super) fn finish(self) -> anyhow::Result<Lowest> {
        self.stop.store(true, Ordering::Relaxed);
        let found = self.thread.join();
        found.map_err(|_| anyhow::anyhow!("a watch panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_no_minimum() {
        let lowest = Lowest::default().seen(Some(7), None).seen(None, Some(3));
        let expected = Lowest {
            available: Some(7),
            headroom: Some(3),
        };
        assert_eq!(lowest, expected);
        assert_eq!(lowest.seen(Some(9), Some(1)).headroom, Some(1));
    }
}

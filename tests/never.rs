//! Something that may never hold, looked at again and again while a test goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(1);

/// The looks, by a thread of their own.
pub struct Never {
    is_over: Arc<AtomicBool>,
    looking: Option<JoinHandle<bool>>,
}

impl Never {
    /// Begins to look.
    pub fn begin(mut holds: impl FnMut() -> bool + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let looking = spawn(move || {
            while !until.load(Ordering::Acquire) {
                if holds() {
                    return true;
                }
                sleep(PERIOD);
            }
            false
        });
        let looking = Some(looking);
        Self { is_over, looking }
    }

    /// Ends the looks, and says whether it did hold at one of them. One that has panicked counts as that.
    pub fn has_held(mut self) -> bool {
        self.end().unwrap_or(true)
    }

    /// What came of the looks; none where that was said before.
    fn end(&mut self) -> Option<bool> {
        self.is_over.store(true, Ordering::Release);
        let looking = self.looking.take()?;
        Some(looking.join().unwrap_or(true))
    }
}

impl Drop for Never {
    fn drop(&mut self) {
        let _said = self.end();
    }
}

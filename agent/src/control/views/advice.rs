//! What is wrong with the settings that bear on a signal, as the doctor judges it: looked at by a thread that may wait for a disk.

use std::sync::Arc;
use std::time::Duration;

use brink_core::node::signal::Signal;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Views;
use super::ranked::parse_signal;
use crate::doctor::advice_on;

/// An answer waits no longer for it.
const PATIENCE: Duration = Duration::from_secs(2);

impl Views {
    /// What the doctor would say of the settings that bear on a signal; nothing where it would say nothing. One look at a time: a disk
    /// that does not answer keeps one thread, however often is asked.
    pub(super) async fn advice(&self, signal: Option<&str>) -> Vec<String> {
        let config = self.running.shared.config.borrow().clone();
        let (Some(config), Some(signal)) = (config, parse_signal(signal)) else {
            return Vec::new();
        };
        let disk = self.capacity(Signal::NodefsAvailable);
        let looking = Arc::clone(&self.looking);
        let look = async move {
            let turn = looking.acquire_owned().await.ok()?;
            let look = spawn_blocking(move || {
                let now = jiff::Timestamp::now().as_microsecond();
                let advice = advice_on(&config, signal, disk, now);
                drop(turn);
                advice
            });
            look.await.ok()
        };
        let found = timeout(PATIENCE, look).await.ok().flatten();
        found.unwrap_or_else(|| vec![unread()])
    }

    /// How much there is of what a signal is about, as it was seen last.
    fn capacity(&self, signal: Signal) -> Option<i64> {
        let state = self.running.shared.lock();
        let seen = state.reading.as_ref()?.observations[signal]?;
        Some(seen.capacity)
    }
}

/// What is said where nobody knows whether there is anything to say.
fn unread() -> String {
    format!(
        "Nothing is known of reserves and of soft thresholds that swing: the files could not be read within {} s. `brink doctor` says what \
         can be read.",
        PATIENCE.as_secs()
    )
}

//! How the demonstration is shown while it runs.

use std::io;
use std::time::Duration;

use super::stage::WorkloadState;

/// Whoever shows it: a terminal, or nobody.
pub trait Show {
    /// It begins, with a node of so many bytes and this threshold.
    ///
    /// # Errors
    /// When it cannot be shown.
    fn begin(&mut self, bytes: u64, threshold: u64) -> io::Result<()>;
    /// The agent runs, and this is how it stands.
    ///
    /// # Errors
    /// When it cannot be shown.
    fn agent(&mut self, standing: &str) -> io::Result<()>;
    /// The peaceful workloads run.
    ///
    /// # Errors
    /// When it cannot be shown.
    fn workloads(&mut self, workloads: &[WorkloadState]) -> io::Result<()>;
    /// The leak goes on.
    ///
    /// # Errors
    /// When it cannot be shown.
    fn progress(
        &mut self,
        elapsed: Duration,
        workloads: &[WorkloadState],
        available: Option<u64>,
    ) -> io::Result<()>;
}

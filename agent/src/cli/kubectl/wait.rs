//! A kubectl that is waited for, and no longer than it may take.

use std::io;
use std::process::{Child, ExitStatus};
use std::thread::sleep;
use std::time::Duration;

/// Between two looks whether one has ended.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// How it has ended; none where it was late before that, and was killed for it.
///
/// # Errors
/// When nobody can say whether it has ended or is late, for which it is killed too, or it cannot be killed.
pub(super) fn wait(
    child: &mut Child,
    mut is_late: impl FnMut() -> io::Result<bool>,
) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let late = is_late();
        if !matches!(late, Ok(false)) {
            child.kill()?;
            let _killed_or_ended_just_now = child.wait()?;
            return late.map(|_is_late| None);
        }
        sleep(LOOK);
    }
}

//! Moving one thread to the root cpu group, where real-time run time is.

use std::path::Path;

use crate::cgroup::layout::{Controller, Layout, Version};
use crate::cgroup::membership::Membership;
use crate::error::HostError;
use crate::hot_file::write_value;

/// Moves the calling thread, and no other, to the root of the v1 cpu hierarchy; tells where it was.
///
/// # Errors
/// [`HostError::Unsupported`] when the cpu controller is nowhere or on v2, where a single thread cannot leave its
/// process; [`HostError::Write`] without the right.
pub fn move_thread_to_root(root: &Path, layout: &Layout) -> Result<String, HostError> {
    let hierarchy = layout.require(Controller::Cpu)?;
    if hierarchy.version == Version::V2 {
        return Err(HostError::Unsupported {
            what: "moving one thread to the root cpu group",
            why: "on cgroup v2 the threads of a process stay together".to_owned(),
        });
    }
    let from = Membership::read(root, layout.home(), "thread-self")?
        .of(layout, Controller::Cpu)
        .unwrap_or("unknown")
        .to_owned();
    let thread = rustix::thread::gettid().as_raw_pid();
    write_value(&hierarchy.path.join("tasks"), &thread.to_string())?;
    Ok(from)
}

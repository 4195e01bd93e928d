//! Helpers shared by the test targets of the whole.
pub mod bpf_ids;
pub mod browser;
mod chance;
pub mod counting_allocator;
mod disk;
mod guest;
mod hog;
pub mod kills;
pub mod lines;
mod never;
mod sandbox;
pub mod schema;
mod skip;
mod slowness;
mod swap;
mod terminal;

pub use browser::Browser;
pub use chance::Chance;
pub use disk::OwnDisk;
pub use guest::{booted_with, in_guest, makes_filesystems};
pub use hog::{Hog, wait_until};
pub use never::Never;
pub use sandbox::Sandbox;
pub use skip::{Outcome, report_left_out, report_skip};
pub use slowness::{is_slow, slowed};
pub use swap::Swap;
pub use terminal::{Terminal, seen};

use std::{env, io, path::PathBuf};

/// The name of a cgroup for this test: the runner finds it if the test dies, and can tell whose it was.
pub fn cgroup_name(label: &str) -> String {
    format!("brink-test-{}-{label}", std::process::id())
}

/// The agent's binary, as `cargo xtask test` has built it.
///
/// # Errors
/// When the test was not started by `cargo xtask test`.
pub fn agent_binary() -> io::Result<PathBuf> {
    let missing =
        || io::Error::other("BRINK_BIN is not set; start live tests by `cargo xtask test`");
    env::var_os("BRINK_BIN")
        .map(PathBuf::from)
        .ok_or_else(missing)
}

/// Whether files of hogs lie in memory alone: the folder for temporary files is on tmpfs.
pub fn files_are_in_memory() -> bool {
    const TMPFS: rustix::fs::FsWord = 0x0102_1994;
    rustix::fs::statfs(env::temp_dir()).is_ok_and(|found| found.f_type == TMPFS)
}

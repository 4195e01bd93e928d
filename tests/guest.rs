//! Whether this is a machine of the tests' own, made to be harmed.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// The word on the kernel's command line that `cargo xtask vm` boots its guests with.
const WORD: &str = "BRINK_TEST_GUEST=1";

/// Whether the whole machine is a guest of `cargo xtask vm`, where a test may use up its memory and change its swap. It is
/// told by what the kernel was booted with, which nothing that is set by mistake on another machine can imitate.
pub fn in_guest() -> bool {
    booted_with(WORD)
}

/// Whether the kernel was booted with this word.
pub fn booted_with(word: &str) -> bool {
    static LINE: LazyLock<String> =
        LazyLock::new(|| fs::read_to_string("/proc/cmdline").unwrap_or_default());
    LINE.split_whitespace().any(|found| found == word)
}

/// Ends the test as skipped for what a machine may lack, with the reason. The kernels of our guests are known to offer
/// it: there the test fails.
#[macro_export]
macro_rules! lacks {
    ($($reason:tt)+) => {{
        ::std::assert!(
            !$crate::in_guest(),
            "every guest has it: {}",
            ::std::format!($($reason)+)
        );
        $crate::skip!($($reason)+);
    }};
}

/// Whether the machine is a guest with what makes filesystems; one for which that could not be fetched has none of it.
pub fn makes_filesystems() -> bool {
    in_guest() && Path::new("/bin/mkfs.ext4").exists()
}

/// Ends the test as skipped for a filesystem of its own that it cannot have, with the reason. A guest with what makes
/// filesystems is known to offer it: there the test fails.
#[macro_export]
macro_rules! lacks_disk {
    ($($reason:tt)+) => {{
        if $crate::makes_filesystems() {
            $crate::lacks!($($reason)+);
        }
        $crate::skip!($($reason)+);
    }};
}

/// Ends the test as skipped unless the machine is a guest of its own.
#[macro_export]
macro_rules! guest_only {
    ($why:literal) => {
        if !$crate::in_guest() {
            $crate::skip!(::core::concat!("only in a guest: ", $why));
        }
    };
}

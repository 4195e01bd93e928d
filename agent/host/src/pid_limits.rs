//! How many tasks the node can have: the smaller of `pid_max` and `threads-max`, as the kubelet takes it.

use std::path::Path;

use crate::hot_file::read_bytes;
use crate::scan;

/// The two limits. A file that is missing or not a number is unknown, as it is to the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PidLimits {
    /// `kernel.pid_max`.
    pub pid_max: Option<u64>,
    /// `kernel.threads-max`.
    pub threads_max: Option<u64>,
}

impl PidLimits {
    /// Reads both from `proc/sys/kernel` under a root.
    pub fn read(root: &Path) -> Self {
        let read = |name: &str| {
            let text = read_bytes(&root.join("proc/sys/kernel").join(name)).ok()?;
            scan::lone_number(&text)
        };
        Self {
            pid_max: read("pid_max"),
            threads_max: read("threads-max"),
        }
    }

    /// The limit that is met first; unknown when neither could be read.
    pub fn effective(&self) -> Option<u64> {
        match (self.pid_max, self.threads_max) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_known_limit_counts() {
        fn check(pid_max: &str, threads_max: &str, expected: Option<u64>) {
            let root = tempfile::tempdir().expect("temporary folder");
            let kernel = root.path().join("proc/sys/kernel");
            std::fs::create_dir_all(&kernel).expect("fake tree");
            std::fs::write(kernel.join("pid_max"), pid_max).expect("fake file");
            std::fs::write(kernel.join("threads-max"), threads_max).expect("fake file");
            assert_eq!(PidLimits::read(root.path()).effective(), expected);
        }
        check("32768\n", "192730\n", Some(32_768));
        check("4194304\n", "192730\n", Some(192_730));
        check("junk\n", "192730\n", Some(192_730));
        check("4194304\n", "", Some(4_194_304));
        check("", "-1\n", None);
        assert_eq!(PidLimits::read(Path::new("/nonexistent")).effective(), None);
    }
}

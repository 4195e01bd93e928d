//! Why a disk could not be measured: by what can be done about it, with the path.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A failed measurement of a filesystem or a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// There is nothing of that name, which for a pod that has ended is no fault.
    #[error("{path} is not there")]
    Missing {
        /// What was asked for.
        path: PathBuf,
    },
    /// We have not got the right.
    #[error("may not read {path}: {source}")]
    Denied {
        /// What was asked for.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Its filesystem does not serve it any more: the server or the device behind it is gone.
    #[error("{path} is not served any more: {source}")]
    Stale {
        /// What was asked for.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It is a file, or a link that is not followed.
    #[error("{path} is not a folder")]
    NotAFolder {
        /// What was asked for.
        path: PathBuf,
    },
    /// Anything else.
    #[error("cannot {what} {path}: {source}")]
    Failed {
        /// The act.
        what: &'static str,
        /// What was asked for.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl DiskError {
    /// The failure that the kernel's answer to an act on a path stands for.
    pub(crate) fn of(what: &'static str, path: &Path, errno: Errno) -> Self {
        let path = path.to_path_buf();
        let source = io::Error::from(errno);
        match errno {
            Errno::NOENT => Self::Missing { path },
            Errno::NOTDIR | Errno::LOOP => Self::NotAFolder { path },
            Errno::ACCESS | Errno::PERM => Self::Denied { path, source },
            Errno::STALE
            | Errno::NOTCONN
            | Errno::HOSTDOWN
            | Errno::TIMEDOUT
            | Errno::NODEV
            | Errno::NXIO => Self::Stale { path, source },
            _ => Self::Failed { what, path, source },
        }
    }

    /// A short name that does not change, for metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Denied { .. } => "denied",
            Self::Stale { .. } => "stale",
            Self::NotAFolder { .. } => "not-a-folder",
            Self::Failed { .. } => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_by_what_can_be_done_about_it() {
        fn check(errno: Errno, label: &str, text: &str) {
            let error = DiskError::of("list", Path::new("/a"), errno);
            assert_eq!(error.label(), label, "{errno}");
            assert!(error.to_string().starts_with(text), "{error}");
        }
        check(Errno::NOENT, "missing", "/a is not there");
        check(Errno::PERM, "denied", "may not read /a: ");
        check(Errno::ACCESS, "denied", "may not read /a: ");
        check(Errno::STALE, "stale", "/a is not served any more: ");
        check(Errno::NOTCONN, "stale", "/a is not served any more: ");
        check(Errno::LOOP, "not-a-folder", "/a is not a folder");
        check(Errno::IO, "failed", "cannot list /a: ");
    }
}

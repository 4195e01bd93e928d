//! What can go wrong between Brink and the machine: one error for cold readers, one without allocation for the guard.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A failed reading of, or act on, this machine. Carries the object it failed on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A file or directory could not be opened.
    #[error("cannot open {path}: {source}")]
    Open {
        /// What was opened.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// An open file or directory could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// What was read.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A value could not be written.
    #[error("cannot write {value:?} to {path}: {source}")]
    Write {
        /// Where it was written.
        path: PathBuf,
        /// What was written, shortened to what a reader of the message needs.
        value: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file or directory could not be created.
    #[error("cannot create {path}: {source}")]
    Create {
        /// What should have been created.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file or directory could not be removed or renamed.
    #[error("cannot remove {path}: {source}")]
    Remove {
        /// What should have gone.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A file was read, and lacks what every supported kernel has in it.
    #[error("{path} has no {what}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The field or line that is absent.
        what: &'static str,
    },
    /// A file was read, and a value in it is not what its format allows.
    #[error("{path}: {what} is malformed")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The field or line that could not be understood.
        what: &'static str,
    },
    /// More was found than Brink is willing to hold.
    #[error("{path}: more than {limit} {what}")]
    TooMany {
        /// The file or directory.
        path: PathBuf,
        /// What there is too much of.
        what: &'static str,
        /// The bound that was met.
        limit: usize,
    },
    /// The machine does not offer what was asked for.
    #[error("{what} is not available: {why}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// Why it is not there, and where known what to do about it.
        why: String,
    },
    /// Control groups are mounted as another cgroup namespace than ours has them, and where ours begins in them is not known: what
    /// is outside of ours has no name then that leads to it.
    #[error(
        "{path} shows control groups from above our cgroup namespace and nothing says which is ours, so those of others have no name \
         that leads to them; we have to be started in the machine's: a pod as privileged, with docker by --cgroupns=host"
    )]
    OtherNamespace {
        /// Where they are mounted.
        path: PathBuf,
    },
    /// A system call that has no path failed.
    #[error("{what} failed: {source}")]
    Call {
        /// The act.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A failed reading on the way from kernel event to kill. `Copy`, so that reporting it allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HotError {
    /// The system call failed.
    #[error("{0}")]
    Io(Errno),
    /// The file holds more than the caller's buffer.
    #[error("the file is longer than the buffer")]
    Truncated,
    /// A field every supported kernel has is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field is not what its format allows.
    #[error("{0} is malformed")]
    Malformed(&'static str),
}

impl From<Errno> for HotError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno)
    }
}

impl HotError {
    /// The same failure with the path it happened on, for the paths where allocation is fine.
    pub fn at(self, path: &Path) -> HostError {
        let path = path.to_path_buf();
        match self {
            Self::Io(errno) => HostError::Read {
                path,
                source: errno.into(),
            },
            Self::Truncated => HostError::TooMany {
                path,
                what: "bytes",
                limit: crate::hot_file::LARGEST_FILE,
            },
            Self::Missing(what) => HostError::Missing { path, what },
            Self::Malformed(what) => HostError::Malformed { path, what },
        }
    }
}

impl HostError {
    /// The kernel's error number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Open { source, .. }
            | Self::Read { source, .. }
            | Self::Write { source, .. }
            | Self::Create { source, .. }
            | Self::Remove { source, .. }
            | Self::Call { source, .. } => source.raw_os_error(),
            Self::Missing { .. }
            | Self::Malformed { .. }
            | Self::TooMany { .. }
            | Self::Unsupported { .. }
            | Self::OtherNamespace { .. } => None,
        }
    }
}

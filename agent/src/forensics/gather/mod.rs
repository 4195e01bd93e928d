//! What is read of a process, a cgroup and the node at a kill; what cannot be read has its reason.

pub mod group;
pub mod node;
pub mod top;
pub mod victim;

use brink_host::{HostError, HotError};
use brink_stream::model::field::{Field, Missing};

/// A reading, or why there is none. `absent` is what it means that there is no such file.
pub(super) fn field<T>(reading: Result<T, HostError>, absent: Missing) -> Field<T> {
    reading.map_or_else(|error| Field::Missing(why(&error, absent)), Field::Value)
}

/// Why something could not be read. `absent` is what it means that there is no such file.
pub(crate) fn why(error: &HostError, absent: Missing) -> Missing {
    match error {
        HostError::Malformed { .. } | HostError::Missing { .. } | HostError::TooMany { .. } => {
            Missing::Malformed
        }
        HostError::Unsupported { .. } => Missing::KernelLacksIt,
        _ => match error.errno() {
            Some(libc::EACCES | libc::EPERM) => Missing::NotPermitted,
            Some(libc::ENOENT) => absent,
            // The task, or the group behind an open folder, has gone.
            Some(libc::ESRCH | libc::ENODEV) => Missing::ProcessGone,
            Some(libc::EOPNOTSUPP) => Missing::KernelLacksIt,
            // No room for one more file or page: it was there, and was not read.
            _ => Missing::Lost,
        },
    }
}

/// Why a file that is held open could not be read.
pub(crate) const fn why_hot(error: HotError) -> Missing {
    match error {
        HotError::Io(_) => Missing::Lost,
        _ => Missing::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn each_failure_has_its_reason() {
        let check = |errno: i32, expected| {
            let error = HostError::Open {
                path: "/x".into(),
                source: io::Error::from_raw_os_error(errno),
            };
            let found: Field<u64> = field(Err(error), Missing::KernelLacksIt);
            assert_eq!(found, Field::Missing(expected), "{errno}");
        };
        check(libc::EACCES, Missing::NotPermitted);
        check(libc::ENOENT, Missing::KernelLacksIt);
        check(libc::ESRCH, Missing::ProcessGone);
        check(libc::ENODEV, Missing::ProcessGone);
        check(libc::EMFILE, Missing::Lost);
        assert_eq!(field(Ok(7), Missing::Lost), Field::Value(7));
    }
}

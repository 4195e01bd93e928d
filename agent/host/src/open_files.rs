//! How many files this process may hold open: the guard holds a few for each workload.

use rustix::process::{Resource, Rlimit};

use crate::error::HostError;

/// The limit before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// What it was; `None` is no limit.
    pub before: Option<u64>,
    /// What it is now.
    pub now: Option<u64>,
}

/// Raises the soft limit of open files to the hard one. systemd starts services with a soft limit of 1024, because of
/// programs that use `select`; we do not.
///
/// # Errors
/// [`HostError::Call`].
pub fn raise_limit() -> Result<OpenFiles, HostError> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised).map_err(|errno| HostError::Call {
        what: "raising the limit of open files",
        source: errno.into(),
    })?;
    Ok(OpenFiles {
        before: limit.current,
        now: rustix::process::getrlimit(Resource::Nofile).current,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise_limit().expect("up to the hard limit is always permitted");
        let hard = rustix::process::getrlimit(Resource::Nofile).maximum;
        assert_eq!(raised.now, hard);
        assert_eq!(
            raise_limit().expect("again"),
            OpenFiles {
                before: hard,
                now: hard
            }
        );
    }
}

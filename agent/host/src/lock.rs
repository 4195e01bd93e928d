//! One enforcer a node: a lock file under /run that the kernel releases when its holder dies.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::HostError;

/// The lock, held until it is dropped or this process ends, however it ends.
#[derive(Debug)]
pub struct EnforcerLock {
    /// Kept open for the lock that hangs on it.
    _file: File,
}

/// Whether we are the enforcer.
#[derive(Debug)]
pub enum Enforcer {
    /// We are.
    We(EnforcerLock),
    /// Another process is; its pid, if it has written it already.
    Other(Option<i32>),
}

impl EnforcerLock {
    /// Tries to become the enforcer. The file is made if need be and never removed: a removed lock file could be
    /// locked by two.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn acquire(path: &Path) -> Result<Enforcer, HostError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|source| HostError::Create {
                path: folder.to_path_buf(),
                source,
            })?;
        }
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(path).map_err(|source| HostError::Create {
            path: path.to_path_buf(),
            source,
        })?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Enforcer::Other(holder(&mut file))),
            Err(errno) => {
                return Err(HostError::Open {
                    path: path.to_path_buf(),
                    source: errno.into(),
                });
            }
        }
        let pid = format!("{}\n", std::process::id());
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(pid.as_bytes())
        };
        write(&mut file).map_err(|source| HostError::Write {
            path: path.to_path_buf(),
            value: pid.clone(),
            source,
        })?;
        Ok(Enforcer::We(Self { _file: file }))
    }
}

fn holder(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_learns_who_is_first() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("run/brink/enforcer.lock");
        let Ok(Enforcer::We(lock)) = EnforcerLock::acquire(&path) else {
            panic!("nobody else has it")
        };
        let own = i32::try_from(std::process::id()).expect("a pid");
        let second = EnforcerLock::acquire(&path).expect("readable");
        assert!(
            matches!(second, Enforcer::Other(Some(pid)) if pid == own),
            "{second:?}"
        );
        fs::write(&path, "").expect("write");
        assert!(matches!(
            EnforcerLock::acquire(&path),
            Ok(Enforcer::Other(None))
        ));
        drop(lock);
        assert!(matches!(EnforcerLock::acquire(&path), Ok(Enforcer::We(_))));
        assert_eq!(fs::read_to_string(&path).expect("read"), format!("{own}\n"));
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("enforcer.lock");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).expect("link");
        assert!(matches!(
            EnforcerLock::acquire(&path),
            Err(HostError::Create { .. })
        ));
        assert!(!folder.path().join("elsewhere").exists());
    }
}

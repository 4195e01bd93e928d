//! One enforcer a node: a lock file under /run that the kernel releases when its holder dies.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

/// Mode of the lock file: nobody else may hold it, and so keep us from enforcing.
const MODE: u32 = 0o600;

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
            make_folder(folder)?;
        }
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(path).map_err(|source| HostError::Create {
            path: path.to_path_buf(),
            source,
        })?;
        keep_to_ourselves(&file, path)?;
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

/// Makes the folder of the lock, and those above it, for its owner alone; one that is there stays as it is.
///
/// # Errors
/// [`HostError`] with the path.
pub fn make_folder(folder: &Path) -> Result<(), HostError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(folder).map_err(|source| HostError::Create {
        path: folder.to_path_buf(),
        source,
    })
}

/// Whoever may open the file may lock it, were it for reading only. One that an older agent has made is open to all.
fn keep_to_ourselves(file: &File, path: &Path) -> Result<(), HostError> {
    let restrict = || {
        let mode = file.metadata()?.permissions().mode();
        if mode & 0o7777 == MODE {
            return Ok(());
        }
        file.set_permissions(Permissions::from_mode(MODE))
    };
    restrict().map_err(|source| HostError::Write {
        path: path.to_path_buf(),
        value: format!("mode {MODE:o}"),
        source,
    })
}

/// Who holds the lock on a file, by the kernel's own list (`proc/locks` under a root). Nothing is locked to find out, so
/// that looking never keeps an agent from becoming the enforcer. `None`: nobody in our pid namespace does.
///
/// # Errors
/// [`HostError`] with the path.
pub fn holder_of(root: &Path, path: &Path) -> Result<Option<i32>, HostError> {
    let failed = |source| HostError::Open {
        path: path.to_path_buf(),
        source,
    };
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let found = file.metadata().map_err(failed)?;
    let written = holder(&mut file);
    let device = (
        u64::from(rustix::fs::major(found.dev())),
        u64::from(rustix::fs::minor(found.dev())),
    );
    let list = read_bytes(&root.join("proc/locks"))?;
    let held = scan::lines(&list).filter_map(exclusive_lock).find(|lock| {
        // A file system may show another device to `stat` than the kernel's list has; then the pid in the file decides.
        let is_same = lock.device == device || written == Some(lock.pid);
        lock.inode == found.ino() && is_same
    });
    Ok(held.map(|lock| lock.pid))
}

/// A line of the kernel's list.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    pid: i32,
    device: (u64, u64),
    inode: u64,
}

/// `1: FLOCK  ADVISORY  WRITE 812 fe:00:1234 0 EOF`. One that waits has `->` behind its number, and holds nothing.
fn exclusive_lock(line: &[u8]) -> Option<Listed> {
    let words: Vec<&[u8]> = scan::words(line).collect();
    let [_, b"FLOCK", b"ADVISORY", b"WRITE", pid, place, ..] = words.as_slice() else {
        return None;
    };
    let mut parts = std::str::from_utf8(place).ok()?.splitn(3, ':');
    let mut hexadecimal = || u64::from_str_radix(parts.next()?, 16).ok();
    let device = (hexadecimal()?, hexadecimal()?);
    Some(Listed {
        pid: i32::try_from(scan::number(pid)?).ok()?,
        device,
        inode: parts.next()?.parse().ok()?,
    })
}

fn holder(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mode(path: &Path) -> u32 {
        let found = fs::metadata(path).expect("it is there");
        found.permissions().mode() & 0o777
    }

    #[test]
    fn nobody_else_may_open_it_nor_look_into_its_folder() {
        let parent = tempfile::tempdir().expect("temporary folder");
        let folder = parent.path().join("run/brink");
        let path = folder.join("enforcer.lock");
        drop(EnforcerLock::acquire(&path).expect("ours"));
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o700));

        // As an older agent left them: the file is closed, and a folder that was there is its owner's affair.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("chmod");
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("chmod");
        drop(EnforcerLock::acquire(&path).expect("ours"));
        assert_eq!((mode(&path), mode(&folder)), (0o600, 0o755));
    }

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
    fn looking_finds_the_holder_and_takes_nothing() {
        let root = Path::new("/");
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("enforcer.lock");
        assert_eq!(holder_of(root, &path).expect("no file is no holder"), None);
        let Ok(Enforcer::We(lock)) = EnforcerLock::acquire(&path) else {
            panic!("nobody else has it")
        };
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(holder_of(root, &path).expect("readable"), Some(own));
        drop(lock);
        // The pid is still in the file; the kernel knows better.
        assert_eq!(holder_of(root, &path).expect("readable"), None);
        assert!(matches!(EnforcerLock::acquire(&path), Ok(Enforcer::We(_))));
    }

    #[test]
    fn the_kernels_list_is_understood() {
        fn check(line: &str, expected: Option<(i32, (u64, u64), u64)>) {
            let found = exclusive_lock(line.as_bytes());
            let found = found.map(|lock| (lock.pid, lock.device, lock.inode));
            assert_eq!(found, expected, "{line}");
        }
        check(
            "1: FLOCK  ADVISORY  WRITE 812 fe:1f:10609624 0 EOF",
            Some((812, (0xfe, 0x1f), 10_609_624)),
        );
        check("1: -> FLOCK  ADVISORY  WRITE 812 fe:00:1 0 EOF", None);
        check("2: FLOCK  ADVISORY  READ  812 fe:00:1 0 EOF", None);
        check("3: POSIX  ADVISORY  WRITE 812 fe:00:1 0 EOF", None);
        check("4: FLOCK  ADVISORY  WRITE 812 <none>:0 0 EOF", None);
        check("5: FLOCK", None);
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

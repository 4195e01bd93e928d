//! What the owner of a group asked of memory killers: the extended attributes `oomd_omit` and `oomd_avoid`.
//!
//! systemd writes them for `ManagedOOMPreference=`. As systemd-oomd does, we believe the `user.` attributes only of groups
//! that root owns: any user may set them on groups delegated to him, and would otherwise exempt himself. The `trusted.`
//! attributes can be set by `CAP_SYS_ADMIN` alone and always count.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::cgroup::dir::CgroupDir;
use crate::error::HostError;

/// What was asked, the strongest first: omit wins over avoid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preference {
    /// Never kill this group.
    Omit,
    /// Kill it only when nothing else is left.
    Avoid,
    /// Nothing.
    None,
}

impl CgroupDir {
    /// The preference set on this group itself; a group does not inherit.
    ///
    /// # Errors
    /// [`HostError::Read`] when the attributes exist and cannot be read.
    pub fn preference(&self) -> Result<Preference, HostError> {
        preference_of(self.as_fd()).map_err(|errno| unread(self.path(), errno))
    }
}

/// Room for the names of a group's attributes; with more of them each is asked for.
const NAMES: usize = 1024;

/// The preference set on the group of a folder. One call tells of most groups that they have no such attribute.
///
/// # Errors
/// [`HostError::Read`] when the attributes cannot be read; the group may have gone.
pub fn preference_at(folder: &Path) -> Result<Preference, HostError> {
    let failed = |errno: Errno| unread(folder, errno);
    let mut names = [0u8; NAMES];
    match rustix::fs::llistxattr(folder, &mut names[..]) {
        Ok(length) if !is_named(names.get(..length).unwrap_or(&[])) => return Ok(Preference::None),
        Err(Errno::OPNOTSUPP) => return Ok(Preference::None),
        Ok(_) | Err(Errno::RANGE) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(folder, flags, Mode::empty()).map_err(failed)?;
    preference_of(dir.as_fd()).map_err(failed)
}

/// Whether one of the names, each of which ends with a zero byte, may be of a preference.
fn is_named(names: &[u8]) -> bool {
    let mut names = names.split(|byte| *byte == 0);
    names.any(|name| name.ends_with(b".oomd_omit") || name.ends_with(b".oomd_avoid"))
}

fn unread(path: &Path, errno: Errno) -> HostError {
    HostError::Read {
        path: path.to_path_buf(),
        source: errno.into(),
    }
}

fn preference_of(dir: BorrowedFd<'_>) -> Result<Preference, Errno> {
    let owner = rustix::fs::fstat(dir)?.st_uid;
    let set = |names: [&str; 2]| -> Result<bool, Errno> {
        let [trusted, user] = names.map(|name| attribute(dir, name));
        Ok(trusted? || (user? && owner == 0))
    };
    Ok(if set(["trusted.oomd_omit", "user.oomd_omit"])? {
        Preference::Omit
    } else if set(["trusted.oomd_avoid", "user.oomd_avoid"])? {
        Preference::Avoid
    } else {
        Preference::None
    })
}

/// Whether an attribute is there and true. A file system or version without such attributes has none set.
fn attribute(dir: BorrowedFd<'_>, name: &str) -> Result<bool, Errno> {
    let mut value = [0u8; 16];
    match rustix::fs::fgetxattr(dir, name, &mut value[..]) {
        Ok(length) => Ok(is_true(value.get(..length).unwrap_or(&[]))),
        // RANGE: longer than any word for true.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// systemd's words for true.
fn is_true(value: &[u8]) -> bool {
    ["1", "yes", "y", "true", "t", "on"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::dir::fake;
    use crate::cgroup::layout::Version;

    #[test]
    fn systemds_words_for_true() {
        for word in ["1", "yes", "YES", "true", "on", "t", "y"] {
            assert!(is_true(word.as_bytes()), "{word}");
        }
        for word in ["", "0", "no", "11", "1\n", "truely"] {
            assert!(!is_true(word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn a_group_without_attributes_has_no_preference() {
        let (_root, dir) = fake::group(Version::V2, &[]);
        assert_eq!(dir.preference().expect("readable"), Preference::None);
        assert_eq!(
            preference_at(dir.path()).expect("readable"),
            Preference::None
        );
        let gone = preference_at(&dir.path().join("gone")).expect_err("there is none");
        assert_eq!(gone.errno(), Some(libc::ENOENT));
    }

    #[test]
    fn only_names_of_preferences_are_worth_a_closer_look() {
        fn check(names: &[u8], expected: bool) {
            assert_eq!(is_named(names), expected, "{names:?}");
        }
        check(b"", false);
        check(b"security.selinux\0", false);
        check(b"security.selinux\0trusted.oomd_omit\0", true);
        check(b"user.oomd_avoid\0user.delegate\0", true);
        check(b"user.oomd_omitted\0", false);
    }

    #[test]
    fn omit_wins_over_avoid() {
        assert!(Preference::Omit < Preference::Avoid && Preference::Avoid < Preference::None);
    }
}

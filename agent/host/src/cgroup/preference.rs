//! What the owner of a group asked of memory killers: the extended attributes `oomd_omit` and `oomd_avoid`.
//!
//! systemd writes them for `ManagedOOMPreference=`. As systemd-oomd does, we believe the `user.` attributes only of groups
//! that root owns: any user may set them on groups delegated to him, and would otherwise exempt himself. The `trusted.`
//! attributes can be set by `CAP_SYS_ADMIN` alone and always count.

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
        let failed = |errno: Errno| HostError::Read {
            path: self.path().to_path_buf(),
            source: errno.into(),
        };
        let owner = rustix::fs::fstat(self).map_err(failed)?.st_uid;
        let set = |names: [&str; 2]| -> Result<bool, HostError> {
            let [trusted, user] = names.map(|name| attribute(self, name));
            Ok(trusted.map_err(failed)? || (user.map_err(failed)? && owner == 0))
        };
        Ok(if set(["trusted.oomd_omit", "user.oomd_omit"])? {
            Preference::Omit
        } else if set(["trusted.oomd_avoid", "user.oomd_avoid"])? {
            Preference::Avoid
        } else {
            Preference::None
        })
    }
}

/// Whether an attribute is there and true. A file system or version without such attributes has none set.
fn attribute(dir: &CgroupDir, name: &str) -> Result<bool, Errno> {
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
    }

    #[test]
    fn omit_wins_over_avoid() {
        assert!(Preference::Omit < Preference::Avoid && Preference::Avoid < Preference::None);
    }
}

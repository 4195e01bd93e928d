//! Limits of a group: memory.max, memory.high, pids.max, and their v1 counterparts, with "no limit" as a value.

use std::ffi::CStr;

use crate::cgroup::dir::CgroupDir;
use crate::cgroup::layout::Version;
use crate::error::{HostError, HotError};
use crate::scan;

/// Above this a memory limit is none, to the kubelet as to us. v1 writes "no limit" as the largest number of whole
/// pages, which depends on the page size.
const LARGEST_LIMIT: u64 = 1 << 62;

/// An upper bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Bytes, or a count.
    At(u64),
    /// None.
    Unlimited,
}

impl Limit {
    /// Understands `max` or a number.
    ///
    /// # Errors
    /// [`HotError::Malformed`].
    pub fn parse(text: &[u8]) -> Result<Self, HotError> {
        match text.trim_ascii() {
            b"max" => Ok(Self::Unlimited),
            digits => match scan::number(digits).ok_or(HotError::Malformed("limit"))? {
                value if value > LARGEST_LIMIT => Ok(Self::Unlimited),
                value => Ok(Self::At(value)),
            },
        }
    }

    /// The bound as a number, if there is one.
    pub fn value(self) -> Option<u64> {
        match self {
            Self::At(value) => Some(value),
            Self::Unlimited => None,
        }
    }

    /// The tighter of two.
    #[must_use]
    pub fn tighter(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(one), Self::At(another)) => Self::At(one.min(another)),
            (Self::Unlimited, limit) | (limit, Self::Unlimited) => limit,
        }
    }
}

impl CgroupDir {
    /// The group's own memory limit, bytes. The root of v2 has none.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn memory_limit(&self) -> Result<Limit, HostError> {
        match self.version() {
            Version::V1 => self.limit(c"memory.limit_in_bytes"),
            Version::V2 => self.limit_unless_root(c"memory.max"),
        }
    }

    /// The size above which the group is slowed down, bytes (`memory.high`; v1 has no such thing).
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn memory_high(&self) -> Result<Limit, HostError> {
        match self.version() {
            Version::V1 => Ok(Limit::Unlimited),
            Version::V2 => self.limit_unless_root(c"memory.high"),
        }
    }

    /// The group's own limit of tasks; the root has none.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn pids_limit(&self) -> Result<Limit, HostError> {
        self.limit_unless_root(c"pids.max")
    }

    pub(crate) fn limit(&self, name: &CStr) -> Result<Limit, HostError> {
        let mut buffer = [0; 64];
        Limit::parse(self.read(name, &mut buffer)?).map_err(|error| self.wrong(name, error))
    }

    /// The root group lacks the file, and only the root does.
    fn limit_unless_root(&self, name: &CStr) -> Result<Limit, HostError> {
        match self.limit(name) {
            Err(error) if error.errno() == Some(libc::ENOENT) && self.is_root() => {
                Ok(Limit::Unlimited)
            }
            answer => answer,
        }
    }

    /// Whether it is the root of its hierarchy, as its mount shows it.
    pub fn is_root(&self) -> bool {
        self.group().bytes().all(|byte| byte == b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::dir::fake;
    use proptest::prelude::*;

    #[test]
    fn no_limit_has_many_spellings() {
        fn check(text: &str, expected: Result<Limit, HotError>) {
            assert_eq!(Limit::parse(text.as_bytes()), expected, "{text:?}");
        }
        check("max\n", Ok(Limit::Unlimited));
        check("9223372036854771712\n", Ok(Limit::Unlimited));
        check("9223372036854710272\n", Ok(Limit::Unlimited));
        check("4611686018427387904\n", Ok(Limit::At(1 << 62)));
        check("4611686018427387905\n", Ok(Limit::Unlimited));
        check("1048576\n", Ok(Limit::At(1 << 20)));
        check("0\n", Ok(Limit::At(0)));
        check("-1\n", Err(HotError::Malformed("limit")));
        check("", Err(HotError::Malformed("limit")));
        check("maximum\n", Err(HotError::Malformed("limit")));
    }

    #[test]
    fn both_versions_are_read() {
        let (_root, v1) = fake::group(
            Version::V1,
            &[("memory.limit_in_bytes", "4096\n"), ("pids.max", "7\n")],
        );
        assert_eq!(v1.memory_limit().expect("limit"), Limit::At(4096));
        assert_eq!(v1.memory_high().expect("none on v1"), Limit::Unlimited);
        assert_eq!(v1.pids_limit().expect("limit"), Limit::At(7));
        let (_root, v2) = fake::group(
            Version::V2,
            &[("memory.max", "max\n"), ("memory.high", "8192\n")],
        );
        assert_eq!(v2.memory_limit().expect("limit"), Limit::Unlimited);
        assert_eq!(v2.memory_high().expect("limit"), Limit::At(8192));
    }

    #[test]
    fn a_file_that_is_not_there_is_an_error_and_no_limit() {
        let (_root, v2) = fake::group(Version::V2, &[]);
        assert!(matches!(v2.memory_limit(), Err(HostError::Open { .. })));
        let (_root, broken) = fake::group(Version::V2, &[("memory.max", "lots\n")]);
        assert!(matches!(
            broken.memory_limit(),
            Err(HostError::Malformed { what: "limit", .. })
        ));
    }

    proptest! {
        #[test]
        fn the_tighter_limit_is_never_above_either(one: Option<u32>, other: Option<u32>) {
            let limit = |value: Option<u32>| value.map_or(Limit::Unlimited, |value| Limit::At(value.into()));
            let tighter = limit(one).tighter(limit(other));
            let expected = one.into_iter().chain(other).min().map(u64::from);
            prop_assert_eq!(tighter.value(), expected);
        }
    }
}

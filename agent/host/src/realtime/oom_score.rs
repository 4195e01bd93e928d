//! Our own `oom_score_adj`: the kernel should take us last, where it lets us ask for that.

use std::path::Path;

use crate::error::HostError;
use crate::hot_file::{read_bytes, write_value};
use crate::scan;

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OomScore {
    /// The value asked for is set.
    Set(i64),
    /// It was refused; this one stays.
    Kept {
        /// The value in force.
        current: i64,
        /// Why, and what to do about it.
        why: String,
    },
}

/// The largest protection: the kernel's killer never takes a process with this value.
pub const NEVER: i64 = -1000;

/// Asks for an `oom_score_adj` of this process.
///
/// # Errors
/// [`HostError`] when the value in force cannot even be read, or the write fails for another reason than rights.
pub fn adjust(root: &Path, wanted: i64) -> Result<OomScore, HostError> {
    let path = root.join("proc/self/oom_score_adj");
    let text = read_bytes(&path)?;
    let current = scan::signed_number(text.trim_ascii()).ok_or_else(|| HostError::Malformed {
        path: path.clone(),
        what: "oom_score_adj",
    })?;
    match write_value(&path, &wanted.to_string()) {
        Ok(()) => Ok(OomScore::Set(wanted)),
        Err(error) if matches!(error.errno(), Some(libc::EACCES | libc::EPERM)) => {
            Ok(OomScore::Kept {
                current,
                why: format!(
                    "{error}: lowering it takes CAP_SYS_RESOURCE (or OOMScoreAdjust={wanted} in the unit)"
                ),
            })
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_permitted_is_set() {
        let root = tempfile::tempdir().expect("temporary folder");
        let path = root.path().join("proc/self/oom_score_adj");
        std::fs::create_dir_all(path.parent().expect("parent")).expect("fake tree");
        std::fs::write(&path, "0\n").expect("fake file");
        assert_eq!(
            adjust(root.path(), -900).expect("writable"),
            OomScore::Set(-900)
        );
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "-900");
        std::fs::write(&path, "low\n").expect("fake file");
        assert!(matches!(
            adjust(root.path(), -900),
            Err(HostError::Malformed { .. })
        ));
    }
}

//! /proc/vmstat: what reclaim, swap and the OOM killer have done since boot.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

/// How the names of these counters begin, as Linux 4.19 to 7 have them.
const BEGINS: [&[u8]; 9] = [
    b"pgscan_",
    b"pgsteal_",
    b"allocstall_",
    b"pageoutrun",
    b"kswapd_",
    b"pswp",
    b"workingset_refault",
    b"compact_stall",
    b"oom_kill",
];

/// Every such line of `proc/vmstat` under a root by its name: events and pages, as the kernel counts them.
///
/// # Errors
/// [`HostError`] with the path.
pub fn table(root: &Path) -> Result<BTreeMap<String, u64>, HostError> {
    let path = root.join("proc/vmstat");
    let text = read_bytes(&path)?;
    let wanted = |line: &&[u8]| BEGINS.iter().any(|begin| line.starts_with(begin));
    let entry = |line: &[u8]| {
        let space = line.iter().position(|byte| *byte == b' ')?;
        let value = scan::lone_number(&line[space..])?;
        Some((String::from_utf8_lossy(&line[..space]).into_owned(), value))
    };
    let all: Option<BTreeMap<String, u64>> = scan::lines(&text).filter(wanted).map(entry).collect();
    all.ok_or(HostError::Malformed { path, what: "line" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Result<BTreeMap<String, u64>, HostError> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/vmstat"), text).unwrap();
        table(root.path())
    }

    #[test]
    fn what_is_not_of_reclaim_is_left_out() {
        let text = "nr_free_pages 5\npgscan_direct 7\npgfault 9\nallocstall_normal 2\noom_kill 1\n";
        let named = [
            ("allocstall_normal", 2),
            ("oom_kill", 1),
            ("pgscan_direct", 7),
        ];
        let expected = BTreeMap::from(named.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(found(text).unwrap(), expected);
    }

    #[test]
    fn a_line_without_its_number_is_told() {
        for text in ["oom_kill\n", "oom_kill x\n", "pswpin 1 2\n"] {
            let error = found(text).unwrap_err();
            assert!(matches!(error, HostError::Malformed { .. }), "{error}");
        }
        assert_eq!(found("nr_x\n").unwrap(), BTreeMap::new());
    }

    #[test]
    fn this_kernel_counts_what_reclaim_does() {
        let found = table(Path::new("/")).unwrap();
        for name in ["pgscan_direct", "pgsteal_kswapd", "pswpin", "oom_kill"] {
            assert!(found.contains_key(name), "{name}: {found:?}");
        }
    }
}

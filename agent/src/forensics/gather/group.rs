//! The victim's cgroup and every one above it, as the memory controller shows them.

use brink_host::cgroup::{CgroupDir, Hierarchy, Limit};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::CgroupState;

use super::super::limit::Level;
use super::{field, why};

/// Deeper than any tree of cgroups that somebody made on purpose.
const DEEPEST: usize = 32;

/// A cgroup on the way up, opened.
#[derive(Debug)]
pub struct Opened {
    /// Its path.
    pub path: String,
    /// Its folder, or why it is not had.
    pub dir: Result<CgroupDir, Missing>,
}

/// Opens a cgroup and every one above it, innermost first.
pub fn open(hierarchy: &Hierarchy, path: &str) -> Vec<Opened> {
    let paths = ancestry(path).take(DEEPEST);
    let seen = paths.filter(|path| hierarchy.folder(path).is_some());
    seen.map(|path| Opened {
        dir: CgroupDir::open(hierarchy, &path).map_err(|error| why(&error, Missing::ProcessGone)),
        path,
    })
    .collect()
}

/// The innermost of them.
///
/// # Errors
/// Why it is not had.
pub fn first(opened: &[Opened]) -> Result<&CgroupDir, Missing> {
    let first = opened.first().ok_or(Missing::ProcessGone)?;
    first.dir.as_ref().map_err(|reason| *reason)
}

/// Opens one cgroup; none where it is gone.
pub fn open_one(hierarchy: &Hierarchy, path: &str) -> Option<CgroupDir> {
    CgroupDir::open(hierarchy, path).ok()
}

/// A path and every one above it, innermost first: `/a/b`, `/a`, `/`.
pub fn ancestry(path: &str) -> impl Iterator<Item = String> {
    let whole = format!("/{}", path.trim_matches('/'));
    std::iter::successors(Some(whole), |path| match path.rfind('/') {
        Some(0) if path.len() > 1 => Some("/".to_owned()),
        Some(end) if end > 0 => Some(path[..end].to_owned()),
        _ => None,
    })
}

/// What a cgroup shows.
pub fn state(opened: &Opened) -> CgroupState {
    let path = opened.path.clone();
    let dir = match &opened.dir {
        Ok(dir) => dir,
        Err(reason) => {
            return CgroupState {
                path,
                usage: Field::Missing(*reason),
                max: Field::Missing(*reason),
                high: Field::Missing(*reason),
                swap: Field::Missing(*reason),
                events: Field::Missing(*reason),
                group: Field::Missing(*reason),
            };
        }
    };
    let absent = absent(dir);
    let bytes = |limit: Limit| limit.value();
    CgroupState {
        path,
        usage: field(dir.memory_usage(), absent),
        max: field(dir.memory_limit().map(bytes), absent),
        high: field(dir.memory_high().map(bytes), absent),
        swap: field(dir.swap_usage(), absent),
        events: field(dir.memory_counts(), absent),
        group: field(dir.is_killed_whole(), absent),
    }
}

/// What it means that a cgroup has not got a file.
pub fn absent(dir: &CgroupDir) -> Missing {
    if dir.is_root() {
        Missing::NotApplicable
    } else if dir.is_alive() {
        Missing::KernelLacksIt
    } else {
        Missing::ProcessGone
    }
}

/// What a state says about limits. `before` is how often the cgroup's own limit could not be kept at the last look, `now` how
/// often it could not so far.
pub fn level(state: &CgroupState, before: Option<u64>, now: Option<u64>) -> Level {
    let events = state.events.value();
    let event = |name| events.and_then(|events| events.get(name)).copied();
    Level {
        path: state.path.clone(),
        usage: state.usage.value().copied(),
        // The root of v2 has no such file, and no limit.
        max: match state.max {
            Field::Value(max) => Some(max),
            Field::Missing(Missing::NotApplicable) => Some(None),
            Field::Missing(_) => None,
        },
        ooms: before.zip(now),
        under_oom: event("under_oom").map(|under| under != 0),
        spares: event("oom_kill_disable").is_some_and(|disabled| disabled != 0),
    }
}

#[cfg(test)]
mod tests {
    use brink_host::cgroup::Version;

    use super::*;

    #[test]
    fn the_way_up_ends_at_the_root() {
        let check = |path: &str, expected: &[&str]| {
            let found: Vec<String> = ancestry(path).collect();
            assert_eq!(found, expected);
        };
        check("/a/b/c", &["/a/b/c", "/a/b", "/a", "/"]);
        check("a/", &["/a", "/"]);
        check("/", &["/"]);
        check("", &["/"]);
    }

    #[test]
    fn what_is_gone_says_so_and_the_root_has_no_limit() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a");
        std::fs::create_dir(&inner).unwrap();
        for (name, text) in [
            ("cgroup.procs", ""),
            ("memory.current", "70\n"),
            ("memory.max", "100\n"),
            ("memory.high", "max\n"),
            ("memory.oom.group", "1\n"),
        ] {
            std::fs::write(inner.join(name), text).unwrap();
        }
        let hierarchy = Hierarchy {
            version: Version::V2,
            path: root.path().to_owned(),
            mount_root: "/".to_owned(),
        };
        let opened = open(&hierarchy, "/a/gone");
        let states: Vec<CgroupState> = opened.iter().map(state).collect();
        assert_eq!(states[0].usage, Field::Missing(Missing::ProcessGone));
        // One that cannot be opened for another reason is not told as gone.
        let looped = root.path().join("looped");
        std::os::unix::fs::symlink(&looped, &looped).unwrap();
        let unread = open(&hierarchy, "/looped")
            .iter()
            .map(state)
            .next()
            .unwrap();
        assert_eq!(unread.usage, Field::Missing(Missing::Lost));
        assert_eq!(
            (&states[1].usage, &states[1].max, &states[1].high),
            (
                &Field::Value(70),
                &Field::Value(Some(100)),
                &Field::Value(None)
            )
        );
        assert_eq!(states[1].group, Field::Value(true));
        assert_eq!(states[1].events, Field::Missing(Missing::KernelLacksIt));
        assert_eq!(states[2].max, Field::Value(None), "the root has none");
        assert_eq!(states[2].usage, Field::Missing(Missing::NotApplicable));
        let level = level(&states[1], Some(3), Some(4));
        assert_eq!((level.max, level.ooms), (Some(Some(100)), Some((3, 4))));
    }
}

//! The cgroup mounts of a mountinfo file.

use std::path::PathBuf;

use crate::cgroup::layout::Controller;
use crate::scan;

/// What a cgroup mount holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Unified,
    Legacy(Vec<String>),
}

impl Kind {
    pub(super) fn has(&self, controller: Controller) -> bool {
        matches!(self, Self::Legacy(names) if names.iter().any(|name| name == controller.name()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) kind: Kind,
    pub(super) root: String,
    pub(super) point: PathBuf,
}

/// The mount to read a hierarchy through: one that shows it from its root, else the first. One that lies below another is not to
/// be seen.
pub(super) fn choose(mounts: &[Mount], wanted: impl Fn(&Mount) -> bool) -> Option<&Mount> {
    let is_covered = |at: usize, mount: &Mount| {
        mounts
            .iter()
            .skip(at + 1)
            .any(|later| later.point == mount.point)
    };
    let fitting = || {
        let all = mounts.iter().enumerate();
        all.filter(|(at, mount)| wanted(mount) && !is_covered(*at, mount))
            .map(|(_, mount)| mount)
    };
    fitting()
        .find(|mount| mount.root == "/")
        .or_else(|| fitting().next())
}

/// The cgroup mounts among the lines of a mountinfo file. Lines of other file systems, and broken ones, are not ours.
pub(super) fn parse_mounts(text: &[u8]) -> Vec<Mount> {
    scan::lines(text).filter_map(parse_mount).collect()
}

/// `36 25 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory` (`proc(5)`).
fn parse_mount(line: &[u8]) -> Option<Mount> {
    use std::os::unix::ffi::OsStringExt;

    let mut words = scan::words(line).skip(3);
    let (root, point) = (words.next()?, words.next()?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let (file_system, _source, options) = (words.next()?, words.next()?, words.next()?);
    let kind = match file_system {
        b"cgroup2" => Kind::Unified,
        b"cgroup" => {
            let options = options.split(|byte| *byte == b',');
            Kind::Legacy(
                options
                    .map(|option| String::from_utf8_lossy(option).into_owned())
                    .collect(),
            )
        }
        _ => return None,
    };
    let point = std::ffi::OsString::from_vec(scan::unescape_octal(point));
    let root = String::from_utf8(scan::unescape_octal(root)).ok()?;
    Some(Mount {
        kind,
        root,
        point: point.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "32 30 0:30 /a\\040b /sys/fs/cgroup/memory rw shared:10 master:2 - cgroup cgroup rw,memory\n";

    #[test]
    fn optional_fields_are_skipped_and_paths_unescaped() {
        let mounts = parse_mounts(LINE.as_bytes());
        assert_eq!(mounts.len(), 1);
        assert_eq!(
            (mounts[0].root.as_str(), mounts[0].point.to_str()),
            ("/a b", Some("/sys/fs/cgroup/memory"))
        );
        assert!(mounts[0].kind.has(Controller::Memory) && !mounts[0].kind.has(Controller::Cpu));
        assert_eq!(parse_mounts(b"24 1 0:22 / /proc rw - proc proc rw\n"), []);
    }

    #[test]
    fn a_mount_below_another_one_is_not_to_be_seen() {
        let of = |root: &str, point: &str| format!("30 23 0:28 {root} {point} rw - cgroup2 c rw\n");
        let chosen = |text: String| {
            let mounts = parse_mounts(text.as_bytes());
            let mount = choose(&mounts, |mount| mount.kind == Kind::Unified);
            mount.map(|mount| mount.root.clone())
        };
        let (own, whole) = (of("/", "/sys/fs/cgroup"), of("/../..", "/sys/fs/cgroup"));
        assert_eq!(chosen(format!("{own}{whole}")).as_deref(), Some("/../.."));
        let aside = of("/", "/own");
        assert_eq!(chosen(format!("{aside}{whole}")).as_deref(), Some("/"));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse_mounts(&text);
        }

        #[test]
        fn a_damaged_line_never_panics(at in 0..LINE.len(), byte: u8) {
            let mut text = LINE.as_bytes().to_vec();
            text[at] = byte;
            parse_mounts(&text);
        }
    }
}

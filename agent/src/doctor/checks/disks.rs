//! Whether thresholds on disks can be met here, and what goes before pods do.

use crate::config::ReclaimPolicy;
use crate::doctor::check::{Check, State, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::disks::{Disks, Found};
use crate::record::text::bytes;

const FILESYSTEMS: Subject = Subject("disks.filesystems", "filesystems of thresholds");
const RUNTIME: Subject = Subject("disks.runtime", "container runtime");

/// None without a threshold on a disk.
pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let Some(disks) = &facts.disks else {
        return Vec::new();
    };
    let runtime = runtime(disks, facts.config.runtime.reclaim);
    vec![filesystems(disks), runtime]
}

fn filesystems(disks: &Disks) -> Check {
    let words: Vec<String> = disks.filesystems.iter().map(in_words).collect();
    let found = words.join("; ");
    let all = || {
        disks
            .filesystems
            .iter()
            .map(|one| one.filesystem.as_ref().ok())
    };
    let is_read_only = all().any(|one| one.is_some_and(|found| found.read_only));
    let is_unknown =
        all().any(|one| one.is_none_or(|found| !found.read_only && found.capacity == 0));
    if !is_read_only && !is_unknown {
        return FILESYSTEMS.ok(found);
    }
    let mut check = FILESYSTEMS
        .warning(found)
        .follows("thresholds on what is not known, read-only or of no size are never met");
    if is_read_only {
        check = check.next(
            "mount what is read-only so that it can be written, or name another folder (filesystems.nodefs, .imagefs, .containerfs)",
        );
    }
    if is_unknown {
        check = check
            .next("filesystems.nodefs, .imagefs and .containerfs name folders that this process can see")
            .next("in Kubernetes the component disks of deploy/kubernetes mounts them");
    }
    check
}

fn in_words(one: &Found) -> String {
    let role = one.role.word();
    let found = match &one.filesystem {
        Ok(found) => found,
        Err(why) => return format!("{role}: {why}"),
    };
    let writes = if found.read_only { ", read-only" } else { "" };
    let inodes = found.inodes.map_or_else(
        || "no count of inodes".to_owned(),
        |inodes| format!("{} of {} inodes", inodes.free, inodes.total),
    );
    let size = |of: u64| bytes(i64::try_from(of).unwrap_or(i64::MAX));
    format!(
        "{role} {} ({} on {}{writes}): {} of {} and {inodes} left",
        one.path.display(),
        found.kind,
        found.device,
        size(found.available),
        size(found.capacity)
    )
}

fn runtime(disks: &Disks, policy: ReclaimPolicy) -> Check {
    let state = &disks.runtime;
    let endpoint = state.endpoint.as_deref();
    let socket = endpoint.map_or_else(String::new, |path| format!(" at {}", path.display()));
    let owner = match state.is_kubelets {
        Some(true) => ", which a kubelet owns",
        Some(false) | None => "",
    };
    let name = state.name.as_ref();
    let name = name.map(|name| format!("{name}{socket}{owner}"));
    let is_asked = name.is_some() && state.trouble.is_none();
    let check = match (name, &state.trouble) {
        (Some(name), None) => RUNTIME.ok(name),
        (Some(name), Some(why)) => RUNTIME.warning(format!("{name}: {why}")),
        (None, Some(why)) => RUNTIME.warning(why.clone()).next(remedy(state.fault)),
        (None, None) => RUNTIME
            .note("none was found: no socket of containerd, CRI-O or k3s is here")
            .next("runtime.endpoint names the socket, if there is one"),
    };
    match (disks.left_to_kubelet, policy) {
        (Some(true), _) => {
            let ends = if is_asked { State::Note } else { State::Warning };
            check
                .but(ends)
                .follows("disk orders are held beside the kubelet: Brink removes nothing, and evicts nobody for a disk")
                .next("runtime.reclaim: always makes Brink act beside it")
        }
        (None, _) => check
            .but(State::Warning)
            .follows("disk orders are held: it is not known whether a kubelet keeps the disks")
            .next("let Brink see the processes of the node")
            .next("runtime.reclaim: always makes Brink act either way"),
        (Some(false), _) if !is_asked => check.follows(
            "no dead container and no unused image goes before pods, and images count as being on nodefs",
        ),
        (Some(false), ReclaimPolicy::Off | ReclaimPolicy::DryRun) => check
            .but(State::Note)
            .follows("runtime.reclaim says that nothing is removed from it"),
        (Some(false), ReclaimPolicy::Standalone | ReclaimPolicy::Always) => check,
    }
}

/// What may help where a runtime cannot be asked.
fn remedy(fault: Option<&str>) -> &'static str {
    match fault {
        Some("absent") => {
            "is the runtime running? runtime.endpoint names its socket, if that is another one"
        }
        Some("denied") => "ask as root: the socket is usually root's alone",
        Some("hung") => "is the runtime well? it is there, and does not answer",
        _ => "runtime.endpoint names another socket",
    }
}

#[cfg(test)]
mod tests {
    use brink_host::disk::Filesystem;
    use brink_host::disk::filesystem::{Device, FilesystemKind};

    use super::*;
    use crate::disks::RuntimeState;
    use crate::doctor::check::Step;
    use crate::guard::disks::Role;

    fn filesystem(capacity: u64, read_only: bool) -> Filesystem {
        Filesystem {
            device: Device { major: 8, minor: 1 },
            kind: FilesystemKind::EXT4,
            capacity,
            available: capacity / 2,
            free: capacity / 2,
            inodes: None,
            read_only,
        }
    }

    #[track_caller]
    fn check(found: Result<Filesystem, &str>, state: State, next: &[&str]) {
        let disks = Disks {
            filesystems: vec![Found {
                role: Role::Nodefs,
                path: "/data".into(),
                filesystem: found.map_err(str::to_owned),
            }],
            runtime: RuntimeState::default(),
            left_to_kubelet: Some(false),
        };
        let check = filesystems(&disks);
        assert_eq!(check.state, state, "{check:?}");
        let begins = |(step, begin): (&Step, &&str)| step.text.starts_with(*begin);
        assert_eq!(check.next.len(), next.len(), "{check:?}");
        assert!(check.next.iter().zip(next).all(begins), "{check:?}");
    }

    #[test]
    fn what_to_do_about_a_filesystem_fits_what_is_wrong_with_it() {
        let name = ["filesystems.nodefs", "in Kubernetes"];
        check(Ok(filesystem(1 << 30, false)), State::Ok, &[]);
        check(Ok(filesystem(1 << 30, true)), State::Warning, &["mount"]);
        check(Ok(filesystem(0, true)), State::Warning, &["mount"]);
        check(Ok(filesystem(0, false)), State::Warning, &name);
        check(Err("/data is not there"), State::Warning, &name);
    }

    #[test]
    fn what_to_do_about_a_runtime_fits_why_it_cannot_be_asked() {
        for (fault, expected) in [
            ("absent", "is the runtime running?"),
            ("denied", "ask as root"),
            ("hung", "is the runtime well?"),
            ("noCriV1", "runtime.endpoint names another socket"),
        ] {
            let remedy = remedy(Some(fault));
            assert!(remedy.starts_with(expected), "{fault}: {remedy}");
        }
    }
}

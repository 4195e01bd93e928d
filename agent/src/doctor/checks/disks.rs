//! Whether thresholds on disks can be met here, and what goes before pods do.

use crate::config::ReclaimPolicy;
use crate::doctor::advice::{Denied, past_denial};
use crate::doctor::check::{Check, State, Step, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::disks::{Disks, Found};
use crate::doctor::facts::process::Process;
use crate::record::text::bytes;

const FILESYSTEMS: Subject = Subject("disks.filesystems", "filesystems of thresholds");
const RUNTIME: Subject = Subject("disks.runtime", "container runtime");

/// None without a threshold on a disk.
pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let Some(disks) = &facts.disks else {
        return Vec::new();
    };
    let runtime = runtime(disks, facts.config.runtime.reclaim, &facts.process);
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
    let trouble = FILESYSTEMS
        .warning(found)
        .follows("thresholds on what is not known, read-only or of no size are never met");
    let mount = Step::words(
        "mount what is read-only so that it can be written, or name another folder (filesystems.nodefs, .imagefs, .containerfs)",
    );
    if !is_unknown {
        return trouble.step(mount);
    }
    let mount = is_read_only.then_some(mount);
    let name =
        "filesystems.nodefs, .imagefs and .containerfs name folders that this process can see";
    trouble
        .steps(mount, Step::words(name))
        .next("in Kubernetes the component disks of deploy/kubernetes mounts them")
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

fn runtime(disks: &Disks, policy: ReclaimPolicy, process: &Process) -> Check {
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
    // What would make it answer, where it does not.
    let remedy = match &state.trouble {
        Some(_) => Some(remedy(state.fault, process)),
        None if is_asked => None,
        None => Some(Step::words(
            "runtime.endpoint names the socket, if there is one",
        )),
    };
    let found = match (name, &state.trouble) {
        (Some(name), None) => name,
        (Some(name), Some(why)) => format!("{name}: {why}"),
        (None, Some(why)) => why.clone(),
        (None, None) => "none was found: no socket of containerd, CRI-O or k3s is here".to_owned(),
    };
    match (disks.left_to_kubelet, remedy) {
        (Some(true), remedy) => {
            let ends = if is_asked {
                State::Note
            } else {
                State::Warning
            };
            RUNTIME
                .trouble(ends, found)
                .follows("disk orders are held beside the kubelet: Brink removes nothing, and evicts nobody for a disk")
                .steps(remedy, Step::words("runtime.reclaim: always makes Brink act beside it"))
        }
        (None, remedy) => RUNTIME
            .warning(found)
            .follows("disk orders are held: it is not known whether a kubelet keeps the disks")
            .steps(
                remedy,
                Step::words("let Brink see the processes of the node"),
            )
            .next("runtime.reclaim: always makes Brink act either way"),
        (Some(false), Some(remedy)) => {
            let is_there = state.trouble.is_some();
            let ends = if is_there {
                State::Warning
            } else {
                State::Note
            };
            RUNTIME
                .trouble(ends, found)
                .follows("no dead container and no unused image goes before pods, and images count as being on nodefs")
                .step(remedy)
        }
        (Some(false), None) => match policy {
            ReclaimPolicy::Off | ReclaimPolicy::DryRun => RUNTIME
                .note(found)
                .follows("runtime.reclaim says that nothing is removed from it"),
            ReclaimPolicy::Standalone | ReclaimPolicy::Always => RUNTIME.ok(found),
        },
    }
}

/// What may help where a runtime cannot be asked.
fn remedy(fault: Option<&str>, process: &Process) -> Step {
    match fault {
        Some("absent") => Step::words(
            "is the runtime running? runtime.endpoint names its socket, if that is another one",
        ),
        Some("denied") => past_denial(
            process,
            Denied::Writing,
            Step::words("ask as root: the socket is usually root's alone"),
        ),
        Some("hung") => Step::words("is the runtime well? it is there, and does not answer"),
        _ => Step::words("runtime.endpoint names another socket"),
    }
}

#[cfg(test)]
mod tests {
    use brink_host::disk::Filesystem;
    use brink_host::disk::filesystem::{Device, FilesystemKind};

    use super::*;
    use crate::disks::RuntimeState;
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
    fn of_a_filesystem_that_is_read_only_and_one_that_is_not_known_both_are_told() {
        let one = |filesystem| Found {
            role: Role::Nodefs,
            path: "/data".into(),
            filesystem,
        };
        let disks = Disks {
            filesystems: vec![
                one(Ok(filesystem(1 << 30, true))),
                one(Err("/data is not there".to_owned())),
            ],
            runtime: RuntimeState::default(),
            left_to_kubelet: Some(false),
        };
        assert_eq!(filesystems(&disks).next.len(), 3);
    }

    #[test]
    fn a_runtime_that_is_there_and_cannot_be_asked_is_a_warning_with_what_to_do() {
        let process = Process::read("/nonexistent".as_ref());
        for left_to_kubelet in [Some(true), Some(false), None] {
            for name in [Some("containerd 2.1".to_owned()), None] {
                let disks = Disks {
                    filesystems: Vec::new(),
                    runtime: RuntimeState {
                        name,
                        trouble: Some("no answer".to_owned()),
                        fault: Some("hung"),
                        ..RuntimeState::default()
                    },
                    left_to_kubelet,
                };
                let check = runtime(&disks, ReclaimPolicy::Standalone, &process);
                assert_eq!(check.state, State::Warning, "{check:?}");
                assert!(check.found.ends_with("no answer"), "{check:?}");
                let first = &check.next[0].text;
                assert!(first.starts_with("is the runtime well?"), "{check:?}");
            }
        }
    }

    #[test]
    fn what_to_do_about_a_runtime_fits_why_it_cannot_be_asked() {
        let mut process = Process::read("/nonexistent".as_ref());
        for (user, fault, expected) in [
            (0, "absent", "is the runtime running?"),
            (1000, "denied", "ask as root"),
            (0, "denied", "look for what denies it to root"),
            (0, "hung", "is the runtime well?"),
            (0, "noCriV1", "runtime.endpoint names another socket"),
        ] {
            process.user = user;
            let remedy = remedy(Some(fault), &process);
            assert!(remedy.text.starts_with(expected), "{fault}: {remedy:?}");
        }
    }
}

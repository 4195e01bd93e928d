//! Processes a node cannot do without, which are protected by default.
//!
//! They are the first process, systemd's units for logins, journal, devices and bus, sshd, the container runtime and the
//! kubelet, ourselves and the session that started us.
//!
//! A name proves nothing: any process can call itself sshd. So a process counts as essential by the systemd unit it runs
//! in, which only root can choose, or by its name if it also runs as root, outside every container and pod. Root outside
//! containers could protect its processes anyway.

use std::path::Path;

use crate::cgroup::Home;
use crate::cgroup::membership::Membership;
use crate::cgroup::pod::PodGroup;
use crate::error::HostError;
use crate::process::lineage::Lineage;
use crate::process::{self, Glimpse, Identity, ProcessInfo};

/// What a process is to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// PID 1.
    FirstProcess,
    /// This process.
    Ourselves,
    /// An ancestor of ours, our session's leader, or a process of the login session that started us.
    StartedUs,
    /// systemd-logind.
    Login,
    /// systemd-journald.
    Journal,
    /// systemd-udevd.
    DeviceManager,
    /// The system bus.
    Bus,
    /// sshd.
    RemoteLogin,
    /// containerd, dockerd, crio and their monitors.
    ContainerRuntime,
    /// The kubelet, or a distribution that has it in one process with the runtime.
    Kubelet,
}

/// An essential process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Essential {
    /// Which it is.
    pub identity: Identity,
    /// What it is.
    pub role: Role,
    /// Its name.
    pub name: String,
    /// Its groups.
    pub groups: Membership,
}

/// Bytes the kernel keeps of a name, with at least one NUL.
const NAME: usize = 16;

/// Names of processes (at most 15 bytes, as the kernel cuts them).
const NAMES: [(&str, Role); 26] = [
    ("systemd-logind", Role::Login),
    ("elogind-daemon", Role::Login),
    ("systemd-journal", Role::Journal),
    ("systemd-udevd", Role::DeviceManager),
    ("(udev-worker)", Role::DeviceManager),
    ("dbus-daemon", Role::Bus),
    ("dbus-broker", Role::Bus),
    ("dbus-broker-lau", Role::Bus),
    ("sshd", Role::RemoteLogin),
    ("sshd-session", Role::RemoteLogin),
    ("dropbear", Role::RemoteLogin),
    ("containerd", Role::ContainerRuntime),
    ("containerd-shim", Role::ContainerRuntime),
    ("dockerd", Role::ContainerRuntime),
    ("docker-proxy", Role::ContainerRuntime),
    ("cri-dockerd", Role::ContainerRuntime),
    ("crio", Role::ContainerRuntime),
    ("conmon", Role::ContainerRuntime),
    ("conmonrs", Role::ContainerRuntime),
    ("kubelet", Role::Kubelet),
    ("kubelite", Role::Kubelet),
    ("k3s-server", Role::Kubelet),
    ("k3s-agent", Role::Kubelet),
    ("k0s", Role::Kubelet),
    ("rke2", Role::Kubelet),
    ("hyperkube", Role::Kubelet),
];

/// The names that may make a process essential, as the kernel keeps them: NUL to the end.
pub fn names() -> impl Iterator<Item = [u8; NAME]> {
    NAMES.iter().map(|(name, _)| {
        let mut kept = [0; NAME];
        for (kept, byte) in kept.iter_mut().zip(name.bytes()) {
            *kept = byte;
        }
        kept
    })
}

/// Names of systemd units below `/system.slice`, without `.service`; of a template, the part up to the `@`.
const UNITS: [(&str, Role); 21] = [
    ("systemd-logind", Role::Login),
    ("systemd-journald", Role::Journal),
    ("systemd-udevd", Role::DeviceManager),
    ("dbus", Role::Bus),
    ("dbus-broker", Role::Bus),
    ("ssh", Role::RemoteLogin),
    ("sshd", Role::RemoteLogin),
    ("ssh@", Role::RemoteLogin),
    ("sshd@", Role::RemoteLogin),
    ("dropbear", Role::RemoteLogin),
    ("containerd", Role::ContainerRuntime),
    ("docker", Role::ContainerRuntime),
    ("cri-docker", Role::ContainerRuntime),
    ("crio", Role::ContainerRuntime),
    ("kubelet", Role::Kubelet),
    ("k3s", Role::Kubelet),
    ("k3s-agent", Role::Kubelet),
    ("k0scontroller", Role::Kubelet),
    ("k0sworker", Role::Kubelet),
    ("rke2-server", Role::Kubelet),
    ("rke2-agent", Role::Kubelet),
];

/// Finds the essential processes under a root, in ascending order of their ids. Reads one file of a kernel thread, two of
/// most others, and everything only of those whose name could make them essential. Groups are named from `home`.
///
/// # Errors
/// [`HostError`] when the processes, or our own lineage, cannot be read.
pub fn find(root: &Path, home: &Home, own: i32) -> Result<Vec<Essential>, HostError> {
    let lineage = Lineage::of(root, home, own)?;
    let mut found = Vec::new();
    for pid in process::ids(root)? {
        // One that ends meanwhile needs no protection.
        let Some(glimpse) = Glimpse::of(root, pid) else {
            continue;
        };
        if glimpse.is_kernel_thread {
            continue;
        }
        let Ok(groups) = Membership::read(root, home, &pid.to_string()) else {
            continue;
        };
        let service = groups.service().unwrap_or("/");
        let role = role_of_place(pid, service, own, &lineage)
            .or_else(|| role_of_name(root, pid, &glimpse.name, service));
        if let Some(role) = role {
            found.push(Essential {
                identity: Identity {
                    pid,
                    start_ticks: glimpse.start_ticks,
                },
                role,
                name: glimpse.name,
                groups,
            });
        }
    }
    Ok(found)
}

/// Whether an essential process is still there under the same name. Reads one file.
pub fn is_still_there(root: &Path, one: &Essential) -> bool {
    Glimpse::of(root, one.identity.pid)
        .is_some_and(|now| now.start_ticks == one.identity.start_ticks && now.name == one.name)
}

fn role_of_place(pid: i32, service: &str, own: i32, lineage: &Lineage) -> Option<Role> {
    let login = lineage.login_group.as_ref();
    let in_login = login.is_some_and(|login| is_within(service, login));
    match pid {
        1 => Some(Role::FirstProcess),
        pid if pid == own => Some(Role::Ourselves),
        pid if in_login
            || lineage.ancestors.contains(&pid)
            || lineage.session_leader == Some(pid) =>
        {
            Some(Role::StartedUs)
        }
        _ => role_of_unit(service),
    }
}

/// By name only if it is root's own.
fn role_of_name(root: &Path, pid: i32, name: &str, service: &str) -> Option<Role> {
    let (_, role) = NAMES.iter().find(|(known, _)| *known == name)?;
    let info = ProcessInfo::read(root, pid).ok()??;
    let is_roots_own =
        info.user == 0 && info.is_contained == Some(false) && PodGroup::parse(service).is_none();
    is_roots_own.then_some(*role)
}

/// The role of the systemd unit a group path is of.
pub fn role_of_unit(group: &str) -> Option<Role> {
    let below = group.strip_prefix("/system.slice/")?;
    // Slices may stand between; what a service makes below itself is still the service.
    let unit = below
        .split('/')
        .find_map(|name| name.strip_suffix(".service"))?;
    let plain = unit.split_inclusive('@').next().unwrap_or(unit);
    UNITS
        .iter()
        .find(|(name, _)| *name == plain)
        .map(|(_, role)| *role)
}

/// Whether a group is another or below it.
fn is_within(group: &str, ancestor: &str) -> bool {
    group
        .strip_prefix(ancestor)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::fake::{self, FakeProcess};

    const OWN: i32 = 500;

    fn machine(others: &[FakeProcess<'_>]) -> Vec<(i32, Role)> {
        let root = tempfile::tempdir().expect("temporary folder");
        let login = "/user.slice/user-0.slice/session-3.scope";
        let base = [
            (1, 0, 1, "systemd", "/init.scope"),
            (400, 1, 400, "bash", login),
            (OWN, 400, 400, "brink", login),
        ];
        for (pid, parent, session, name, group) in base {
            fake::add(
                root.path(),
                &FakeProcess {
                    pid,
                    parent,
                    session,
                    name,
                    user: 0,
                    group,
                    is_contained: false,
                },
            );
        }
        for process in others {
            fake::add(root.path(), process);
        }
        let found = find(root.path(), &Home::default(), OWN).expect("readable");
        found
            .into_iter()
            .map(|one| (one.identity.pid, one.role))
            .filter(|(pid, _)| ![1, 400, OWN].contains(pid))
            .collect()
    }

    fn process<'a>(
        name: &'a str,
        user: u32,
        group: &'a str,
        is_contained: bool,
    ) -> FakeProcess<'a> {
        FakeProcess {
            pid: 700,
            parent: 1,
            session: 700,
            name,
            user,
            group,
            is_contained,
        }
    }

    #[test]
    fn units_and_roots_own_names_are_essential_and_look_alikes_are_not() {
        fn check(process: FakeProcess<'_>, expected: Option<Role>) {
            let what = format!("{} of {} in {}", process.name, process.user, process.group);
            assert_eq!(
                machine(&[process]),
                expected
                    .map(|role| (700, role))
                    .into_iter()
                    .collect::<Vec<_>>(),
                "{what}"
            );
        }
        check(
            process("dbus-daemon", 101, "/system.slice/dbus.service", false),
            Some(Role::Bus),
        );
        check(
            process(
                "sshd",
                0,
                "/system.slice/system-sshd.slice/sshd@1-2.service",
                false,
            ),
            Some(Role::RemoteLogin),
        );
        check(
            process("anything", 0, "/system.slice/containerd.service", false),
            Some(Role::ContainerRuntime),
        );
        check(
            process("containerd-shim", 0, "/", false),
            Some(Role::ContainerRuntime),
        );
        check(
            process("kubelet", 0, "/podruntime/kubelet", false),
            Some(Role::Kubelet),
        );
        check(
            process(
                "sshd",
                1000,
                "/user.slice/user-1000.slice/session-9.scope",
                false,
            ),
            None,
        );
        check(
            process(
                "sshd",
                0,
                "/kubepods/burstable/pod0123456789abcdef0123456789abcdef",
                false,
            ),
            None,
        );
        check(process("sshd", 0, "/docker/x", true), None);
        check(
            process("nginx", 0, "/system.slice/nginx.service", false),
            None,
        );
        check(
            process(
                "dbus-daemon",
                1000,
                "/user.slice/user-1000.slice/user@1000.service/app.slice/dbus.service",
                false,
            ),
            None,
        );
    }

    #[test]
    fn the_session_that_started_us_is_protected_as_a_whole() {
        let neighbour = process("vim", 0, "/user.slice/user-0.slice/session-3.scope", false);
        assert_eq!(machine(&[neighbour]), [(700, Role::StartedUs)]);
        let other = process("vim", 0, "/user.slice/user-0.slice/session-33.scope", false);
        assert_eq!(machine(&[other]), []);
    }

    #[test]
    fn names_fit_what_the_kernel_keeps() {
        assert!(NAMES.iter().all(|(name, _)| name.len() < NAME));
        assert!(names().any(|name| name == *b"sshd\0\0\0\0\0\0\0\0\0\0\0\0"));
    }

    #[test]
    fn on_this_machine_the_first_process_and_we_are_essential() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        let found = find(Path::new("/"), &Home::default(), own).expect("readable");
        let role_of = |pid: i32| {
            let one = found.iter().find(|one| one.identity.pid == pid);
            one.map(|one| one.role)
        };
        assert_eq!(
            (role_of(1), role_of(own)),
            (Some(Role::FirstProcess), Some(Role::Ourselves))
        );
    }
}

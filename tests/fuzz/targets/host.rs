//! What a machine says of itself: mounts, controllers, limits, what its kernel forbids.

use std::path::Component;

use brink_host::cgroup::{Controller, Hierarchy, Layout};
use brink_host::clock::BootId;
use brink_host::pid_limits::PidLimits;
use brink_host::probe::{Facts, Roots};
use brink_host::swap::Swaps;
use brink_host::zoneinfo::Zoneinfo;

use crate::Taken;
use crate::bundle::Bundle;
use crate::scratch::Scratch;

/// The file in a bundle, and where the machine has it.
const FILES: [(&str, &str); 12] = [
    ("mountinfo", "proc/self/mountinfo"),
    ("mounts", "proc/self/mounts"),
    ("status", "proc/self/status"),
    ("cgroups", "proc/cgroups"),
    ("osrelease", "proc/sys/kernel/osrelease"),
    ("boot_id", "proc/sys/kernel/random/boot_id"),
    ("pid_max", "proc/sys/kernel/pid_max"),
    ("threads-max", "proc/sys/kernel/threads-max"),
    ("controllers", "sys/fs/cgroup/cgroup.controllers"),
    ("lockdown", "sys/kernel/security/lockdown"),
    ("has_memory", "sys/devices/system/node/has_memory"),
    ("btf", "sys/kernel/btf/vmlinux"),
];

thread_local! {
    static ROOT: Scratch = Scratch::new();
}

/// Layout of the control groups, and everything that the coverage of the kernel programs is decided by.
pub(crate) fn host_facts(bytes: &[u8]) -> Taken {
    ROOT.with(|root| {
        root.clear();
        let files = Bundle::split("mountinfo", bytes);
        for (name, path) in FILES {
            if let Some(bytes) = files.get(name) {
                root.write(path, bytes);
            }
        }
        check(root)
    })
}

fn check(root: &Scratch) -> Taken {
    let layout = Layout::detect(root.path());
    match &layout {
        Ok(layout) => check_mounts(layout),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let facts = Facts::gather(&Roots {
        proc: root.join("proc"),
        sys: root.join("sys"),
    });
    if let Ok(nodes) = &facts.nodes {
        assert!(nodes.is_sorted() && nodes.len() <= 1024, "{}", nodes.len());
    }
    let limits = PidLimits::read(root.path());
    let known = [limits.pid_max, limits.threads_max].into_iter().flatten();
    assert_eq!(limits.effective(), known.min());
    let boot = BootId::read(root.path());
    if let Ok(boot) = &boot {
        root.write(
            "proc/sys/kernel/random/boot_id",
            boot.to_string().as_bytes(),
        );
        assert_eq!(BootId::read(root.path()).ok().as_ref(), Some(boot));
    }
    assert!(
        Zoneinfo::read(root.path()).is_err(),
        "there is no such file"
    );
    assert_eq!(Swaps::read(root.path()).ok(), Some(Swaps::default()));
    let has_facts = facts.memory.is_ok() || facts.capabilities.is_ok() || facts.lockdown.is_ok();
    Taken::from_accepted(layout.is_ok() || has_facts || boot.is_ok())
}

/// A group's folder lies below its mount, whatever the group is called.
fn check_mounts(layout: &Layout) {
    assert!(layout.disabled().len() <= Controller::ALL.len());
    let legacy = Controller::ALL.map(|controller| layout.hierarchy(controller));
    for hierarchy in legacy.into_iter().flatten().chain(layout.unified()) {
        for group in ["/", "", "/a/b", "/a/../../etc", "../x", "/kubepods//pod"] {
            check_folder(hierarchy, group);
            check_folder(hierarchy, &format!("{}{group}", hierarchy.mount_root));
        }
    }
    for controller in Controller::ALL {
        let found = layout.hierarchy(controller).is_some();
        assert_eq!(layout.require(controller).is_ok(), found);
    }
    let _paths = layout.shadowed();
    let _parts = layout.partial();
}

fn check_folder(hierarchy: &Hierarchy, group: &str) {
    let Some(folder) = hierarchy.folder(group) else {
        return;
    };
    let below = folder.strip_prefix(&hierarchy.path);
    let stays = below.is_ok_and(|below| {
        let mut parts = below.components();
        parts.all(|part| matches!(part, Component::Normal(_)))
    });
    let folder = folder.display();
    assert!(stays, "{group:?} of {hierarchy:?} is {folder}");
}

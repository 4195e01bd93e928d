//! Control groups: where the controllers are, how a group is killed, and the groups the configuration names.

use std::path::Path;

use brink_host::cgroup::{Controller, Layout, Mode, Version};

use crate::doctor::advice::quoted;
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::cgroups::{Named, Obstacle};

/// Kernels from here on have `cgroup.kill`.
const KILL_SINCE: (u32, u32) = (5, 14);

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::from([layout(facts)]);
    if let Ok(layout) = &facts.cgroups.layout {
        checks.extend([memory(facts, layout), kill(facts), oom_group(facts)]);
    }
    checks.extend(named(facts));
    checks
}

const LAYOUT: Subject = Subject("cgroups.layout", "control groups");

fn layout(facts: &Facts) -> Check {
    let layout = match &facts.cgroups.layout {
        Ok(layout) => layout,
        Err(why) => return no_layout(facts, why),
    };
    let found = places(layout);
    // A node that is a group is seen whole, or not at all.
    let is_machine = facts.cgroups.node.is_none();
    if is_machine && let Some(check) = partial(layout, &found) {
        return check;
    }
    let shadowed: Vec<String> = layout
        .shadowed()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    if !shadowed.is_empty() {
        return LAYOUT
            .warning(format!(
                "{found}; something else is mounted over {}",
                shadowed.join(", ")
            ))
            .follows("groups are looked for where they cannot be seen")
            .next("unmount what hides them");
    }
    match layout.hierarchy(Controller::Pids) {
        Some(_) => LAYOUT.ok(found),
        None => LAYOUT
            .note(found)
            .follows("without the pids controller processes of a workload are counted one by one"),
    }
}

/// Where the machine's groups are mounted in part alone.
fn partial(layout: &Layout, found: &str) -> Option<Check> {
    let parts: Vec<String> = layout.partial().iter().map(ToString::to_string).collect();
    if parts.is_empty() {
        return None;
    }
    let check = LAYOUT
        .warning(format!("{found}; {}", parts.join(", ")))
        .follows(
            "groups outside of that are not seen: nobody there is watched over, and whoever is inside goes for all that the machine is \
             short of",
        )
        .next(
            "mount the machine's own /sys/fs/cgroup: a hostPath in a pod, with docker --volume /sys/fs/cgroup:/sys/fs/cgroup",
        )
        .next(
            "or run brink outside of this container; where the container is the node, as with kind, name its group: node: {cgroup: GROUP}",
        );
    Some(check)
}

fn no_layout(facts: &Facts, why: &str) -> Check {
    let trouble = LAYOUT
        .failed(why)
        .follows("there is nothing to watch over and nothing to kill by: the agent does not start");
    match facts.cgroups.obstacle {
        Some(Obstacle::Unmounted) => {
            let command = "sudo mount -t cgroup2 none /sys/fs/cgroup";
            trouble.run("mount cgroup v2", command)
        }
        Some(Obstacle::OtherNamespace) => trouble.next(
            "run it in the machine's cgroup namespace: a pod as privileged, with docker by --cgroupns=host",
        ),
        Some(Obstacle::Unread) | None if facts.kernel.has_proc => {
            trouble.next("make readable what is named there: it tells where control groups are")
        }
        Some(Obstacle::Unread) | None => {
            trouble.next("mount the machine's /proc, where /proc/self/mountinfo tells of control groups")
        }
    }
}

/// Which version, and where each controller is.
fn places(layout: &Layout) -> String {
    let mode = match layout.mode() {
        Mode::V1 => "v1",
        Mode::V2 => "v2",
        Mode::Hybrid => "v1 and v2 side by side",
    };
    let place = |controller: Controller| match layout.hierarchy(controller) {
        None => format!("{controller} nowhere"),
        Some(hierarchy) => {
            let version = match hierarchy.version {
                Version::V1 => "v1",
                Version::V2 => "v2",
            };
            format!("{controller} on {version}")
        }
    };
    let places: Vec<String> = Controller::ALL.into_iter().map(place).collect();
    let found = format!("{mode}: {}", places.join(", "));
    match layout.home().path() {
        Some(home) => format!("{found}; our cgroup namespace begins at {home}"),
        None => found,
    }
}

fn memory(facts: &Facts, layout: &Layout) -> Check {
    const SUBJECT: Subject = Subject("cgroups.memory", "memory controller");
    let hierarchy = match layout.require(Controller::Memory) {
        Ok(hierarchy) => hierarchy,
        Err(error) => {
            return SUBJECT
                .failed(error.to_string())
                .follows("no workload's usage can be read, so nobody can be ranked or killed")
                .next("boot with cgroup_enable=memory, and without cgroup_disable=memory");
        }
    };
    let path = hierarchy.path.display();
    if hierarchy.version == Version::V1 {
        return SUBJECT.ok(format!("v1, at {path}"));
    }
    match &facts.cgroups.handed_on {
        Some(Ok(controllers)) if controllers.contains(&Controller::Memory) => {
            SUBJECT.ok(format!("v2, at {path}, handed on to the groups below"))
        }
        Some(Ok(_)) => SUBJECT
            .failed(format!(
                "v2, at {path}, and not handed on to the groups below"
            ))
            .follows("no group has memory figures, so nobody can be ranked or killed")
            .run(
                "hand it on",
                format!(
                    "echo +memory | sudo tee {}",
                    quoted(&hierarchy.path.join("cgroup.subtree_control"))
                ),
            ),
        Some(Err(why)) => SUBJECT.unknown(why.clone()),
        None => SUBJECT.unknown("its hierarchy is not to be seen"),
    }
}

fn kill(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("cgroups.kill", "way to kill a group");
    let cgroups = &facts.cgroups;
    if !cgroups.memory_is_v2() {
        let has_freezer = cgroups
            .layout
            .as_ref()
            .is_ok_and(|layout| layout.hierarchy(Controller::Freezer).is_some());
        // Not every group is in the v2 tree too, and one that holds others there is not killed by it.
        let first = if cgroups.kill_file == Some(true) {
            "cgroup.kill of the same group in the v2 tree; without one, "
        } else {
            ""
        };
        return if has_freezer {
            SUBJECT.ok(format!(
                "{first}freeze it, then a signal to each process until it is empty (v1)"
            ))
        } else {
            SUBJECT
                .note(format!(
                    "{first}a signal to each process until it is empty (v1, no freezer)"
                ))
                .follows("a group that forks fast takes several rounds")
        };
    }
    let since = facts.kernel.version().map(|version| version >= KILL_SINCE);
    match cgroups.kill_file.or(since) {
        Some(true) => SUBJECT.ok("cgroup.kill: the whole group at once"),
        Some(false) => SUBJECT
            .warning("this kernel has no cgroup.kill")
            .follows("processes are signalled one by one until the group is empty")
            .next("run a kernel of 5.15 or newer, the oldest that Brink is built for"),
        None => SUBJECT.unknown("no v2 group to look at"),
    }
}

fn oom_group(facts: &Facts) -> Check {
    const SUBJECT: Subject = Subject("cgroups.oom-group", "the kernel's OOM killer and groups");
    if facts.cgroups.memory_is_v2() {
        return SUBJECT
            .ok("v2: it takes a group whole where memory.oom.group is set, as the kubelet does for containers");
    }
    SUBJECT
        .note("v1 has no memory.oom.group: it takes one process of a workload and leaves the rest")
        .follows("a workload can go on half dead after a kill of the kernel's; Brink's own kills are always whole")
}

const PODS: Subject = Subject("cgroups.pods", "group of all pods");

/// The groups that the configuration names, the node and the one all pods live in, or a kubelet's in the place of that.
fn named(facts: &Facts) -> Vec<Check> {
    const NODE: Subject = Subject("cgroups.node", "group that is the node");
    let node = facts.cgroups.node.as_ref();
    let node = node.map(|group| of_group(NODE, group));
    let pods = facts.cgroups.pods.as_ref();
    let pods = pods.map(|group| {
        if facts.cgroups.pods_are_sought {
            of_kubelet(group, &facts.cgroups.other_pods)
        } else {
            of_group(PODS, group)
        }
    });
    node.into_iter().chain(pods).collect()
}

/// The group of all pods that a kubelet has made, which is taken as nobody has named one.
fn of_kubelet(group: &Named, others: &[String]) -> Check {
    let path = &group.group;
    if let Err(why) = &group.readable {
        return PODS
            .warning(format!("{path}, the kubelet's: {why}"))
            .follows("allocatableMemory.available is not measured")
            .next(
                "if memory.signals is well, hand the memory controller on to it (see cgroups.memory), or name another group: podsCgroup",
            );
    }
    if others.is_empty() {
        return PODS.ok(format!("{path}, the kubelet's, as podsCgroup names none"));
    }
    let others = others.join(", ");
    PODS.note(format!(
        "{path}, as podsCgroup names none and pods run there, or none anywhere; {others} is there too"
    ))
    .follows("a kubelet that had another cgroup driver left one of them")
    .next("name the one that it uses now: podsCgroup")
}

fn of_group(subject: Subject, group: &Named) -> Check {
    let path = &group.group;
    if let Err(why) = &group.readable {
        return subject
            .failed(format!("{path}: {why}"))
            .follows("the agent does not start")
            .next("name a group that is there at the start, with a memory limit if it is to be the node");
    }
    match &group.hands_on {
        Ok(true) => subject.ok(path.clone()),
        Ok(false) => subject
            .warning(format!(
                "{path} does not hand the memory controller on to the groups below it"
            ))
            .follows("nothing below it can be ranked")
            .run(
                "hand it on, or let its owner do that (Delegate=memory in a systemd unit)",
                format!(
                    "echo +memory | sudo tee {}",
                    quoted(Path::new(&format!(
                        "/sys/fs/cgroup{path}/cgroup.subtree_control"
                    )))
                ),
            ),
        Err(why) => subject.unknown(format!("{path}: {why}")),
    }
}

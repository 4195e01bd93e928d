//! Whether thresholds on disks can be met here, and what goes before pods do.

use crate::config::ReclaimPolicy;
use crate::disks::RuntimeState;
use crate::doctor::check::{Check, Subject};
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
    let runtime = runtime(&disks.runtime, facts.config.runtime.reclaim);
    vec![filesystems(disks), runtime]
}

fn filesystems(disks: &Disks) -> Check {
    let words: Vec<String> = disks.filesystems.iter().map(in_words).collect();
    let found = words.join("; ");
    let is_unknown = |one: &Found| match &one.filesystem {
        Ok(found) => found.read_only || found.capacity == 0,
        Err(_) => true,
    };
    if disks.filesystems.iter().any(is_unknown) {
        return FILESYSTEMS
            .warning(found)
            .follows("thresholds on what is not known, read-only or of no size are never met")
            .next("filesystems.nodefs, .imagefs and .containerfs name folders that this process can see")
            .next("in Kubernetes the component disks of deploy/kubernetes mounts them");
    }
    FILESYSTEMS.ok(found)
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

fn runtime(state: &RuntimeState, policy: ReclaimPolicy) -> Check {
    const PODS_FIRST: &str = "no dead container and no unused image goes before pods, and images count as being on nodefs";
    let endpoint = state.endpoint.as_deref();
    let socket = endpoint.map_or_else(String::new, |path| format!(" at {}", path.display()));
    let Some(name) = &state.name else {
        return match &state.trouble {
            Some(why) => RUNTIME
                .warning(why.clone())
                .follows(PODS_FIRST)
                .next("runtime.endpoint names another socket; it is usually root's alone"),
            None => RUNTIME
                .note("none was found: no socket of containerd, CRI-O or k3s is here")
                .follows(PODS_FIRST)
                .next("runtime.endpoint names the socket, if there is one"),
        };
    };
    if let Some(why) = &state.trouble {
        return RUNTIME
            .warning(format!("{name}{socket}: {why}"))
            .follows(PODS_FIRST);
    }
    let is_kubelets = state.is_kubelets == Some(true);
    match policy {
        ReclaimPolicy::Standalone if is_kubelets => RUNTIME
            .note(format!("{name}{socket}, which a kubelet owns"))
            .follows("nothing is removed, and no pod goes for a disk: the kubelet does both")
            .next("runtime.reclaim: always makes Brink act beside it"),
        ReclaimPolicy::Off | ReclaimPolicy::DryRun => RUNTIME
            .note(format!("{name}{socket}"))
            .follows("runtime.reclaim says that nothing is removed from it"),
        ReclaimPolicy::Standalone | ReclaimPolicy::Always => RUNTIME.ok(format!("{name}{socket}")),
    }
}

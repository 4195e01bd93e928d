//! Which cgroup is whose: the pods of the newest roster by the ids of their cgroups, and the containers in them by name.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;

use brink_core::node::workload::{ContainerUsage, Workload};
use brink_host::cgroup::pod::{PodMember, PodRoots};
use brink_host::cgroup::stat::StatReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Controller, Layout, Version};
use brink_kube::outbox::PodRef;
use serde_json::Value;

use super::words::pod;
use crate::guard::roster::Roster;

/// The cgroups of one roster.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pods: Vec<PodRef>,
    /// By the cgroup's id: the pod it belongs to, and its path.
    by_id: HashMap<u64, (usize, String)>,
}

impl Groups {
    /// Those of a roster.
    pub(super) fn of(roster: &Roster) -> Self {
        let pods = roster.table.workloads().iter().map(pod).collect();
        let groups = roster.members.iter().flat_map(|member| {
            let group = &member.group;
            let ids = group.family.iter().copied().zip(&group.paths);
            ids.map(move |(id, path)| (id, (member.workload, path.clone())))
        });
        Self {
            pods,
            by_id: groups.collect(),
        }
    }

    /// The pod that a cgroup belongs to, and the cgroup's path.
    pub(super) fn whose(&self, id: u64) -> Option<(&PodRef, &str)> {
        let (index, path) = self.by_id.get(&id)?;
        Some((self.pods.get(*index)?, path))
    }

    /// The containers of a pod: id and path of the cgroup of each, none below another.
    pub(super) fn containers(&self, roots: &PodRoots, uid: &str) -> Vec<(String, String)> {
        let mine = |index: usize| self.pods.get(index).is_some_and(|pod| pod.uid == uid);
        let paths = self.by_id.values().filter(|(index, _)| mine(*index));
        let mut found: Vec<(String, String)> = paths
            .filter_map(|(_, path)| Some((container_of(roots, path, false)?, path.clone())))
            .collect();
        found.sort();
        found
    }
}

/// The id of the container that a cgroup is, or lies in where `inside` counts too.
pub(super) fn container_of(roots: &PodRoots, path: &str, inside: bool) -> Option<String> {
    let parsed = roots.parse(path)?;
    match parsed.member {
        Some(PodMember::Container(id)) if inside || !parsed.nested => Some(id),
        _ => None,
    }
}

/// The names of a pod's containers by their ids, from the object as the API has it.
pub(super) fn names(object: &[u8]) -> HashMap<String, String> {
    let object: Value = serde_json::from_slice(object).unwrap_or_default();
    let lists = ["containerStatuses", "initContainerStatuses"];
    let statuses = lists
        .iter()
        .filter_map(|list| object["status"][list].as_array());
    let named = statuses.flatten().filter_map(|status| {
        // `containerd://` and the like stand in front.
        let (_, id) = status["containerID"].as_str()?.split_once("://")?;
        Some((id.to_owned(), status["name"].as_str()?.to_owned()))
    });
    named.collect()
}

/// What is known of a container's memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    /// What it held at least, without inactive file pages.
    pub(super) least: u64,
    /// The most it has ever held; none where the kernel does not tell.
    pub(super) most: Option<u64>,
}

impl Held {
    /// What its cgroup says now, and what was `recorded` before; none where nothing is known.
    pub(super) fn of(layout: &Layout, path: &str, recorded: Option<u64>) -> Option<Self> {
        let hierarchy = layout.require(Controller::Memory).ok()?;
        let dir = CgroupDir::open(hierarchy, path).ok();
        let now = dir.as_ref().and_then(|dir| {
            let usage = UsageReader::open(dir).ok()?.read().ok()?;
            StatReader::open(dir).ok()?.read().ok()?.working_set(usage)
        });
        let most = dir.and_then(|dir| {
            let name = match dir.version() {
                Version::V1 => "memory.max_usage_in_bytes",
                Version::V2 => "memory.peak",
            };
            let text = fs::read_to_string(dir.path().join(name)).ok()?;
            text.trim().parse().ok()
        });
        let least = now.max(recorded)?;
        Some(Self { least, most })
    }
}

/// What the containers of a pod used, in the order of its manifest; those whose figures nobody has are left out. `whole` is what
/// the pod used when it was chosen: what it held more than they are known to have held is theirs who held more once, as the
/// dead have given some of it back since.
pub(super) fn usages(
    victim: &Workload,
    containers: &[(String, String)],
    names: &HashMap<String, String>,
    whole: Option<u64>,
    held: impl Fn(&str) -> Option<Held>,
) -> Vec<ContainerUsage> {
    let of = |name: &str| {
        let mut mine = containers
            .iter()
            .filter(|(id, _)| names.get(id).is_some_and(|known| known == name));
        mine.find_map(|(_, path)| held(path))
    };
    let known = victim.containers.iter();
    let mut known: Vec<(&str, Held)> = known
        .filter_map(|container| Some((&*container.name, of(&container.name)?)))
        .collect();
    let sum: u64 = known.iter().map(|(_, held)| held.least).sum();
    let mut rest = whole.unwrap_or(0).saturating_sub(sum);
    let alone = victim.containers.len() == 1;
    let room = |held: &Held| match held.most {
        Some(most) => most.saturating_sub(held.least),
        None if alone => u64::MAX,
        None => 0,
    };
    let mut order: Vec<usize> = (0..known.len()).collect();
    order.sort_by_key(|&place| Reverse(room(&known[place].1)));
    for place in order {
        let held = &mut known[place].1;
        let more = room(held).min(rest);
        held.least += more;
        rest -= more;
    }
    let usage = |(name, held): (&str, Held)| ContainerUsage {
        name: name.to_owned(),
        memory: Some(held.least),
        ..ContainerUsage::default()
    };
    known.into_iter().map(usage).collect()
}

#[cfg(test)]
mod tests {
    use brink_core::node::workload::Container;

    use super::*;

    const POD: &str = "/kubepods/burstable/pod0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7";

    fn id(letter: &str) -> String {
        letter.repeat(64)
    }

    #[test]
    fn a_container_is_known_by_the_group_below_the_pods() {
        let roots = PodRoots::new("/", None);
        let of = |path: &str, inside| container_of(&roots, path, inside);
        let (own, below) = (
            format!("{POD}/{}", id("a")),
            format!("{POD}/{}/init", id("a")),
        );
        assert_eq!(of(&own, false), Some(id("a")));
        assert_eq!(of(&below, false), None);
        assert_eq!(of(&below, true), Some(id("a")));
        assert_eq!(of(POD, true), None);
    }

    #[test]
    fn names_come_from_the_status() {
        let object = format!(
            r#"{{"status":{{"containerStatuses":[{{"name":"app","containerID":"containerd://{}"}},{{"name":"new"}}],
               "initContainerStatuses":[{{"name":"init","containerID":"cri-o://{}"}}]}}}}"#,
            id("a"),
            id("b")
        );
        let names = names(object.as_bytes());
        assert_eq!(names.len(), 2);
        assert_eq!((&*names[&id("a")], &*names[&id("b")]), ("app", "init"));
        assert_eq!(super::names(b"{").len(), 0);
    }

    #[test]
    fn usages_are_in_the_order_of_the_manifest_and_the_sandbox_has_none() {
        let container = |name: &str| Container {
            name: name.to_owned(),
            ..Container::default()
        };
        let victim = Workload {
            containers: vec![container("app"), container("side"), container("gone")],
            ..Workload::default()
        };
        let groups = [("1", "/side"), ("2", "/app"), ("3", "/sandbox")];
        let groups = groups.map(|(id, path)| (id.to_owned(), path.to_owned()));
        let names =
            [("1", "side"), ("2", "app")].map(|(id, name)| (id.to_owned(), name.to_owned()));
        let names = names.into();
        let check = |whole, app: Held, side: Option<Held>, expected: &[(&str, u64)]| {
            let held = |path: &str| if path == "/side" { side } else { Some(app) };
            let found = usages(&victim, &groups, &names, whole, held);
            let found: Vec<_> = found
                .iter()
                .map(|usage| (&*usage.name, usage.memory.unwrap()))
                .collect();
            assert_eq!(found, expected, "{whole:?} {app:?} {side:?}");
        };
        let held = |least, most| Held { least, most };
        check(Some(900), held(4, None), None, &[("app", 4)]);
        // What the dead have given back was theirs who held more once.
        let side = Some(held(20, Some(30)));
        check(
            None,
            held(10, Some(700)),
            side,
            &[("app", 10), ("side", 20)],
        );
        check(
            Some(500),
            held(10, Some(700)),
            side,
            &[("app", 480), ("side", 20)],
        );
        check(
            Some(900),
            held(10, Some(700)),
            side,
            &[("app", 700), ("side", 30)],
        );
    }
}

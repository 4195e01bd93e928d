//! Which cgroup is whose: the pods of the newest roster by the ids of their cgroups, and the containers in them by name.

use std::collections::HashMap;

use brink_core::node::workload::{ContainerUsage, Workload};
use brink_host::cgroup::pod::{PodMember, PodRoots};
use brink_host::cgroup::stat::StatReader;
use brink_host::cgroup::usage::UsageReader;
use brink_host::cgroup::{CgroupDir, Controller, Layout};
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

/// What a cgroup holds now without inactive file pages, in bytes; none where it cannot be read.
pub(super) fn holds(layout: &Layout, path: &str) -> Option<u64> {
    let hierarchy = layout.require(Controller::Memory).ok()?;
    let dir = CgroupDir::open(hierarchy, path).ok()?;
    let usage = UsageReader::open(&dir).ok()?.read().ok()?;
    StatReader::open(&dir).ok()?.read().ok()?.working_set(usage)
}

/// What the containers of a pod used, in the order of its manifest; those whose figures nobody has are left out.
pub(super) fn usages(
    victim: &Workload,
    containers: &[(String, String)],
    names: &HashMap<String, String>,
    working_set: impl Fn(&str) -> Option<u64>,
) -> Vec<ContainerUsage> {
    let usage = |name: &str| {
        let mut mine = containers
            .iter()
            .filter(|(id, _)| names.get(id).is_some_and(|known| known == name));
        mine.find_map(|(_, path)| working_set(path))
    };
    let known = victim.containers.iter().filter_map(|container| {
        Some(ContainerUsage {
            name: container.name.clone(),
            memory: Some(usage(&container.name)?),
            ..ContainerUsage::default()
        })
    });
    known.collect()
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
        let held = |path: &str| (path != "/side").then_some(path.len() as u64);
        let found = usages(&victim, &groups, &names.into(), held);
        let found: Vec<_> = found
            .iter()
            .map(|usage| (&*usage.name, usage.memory))
            .collect();
        assert_eq!(found, [("app", Some(4))]);
    }
}

//! Which cgroups are which workload: manifests by annotation or by the kubelet's naming, everything else by pattern.

use std::collections::BTreeSet;

use brink_core::node::workload::{Container, ResourceList, Resources, Workload};
use brink_host::cgroup::glob::Glob;
use brink_host::cgroup::pod::PodGroup;

/// A pod as its manifest says, and where the manifest says it is.
#[derive(Clone, Debug)]
pub struct ManifestPod {
    /// The pod.
    pub workload: Workload,
    /// `brink.dev/cgroup`: a path or a pattern.
    pub cgroup: Option<Glob>,
}

/// Cgroups that are workloads without a manifest.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Which cgroups.
    pub glob: Glob,
    /// Name in reports; the path where it is not set.
    pub name: Option<String>,
    /// Namespace in reports.
    pub namespace: String,
    /// As a pod's priority.
    pub priority: Option<i32>,
    /// As a pod's termination grace, in seconds.
    pub termination_grace: Option<i64>,
    /// As the sum of a pod's requests.
    pub requests: ResourceList,
}

/// A workload and the cgroups it consists of.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The workload.
    pub workload: Workload,
    /// Paths in the memory hierarchy, none inside another.
    pub groups: Vec<String>,
}

/// Binds what is there: `groups` are the paths of all cgroups, parents before children.
///
/// A manifest without any cgroup is bound to none: it is not running. A cgroup belongs to one
/// workload at most, the first that claims it or a cgroup above it; manifests come before patterns.
pub fn bind(pods: &[ManifestPod], rules: &[Rule], groups: &[String]) -> Vec<Bound> {
    let mut claimed = Claimed::default();
    let mut bound: Vec<Bound> = Vec::new();
    for pod in pods {
        let mine = groups.iter().filter(|group| belongs(pod, group));
        let groups = claimed.claim(mine);
        bound.push(Bound {
            workload: pod.workload.clone(),
            groups,
        });
    }
    for rule in rules {
        for group in groups.iter().filter(|group| rule.glob.matches(group)) {
            if let [group] = &claimed.claim([group])[..] {
                bound.push(Bound {
                    workload: rule.workload(group),
                    groups: vec![group.clone()],
                });
            }
        }
    }
    bound
}

fn belongs(pod: &ManifestPod, group: &str) -> bool {
    if let Some(glob) = &pod.cgroup {
        return glob.matches(group);
    }
    let parsed = PodGroup::parse(group);
    parsed.is_some_and(|parsed| parsed.member.is_none() && parsed.uid == pod.workload.uid)
}

/// Cgroups that belong to somebody already.
#[derive(Debug, Default)]
struct Claimed(BTreeSet<String>);

impl Claimed {
    /// Those of `groups` that are free, without any that lies inside another.
    fn claim<'a>(&mut self, groups: impl IntoIterator<Item = &'a String>) -> Vec<String> {
        let mut mine = Vec::new();
        for group in groups {
            if !self.covers(group) && !self.has_inside(group) {
                self.0.insert(group.clone());
                mine.push(group.clone());
            }
        }
        mine
    }

    /// Whether the cgroup, or one above it, is claimed.
    fn covers(&self, group: &str) -> bool {
        let mut path = group;
        loop {
            if self.0.contains(path) {
                return true;
            }
            match path.rfind('/') {
                Some(0) | None => return false,
                Some(end) => path = &path[..end],
            }
        }
    }

    /// Whether one below it is claimed: killing it would kill somebody else too.
    fn has_inside(&self, group: &str) -> bool {
        let inside = format!("{}/", group.trim_end_matches('/'));
        self.0
            .range(inside.clone()..)
            .next()
            .is_some_and(|next| next.starts_with(&inside))
    }
}

impl Rule {
    fn workload(&self, group: &str) -> Workload {
        Workload {
            namespace: self.namespace.clone(),
            name: self.name.clone().unwrap_or_else(|| group.to_owned()),
            uid: group.to_owned(),
            priority: self.priority,
            termination_grace: self.termination_grace,
            containers: vec![Container {
                name: "cgroup".to_owned(),
                resources: Resources {
                    requests: self.requests,
                    ..Resources::default()
                },
                ..Container::default()
            }],
            ..Workload::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str) -> Rule {
        Rule {
            glob: Glob::new(pattern).unwrap(),
            name: None,
            namespace: "cgroup".to_owned(),
            priority: None,
            termination_grace: None,
            requests: ResourceList::default(),
        }
    }

    fn pod(uid: &str, cgroup: Option<&str>) -> ManifestPod {
        ManifestPod {
            workload: Workload {
                uid: uid.to_owned(),
                name: uid.to_owned(),
                ..Workload::default()
            },
            cgroup: cgroup.map(|pattern| Glob::new(pattern).unwrap()),
        }
    }

    fn check(pods: &[ManifestPod], rules: &[&str], groups: &[&str], expected: &[(&str, &[&str])]) {
        let rules: Vec<Rule> = rules.iter().map(|pattern| rule(pattern)).collect();
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        let bound = bind(pods, &rules, &groups);
        let found: Vec<(&str, Vec<&str>)> = bound
            .iter()
            .map(|bound| {
                let groups = bound.groups.iter().map(String::as_str).collect();
                (bound.workload.name.as_str(), groups)
            })
            .collect();
        let expected: Vec<(&str, Vec<&str>)> = expected
            .iter()
            .map(|(name, groups)| (*name, groups.to_vec()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn patterns_make_one_workload_a_cgroup_and_never_nest() {
        check(
            &[],
            &["/system.slice/*", "/system.slice/a.service/*"],
            &[
                "/",
                "/system.slice",
                "/system.slice/a.service",
                "/system.slice/a.service/sub",
            ],
            &[("/system.slice/a.service", &["/system.slice/a.service"])],
        );
    }

    #[test]
    fn nobody_is_killed_along_with_somebody_else() {
        check(
            &[pod("web", Some("/apps/web"))],
            &["/apps", "/apps/*"],
            &["/apps", "/apps/web", "/apps/db"],
            &[("web", &["/apps/web"]), ("/apps/db", &["/apps/db"])],
        );
    }

    #[test]
    fn pods_are_found_by_the_kubelets_naming() {
        let uid = "0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7";
        let underscored = uid.replace('-', "_");
        let cgroupfs = format!("/kubepods/burstable/pod{uid}");
        let systemd = format!(
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{underscored}.slice"
        );
        for group in [cgroupfs.as_str(), systemd.as_str()] {
            let inside = format!("{group}/x");
            check(
                &[pod(uid, None)],
                &[],
                &["/", group, &inside],
                &[(uid, &[group])],
            );
        }
        check(&[pod("other", None)], &[], &[&cgroupfs], &[("other", &[])]);
    }

    #[test]
    fn a_manifest_may_name_several_cgroups() {
        check(
            &[pod("both", Some("/x/*"))],
            &[],
            &["/x", "/x/a", "/x/a/deeper", "/x/b"],
            &[("both", &["/x/a", "/x/b"])],
        );
    }
}

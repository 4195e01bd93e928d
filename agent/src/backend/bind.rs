//! Which cgroups are which workload: manifests by annotation or by the kubelet's naming, everything else by pattern.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use brink_core::node::workload::{Container, Resources, Volume, VolumeSource, Workload};
use brink_host::cgroup::pod::PodRoots;

use super::protect::is_within;
use crate::config::CgroupRule;
use crate::pod::{Manifest, Wish};
use crate::storage::owned::Keeps;

/// The namespace of workloads that are cgroups without a manifest.
const NAMESPACE: &str = "cgroup";

/// A workload and the cgroups it consists of.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The workload.
    pub workload: Workload,
    /// Paths in the memory hierarchy, none inside another.
    pub groups: Vec<String>,
    /// Who manages it, if its manifest says so.
    pub owner: Option<String>,
    /// Of a pod that is found by the kubelet's naming, names and ids of its containers that are known; none of anything else,
    /// which goes whole.
    pub containers: Option<Vec<(String, String)>>,
    /// Whether it is a control group that a pattern named.
    pub is_pattern: bool,
    /// Where its files are.
    pub keeps: Keeps,
    /// What its manifest asks for by annotation.
    pub wish: Option<Wish>,
}

/// Binds what is there: `groups` are the paths of all cgroups, parents before children.
///
/// A pod is found by the kubelet's naming only where a kubelet makes pods.
/// A manifest without any cgroup is bound to none: it is not running. A cgroup belongs to one
/// workload at most, the first that claims it or a cgroup above it; manifests come before patterns.
pub fn bind(
    pods: &[Manifest],
    roots: &PodRoots,
    rules: &[CgroupRule],
    groups: &[String],
) -> Vec<Bound> {
    let mut claimed = Claimed::default();
    let mut bound: Vec<Bound> = Vec::new();
    let named: Vec<Option<String>> = groups.iter().map(|group| uid_of(roots, group)).collect();
    for pod in pods {
        let mine = groups.iter().zip(&named);
        let mine = mine.filter(|(group, uid)| belongs(pod, group, uid.as_deref()));
        let mine = mine.map(|(group, _)| group);
        let groups = claimed.claim(mine);
        bound.push(bound_pod(pod, groups));
    }
    for rule in rules {
        for group in groups.iter().filter(|group| rule.glob.matches(group)) {
            if let [group] = &claimed.claim([group])[..] {
                bound.push(Bound {
                    workload: workload_of(rule, group),
                    groups: vec![group.clone()],
                    owner: None,
                    containers: None,
                    is_pattern: true,
                    keeps: Keeps::Directories(rule.directories.clone()),
                    wish: None,
                });
            }
        }
    }
    bound
}

/// A pod with its cgroups: by annotation they are the workload, by the kubelet's naming what a kubelet made for it.
fn bound_pod(pod: &Manifest, groups: Vec<String>) -> Bound {
    let is_kubelets = pod.cgroup.is_none() && !groups.is_empty();
    let mut workload = pod.workload.clone();
    workload.by_kubelet = is_kubelets && pod.is_observed;
    // Its files may be there before its groups are, and longer.
    let keeps = if is_kubelets || (pod.is_observed && pod.cgroup.is_none()) {
        Keeps::AsKubelet {
            has_user_namespace: pod.files.has_user_namespace,
        }
    } else {
        add_directories(&mut workload, &pod.files.directories);
        Keeps::Directories(pod.files.directories.clone())
    };
    Bound {
        workload,
        groups,
        owner: pod.owner.clone(),
        containers: is_kubelets.then(|| pod.container_ids.clone()),
        is_pattern: false,
        keeps,
        wish: pod.wish,
    }
}

/// Folders that were named count like the volumes of a pod.
fn add_directories(workload: &mut Workload, directories: &[PathBuf]) {
    let named = directories.iter().map(|path| Volume {
        name: volume_name(path),
        source: VolumeSource::Directory,
    });
    workload.volumes.extend(named);
}

/// What the volume of such a folder is called.
pub fn volume_name(directory: &Path) -> String {
    directory.display().to_string()
}

/// The uid of the pod whose own cgroup this is.
fn uid_of(roots: &PodRoots, group: &str) -> Option<String> {
    let parsed = roots.parse(group)?;
    parsed.member.is_none().then_some(parsed.uid)
}

fn belongs(pod: &Manifest, group: &str, uid: Option<&str>) -> bool {
    if let Some(glob) = &pod.cgroup {
        return glob.matches(group);
    }
    uid == Some(pod.workload.uid.as_str())
}

/// Whether a workload of these cgroups has nothing in the one that all pods live in; not without cgroups, and not where
/// that one is not named.
pub(super) fn is_outside(groups: &[String], pods: Option<&str>) -> bool {
    let apart = |pods: &str| {
        let shares = |group: &String| is_within(group, pods) || is_within(pods, group);
        !groups.is_empty() && !groups.iter().any(shares)
    };
    pods.is_some_and(apart)
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

fn workload_of(rule: &CgroupRule, group: &str) -> Workload {
    let mut workload = Workload {
        namespace: rule
            .namespace
            .clone()
            .unwrap_or_else(|| NAMESPACE.to_owned()),
        name: rule.name.clone().unwrap_or_else(|| group.to_owned()),
        uid: group.to_owned(),
        priority: rule.priority,
        termination_grace: rule.termination_grace,
        containers: vec![Container {
            name: "cgroup".to_owned(),
            resources: Resources {
                requests: rule.requests,
                ..Resources::default()
            },
            ..Container::default()
        }],
        ..Workload::default()
    };
    add_directories(&mut workload, &rule.directories);
    workload
}

#[cfg(test)]
mod tests {
    use brink_host::cgroup::glob::Glob;

    use super::*;
    use crate::config::document::{Origins, Site};
    use crate::fake::rule;

    fn pod(uid: &str, cgroup: Option<&str>) -> Manifest {
        Manifest {
            site: Site::whole(Origins::DEFAULT),
            workload: Workload {
                uid: uid.to_owned(),
                name: uid.to_owned(),
                ..Workload::default()
            },
            cgroup: cgroup.map(|pattern| Glob::new(pattern).unwrap()),
            owner: None,
            container_ids: vec![("app".to_owned(), "ab12".to_owned())],
            is_observed: true,
            files: crate::pod::PodFiles::default(),
            wish: None,
        }
    }

    fn check(pods: &[Manifest], rules: &[&str], groups: &[&str], expected: &[(&str, &[&str])]) {
        let rules: Vec<CgroupRule> = rules.iter().map(|pattern| rule(pattern)).collect();
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        let bound = bind(pods, &PodRoots::new("/", None), &rules, &groups);
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
        let users = format!("/user.slice/user-1000.slice/kubepods-pod{underscored}.slice");
        check(&[pod(uid, None)], &[], &[&users], &[(uid, &[])]);
    }

    #[test]
    fn a_kubelets_pod_consists_of_containers_and_everything_else_goes_whole() {
        let uid = "0e1f2a3b-4c5d-6e7f-8091-a2b3c4d5e6f7";
        let mut written = pod(uid, None);
        written.is_observed = false;
        let groups = [format!("/kubepods/pod{uid}"), "/apps/web".to_owned()];
        let bound = |manifest: Manifest| {
            let mut bound = bind(&[manifest], &PodRoots::new("/", None), &[], &groups);
            let bound = bound.remove(0);
            (bound.containers, bound.workload.by_kubelet)
        };
        let ids = Some(vec![("app".to_owned(), "ab12".to_owned())]);
        assert_eq!(bound(pod(uid, None)), (ids.clone(), true));
        assert_eq!(bound(written), (ids, false), "no API knows of it");
        assert_eq!(bound(pod("web", Some("/apps/web"))), (None, false));
        assert_eq!(bound(pod("gone", None)), (None, false));
    }

    #[test]
    fn whoever_has_nothing_among_the_pods_is_outside() {
        for (groups, pods, expected) in [
            (
                &["/system.slice/db.service"][..],
                Some("/kubepods.slice"),
                true,
            ),
            (&["/kubepods.slice-2/a"], Some("/kubepods.slice"), true),
            (&["/kubepods.slice/a"], Some("/kubepods.slice/"), false),
            (&["/kubepods.slice"], Some("/kubepods.slice"), false),
            (
                &["/elsewhere", "/kubepods.slice/a"],
                Some("/kubepods.slice"),
                false,
            ),
            // All pods are in it.
            (&["/node"], Some("/node/kubepods"), false),
            (&[], Some("/kubepods.slice"), false),
            (&["/system.slice/db.service"], None, false),
        ] {
            let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
            assert_eq!(is_outside(&groups, pods), expected, "{groups:?} {pods:?}");
        }
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

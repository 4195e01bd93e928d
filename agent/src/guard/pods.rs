//! The cgroup all pods live in: the one that is named, or a kubelet's, which may be made after we have started.

use brink_host::cgroup::pod::usual_roots;
use brink_host::cgroup::{CgroupDir, Controller, Hierarchy, Layout};
use brink_host::kill::KillTarget;

/// Which cgroup that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodsGroup {
    /// None: nobody says that there are pods.
    #[default]
    None,
    /// This one.
    Named(String),
    /// The one that a kubelet has made in a usual place, as soon as it is there.
    Kubelets,
}

/// The cgroup all pods live in as of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path.
    pub group: String,
    /// Others in usual places, which are not taken: a kubelet that had another cgroup driver left them.
    pub others: Vec<String>,
}

impl PodsGroup {
    /// The one that is named; without a name a kubelet's, where pods come from the Kubernetes API.
    pub fn of(named: Option<&str>, in_kubernetes: bool) -> Self {
        match (named, in_kubernetes) {
            (Some(group), _) => Self::Named(group.to_owned()),
            (None, true) => Self::Kubelets,
            (None, false) => Self::None,
        }
    }

    /// The one that is named.
    pub fn named(&self) -> Option<&str> {
        match self {
            Self::Named(group) => Some(group),
            Self::None | Self::Kubelets => None,
        }
    }

    /// The one there is now: a named one whether it is there or not, a kubelet's if it is. `scope` is the group that is the node, `/`
    /// for the machine.
    pub fn find(&self, layout: &Layout, scope: &str) -> Option<Found> {
        match self {
            Self::None => None,
            Self::Named(group) => Some(Found {
                group: group.clone(),
                others: Vec::new(),
            }),
            Self::Kubelets => {
                let hierarchy = layout.hierarchy(Controller::Memory)?;
                let mut there = usual_roots(scope);
                there.retain(|group| CgroupDir::open(hierarchy, group).is_ok());
                choose(there, |group| is_used(hierarchy, group))
            }
        }
    }
}

/// The first in which somebody runs, or else the first: pods run in the one that the kubelet makes them in now.
fn choose(mut there: Vec<String>, is_used: impl Fn(&str) -> bool) -> Option<Found> {
    if there.is_empty() {
        return None;
    }
    let used = match there.len() {
        1 => None,
        _ => there.iter().position(|group| is_used(group)),
    };
    let group = there.remove(used.unwrap_or(0));
    Some(Found {
        group,
        others: there,
    })
}

/// Whether a process is in a group or below it.
fn is_used(hierarchy: &Hierarchy, group: &str) -> bool {
    let Ok(target) = KillTarget::open_in(hierarchy, group) else {
        return false;
    };
    target.is_populated().unwrap_or_else(|| !target.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake;

    const SYSTEMD: &str = "/kubepods.slice";
    const CGROUPFS: &str = "/kubepods";

    #[test]
    fn a_name_wins_and_without_one_a_kubelets_is_looked_for_only_where_pods_come_from_the_api() {
        for (named, in_kubernetes, expected) in [
            (Some("/pods"), true, PodsGroup::Named("/pods".to_owned())),
            (Some("/pods"), false, PodsGroup::Named("/pods".to_owned())),
            (None, true, PodsGroup::Kubelets),
            (None, false, PodsGroup::None),
        ] {
            assert_eq!(PodsGroup::of(named, in_kubernetes), expected);
        }
    }

    /// What is found on a machine with these groups, each with `populated` of its `cgroup.events`.
    fn found(which: &PodsGroup, groups: &[(&str, u8)], scope: &str) -> Option<Found> {
        let root = tempfile::tempdir().unwrap();
        fake::mount_unified(root.path());
        for (group, populated) in groups {
            let file = format!("sys/fs/cgroup{group}/cgroup.events");
            fake::write(root.path(), &file, &format!("populated {populated}\n"));
        }
        which.find(&Layout::detect(root.path()).unwrap(), scope)
    }

    fn one(group: &str, others: &[&str]) -> Found {
        Found {
            group: group.to_owned(),
            others: others.iter().map(|&other| other.to_owned()).collect(),
        }
    }

    #[test]
    fn of_two_the_one_that_somebody_runs_in_is_taken() {
        for (groups, expected) in [
            (&[("/system.slice", 1)][..], None),
            (&[(SYSTEMD, 0)], Some(one(SYSTEMD, &[]))),
            (&[(CGROUPFS, 0)], Some(one(CGROUPFS, &[]))),
            (
                &[(CGROUPFS, 1), (SYSTEMD, 0)],
                Some(one(CGROUPFS, &[SYSTEMD])),
            ),
            (
                &[(CGROUPFS, 0), (SYSTEMD, 1)],
                Some(one(SYSTEMD, &[CGROUPFS])),
            ),
            // Nobody can tell: no pod runs yet, or those of before still do.
            (
                &[(CGROUPFS, 0), (SYSTEMD, 0)],
                Some(one(SYSTEMD, &[CGROUPFS])),
            ),
            (
                &[(CGROUPFS, 1), (SYSTEMD, 1)],
                Some(one(SYSTEMD, &[CGROUPFS])),
            ),
        ] {
            let found = found(&PodsGroup::Kubelets, groups, "/");
            assert_eq!(found, expected, "{groups:?}");
        }
    }

    #[test]
    fn a_node_that_is_a_group_has_the_pods_of_its_own_kubelet() {
        let groups = [
            (SYSTEMD, 1),
            ("/docker/node/kubelet.slice/kubelet-kubepods.slice", 1),
        ];
        let found = |scope: &str| found(&PodsGroup::Kubelets, &groups, scope);
        assert_eq!(found("/docker/node"), Some(one(groups[1].0, &[])));
        assert_eq!(found("/docker/other"), None);
        assert_eq!(found("/"), Some(one(SYSTEMD, &[])));
    }

    #[test]
    fn a_named_one_is_not_looked_for_and_none_is_none() {
        let groups = [(SYSTEMD, 1)];
        let named = PodsGroup::Named("/elsewhere".to_owned());
        assert_eq!(found(&named, &groups, "/"), Some(one("/elsewhere", &[])));
        assert_eq!(found(&PodsGroup::None, &groups, "/"), None);
    }
}

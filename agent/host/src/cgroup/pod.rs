//! The pod and the container that a group's name stands for, for both cgroup drivers of the kubelet and both versions.
//!
//! | driver | a container of a burstable pod |
//! |---|---|
//! | cgroupfs | `/kubepods/burstable/pod<uid>/<id>` |
//! | systemd | `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice/cri-containerd-<id>.scope` |
//!
//! Guaranteed pods have no class in their path. With `--cgroup-root` more names stand in front, and the systemd driver
//! then repeats them in every slice (`kubelet-kubepods-burstable-pod….slice`). The outermost pod in a path counts:
//! a kubelet may run inside a container.

use std::fmt;

/// The class in a pod's group path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Directly under the pod root.
    Guaranteed,
    /// Under `burstable`.
    Burstable,
    /// Under `besteffort`.
    BestEffort,
}

/// What a group directly below a pod's is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodMember {
    /// A container: an application's, or the sandbox (the name does not tell which).
    Container(String),
    /// The monitor process of a container, which must outlive it.
    Monitor(String),
    /// Something else.
    Other(String),
}

impl PodMember {
    /// What the name of a group directly below a pod's is. Runtimes put their own name in front of the id, with a dash, and
    /// systemd adds `.scope`.
    pub fn of(name: &str) -> Self {
        let bare = name.strip_suffix(".scope").unwrap_or(name);
        let (runtime, id) = bare.rsplit_once('-').unwrap_or(("", bare));
        if !is_container_id(id) {
            return Self::Other(name.to_owned());
        }
        match runtime {
            "" | "cri-containerd" | "crio" | "docker" | "libpod" => Self::Container(id.to_owned()),
            "crio-conmon" | "libpod-conmon" => Self::Monitor(id.to_owned()),
            _ => Self::Other(name.to_owned()),
        }
    }
}

/// A group path that belongs to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroup {
    /// The pod's uid as the API writes it (a static pod's is the hash of its manifest).
    pub uid: String,
    /// Its class.
    pub qos: QosClass,
    /// The group below the pod's own, where the path goes that deep.
    pub member: Option<PodMember>,
    /// Whether the path goes deeper still: a group that a container made for itself.
    pub nested: bool,
}

impl PodGroup {
    /// The pod of a path as `/proc/<pid>/cgroup` writes it, by its names alone; `None` when they are no pod's. Whether
    /// a kubelet made the group is for [`PodRoots`] to tell.
    pub fn parse(group: &str) -> Option<Self> {
        let names: Vec<&str> = group.split('/').filter(|name| !name.is_empty()).collect();
        let (at, (uid, qos)) = find_pod(&names)?;
        let member = names.get(at + 1).map(|name| PodMember::of(name));
        Some(Self {
            uid,
            qos,
            member,
            nested: names.len() > at + 2,
        })
    }
}

/// The groups that a kubelet makes its pods in. A name proves nothing: whoever has a subtree to himself can make a group
/// that is called like a pod in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRoots(Vec<Vec<String>>);

impl PodRoots {
    /// The roots of both drivers at the top of the hierarchy, which only root can make, those in a node that is a group itself
    /// (in its group `kubelet` or slice `kubelet.slice` too), and those that were named:
    /// `scope` is the group that is the node (`/` for the machine), `pods` the group all pods live in.
    pub fn new(scope: &str, pods: Option<&str>) -> Self {
        let top: &[String] = &[];
        let mut roots = roots_below(top);
        roots.extend(roots_in(&names_of(scope)));
        let named = pods.into_iter().chain([scope]).map(names_of);
        let is_root = |names: &Vec<String>| names.last().is_some_and(|name| is_root_name(name));
        roots.extend(named.filter(is_root));
        Self(roots)
    }

    /// The pod of a path, if its own group is where a kubelet makes it: in one of the roots, or in a class of one.
    pub fn parse(&self, group: &str) -> Option<PodGroup> {
        let names = names_of(group);
        let root = self.0.iter().find(|root| names.starts_with(root))?;
        let (at, _) = find_pod(&names)?;
        let depth = at.checked_sub(root.len())?;
        (depth < 2).then(|| PodGroup::parse(group)).flatten()
    }
}

/// The groups that a kubelet keeps all its pods in unless `--cgroup-root` says otherwise, those of the systemd driver first; `scope` is
/// the group that is the node (`/` for the machine).
pub fn usual_roots(scope: &str) -> Vec<String> {
    let roots = roots_in(&names_of(scope));
    let mut groups: Vec<String> = roots
        .iter()
        .map(|names| format!("/{}", names.join("/")))
        .collect();
    groups.sort_by_key(|group| !has_slice_name(group));
    groups
}

fn has_slice_name(group: &str) -> bool {
    group.strip_suffix(".slice").is_some()
}

fn names_of(group: &str) -> Vec<String> {
    let names = group.split('/').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Where a kubelet of this node makes its root.
fn roots_in(scope: &[String]) -> Vec<Vec<String>> {
    let mut roots = roots_below(scope);
    // A node that is a container keeps what its kubelet makes apart from its own services (kind).
    let apart = ["kubelet", "kubelet.slice"].map(|name| [scope, &[name.to_owned()]].concat());
    let apart = apart.iter().filter(|_| !scope.is_empty());
    roots.extend(apart.flat_map(|names| roots_below(names)));
    roots
}

/// Where the two drivers make their root in a group. A slice has the names of all slices above it in its own.
fn roots_below(parent: &[String]) -> Vec<Vec<String>> {
    let inner = parent.last().and_then(|name| name.strip_suffix(".slice"));
    let slice = inner.map(|inner| format!("{inner}-kubepods.slice"));
    let names = ["kubepods".to_owned(), "kubepods.slice".to_owned()];
    names
        .into_iter()
        .chain(slice)
        .map(|name| [parent, &[name]].concat())
        .collect()
}

fn is_root_name(name: &str) -> bool {
    let bare = name.strip_suffix(".slice").unwrap_or(name);
    bare == "kubepods" || bare.ends_with("-kubepods") && bare != name
}

/// The outermost pod of a path: at which name its own group is, and what that says.
fn find_pod<T: AsRef<str>>(names: &[T]) -> Option<(usize, (String, QosClass))> {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    (0..names.len()).find_map(|at| Some((at, pod_at(&names, at)?)))
}

impl fmt::Display for QosClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        })
    }
}

/// The pod whose own group is the name at this place, if it is one.
fn pod_at(names: &[&str], at: usize) -> Option<(String, QosClass)> {
    let name = names[at];
    if let Some(slice) = name.strip_suffix(".slice") {
        return slice_pod(slice);
    }
    let uid = name.strip_prefix("pod").filter(|uid| is_uid(uid))?;
    let above = |steps: usize| at.checked_sub(steps).and_then(|at| names.get(at)).copied();
    let qos = match (above(1), above(2)) {
        (Some("kubepods"), _) => QosClass::Guaranteed,
        (Some("burstable"), Some("kubepods")) => QosClass::Burstable,
        (Some("besteffort"), Some("kubepods")) => QosClass::BestEffort,
        _ => return None,
    };
    Some((uid.to_owned(), qos))
}

/// `kubepods-burstable-pod<uid>`, with whatever the cgroup root adds in front.
fn slice_pod(slice: &str) -> Option<(String, QosClass)> {
    let (parents, uid) = slice.rsplit_once("-pod")?;
    let uid = uid.replace('_', "-");
    if !is_uid(&uid) {
        return None;
    }
    let (root, qos) = match parents.rsplit_once('-') {
        Some((root, "burstable")) => (root, QosClass::Burstable),
        Some((root, "besteffort")) => (root, QosClass::BestEffort),
        _ => (parents, QosClass::Guaranteed),
    };
    let last = root.rsplit_once('-').map_or(root, |(_, last)| last);
    (last == "kubepods").then_some((uid, qos))
}

/// A uid of the API server (`8-4-4-4-12` hexadecimal) or the hash of a static pod (32 hexadecimal).
fn is_uid(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Runtimes name containers with 32 random bytes in lower-case hexadecimal.
fn is_container_id(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "7f4a1b2c-0d3e-4f56-8a9b-0c1d2e3f4a5b";
    const UID_: &str = "7f4a1b2c_0d3e_4f56_8a9b_0c1d2e3f4a5b";
    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn all_pods_are_kept_where_either_driver_keeps_them() {
        assert_eq!(usual_roots("/"), ["/kubepods.slice", "/kubepods"]);
        let nested = usual_roots("/docker/node");
        for group in [
            "/docker/node/kubepods.slice",
            "/docker/node/kubelet.slice/kubelet-kubepods.slice",
            "/docker/node/kubelet/kubepods",
        ] {
            assert!(nested.iter().any(|root| root == group), "{group}");
        }
        // Another kubelet's, that of the machine which the node is a container of.
        assert!(!nested.iter().any(|root| root == "/kubepods.slice"));
        for scope in ["/", "/docker/node"] {
            let roots = PodRoots::new(scope, None);
            for root in usual_roots(scope) {
                let pod = format!("{root}/pod{UID}");
                let slice = format!("{root}/kubepods-pod{UID_}.slice");
                let found = [&pod, &slice].map(|group| roots.parse(group).is_some());
                assert!(found.contains(&true), "{root}");
            }
        }
    }

    #[test]
    fn both_drivers_and_all_runtimes_are_understood() {
        fn check(path: &str, qos: QosClass, member: Option<PodMember>) {
            let path = path
                .replace("UID_", UID_)
                .replace("UID", UID)
                .replace("ID", ID);
            let expected = PodGroup {
                uid: UID.to_owned(),
                qos,
                member,
                nested: false,
            };
            assert_eq!(PodGroup::parse(&path), Some(expected), "{path}");
        }
        let container = || Some(PodMember::Container(ID.to_owned()));
        check("/kubepods/burstable/podUID", QosClass::Burstable, None);
        check(
            "/kubepods/burstable/podUID/ID",
            QosClass::Burstable,
            container(),
        );
        check(
            "/kubepods/besteffort/podUID/crio-ID",
            QosClass::BestEffort,
            container(),
        );
        check("/kubepods/podUID/ID", QosClass::Guaranteed, container());
        check(
            "/kubepods.slice/kubepods-podUID_.slice",
            QosClass::Guaranteed,
            None,
        );
        check(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice/cri-containerd-ID.scope",
            QosClass::Burstable,
            container(),
        );
        check(
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID_.slice/docker-ID.scope",
            QosClass::BestEffort,
            container(),
        );
        check(
            "/kubepods.slice/kubepods-podUID_.slice/crio-conmon-ID.scope",
            QosClass::Guaranteed,
            Some(PodMember::Monitor(ID.to_owned())),
        );
        check(
            "/kubelet/kubepods/burstable/podUID/ID",
            QosClass::Burstable,
            container(),
        );
        check(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
             kubelet-kubepods-burstable-podUID_.slice/cri-containerd-ID.scope",
            QosClass::Burstable,
            container(),
        );
    }

    #[test]
    fn a_static_pod_is_named_by_its_hash() {
        let group = PodGroup::parse("/kubepods/burstable/pod0123456789abcdef0123456789abcdef")
            .expect("a pod");
        assert_eq!(group.uid, "0123456789abcdef0123456789abcdef");
    }

    #[test]
    fn the_outermost_pod_counts_and_deeper_groups_are_its_own() {
        let path = format!(
            "/kubepods/pod{UID}/{ID}/kubelet/kubepods/burstable/pod{}/{ID}",
            UID.replace('7', "8")
        );
        let group = PodGroup::parse(&path).expect("a pod");
        assert_eq!(
            (group.uid.as_str(), group.qos, group.nested),
            (UID, QosClass::Guaranteed, true)
        );
        assert_eq!(group.member, Some(PodMember::Container(ID.to_owned())));
    }

    #[test]
    fn look_alikes_are_no_pods() {
        fn check(path: &str) {
            let path = path.replace("UID_", UID_).replace("UID", UID);
            assert_eq!(PodGroup::parse(&path), None, "{path}");
        }
        check("/");
        check("/kubepods");
        check("/kubepods/burstable");
        check("/kubepods.slice/kubepods-burstable.slice");
        check("/podUID");
        check("/other/podUID");
        check("/burstable/podUID");
        check("/user.slice/my-podUID_.slice");
        check("/user.slice/notkubepods-podUID_.slice");
        check("/kubepods/podcast");
        check("/kubepods/pod");
    }

    #[test]
    fn pods_are_where_a_kubelet_makes_them_and_nowhere_else() {
        fn check(roots: (&str, Option<&str>), path: &str, expected: bool) {
            let path = path.replace("UID_", UID_).replace("UID", UID);
            let found = PodRoots::new(roots.0, roots.1).parse(&path);
            assert_eq!(found.is_some(), expected, "{roots:?} {path}");
            assert!(!expected || found == PodGroup::parse(&path), "{path}");
        }
        let machine = ("/", None);
        for path in [
            "/kubepods/podUID",
            "/kubepods/burstable/podUID/x",
            "/kubepods.slice/kubepods-podUID_.slice",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID_.slice/x",
        ] {
            check(machine, path, true);
            check(("/machine.slice/vm", None), path, true);
        }
        let users = "/user.slice/user-1000.slice/user@1000.service";
        for below in [
            "/kubepods-podUID_.slice",
            "/kubepods.slice/kubepods-podUID_.slice",
            "/kubepods/podUID",
            "/kubepods/burstable/podUID",
        ] {
            let path = format!("{users}{below}");
            check(machine, &path, false);
            check(("/user.slice", None), &path, false);
            check(
                ("/", Some("/kubelet.slice/kubelet-kubepods.slice")),
                &path,
                false,
            );
        }
        check(machine, "/kubepods-podUID_.slice", false);
        check(
            machine,
            "/kubepods.slice/a.slice/b.slice/kubepods-podUID_.slice",
            false,
        );
        check(machine, "/kubepodsx/kubepods/podUID", false);
        check(machine, "/kubelet/kubepods/podUID", false);
        check(("/kubelet", None), "/kubelet/kubepods/podUID", true);
        check(
            ("/", Some("/kubelet/kubepods")),
            "/kubelet/kubepods/podUID",
            true,
        );
        check(
            ("/kubelet/kubepods", None),
            "/kubelet/kubepods/podUID",
            true,
        );
        let sliced = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
                      kubelet-kubepods-burstable-podUID_.slice";
        check(machine, sliced, false);
        check(("/kubelet.slice", None), sliced, true);
        // A node of kind, with either driver.
        let kind = "/docker/0123";
        for below in [
            sliced,
            "/kubelet/kubepods/besteffort/podUID",
            "/kubepods/podUID",
        ] {
            check((kind, None), &format!("{kind}{below}"), true);
            check(machine, &format!("{kind}{below}"), false);
            check((kind, None), &format!("{kind}/4567{below}"), false);
        }
        check(
            ("/", Some("/kubelet.slice/kubelet-kubepods.slice")),
            sliced,
            true,
        );
        // No root of pods is named: the kubelet's is.
        check(("/", Some("/")), "/kubelet/kubepods/podUID", false);
        check(
            ("/", Some("/user.slice")),
            "/user.slice/kubepods-podUID_.slice",
            false,
        );
    }

    #[test]
    fn what_is_not_a_container_is_kept_as_it_is() {
        let path = format!("/kubepods/pod{UID}/init.scope");
        assert_eq!(
            PodGroup::parse(&path).expect("a pod").member,
            Some(PodMember::Other("init.scope".to_owned()))
        );
        let path = format!("/kubepods/pod{UID}/other-{ID}.scope");
        assert!(matches!(
            PodGroup::parse(&path).expect("a pod").member,
            Some(PodMember::Other(_))
        ));
    }

    proptest! {
        #[test]
        fn any_path_is_judged_without_panic(path in "(/?[a-z0-9_.-]{0,40}){0,6}") {
            let _ = PodGroup::parse(&path);
        }

        #[test]
        fn both_drivers_name_the_same_pod(
            uid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            class in proptest::sample::select(vec!["", "burstable", "besteffort"]),
        ) {
            let (folder, part) = match class {
                "" => (String::new(), String::new()),
                class => (format!("/{class}"), format!("-{class}")),
            };
            let plain = PodGroup::parse(&format!("/kubepods{folder}/pod{uid}"));
            let slice = format!("/kubepods.slice/kubepods{part}.slice/kubepods{part}-pod{}.slice", uid.replace('-', "_"));
            prop_assert_eq!(plain.as_ref().map(|group| group.uid.as_str()), Some(uid.as_str()));
            prop_assert_eq!(plain, PodGroup::parse(&slice));
        }
    }
}

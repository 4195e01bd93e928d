//! Whose a cgroup is, as it was known before anybody in it died, and for some time after it is gone.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use brink_host::cgroup::pod::{PodMember, PodRoots};
use brink_host::kill::KillTarget;
use brink_host::kill::pid_set::ProtectedPids;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Identity;

use super::gather::group::ancestry;
use super::roll::Roll;
use crate::guard::roster::Roster;
use crate::pod::container_name;
use crate::telling::qos_word;

/// Who is gone stays known for so long, in nanoseconds.
const KEPT: u64 = 120_000_000_000;
/// Cgroups that are gone and stay known; the oldest are forgotten first.
const MOST_GONE: usize = 4096;
/// Cgroups outside of rosters that are remembered before the oldest are looked for.
const LEARNED_AT_MOST: usize = 256;

/// A workload, as known from its manifest or pattern; the container is its cgroup's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its uid.
    pub uid: Arc<str>,
    /// Names and ids of its containers.
    pub containers: Vec<(String, String)>,
    /// The rest.
    pub identity: Identity,
}

/// What is known of a cgroup that is a workload's own.
#[derive(Clone, Debug)]
struct Own {
    workload: Arc<Workload>,
    /// The cgroups that an eviction kills: itself, or the containers of a kubelet's pod.
    killed: Vec<String>,
}

/// The workloads of one roster with the cgroups that are theirs.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Cgroups that are a workload's own.
    workloads: Vec<(String, Own)>,
    /// Processes that no eviction signals.
    protected: Option<ProtectedPids>,
    /// Ids and paths of those and of all below them.
    groups: Vec<(u64, String)>,
    /// All of them, to be told as they stand.
    pub(super) roll: Roll,
}

/// What is known of cgroups.
#[derive(Debug)]
pub struct Identities {
    roots: PodRoots,
    workloads: HashMap<String, Kept<Own>>,
    protected: Option<ProtectedPids>,
    paths: HashMap<u64, Kept<String>>,
    /// How often the own limit of a cgroup could not be kept, as of the last look.
    ooms: HashMap<String, u64>,
    /// Paths learned since anything was last forgotten.
    learned: usize,
}

#[derive(Debug)]
struct Kept<T> {
    value: T,
    /// Since when it is gone, `CLOCK_MONOTONIC` in nanoseconds.
    gone: Option<u64>,
}

impl Snapshot {
    /// What a roster says.
    pub fn of(roster: &Roster) -> Self {
        let table = &roster.table;
        let pairs = table.workloads().iter().zip(table.rows());
        let workloads = pairs.enumerate().map(|(index, (workload, row))| {
            let owner = roster.owners.get(index).cloned().flatten();
            let containers = roster.containers_of(index).to_vec();
            Arc::new(Workload {
                uid: workload.uid.as_str().into(),
                containers,
                identity: Identity {
                    namespace: workload.namespace.clone(),
                    name: workload.name.clone(),
                    uid: workload.uid.clone(),
                    container: None,
                    container_id: None,
                    container_missing: Some(Missing::NotApplicable),
                    qos: Some(qos_word(row.qos).to_owned()),
                    qos_missing: None,
                    priority: row.priority,
                    request: Some(row.memory_request.value()),
                    request_missing: None,
                    // A manifest that names no owner has none, and so has a cgroup without a manifest.
                    owner_missing: owner.is_none().then_some(Missing::NotApplicable),
                    owner,
                },
            })
        });
        let workloads: Vec<Arc<Workload>> = workloads.collect();
        let own = roster.members.iter().filter_map(|member| {
            let path = |target: &KillTarget| target.dir().group().to_owned();
            let own = Own {
                workload: Arc::clone(workloads.get(member.workload)?),
                killed: member.group.victims().iter().map(path).collect(),
            };
            Some((path(&member.group.target), own))
        });
        let groups = roster.members.iter().flat_map(|member| {
            let ids = member.group.family.iter().copied();
            ids.zip(member.group.paths.iter().cloned())
        });
        Self {
            workloads: own.collect(),
            protected: Some(roster.protected.clone()),
            groups: groups.collect(),
            roll: Roll::of(roster),
        }
    }
}

impl Identities {
    /// Nothing known yet. `roots` is where a kubelet makes its pods.
    pub fn new(roots: PodRoots) -> Self {
        Self {
            roots,
            workloads: HashMap::new(),
            protected: None,
            paths: HashMap::new(),
            ooms: HashMap::new(),
            learned: 0,
        }
    }

    /// Takes a roster over at `now`, and tells which cgroups are new.
    pub fn follow(&mut self, snapshot: Snapshot, now: u64) -> Vec<String> {
        keep_for_a_while(&mut self.workloads, now);
        keep_for_a_while(&mut self.paths, now);
        self.protected = snapshot.protected;
        for (path, value) in snapshot.workloads {
            self.workloads.insert(path, Kept { value, gone: None });
        }
        let mut new = Vec::new();
        for (id, value) in snapshot.groups {
            let path = value.clone();
            if self.paths.insert(id, Kept { value, gone: None }).is_none() {
                new.push(path);
            }
        }
        self.learned = 0;
        self.forget_ooms();
        new
    }

    /// The workload that a cgroup belongs to.
    pub fn workload(&self, path: &str) -> Option<&Arc<Workload>> {
        ancestry(path).find_map(|path| Some(&self.workloads.get(&path)?.value.workload))
    }

    /// Its uid. A pod that is too young to be in a roster has the one that its cgroup is named by.
    pub fn uid(&self, path: &str) -> Option<Arc<str>> {
        let known = self
            .workload(path)
            .map(|workload| Arc::clone(&workload.uid));
        known.or_else(|| Some(self.roots.parse(path)?.uid.into()))
    }

    /// The cgroups of the workload with that uid, in the order of their paths.
    pub fn groups_of(&self, uid: &str) -> Vec<String> {
        let mut groups: Vec<String> = self.own(uid).map(|(path, _)| path.clone()).collect();
        groups.sort_unstable();
        groups
    }

    /// The cgroups of that workload that an eviction kills, each with all below it.
    pub fn killed_of(&self, uid: &str) -> Vec<&str> {
        let killed = self.own(uid).flat_map(|(_, own)| &own.killed);
        killed.map(String::as_str).collect()
    }

    fn own(&self, uid: &str) -> impl Iterator<Item = (&String, &Own)> {
        let all = self.workloads.iter();
        let own = all.filter(|(_, kept)| kept.gone.is_none() && *kept.value.workload.uid == *uid);
        own.map(|(path, kept)| (path, &kept.value))
    }

    /// Whether no eviction signals a process.
    pub fn is_protected(&self, pid: i32) -> bool {
        let protected = self.protected.as_ref();
        protected.is_some_and(|protected| protected.contains(pid))
    }

    /// The container that a cgroup is or lies in, by its path; where it is in none, the workload's own cgroup.
    pub fn container(&self, path: &str) -> Option<String> {
        let is_container = |path: &String| {
            let parsed = self.roots.parse(path);
            parsed.is_some_and(|pod| {
                !pod.nested && matches!(pod.member, Some(PodMember::Container(_)))
            })
        };
        let mut paths = ancestry(path);
        let workload = || ancestry(path).find(|path| self.workloads.contains_key(path));
        paths.find(is_container).or_else(workload)
    }

    /// The same as it is told, with the container that the cgroup is.
    pub fn identity(&self, path: &str) -> Option<Identity> {
        let workload = self.workload(path)?;
        let mut identity = workload.identity.clone();
        let member = self.roots.parse(path).and_then(|pod| pod.member);
        if let Some(PodMember::Container(id)) = member {
            let name = container_name(&workload.containers, &id).unwrap_or(&id);
            identity.container = Some(name.to_owned());
            (identity.container_id, identity.container_missing) = (Some(id), None);
        }
        Some(identity)
    }

    /// The same, or why there is none. A pod that is too young to be in a roster will be in the next one.
    pub fn told(&self, path: &str) -> Field<Identity> {
        let reason = if self.roots.parse(path).is_some() {
            Missing::Pending
        } else {
            Missing::NotApplicable
        };
        Field::or(self.identity(path), reason)
    }

    /// The path of the cgroup with that id.
    pub fn path(&self, id: u64) -> Option<&str> {
        self.paths.get(&id).map(|kept| kept.value.as_str())
    }

    /// Remembers the path of a cgroup that is in no roster; it is forgotten as one that is gone.
    pub fn learn(&mut self, id: u64, path: &str, now: u64) {
        if self.paths.contains_key(&id) {
            return;
        }
        let value = path.to_owned();
        let gone = Some(now);
        self.paths.insert(id, Kept { value, gone });
        self.learned += 1;
        // Rosters come only with changes of workloads: what belongs to none must not wait for one.
        if self.learned == LEARNED_AT_MOST {
            self.learned = 0;
            forget(&mut self.paths, now);
            self.forget_ooms();
        }
    }

    /// Forgets the counts of what is not known any more.
    fn forget_ooms(&mut self) {
        let paths = self.paths.values();
        let known: HashSet<String> = paths.flat_map(|kept| ancestry(&kept.value)).collect();
        self.ooms.retain(|path, _| known.contains(path));
    }

    /// How often a cgroup's own limit could not be kept at the last look, which `now` takes the place of.
    pub fn ooms(&mut self, path: &str, now: Option<u64>) -> Option<u64> {
        match now {
            Some(now) => self.ooms.insert(path.to_owned(), now),
            None => self.ooms.remove(path),
        }
    }

    /// Whether that was ever looked at.
    pub fn has_ooms(&self, path: &str) -> bool {
        self.ooms.contains_key(path)
    }
}

/// Marks everything as gone that is not yet, until it is seen again.
fn keep_for_a_while<K: Eq + Hash, T>(all: &mut HashMap<K, Kept<T>>, now: u64) {
    for kept in all.values_mut() {
        kept.gone.get_or_insert(now);
    }
    forget(all, now);
}

/// Forgets what has been gone for too long, and the oldest of what is too much.
fn forget<K: Eq + Hash, T>(all: &mut HashMap<K, Kept<T>>, now: u64) {
    all.retain(|_, kept| kept.gone.is_none_or(|gone| now.saturating_sub(gone) < KEPT));
    let mut since: Vec<u64> = all.values().filter_map(|kept| kept.gone).collect();
    let Some(last) = since.len().checked_sub(MOST_GONE + 1) else {
        return;
    };
    since.sort_unstable();
    let youngest = since[last];
    // Of those that went together with the youngest to be forgotten, any.
    let mut ties = last + 1 - since.partition_point(|gone| *gone < youngest);
    all.retain(|_, kept| match kept.gone {
        Some(gone) if gone == youngest && ties > 0 => {
            ties -= 1;
            false
        }
        Some(gone) => gone >= youngest,
        None => true,
    });
}

#[cfg(test)]
mod tests {
    use brink_core::node::workload::QosClass;

    use super::*;

    const UID: &str = "7f4a1b2c-0d3e-4f56-8a9b-0c1d2e3f4a5b";

    impl Snapshot {
        /// One workload that has one cgroup.
        pub(crate) fn of_one(uid: &str, path: &str) -> Self {
            let mut one = snapshot(path, &[]);
            let workload = Arc::make_mut(&mut one.workloads[0].1.workload);
            workload.uid = uid.into();
            one
        }

        /// The same with a container that has a name.
        pub(crate) fn with_container(mut self, name: &str, id: &str) -> Self {
            let workload = Arc::make_mut(&mut self.workloads[0].1.workload);
            workload.containers.push((name.to_owned(), id.to_owned()));
            self
        }

        /// The same as a kubelet's pod of which an eviction kills those cgroups.
        pub(crate) fn killing(mut self, killed: &[&str]) -> Self {
            let killed = killed.iter().map(|path| (*path).to_owned());
            self.workloads[0].1.killed = killed.collect();
            self
        }

        /// The same with processes that nobody signals.
        pub(crate) fn protecting(mut self, protected: ProtectedPids) -> Self {
            self.protected = Some(protected);
            self
        }
    }

    fn snapshot(path: &str, below: &[(u64, &str)]) -> Snapshot {
        let identity = Identity {
            namespace: "test".to_owned(),
            name: "web".to_owned(),
            uid: UID.to_owned(),
            container: None,
            container_id: None,
            container_missing: Some(Missing::NotApplicable),
            qos: Some(qos_word(QosClass::Burstable).to_owned()),
            qos_missing: None,
            priority: 0,
            request: Some(7),
            request_missing: None,
            owner: None,
            owner_missing: Some(Missing::NotApplicable),
        };
        let workload = Workload {
            uid: UID.into(),
            containers: Vec::new(),
            identity,
        };
        let groups = below.iter().map(|(id, path)| (*id, (*path).to_owned()));
        let own = Own {
            workload: Arc::new(workload),
            killed: vec![path.to_owned()],
        };
        Snapshot {
            workloads: vec![(path.to_owned(), own)],
            protected: None,
            groups: groups.collect(),
            roll: Roll::default(),
        }
    }

    #[test]
    fn a_cgroup_below_a_workloads_is_its_container() {
        let mut all = Identities::new(PodRoots::new("/", None));
        let pod = format!("/kubepods/burstable/pod{UID}");
        let id = "ab".repeat(32);
        let container = format!("{pod}/{id}");
        let new = all.follow(snapshot(&pod, &[(1, &pod), (2, &container)]), 0);
        assert_eq!(new, [pod.clone(), container.clone()]);
        assert_eq!(all.path(2), Some(container.as_str()));
        let inner = format!("{container}/inner");
        let found = all.identity(&inner).unwrap();
        assert!(found.is_container_unnamed());
        assert_eq!((found.name.as_str(), found.container), ("web", Some(id)));
        assert_eq!(all.identity(&pod).unwrap().container, None);
        assert_eq!(all.identity("/kubepods"), None);
        assert!(all.follow(snapshot(&pod, &[(1, &pod)]), 1).is_empty());
    }

    #[test]
    fn a_container_is_told_by_the_name_that_its_pod_has_for_the_id() {
        let mut all = Identities::new(PodRoots::new("/", None));
        let pod = format!("/kubepods/burstable/pod{UID}");
        let [app, side, old] = ["ab", "cd", "ef"].map(|two| two.repeat(32));
        let known = snapshot(&pod, &[(1, &pod)])
            .with_container("app", &app)
            .with_container("side", &side);
        all.follow(known, 0);
        let told = |path: &str| {
            let found = all.identity(path).unwrap();
            (found.container, found.container_id, found.container_missing)
        };
        let expected = |name: &str, id: &str| (Some(name.to_owned()), Some(id.to_owned()), None);
        for (path, name, id) in [
            (format!("{pod}/{app}"), "app", &app),
            (
                format!("{pod}/cri-containerd-{side}.scope/inner"),
                "side",
                &side,
            ),
            (format!("{pod}/{old}"), old.as_str(), &old),
        ] {
            assert_eq!(told(&path), expected(name, id), "{path}");
        }
        assert_eq!(told(&pod), (None, None, Some(Missing::NotApplicable)));
    }

    #[test]
    fn who_is_gone_stays_known_for_a_while() {
        let mut all = Identities::new(PodRoots::new("/", None));
        all.follow(snapshot("/web", &[(1, "/web")]), 0);
        all.ooms("/web", Some(3));
        all.follow(Snapshot::default(), 10);
        all.follow(Snapshot::default(), 9 + KEPT);
        assert!(all.workload("/web").is_some() && all.path(1).is_some());
        assert_eq!(all.ooms("/web", Some(4)), Some(3));
        all.follow(Snapshot::default(), 10 + KEPT);
        assert!(all.workload("/web").is_none() && all.path(1).is_none());
        assert!(!all.has_ooms("/web"), "nor are its counts kept");
    }

    #[test]
    fn what_is_learned_between_rosters_is_bounded() {
        let mut all = Identities::new(PodRoots::new("/", None));
        all.follow(snapshot("/web", &[(1, "/web")]), 0);
        all.ooms("/web", Some(3));
        for id in 2..10_000 {
            let path = format!("/job-{id}");
            all.learn(id, &path, id);
            all.ooms(&path, Some(id));
        }
        let most = MOST_GONE + LEARNED_AT_MOST + 1;
        assert!(all.paths.len() <= most, "{}", all.paths.len());
        assert!(all.ooms.len() <= most + 1, "{}", all.ooms.len());
        assert!(all.path(1).is_some() && all.has_ooms("/web"), "it is there");
        assert!(all.path(9_999).is_some() && all.path(2).is_none());
    }

    #[test]
    fn a_pod_that_no_roster_has_yet_is_not_told_as_none() {
        let all = Identities::new(PodRoots::new("/", None));
        let young = format!("/kubepods/burstable/pod{UID}/{}", "ab".repeat(32));
        assert_eq!(all.told(&young), Field::Missing(Missing::Pending));
        assert_eq!(all.uid(&young).as_deref(), Some(UID), "its cgroup has it");
        let cron = "/system.slice/cron.service";
        assert_eq!(all.told(cron), Field::Missing(Missing::NotApplicable));
        assert_eq!(all.uid(cron), None);
    }

    #[test]
    fn what_is_kept_of_the_gone_is_bounded() {
        let mut all = Identities::new(PodRoots::new("/", None));
        let paths: Vec<String> = (0..10_000).map(|job| format!("/job-{job}")).collect();
        for (round, half) in (0_u64..).zip(paths.chunks(5_000)) {
            let ids = round * 5_000..;
            let below: Vec<(u64, &str)> = ids.zip(half.iter().map(String::as_str)).collect();
            all.follow(snapshot(&half[0], &below), round);
        }
        all.follow(snapshot("/last", &[(10_000, "/last")]), 2);
        assert!(all.paths.len() <= MOST_GONE + 1, "{}", all.paths.len());
        assert!(all.path(10_000).is_some(), "it is there");
        assert!((0..5_000).all(|id| all.path(id).is_none()), "the oldest go");
    }
}

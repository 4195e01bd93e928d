//! A cluster's own control groups: everything it starts is born in them, so that whatever is in them is its, and nothing else is.
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

/// The group of everything, in each hierarchy, and to the kubelet the root of all pods.
pub(super) const NAME: &str = "brink-cluster";
/// In it, what is no pod.
const SYSTEM: &str = "system";
/// The controllers without which the kubelet or the runtime does not start.
const CONTROLLERS: [&str; 7] = [
    "cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer",
];
/// The most that everything but the pods may take: the programs need about 700 MiB.
const MEMORY: u64 = 2 << 30;
/// A new group of this controller takes nobody before it has both.
const CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];
/// How long the killed may take to be gone.
const DEATH: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(20);

/// A mounted hierarchy of version 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    controllers: Vec<String>,
}

/// The groups of a cluster.
#[derive(Debug)]
pub(super) struct Groups {
    roots: Vec<PathBuf>,
}

impl Groups {
    /// The groups as this machine's hierarchies have them, made or not.
    ///
    /// # Errors
    /// When the list of mounts cannot be read.
    pub(super) fn find() -> anyhow::Result<Self> {
        let roots = mounts()?.into_iter().map(|each| each.root.join(NAME));
        Ok(Self {
            roots: roots.collect(),
        })
    }

    /// Makes them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn make(&self) -> anyhow::Result<()> {
        for root in &self.roots {
            for group in [root.clone(), root.join(SYSTEM)] {
                make(&group)
                    .with_context(|| format!("making the control group {}", group.display()))?;
            }
        }
        Ok(())
    }

    /// The groups that a process of the cluster is born in.
    pub(super) fn of_system(&self) -> Vec<PathBuf> {
        let groups = self.roots.iter().map(|root| root.join(SYSTEM));
        groups.filter(|group| group.is_dir()).collect()
    }

    /// How many processes are in them.
    ///
    /// # Errors
    /// When a group cannot be read.
    pub(super) fn population(&self) -> anyhow::Result<usize> {
        Ok(self.members()?.len())
    }

    /// Kills everybody in them until nobody is left.
    ///
    /// # Errors
    /// When somebody does not die.
    pub(super) fn kill_all(&self) -> anyhow::Result<()> {
        let until = Instant::now() + DEATH;
        loop {
            let members = self.members()?;
            if members.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("these processes of the cluster do not die: {members:?}");
            }
            for pid in members.into_iter().filter_map(Pid::from_raw) {
                match kill_process(pid, Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(error) => return Err(error).with_context(|| format!("killing {pid:?}")),
                }
            }
            self.thaw();
            sleep(TICK);
        }
    }

    /// Removes them with everything below.
    ///
    /// # Errors
    /// When one of them stays.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        let until = Instant::now() + DEATH;
        for root in &self.roots {
            // The kernel may take a moment to see that the last has gone.
            while let Err(error) = remove(root) {
                if Instant::now() > until {
                    return Err(error)
                        .with_context(|| format!("removing the control group {}", root.display()));
                }
                sleep(TICK);
            }
        }
        Ok(())
    }

    /// Whether none of them is there.
    pub(super) fn are_gone(&self) -> bool {
        !self.roots.iter().any(|root| root.exists())
    }

    fn members(&self) -> anyhow::Result<BTreeSet<i32>> {
        let mut members = BTreeSet::new();
        for group in self.roots.iter().flat_map(|root| all_below(root)) {
            let path = group.join("cgroup.procs");
            match fs::read_to_string(&path) {
                Ok(text) => {
                    members.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
                }
                // Gone between the listing and the reading.
                Err(error)
                    if matches!(
                        Errno::from_io_error(&error),
                        Some(Errno::NOENT | Errno::NODEV)
                    ) => {}
                // A threaded group of version 2, whose members its parent tells.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("reading {}", path.display()));
                }
            }
        }
        Ok(members)
    }

    /// The frozen die only when they are not.
    fn thaw(&self) {
        for group in self.roots.iter().flat_map(|root| all_below(root)) {
            // Most groups have no such file.
            let _unfrozen = fs::write(group.join("freezer.state"), "THAWED");
        }
    }
}

/// Why this machine cannot have such groups, if it cannot.
pub(super) fn lacking() -> Option<String> {
    let found = match mounts() {
        Ok(found) => found,
        Err(error) => return Some(format!("{error:#}")),
    };
    judge(&found)
}

fn judge(found: &[Hierarchy]) -> Option<String> {
    let has = |name: &&str| {
        found
            .iter()
            .any(|each| each.controllers.iter().any(|own| own == name))
    };
    let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !has(name)).collect();
    if missing.is_empty() {
        None
    } else if missing.len() == CONTROLLERS.len() {
        Some(
            "no control groups of version 1 are mounted: this kubelet is set up for them alone (boot with \
             systemd.unified_cgroup_hierarchy=0)"
                .to_owned(),
        )
    } else {
        Some(format!(
            "control groups without {}, which the kubelet or runc needs",
            missing.join(", ")
        ))
    }
}

/// Every mounted hierarchy, of version 2 too: a runtime makes groups in each.
fn mounts() -> anyhow::Result<Vec<Hierarchy>> {
    let path = "/proc/self/mountinfo";
    let mounts = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(mounts.lines().filter_map(parse).collect())
}

/// `id parent device root point options … - type source controllers`
fn parse(line: &str) -> Option<Hierarchy> {
    let (head, tail) = line.split_once(" - ")?;
    let mut tail = tail.split(' ');
    let kind = tail.next()?;
    ["cgroup", "cgroup2"].contains(&kind).then_some(())?;
    let options = tail.nth(1).unwrap_or_default();
    let names = options
        .split(',')
        .filter(|name| kind == "cgroup" && *name != "rw");
    Some(Hierarchy {
        root: PathBuf::from(head.split(' ').nth(4)?),
        controllers: names.map(str::to_owned).collect(),
    })
}

fn make(group: &Path) -> std::io::Result<()> {
    fs::create_dir_all(group)?;
    for name in CPUSET {
        let own = group.join(name);
        if own.exists() {
            let above = group.parent().unwrap_or(group).join(name);
            fs::write(own, fs::read_to_string(above)?.trim())?;
        }
    }
    let limit = group.join("memory.limit_in_bytes");
    if limit.exists() && group.ends_with(SYSTEM) {
        fs::write(limit, MEMORY.to_string())?;
    }
    Ok(())
}

/// The group and all below it, each after what is in it.
fn all_below(group: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        found.extend(all_below(&entry.path()));
    }
    if group.is_dir() {
        found.push(group.to_owned());
    }
    found
}

fn remove(group: &Path) -> std::io::Result<()> {
    for each in all_below(group) {
        match fs::remove_dir(&each) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchies(mounts: &str) -> Vec<Hierarchy> {
        mounts.lines().filter_map(parse).collect()
    }

    fn check_lacking(controllers: &[&str], expected: Option<&str>) {
        let line = |name: &&str| {
            format!("26 25 0:23 / /sys/fs/cgroup/{name} rw shared:9 - cgroup cgroup rw,{name}\n")
        };
        let lines: Vec<String> = controllers.iter().map(line).collect();
        let mounts =
            lines.concat() + "27 25 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let reason = judge(&hierarchies(&mounts));
        match (&reason, expected) {
            (None, None) => {}
            (Some(reason), Some(part)) => assert!(reason.contains(part), "{reason}"),
            _ => panic!("{controllers:?}: {reason:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        check_lacking(
            &[
                "cpu,cpuacct",
                "cpuset",
                "memory",
                "pids",
                "devices",
                "freezer",
            ],
            None,
        );
        check_lacking(
            &["cpu,cpuacct", "cpuset", "pids", "devices", "freezer"],
            Some("without memory"),
        );
        check_lacking(&[], Some("version 1"));
    }

    #[test]
    fn groups_are_listed_from_the_inmost_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join(NAME);
        fs::create_dir_all(top.join("kubepods/burstable/pod1")).unwrap();
        let groups = Groups {
            roots: vec![top.clone(), folder.path().join("not-there")],
        };
        let listed = all_below(&top);
        assert_eq!(listed.len(), 4);
        assert_eq!(listed.last(), Some(&top));
        assert!(!groups.are_gone());
        groups.remove().unwrap();
        assert!(groups.are_gone());
    }
}

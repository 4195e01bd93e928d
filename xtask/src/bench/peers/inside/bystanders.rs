//! Who was there before a load began and is no part of it: whoever of them is killed is a wrong victim.
use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;

use super::pods::{Pod, ROOT};

/// Processes by id, each with what it is called in a report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bystanders(BTreeMap<i32, String>);

impl Bystanders {
    /// Every process of a `/proc` but those in the pods that grow.
    pub(super) fn read(proc: &Path) -> anyhow::Result<Self> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(proc).with_context(|| format!("listing {}", proc.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let file = |name: &str| fs::read_to_string(entry.path().join(name));
            // Who has gone meanwhile can be killed by nobody.
            let (Ok(groups), Ok(command)) = (file("cgroup"), file("comm")) else {
                continue;
            };
            if let Some(name) = name_of(&groups, command.trim_end()) {
                found.insert(pid, name);
            }
        }
        Ok(Self(found))
    }

    /// What a process is called; nothing if it is none of them.
    pub(super) fn name(&self, pid: i32) -> Option<&str> {
        self.0.get(&pid).map(String::as_str)
    }
}

/// By the pod if it is in one, by the command if not; nothing for a load's.
fn name_of(groups: &str, command: &str) -> Option<String> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let pod = group.and_then(|group| group.strip_prefix(ROOT)?.strip_prefix('/'));
    let is_load = Pod::ALL
        .iter()
        .any(|each| each.is_right() && pod == Some(each.name()));
    (!is_load).then(|| pod.unwrap_or(command).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_there_is_a_bystander_unless_it_is_a_load() {
        let proc = tempfile::tempdir().unwrap();
        for (pid, group, command) in [
            ("1", "/", "xtask"),
            ("20", "/tool", "earlyoom"),
            ("30", "/pods/database", "brink-hog"),
            ("31", "/pods/leaker", "brink-hog"),
            ("32", "/pods/leaker-too", "brink-hog"),
        ] {
            let folder = proc.path().join(pid);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cgroup"), format!("0::{group}\n")).unwrap();
            fs::write(folder.join("comm"), format!("{command}\n")).unwrap();
        }
        fs::create_dir(proc.path().join("40")).unwrap();
        fs::write(proc.path().join("meminfo"), "").unwrap();
        let bystanders = Bystanders::read(proc.path()).unwrap();
        let names = [1, 20, 30, 31, 32, 40, 41].map(|pid| bystanders.name(pid));
        let [first, tool, database] = [Some("xtask"), Some("earlyoom"), Some("database")];
        assert_eq!(names, [first, tool, database, None, None, None, None]);
        assert!(Bystanders::read(&proc.path().join("none")).is_err());
    }
}

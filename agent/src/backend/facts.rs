//! What is known of a workload beside its manifest, in all cgroups it consists of: paths, commands, its owners' wish.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use brink_host::HostError;
use brink_host::cgroup::layout::Hierarchy;
use brink_host::cgroup::pids::processes_at;
use brink_host::cgroup::preference::{Preference, preference_at};
use brink_host::process::command_name;

/// Processes below one cgroup of a workload whose names are compared with the patterns.
const MOST_COMMANDS: usize = 512;
/// Cgroups below one of a workload that are looked at.
const MOST_GROUPS: usize = 1024;

/// What is known of a workload beside its manifest.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// Paths of its cgroups and of all below them.
    pub paths: Vec<&'a str>,
    /// What was read there.
    pub seen: Seen,
}

/// What was read of a family of cgroups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Names of the processes' commands.
    pub commands: BTreeSet<String>,
    /// The strongest wish of the cgroups' owners.
    pub wish: Option<Preference>,
}

/// What was read of each family, by the path of its first cgroup.
pub type Known = HashMap<String, Seen>;

/// One look at all families.
#[derive(Debug)]
pub struct Look<'a> {
    /// The root of the file system.
    pub root: &'a Path,
    /// Where the cgroups are.
    pub hierarchy: &'a Hierarchy,
    /// Whether the names of commands are wanted.
    pub names: bool,
    /// What the look before has found: it stands where this one cannot read.
    pub before: &'a Known,
    /// What this one has found.
    pub now: Known,
    /// One sentence for everything that could not be read.
    pub troubles: Vec<String>,
}

/// What could not be read of a family.
#[derive(Debug, Default)]
struct Gaps {
    commands: bool,
    wish: bool,
}

impl Look<'_> {
    /// Facts of a workload, from its families: the paths of a cgroup and of all below it each, that cgroup first.
    pub fn at<'b>(&mut self, families: &[Vec<&'b str>]) -> Facts<'b> {
        let mut facts = Facts::default();
        for family in families {
            let Some(first) = family.first() else {
                continue;
            };
            let seen = self.family(first, family);
            facts.paths.extend(family);
            facts.seen.commands.extend(seen.commands.iter().cloned());
            facts.seen.wish = facts.seen.wish.into_iter().chain(seen.wish).min();
            self.now.insert((*first).to_owned(), seen);
        }
        facts
    }

    /// Whether these are the families of the look before, and all that is read of them is what it has found; not where anything
    /// cannot be read.
    pub fn finds_the_same(mut self, families: &[Vec<String>]) -> bool {
        for family in families {
            let family = family.iter().map(String::as_str).collect();
            let _kept_by_us = self.at(&[family]);
        }
        self.troubles.is_empty() && self.now == *self.before
    }

    fn family(&mut self, first: &str, family: &[&str]) -> Seen {
        let (mut seen, mut gaps) = (Seen::default(), Gaps::default());
        if family.len() > MOST_GROUPS {
            self.troubles.push(format!(
                "{first}: more than {MOST_GROUPS} cgroups; neither the commands nor the owners' wishes of the rest are \
                 known"
            ));
        }
        let mut pids = Vec::new();
        for group in family.iter().take(MOST_GROUPS) {
            let Some(folder) = self.hierarchy.folder(group) else {
                continue;
            };
            self.read_wish(&folder, &mut seen, &mut gaps);
            if self.names {
                self.list_processes(&folder, &mut pids, &mut gaps);
            }
        }
        self.read_names(first, &pids, &mut seen, &mut gaps);
        if let Some(before) = self.before.get(first) {
            if gaps.wish {
                seen.wish = seen.wish.into_iter().chain(before.wish).min();
            }
            if gaps.commands {
                seen.commands.extend(before.commands.iter().cloned());
            }
        }
        seen
    }

    fn read_wish(&mut self, folder: &Path, seen: &mut Seen, gaps: &mut Gaps) {
        match preference_at(folder) {
            Ok(wish) => seen.wish = seen.wish.into_iter().chain([wish]).min(),
            Err(error) if is_gone(&error) => {}
            Err(error) => {
                gaps.wish = true;
                self.troubles.push(format!(
                    "{error}: what its owner asked of memory killers is not known; what was known before stands"
                ));
            }
        }
    }

    fn list_processes(&mut self, folder: &Path, pids: &mut Vec<i32>, gaps: &mut Gaps) {
        match processes_at(folder) {
            Ok(more) => pids.extend(more),
            // The list of a threaded cgroup is that of the one above it.
            Err(error) if is_gone(&error) || error.errno() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => self.note_commands(&error.to_string(), gaps),
        }
    }

    fn read_names(&mut self, first: &str, pids: &[i32], seen: &mut Seen, gaps: &mut Gaps) {
        for pid in pids.iter().take(MOST_COMMANDS) {
            match command_name(self.root, *pid) {
                Ok(name) => seen.commands.extend(name),
                Err(error) => self.note_commands(&error.to_string(), gaps),
            }
        }
        if pids.len() > MOST_COMMANDS {
            let why = format!("{first}: more than {MOST_COMMANDS} processes");
            self.note_commands(&why, gaps);
        }
    }

    fn note_commands(&mut self, why: &str, gaps: &mut Gaps) {
        gaps.commands = true;
        self.troubles.push(format!(
            "{why}: not all names of commands are known; those known before stand"
        ));
    }
}

/// Whether a cgroup went away while it was looked at.
fn is_gone(error: &HostError) -> bool {
    matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brink_host::cgroup::Version;

    use super::*;

    /// A machine of plain files: cgroups with their processes, and processes with their names.
    struct Machine {
        root: tempfile::TempDir,
        hierarchy: Hierarchy,
    }

    impl Machine {
        fn new(groups: &[(&str, &str)], processes: &[(i32, &str)]) -> Self {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("cgroup");
            for (group, list) in groups {
                let folder = path.join(group);
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("cgroup.procs"), list).unwrap();
            }
            for (pid, name) in processes {
                let folder = root.path().join(format!("proc/{pid}"));
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
            }
            let hierarchy = Hierarchy {
                version: Version::V2,
                path,
                mount_root: "/".to_owned(),
            };
            Self { root, hierarchy }
        }

        fn begin<'a>(&'a self, before: &'a Known) -> Look<'a> {
            Look {
                root: self.root.path(),
                hierarchy: &self.hierarchy,
                names: true,
                before,
                now: Known::new(),
                troubles: Vec::new(),
            }
        }

        fn look(&self, before: &Known, family: &[&str]) -> (Seen, Vec<String>) {
            let mut look = self.begin(before);
            let facts = look.at(&[family.to_vec()]);
            assert_eq!(facts.paths, family);
            (facts.seen, look.troubles)
        }
    }

    fn names(seen: &Seen) -> Vec<&str> {
        seen.commands.iter().map(String::as_str).collect()
    }

    #[test]
    fn commands_are_those_of_the_whole_family() {
        let machine = Machine::new(
            &[("pod", ""), ("pod/a", "7\n8\n"), ("pod/b", "9\n10\n")],
            &[(7, "java"), (8, "java"), (9, "postgres")],
        );
        let (seen, troubles) = machine.look(&Known::new(), &["/pod", "/pod/a", "/pod/b", "/pod/c"]);
        assert_eq!(names(&seen), ["java", "postgres"], "10 and /pod/c are gone");
        assert_eq!(seen.wish, Some(Preference::None));
        assert_eq!(troubles, [""; 0]);
    }

    #[test]
    fn what_cannot_be_read_is_said_and_was_as_it_was() {
        let machine = Machine::new(&[("pod", ""), ("pod/a", "7\n")], &[(7, "java")]);
        let before = Seen {
            commands: ["postgres".to_owned()].into(),
            wish: Some(Preference::Omit),
        };
        let known = Known::from([("/pod".to_owned(), before)]);
        let family = ["/pod", "/pod/a"];
        let (seen, troubles) = machine.look(&known, &family);
        assert_eq!((names(&seen), troubles.len()), (vec!["java"], 0));
        assert_eq!(seen.wish, Some(Preference::None), "it was taken back");
        fs::write(machine.hierarchy.path.join("pod/cgroup.procs"), "no list").unwrap();
        let (seen, troubles) = machine.look(&known, &family);
        assert_eq!(names(&seen), ["java", "postgres"]);
        assert!(
            troubles.len() == 1 && troubles[0].contains("pod/cgroup.procs"),
            "{troubles:?}"
        );
    }

    #[test]
    fn the_same_is_found_while_nothing_differs_and_all_can_be_read() {
        let machine = Machine::new(&[("a", "7\n"), ("a/b", ""), ("c", "")], &[(7, "java")]);
        let endless = format!("/a/{}", "x".repeat(300));
        let check = |families: &[&[&str]], before: &Known, expected| {
            let owned = |family: &&[&str]| family.iter().map(|path| (*path).to_owned()).collect();
            let families: Vec<Vec<String>> = families.iter().map(owned).collect();
            let found = machine.begin(before).finds_the_same(&families);
            assert_eq!(found, expected, "{families:?}");
        };
        let families: [&[&str]; 2] = [&["/a", "/a/b"], &["/c"]];
        let before = |wish, command: &str| {
            let of_a = Seen {
                commands: [command.to_owned()].into(),
                wish: Some(wish),
            };
            let of_c = Seen {
                wish: Some(Preference::None),
                ..Seen::default()
            };
            Known::from([("/a".to_owned(), of_a), ("/c".to_owned(), of_c)])
        };
        let same = before(Preference::None, "java");
        check(&families, &same, true);
        check(&families, &before(Preference::Omit, "java"), false);
        check(&families, &before(Preference::None, "postgres"), false);
        check(&families[..1], &same, false);
        check(&[&["/a", &endless], &["/c"]], &same, false);
    }

    #[test]
    fn a_wish_that_cannot_be_read_stays_the_last_one() {
        let machine = Machine::new(&[("pod", "")], &[]);
        let before = Seen {
            commands: BTreeSet::new(),
            wish: Some(Preference::Omit),
        };
        let known = Known::from([("/pod".to_owned(), before)]);
        // No name of a file is that long.
        let endless = format!("/pod/{}", "x".repeat(300));
        let (seen, troubles) = machine.look(&known, &["/pod", &endless]);
        assert_eq!(seen.wish, Some(Preference::Omit));
        assert!(troubles[0].contains("what its owner asked"), "{troubles:?}");
        let (seen, _) = machine.look(&Known::new(), &["/pod", &endless]);
        assert_eq!(
            seen.wish,
            Some(Preference::None),
            "nothing was known before"
        );
    }

    #[test]
    fn names_are_bounded_and_the_bound_is_said() {
        let pids: Vec<i32> = (1..=600).collect();
        let list: Vec<String> = pids.iter().map(i32::to_string).collect();
        let processes: Vec<(i32, &str)> = pids.iter().map(|pid| (*pid, "worker")).collect();
        let machine = Machine::new(&[("pod", &list.join("\n"))], &processes);
        let (seen, troubles) = machine.look(&Known::new(), &["/pod"]);
        assert_eq!(names(&seen), ["worker"]);
        assert!(
            troubles[0].contains("more than 512 processes"),
            "{troubles:?}"
        );
    }
}

//! Cgroups that live tests may leave behind: found by name, removed only where nobody can be using them.
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Begins the name of every cgroup that a live test makes: `brink-test-<pid>-<what for>`.
pub const PREFIX: &str = "brink-test-";

const PROC: &str = "/proc";

/// Every cgroup of a live test, in every mounted hierarchy.
///
/// # Errors
/// When the list of mounts cannot be read.
pub fn find() -> anyhow::Result<Vec<PathBuf>> {
    let path = "/proc/self/mountinfo";
    let mounts = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let mut found = Vec::new();
    for root in hierarchies(&mounts) {
        find_below(&root, &mut found);
    }
    // One hierarchy may be mounted in several places.
    found.sort();
    found.dedup();
    Ok(found)
}

/// Those that are not in `kept` and whose test is not running: what the last test left.
///
/// # Errors
/// When the list of mounts cannot be read.
pub fn of_the_dead(kept: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = find()?;
    // Another run beside this one has tests of its own.
    let is_running =
        |group: &PathBuf| maker(group).is_some_and(|pid| is_alive(pid, Path::new(PROC)));
    found.retain(|group| !kept.contains(group) && !is_running(group));
    Ok(found)
}

/// Removes the cgroups of tests that are gone, says what it did, and returns what stays.
///
/// # Errors
/// When the list of mounts cannot be read.
pub fn sweep() -> anyhow::Result<Vec<PathBuf>> {
    let owner = rustix::process::geteuid().as_raw();
    let mut kept = Vec::new();
    for group in find()? {
        let outcome = prove_dead(&group, owner, Path::new(PROC)).and_then(|()| remove(&group));
        match outcome {
            Ok(()) => println!(
                "removed {}, which a test that is gone had left",
                group.display()
            ),
            Err(reason) => {
                println!("leaving {} alone: {reason}", group.display());
                kept.push(group);
            }
        }
    }
    Ok(kept)
}

/// The mount points of cgroup file systems, of either version.
fn hierarchies(mounts: &str) -> Vec<PathBuf> {
    let mount_point = |line: &str| {
        let (head, tail) = line.split_once(" - ")?;
        let kind = tail.split(' ').next()?;
        ["cgroup", "cgroup2"].contains(&kind).then_some(())?;
        head.split(' ').nth(4).map(PathBuf::from)
    };
    mounts.lines().filter_map(mount_point).collect()
}

fn subgroups(group: &Path) -> Vec<PathBuf> {
    // A cgroup that goes while it is listed is no leftover.
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn find_below(group: &Path, found: &mut Vec<PathBuf>) {
    for below in subgroups(group) {
        let name = below.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PREFIX) {
            found.push(below);
        } else {
            find_below(&below, found);
        }
    }
}

/// The process that the name says has made the group.
fn maker(group: &Path) -> Option<u32> {
    let name = group.file_name()?.to_str()?;
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_alive(pid: u32, proc: &Path) -> bool {
    proc.join(pid.to_string()).exists()
}

/// Why `group` may still be in use, or may not be ours, as far as the files say.
fn prove_dead(group: &Path, owner: u32, proc: &Path) -> Result<(), String> {
    let name = group.file_name().unwrap_or_default().to_string_lossy();
    let pid = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').next());
    let pid: u32 = pid
        .and_then(|pid| pid.parse().ok())
        .ok_or("its name holds no process")?;
    if proc.join(pid.to_string()).exists() {
        return Err(format!("process {pid} is alive"));
    }
    let metadata = fs::metadata(group).map_err(|error| error.to_string())?;
    if metadata.uid() != owner {
        return Err(format!("it belongs to user {}", metadata.uid()));
    }
    prove_empty(group)
}

fn prove_empty(group: &Path) -> Result<(), String> {
    let path = group.join("cgroup.procs");
    let members =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !members.trim().is_empty() {
        return Err("there are processes in it".to_owned());
    }
    subgroups(group)
        .iter()
        .try_for_each(|below| prove_empty(below))
}

fn remove(group: &Path) -> Result<(), String> {
    subgroups(group)
        .iter()
        .try_for_each(|below| remove(below))?;
    // The kernel refuses where a process has come in meanwhile.
    fs::remove_dir(group).map_err(|error| format!("{}: {error}", group.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let mounts = "\
25 20 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw
26 25 0:23 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
27 25 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
28 20 0:25 / /proc rw - proc proc rw
";
        let found = hierarchies(mounts);
        let expected = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        assert_eq!(found, expected);
    }

    /// A fake hierarchy with one test's cgroup and a fake `/proc` with process 7.
    fn check(name: &str, members: &str, inner: &str, expected: Result<(), &str>) {
        let top = tempfile::tempdir().unwrap();
        let group = top.path().join("slice").join(name);
        let below = group.join("below");
        fs::create_dir_all(&below).unwrap();
        fs::create_dir_all(top.path().join("proc/7")).unwrap();
        fs::write(group.join("cgroup.procs"), members).unwrap();
        fs::write(below.join("cgroup.procs"), inner).unwrap();
        let owner = fs::metadata(&group).unwrap().uid();
        let proc = top.path().join("proc");
        let found = prove_dead(&group, owner, &proc);
        match (&found, expected) {
            (Ok(()), Ok(())) => {}
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
            _ => panic!("{name}: {found:?}, expected {expected:?}"),
        }
        assert!(prove_dead(&group, owner + 1, &proc).is_err());
        let mut named = Vec::new();
        find_below(top.path(), &mut named);
        assert_eq!(named == [group], name.starts_with(PREFIX));
    }

    #[test]
    fn only_an_empty_cgroup_of_a_dead_test_is_proved_ours() {
        check("brink-test-8-oom", "", "", Ok(()));
        check("brink-test-7-oom", "", "", Err("process 7 is alive"));
        check("brink-test-8-oom", "12\n", "", Err("processes in it"));
        check("brink-test-8-oom", "", "12\n", Err("processes in it"));
        check("brink-test-oom", "", "", Err("no process"));
        check("kubepods", "", "", Err("no process"));
    }
}

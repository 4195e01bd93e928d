//! `cargo xtask cluster down`: removes whatever is there of a cluster, however it came to be so.
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use rustix::process::{Signal, kill_process};

use super::{groups::Groups, machine, state::State};
use crate::Verdict;

/// Keeps everybody else from changing a cluster meanwhile.
#[derive(Debug)]
pub(super) struct Lock {
    _folder: fs::File,
}

impl Lock {
    /// Takes it.
    ///
    /// # Errors
    /// When somebody else has it, or has just removed the folder.
    pub(super) fn take(folder: &Path) -> anyhow::Result<Self> {
        let opened =
            fs::File::open(folder).with_context(|| format!("opening {}", folder.display()))?;
        if opened.try_lock().is_err() {
            bail!("another `cargo xtask cluster` is at work; wait for it, or end it first");
        }
        let there = fs::metadata(folder).is_ok_and(|there| {
            opened
                .metadata()
                .is_ok_and(|own| (own.dev(), own.ino()) == (there.dev(), there.ino()))
        });
        if !there {
            bail!(
                "another `cargo xtask cluster down` has just removed {}",
                folder.display()
            );
        }
        Ok(Self { _folder: opened })
    }
}

/// Removes it.
pub(super) fn run(folder: &Path) -> anyhow::Result<Verdict> {
    let groups = Groups::find()?;
    if !folder.exists() && groups.are_gone() {
        println!("there is no cluster");
        return Ok(Verdict::Passed);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("a cluster is root's: run the command as root");
    }
    // A folder that somebody has removed by hand leaves processes all the same.
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let _lock = Lock::take(folder)?;
    let state = State::read(folder);
    // Nobody is left to do more, so that what is undone stays undone.
    groups.kill_all()?;
    if let Some(state) = &state {
        kill_strays(state)?;
    }
    let undone = [
        groups.remove(),
        machine::clear_network(folder),
        state.as_ref().map_or(Ok(()), machine::restore),
    ];
    let left: Vec<String> = undone
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    if !left.is_empty() {
        bail!(
            "not all of the cluster could be undone; `down` tries again:\n  - {}",
            left.join("\n  - ")
        );
    }
    remove(folder)?;
    println!("the cluster is gone");
    Ok(Verdict::Passed)
}

/// Those that were started and have left the groups: nobody should.
fn kill_strays(state: &State) -> anyhow::Result<()> {
    for process in state.processes.iter().filter(|process| state.runs(process)) {
        let Some(pid) = process.id() else { continue };
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error).with_context(|| format!("killing {}", process.name)),
        }
    }
    Ok(())
}

/// Removes the folder, unless something is mounted below it that would be emptied with it.
fn remove(folder: &Path) -> anyhow::Result<()> {
    let path = "/proc/self/mountinfo";
    let mounts = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    if let Some(mount) = mounted_below(&mounts, folder) {
        bail!(
            "{} is mounted: `umount {0}`, and try again",
            mount.display()
        );
    }
    fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}

fn mounted_below(mounts: &str, folder: &Path) -> Option<PathBuf> {
    let points = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from);
    points.into_iter().find(|point| point.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_mounted_is_emptied() {
        let mounts = "28 20 0:25 / /var/lib/brink-cluster/node/kubelet/pods/1/volume rw - tmpfs tmpfs rw\n\
                      29 20 0:25 / /var/lib/brink-clusters rw - tmpfs tmpfs rw\n";
        let found = mounted_below(mounts, Path::new("/var/lib/brink-cluster"));
        assert!(found.is_some_and(|found| found.ends_with("volume")));
        assert_eq!(mounted_below(mounts, Path::new("/var/lib/brink")), None);
    }

    #[test]
    fn two_at_once_are_one_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let first = Lock::take(folder.path()).unwrap();
        let refused = Lock::take(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("is at work"), "{refused}");
        drop(first);
        Lock::take(folder.path()).unwrap();
        fs::remove_dir(folder.path()).unwrap();
        assert!(Lock::take(folder.path()).is_err());
    }
}

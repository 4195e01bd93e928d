//! What a cluster has changed on this machine: written down before it is done, so that `down` undoes it whatever came between.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

/// Everything that a cluster keeps: one cluster a machine, so one folder.
pub(super) const FOLDER: &str = "/var/lib/brink-cluster";
/// In it, a link to the programs.
pub(super) const PROGRAMS: &str = "bin";
/// In it, the file with all that is below.
const FILE: &str = "state.json";
/// Tells one boot of the machine from another.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// A process, told from a later one with the same number by when it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) pid: i32,
    /// In ticks since boot.
    pub(super) start: u64,
}

/// What was done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The boot that all of this is true of.
    pub(super) boot: String,
    /// Whether `up` came to its end.
    pub(super) complete: bool,
    pub(super) processes: Vec<Process>,
    /// Folders outside our own that were not there before.
    pub(super) folders: Vec<PathBuf>,
    /// Settings of the kernel that a node changes, as they were before.
    pub(super) settings: BTreeMap<PathBuf, String>,
}

impl State {
    /// The state of a cluster that has done nothing yet.
    ///
    /// # Errors
    /// When the kernel does not say which boot this is.
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            boot: boot()?,
            ..Self::default()
        })
    }

    /// What was written down in `folder`; nothing if nothing was, or nothing that can be read.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(folder.join(FILE)).ok()?).ok()
    }

    /// Writes it down, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join(FILE);
        let fresh = folder.join("state.fresh");
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .with_context(|| format!("writing {}", path.display()))
    }

    /// The names of those that have ended.
    pub(super) fn ended(&self) -> Vec<&str> {
        let ended = self.processes.iter().filter(|each| !self.runs(each));
        ended.map(|each| each.name.as_str()).collect()
    }

    /// Whether one of them still runs.
    pub(super) fn runs(&self, process: &Process) -> bool {
        self.is_of_this_boot() && start_of(process.pid) == Some(process.start)
    }

    /// Whether the machine has not been booted since.
    pub(super) fn is_of_this_boot(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
    }
}

impl Process {
    /// A process that was started just now.
    ///
    /// # Errors
    /// When it is gone already.
    pub(super) fn new(name: &str, pid: u32) -> anyhow::Result<Self> {
        let pid = i32::try_from(pid).context("the number of a process")?;
        Ok(Self {
            name: name.to_owned(),
            pid,
            start: start_of(pid).with_context(|| format!("{name} ended at once"))?,
        })
    }

    /// Its number, if it is one.
    pub(super) fn id(&self) -> Option<Pid> {
        Pid::from_raw(self.pid)
    }
}

fn boot() -> anyhow::Result<String> {
    let boot = fs::read_to_string(BOOT).with_context(|| format!("reading {BOOT}"))?;
    Ok(boot.trim().to_owned())
}

/// When a process began; nothing if there is none, or only what its parent has not waited for yet.
fn start_of(pid: i32) -> Option<u64> {
    parse_start(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `pid (name) state … start …`, where the name may hold anything.
fn parse_start(stat: &str) -> Option<u64> {
    let (_, tail) = stat.rsplit_once(')')?;
    let mut fields = tail.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    // The 22nd field of all, and the name was the second.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_read_behind_any_name() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        assert_eq!(parse_start(&format!("5 (a) S (b) S {rest}")), Some(777));
        assert_eq!(parse_start(&format!("5 (a) Z {rest}")), None);
        assert_eq!(parse_start("5 (a) S 1"), None);
        assert_eq!(parse_start(""), None);
    }

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let own = Process::new("own", std::process::id()).unwrap();
        let mut state = State::new().unwrap();
        let later = Process {
            name: "later".to_owned(),
            start: own.start + 1,
            ..own.clone()
        };
        state.processes = vec![own.clone(), later];
        assert!(state.runs(&own));
        assert_eq!(state.ended(), ["later"]);
        "another".clone_into(&mut state.boot);
        assert_eq!(state.ended(), ["own", "later"]);
    }

    #[test]
    fn what_is_written_is_read_and_what_is_garbled_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(State::read(folder.path()), None);
        let mut state = State::new().unwrap();
        state.folders.push(PathBuf::from("/var/lib/kubelet"));
        state.write(folder.path()).unwrap();
        assert_eq!(State::read(folder.path()), Some(state));
        fs::write(folder.path().join(FILE), "{\"boot\": ").unwrap();
        assert_eq!(State::read(folder.path()), None);
    }
}

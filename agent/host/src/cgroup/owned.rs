//! Groups Brink makes for itself (demonstration, benches, live tests), emptied and removed when dropped.
//!
//! A name is `brink-<purpose>-<pid of the maker>-<number>`, so that what a killed maker left behind can be told from
//! what a living one uses, and nothing that others made is ever touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::cgroup::dir::CgroupDir;
use crate::cgroup::layout::{Controller, Hierarchy, Layout, Version};
use crate::cgroup::walk::groups_below;
use crate::error::HostError;
use crate::hot_file::{read_bytes, write_value};
use crate::scan;

/// How long emptying and removing may take: a killed process frees 1 GiB in well under a second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Our groups are small.
const MOST_GROUPS: usize = 4096;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A group of our own in every hierarchy it was asked for. Dropping it kills what runs in it and removes it.
#[derive(Debug)]
pub struct OwnedCgroup {
    group: String,
    controllers: Vec<Controller>,
    places: Vec<Place>,
}

/// The group in one hierarchy.
#[derive(Debug)]
struct Place {
    hierarchy: Hierarchy,
    dir: CgroupDir,
}

impl OwnedCgroup {
    /// Makes a group at the root of the hierarchies of these controllers. In hybrid mode it is made in the v2 tree too,
    /// as systemd and the runtimes do, so that processes can be killed through it.
    ///
    /// # Errors
    /// [`HostError::Unsupported`] when a controller is nowhere, or on v2 not handed to the root's children;
    /// [`HostError::Create`] without the right.
    pub fn create(
        layout: &Layout,
        purpose: &str,
        controllers: &[Controller],
    ) -> Result<Self, HostError> {
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for controller in controllers {
            let hierarchy = layout.require(*controller)?;
            if hierarchy.version == Version::V2 {
                require_delegated(hierarchy, *controller)?;
            }
            hierarchies.push(hierarchy.clone());
        }
        hierarchies.extend(layout.unified().cloned());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let group = format!("/brink-{purpose}-{}-{number}", std::process::id());
        Self::create_at(hierarchies, group, controllers.to_vec())
    }

    /// Makes a group below this one. On v2 this one may then hold no process itself.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn child(&self, name: &str) -> Result<Self, HostError> {
        for place in self
            .places
            .iter()
            .filter(|place| place.dir.version() == Version::V2)
        {
            let handed: Vec<String> = self
                .on(&place.hierarchy)
                .map(|controller| format!("+{controller}"))
                .collect();
            if !handed.is_empty() {
                write_value(
                    &place.dir.path().join("cgroup.subtree_control"),
                    &handed.join(" "),
                )?;
            }
        }
        let hierarchies = self
            .places
            .iter()
            .map(|place| place.hierarchy.clone())
            .collect();
        Self::create_at(
            hierarchies,
            format!("{}/{name}", self.group),
            self.controllers.clone(),
        )
    }

    /// The controllers of ours that a v2 hierarchy's root offers to this group.
    fn on(&self, hierarchy: &Hierarchy) -> impl Iterator<Item = Controller> {
        let offered = read_bytes(&hierarchy.path.join("cgroup.controllers")).unwrap_or_default();
        let is_offered = move |controller: &Controller| {
            scan::words(&offered).any(|word| word == controller.name().as_bytes())
        };
        self.controllers.iter().copied().filter(is_offered)
    }

    fn create_at(
        mut hierarchies: Vec<Hierarchy>,
        group: String,
        controllers: Vec<Controller>,
    ) -> Result<Self, HostError> {
        hierarchies.sort_by(|one, other| one.path.cmp(&other.path));
        hierarchies.dedup_by(|one, other| one.path == other.path);
        let mut owned = Self {
            group,
            controllers,
            places: Vec::new(),
        };
        for hierarchy in hierarchies {
            let path = hierarchy
                .folder(&owned.group)
                .unwrap_or_else(|| hierarchy.path.clone());
            // `create_dir` refuses a folder that is there already: it is not ours.
            fs::create_dir(&path).map_err(|source| HostError::Create { path, source })?;
            match CgroupDir::open(&hierarchy, &owned.group) {
                Ok(dir) => owned.places.push(Place { hierarchy, dir }),
                Err(error) => {
                    let _removed = hierarchy.folder(&owned.group).map(fs::remove_dir);
                    return Err(error);
                }
            }
        }
        Ok(owned)
    }

    /// Its path, the same in every hierarchy.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The group in the hierarchy of a controller it was made for.
    pub fn dir(&self, layout: &Layout, controller: Controller) -> Option<&CgroupDir> {
        self.in_hierarchy(layout.hierarchy(controller)?)
    }

    /// The group in the v2 tree, if there is one.
    pub fn unified_dir(&self, layout: &Layout) -> Option<&CgroupDir> {
        self.in_hierarchy(layout.unified()?)
    }

    fn in_hierarchy(&self, hierarchy: &Hierarchy) -> Option<&CgroupDir> {
        self.places
            .iter()
            .find(|place| place.hierarchy.path == hierarchy.path)
            .map(|place| &place.dir)
    }

    /// Moves a process into the group, in every hierarchy. 0 is the calling process.
    ///
    /// # Errors
    /// [`HostError::Write`] with the path.
    pub fn add_process(&self, pid: u32) -> Result<(), HostError> {
        self.places.iter().try_for_each(|place| {
            write_value(&place.dir.path().join("cgroup.procs"), &pid.to_string())
        })
    }

    /// The files a process writes `0` to in order to enter the group by itself, for a child between fork and exec.
    pub fn entrances(&self) -> Vec<PathBuf> {
        self.places
            .iter()
            .map(|place| place.dir.path().join("cgroup.procs"))
            .collect()
    }

    /// Bounds its memory, and keeps it from swapping. A v1 kernel that does not account for swap has no limit for it;
    /// there the group, and every group made in it from now on, gets the swappiness 0.
    ///
    /// # Errors
    /// [`HostError::Write`] with the path.
    pub fn limit_memory(&self, layout: &Layout, bytes: u64) -> Result<(), HostError> {
        let Some(dir) = self.dir(layout, Controller::Memory) else {
            return Err(HostError::Unsupported {
                what: "a memory limit",
                why: "not made for the controller".into(),
            });
        };
        let (limit, swap, swap_value) = match dir.version() {
            Version::V1 => (
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                bytes,
            ),
            Version::V2 => ("memory.max", "memory.swap.max", 0),
        };
        write_value(&dir.path().join(limit), &bytes.to_string())?;
        match write_value(&dir.path().join(swap), &swap_value.to_string()) {
            // A kernel without swap accounting has no such file.
            Err(error) if error.errno() == Some(libc::ENOENT) => keep_from_swapping(dir),
            answer => answer,
        }
    }

    /// Bounds its tasks.
    ///
    /// # Errors
    /// [`HostError::Write`] with the path.
    pub fn limit_tasks(&self, layout: &Layout, tasks: u64) -> Result<(), HostError> {
        let Some(dir) = self.dir(layout, Controller::Pids) else {
            return Err(HostError::Unsupported {
                what: "a task limit",
                why: "not made for the controller".into(),
            });
        };
        write_value(&dir.path().join("pids.max"), &tasks.to_string())
    }

    /// Processes in the group and below it, in any hierarchy.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn processes(&self) -> Result<Vec<i32>, HostError> {
        let mut pids = Vec::new();
        for place in &self.places {
            pids.extend(processes_below(&place.hierarchy, &self.group)?);
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Kills what runs in it, waits until it is empty, and removes it with everything below it.
    ///
    /// # Errors
    /// [`HostError::Remove`] when it is not empty after 5 s, or the calling process itself is in it.
    pub fn remove(mut self) -> Result<(), HostError> {
        self.empty_and_remove()
    }

    fn empty_and_remove(&mut self) -> Result<(), HostError> {
        let places = std::mem::take(&mut self.places);
        let deadline = Instant::now() + PATIENCE;
        let removals = places
            .iter()
            .map(|place| remove_tree(&place.hierarchy, &self.group, deadline));
        removals.collect::<Vec<_>>().into_iter().collect()
    }
}

impl Drop for OwnedCgroup {
    fn drop(&mut self) {
        // Nobody is left to tell; `remove` is for those who want to know.
        let _ = self.empty_and_remove();
    }
}

/// Removes what makers that are gone have left behind, and tells how many groups those were.
///
/// # Errors
/// [`HostError`] with the path of the first that could not be removed.
pub fn remove_abandoned(layout: &Layout, purpose: &str) -> Result<usize, HostError> {
    let mut hierarchies: Vec<&Hierarchy> = Controller::ALL
        .iter()
        .filter_map(|controller| layout.hierarchy(*controller))
        .chain(layout.unified())
        .collect();
    hierarchies.sort_by(|one, other| one.path.cmp(&other.path));
    hierarchies.dedup_by(|one, other| one.path == other.path);
    let prefix = format!("brink-{purpose}-");
    let mut removed = 0;
    for hierarchy in hierarchies {
        let entries = fs::read_dir(&hierarchy.path).map_err(|source| HostError::Read {
            path: hierarchy.path.clone(),
            source,
        })?;
        for name in entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
        {
            let maker = name
                .strip_prefix(&prefix)
                .and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            if maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                remove_tree(hierarchy, &format!("/{name}"), Instant::now() + PATIENCE)?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// Only v1 has a swappiness of each group; a kernel without swap has none either.
fn keep_from_swapping(dir: &CgroupDir) -> Result<(), HostError> {
    if dir.version() == Version::V2 {
        return Ok(());
    }
    match write_value(&dir.path().join("memory.swappiness"), "0") {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(()),
        answer => answer,
    }
}

/// On v2 the freezer is in every group, and is handed on by nobody.
fn require_delegated(hierarchy: &Hierarchy, controller: Controller) -> Result<(), HostError> {
    if controller == Controller::Freezer {
        return Ok(());
    }
    let path = hierarchy.path.join("cgroup.subtree_control");
    let handed = read_bytes(&path)?;
    if scan::words(&handed).any(|word| word == controller.name().as_bytes()) {
        return Ok(());
    }
    Err(HostError::Unsupported {
        what: "a cgroup controller",
        why: format!(
            "{controller} is not in {}; systemd puts it there for any unit that uses it",
            path.display()
        ),
    })
}

fn processes_below(hierarchy: &Hierarchy, group: &str) -> Result<Vec<i32>, HostError> {
    let mut pids = Vec::new();
    for below in groups_below(hierarchy, group, MOST_GROUPS)? {
        pids.extend(CgroupDir::open(hierarchy, &below)?.processes()?);
    }
    Ok(pids)
}

fn remove_tree(hierarchy: &Hierarchy, group: &str, deadline: Instant) -> Result<(), HostError> {
    let Some(path) = hierarchy.folder(group) else {
        return Ok(());
    };
    let mut pause = Duration::from_micros(200);
    loop {
        let outcome = kill_below(hierarchy, group).and_then(|()| remove_folders(hierarchy, group));
        match outcome {
            Ok(()) => return Ok(()),
            Err(_) if !path.exists() => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn kill_below(hierarchy: &Hierarchy, group: &str) -> Result<(), HostError> {
    for pid in processes_below(hierarchy, group)? {
        if u32::try_from(pid) == Ok(std::process::id()) {
            return Err(HostError::Remove {
                path: hierarchy.folder(group).unwrap_or_default(),
                source: io::Error::other("the process that removes it is in it"),
            });
        }
        if let Some(pid) = Pid::from_raw(pid) {
            // Gone already is as good.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    // A frozen v1 process dies only when thawed.
    for below in groups_below(hierarchy, group, MOST_GROUPS)? {
        let state = hierarchy
            .folder(&below)
            .map(|folder| folder.join("freezer.state"));
        if let Some(state) = state.filter(|state| state.exists()) {
            write_value(&state, "THAWED")?;
        }
    }
    Ok(())
}

fn remove_folders(hierarchy: &Hierarchy, group: &str) -> Result<(), HostError> {
    for below in groups_below(hierarchy, group, MOST_GROUPS)?.iter().rev() {
        let Some(path) = hierarchy.folder(below) else {
            continue;
        };
        match fs::remove_dir(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(HostError::Remove { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

//! What this host offers the kernel programs: facts only, nothing is decided here.
//!
//! What could not be learnt is an error of its own, never a "no".

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brink_abi::layout::Formats;
use thiserror::Error;

use super::btf::{Btf, BtfError, Kind};
use super::format::{Format, FormatError};
use super::gfp::GfpNames;
use super::layout::{self, Resolved};
use super::programs::{Hook, PROGRAMS, Program};

/// Why a fact is not known.
#[derive(Debug, Error)]
pub enum FactError {
    /// a file that cannot be read
    #[error("{path}: {error}")]
    File {
        /// which
        path: PathBuf,
        /// why
        error: io::Error,
    },
    /// a file that says something unexpected
    #[error("{path}: {what}")]
    Content {
        /// which
        path: PathBuf,
        /// what is wrong
        what: String,
    },
    /// the type description is damaged
    #[error("{path}: {error}")]
    Btf {
        /// which
        path: PathBuf,
        /// why
        error: BtfError,
    },
    /// a tracepoint description is damaged
    #[error("{path}: {error}")]
    Format {
        /// which
        path: PathBuf,
        /// why
        error: FormatError,
    },
}

impl FactError {
    /// The same for another fact that rests on this one: an error of the system's has no copy, its words have.
    fn in_words(&self) -> Self {
        let (path, what) = match self {
            Self::File { path, error } => (path, error.to_string()),
            Self::Content { path, what } => (path, what.clone()),
            Self::Btf { path, error } => (path, error.to_string()),
            Self::Format { path, error } => (path, error.to_string()),
        };
        content(path, &what)
    }
}

/// A fact, or why it is not known.
pub type Fact<T> = Result<T, FactError>;

/// Where the kernel shows itself; other roots in tests.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            sys: "/sys".into(),
        }
    }
}

/// What the kernel lets even root not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// nothing is forbidden
    None,
    /// the kernel may not be changed; reading it is allowed
    Integrity,
    /// reading kernel memory is forbidden too: no program of ours loads
    Confidentiality,
}

/// The effective capabilities that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent rights, each reported alone"
)]
pub struct Capabilities {
    /// load programs and maps
    pub bpf: bool,
    /// attach to tracepoints and read kernel memory
    pub perfmon: bool,
    /// the older right that holds both
    pub sys_admin: bool,
    /// exceed limits, lower an OOM score
    pub sys_resource: bool,
}

/// Which hierarchy the memory controller is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryController {
    /// cgroup v1, with the hierarchy's number
    V1 {
        /// `cgroup_root.hierarchy_id`
        hierarchy: u32,
    },
    /// cgroup v2
    V2,
    /// compiled in and switched off
    Disabled,
}

/// What the kernel tells about its types.
#[derive(Debug)]
pub struct KernelTypes {
    /// offsets, and what is missing
    pub resolved: Resolved,
    /// per program of [`PROGRAMS`]: the kernel's ids to attach to, or why there is none
    pub targets: Vec<Result<Target, String>>,
    /// names of allocation flags, if it has them
    pub gfp_names: Option<GfpNames>,
}

/// What the loader needs of one typed hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// id of the type the program attaches to
    pub type_id: u32,
}

/// What the host offers.
#[derive(Debug)]
pub struct Facts {
    /// `uname -r`
    pub release: Fact<String>,
    /// from `/sys/kernel/btf/vmlinux`
    pub types: Fact<KernelTypes>,
    /// where tracefs is mounted
    pub tracefs: Fact<PathBuf>,
    /// fields of the OOM tracepoints
    pub formats: Fact<Formats>,
    /// names of allocation flags, as a tracepoint prints them
    pub gfp_names: Option<GfpNames>,
    /// the lockdown mode
    pub lockdown: Fact<Lockdown>,
    /// of this process
    pub capabilities: Fact<Capabilities>,
    /// where the memory controller is
    pub memory: Fact<MemoryController>,
    /// NUMA nodes with memory
    pub nodes: Fact<Vec<u32>>,
    /// bytes
    pub page_size: u64,
}

impl Facts {
    /// Reads everything once. Takes some ten milliseconds and six megabytes for a moment, for the type description.
    pub fn gather(roots: &Roots) -> Self {
        let tracefs = mount_point(&roots.proc.join("self/mounts"), "tracefs");
        let formats = match &tracefs {
            Ok(mount) => formats(mount),
            Err(error) => Err(error.in_words()),
        };
        let gfp_names = tracefs.as_ref().ok().and_then(|mount| {
            let format = mount.join("events/kmem/mm_page_alloc/format");
            GfpNames::of_format(&fs::read_to_string(format).ok()?)
        });
        Self {
            release: text(&roots.proc.join("sys/kernel/osrelease")),
            types: types(&roots.sys.join("kernel/btf/vmlinux")),
            tracefs,
            formats,
            gfp_names,
            lockdown: lockdown(&roots.sys.join("kernel/security/lockdown")),
            capabilities: capabilities(&roots.proc.join("self/status")),
            memory: memory(&roots.proc),
            nodes: nodes(&roots.sys.join("devices/system/node/has_memory")),
            page_size: rustix::param::page_size() as u64,
        }
    }

    /// Names of allocation flags: the tracepoint's, which names groups of them too, else those of the kernel's types.
    pub fn gfp_names(&self) -> Option<&GfpNames> {
        let of_types = || self.types.as_ref().ok()?.gfp_names.as_ref();
        self.gfp_names.as_ref().or_else(of_types)
    }
}

fn content(path: &Path, what: &str) -> FactError {
    FactError::Content {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

fn read(path: &Path) -> Fact<String> {
    fs::read_to_string(path).map_err(|error| FactError::File {
        path: path.to_owned(),
        error,
    })
}

fn text(path: &Path) -> Fact<String> {
    Ok(read(path)?.trim().to_owned())
}

fn types(path: &Path) -> Fact<KernelTypes> {
    let raw = fs::read(path).map_err(|error| FactError::File {
        path: path.to_owned(),
        error,
    })?;
    let btf = Btf::parse(&raw).map_err(|error| FactError::Btf {
        path: path.to_owned(),
        error,
    })?;
    Ok(KernelTypes {
        resolved: layout::resolve(&btf),
        targets: PROGRAMS
            .iter()
            .map(|program| target(&btf, program))
            .collect(),
        gfp_names: GfpNames::of_types(&btf),
    })
}

/// The type a program attaches to, with the arguments it expects checked by name.
fn target(btf: &Btf<'_>, program: &Program) -> Result<Target, String> {
    let (kind, name) = match program.hook {
        Hook::TestRun | Hook::Call | Hook::Classic(..) => return Ok(Target { type_id: 0 }),
        Hook::Tasks => (Kind::Func, "bpf_iter_task".to_owned()),
        Hook::Entry(function) => (Kind::Func, function.to_owned()),
        Hook::Typed(tracepoint, arguments) => {
            let function = format!("__traceiter_{tracepoint}");
            for (position, argument) in arguments.iter().enumerate() {
                let found = btf.argument(&function, argument);
                if found != Some(position + 1) {
                    return Err(format!(
                        "tracepoint {tracepoint}: argument {argument} is not where it is expected ({found:?})"
                    ));
                }
            }
            (Kind::Typedef, format!("btf_trace_{tracepoint}"))
        }
    };
    let type_id = btf.ids(kind, &name).next();
    type_id
        .map(|type_id| Target { type_id })
        .ok_or(format!("this kernel has no {name}"))
}

fn formats(mount: &Path) -> Fact<Formats> {
    let read_one = |name: &str| -> Fact<Format> {
        let path = mount.join("events/oom").join(name).join("format");
        Format::parse(&read(&path)?).map_err(|error| FactError::Format { path, error })
    };
    let (victim, retry) = (read_one("mark_victim")?, read_one("reclaim_retry_zone"));
    Ok(layout::formats(Some(&victim), retry.as_ref().ok()))
}

fn lockdown(path: &Path) -> Fact<Lockdown> {
    let text = read(path)?;
    let chosen = text
        .split('[')
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    match chosen {
        Some("none") => Ok(Lockdown::None),
        Some("integrity") => Ok(Lockdown::Integrity),
        Some("confidentiality") => Ok(Lockdown::Confidentiality),
        _ => Err(content(path, &format!("no mode in {:?}", text.trim()))),
    }
}

fn capabilities(path: &Path) -> Fact<Capabilities> {
    let status = read(path)?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .ok_or_else(|| content(path, "no CapEff"))?;
    let has = |number: u32| mask >> number & 1 == 1;
    Ok(Capabilities {
        bpf: has(39),
        perfmon: has(38),
        sys_admin: has(21),
        sys_resource: has(24),
    })
}

/// `/proc/cgroups` has name, hierarchy, number of cgroups, enabled; hierarchy 0 is cgroup v2. Kernels without the v1
/// controller leave it out there, and list it among the controllers of cgroup v2's root.
fn memory(proc: &Path) -> Fact<MemoryController> {
    let path = proc.join("cgroups");
    let table = read(&path)?;
    let Some(row) = table.lines().find_map(|line| line.strip_prefix("memory\t")) else {
        return unified(&proc.join("self/mounts"));
    };
    let mut numbers = row.split_whitespace().map(str::parse::<u32>);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (_, _, Some(Ok(0))) => Ok(MemoryController::Disabled),
        (Some(Ok(0)), _, Some(Ok(_))) => Ok(MemoryController::V2),
        (Some(Ok(hierarchy)), _, Some(Ok(_))) => Ok(MemoryController::V1 { hierarchy }),
        _ => Err(content(
            &path,
            &format!("{row:?} is no row of the memory controller"),
        )),
    }
}

/// Whether cgroup v2 has the memory controller.
fn unified(mounts: &Path) -> Fact<MemoryController> {
    let root = mount_point(mounts, "cgroup2")?;
    let controllers = read(&root.join("cgroup.controllers"))?;
    if controllers.split_whitespace().any(|name| name == "memory") {
        Ok(MemoryController::V2)
    } else {
        Ok(MemoryController::Disabled)
    }
}

/// Where a file system of that kind is mounted first.
fn mount_point(mounts: &Path, kind: &str) -> Fact<PathBuf> {
    let text = read(mounts)?;
    text.lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find(|fields| fields.get(2) == Some(&kind))
        .and_then(|fields| fields.get(1).map(PathBuf::from))
        .ok_or_else(|| content(mounts, &format!("no {kind} is mounted")))
}

/// A list such as `0-2,4`, which the kernel writes in ascending order.
fn nodes(path: &Path) -> Fact<Vec<u32>> {
    let text = match read(path) {
        Err(FactError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            // A kernel without NUMA has one node and does not list it.
            return Ok(vec![0]);
        }
        other => other?,
    };
    let mut nodes = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last))
                if first <= last && last < 1024 && nodes.last() < Some(&first) =>
            {
                nodes.extend(first..=last);
            }
            _ => return Err(content(path, &format!("{part:?} is not a range of nodes"))),
        }
    }
    if nodes.is_empty() {
        Err(content(path, "no node with memory"))
    } else {
        Ok(nodes)
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;

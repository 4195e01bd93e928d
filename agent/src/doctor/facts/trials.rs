//! What can only be known by trying.
//!
//! Everything happens to this process alone, or to a thread that ends at once; kernel programs are loaded, attached and
//! unloaded again.

use std::fs;
use std::path::Path;

use brink_core::base::Moment;
use brink_host::cgroup::Layout;
use brink_host::probe::calibrate::Numbers;
use brink_host::probe::coverage::decide;
use brink_host::probe::{Family, Probe, Wishes, coverage};
use brink_host::realtime::refusal::{self, diagnose};
use brink_host::realtime::{
    FifoPriority, FifoRefusal, Scheduling, oom_score, raise_thread, set_fifo,
};

use super::Ground;
use super::source::{Known, known, number};
use crate::config::AgentConfig;
use crate::equip::node_plan;
use crate::guard::figures::saturated;
use crate::guard::files::NodeFiles;
use crate::guard::kernel::Kernel;
use crate::guard::watches::Terrain;
use crate::recorder::NODE_PERIOD_NS;
use crate::runtime::cluster::{Answered, Unsaid, try_out};

/// The score the agent asks for.
pub const OOM_SCORE: i64 = -999;
/// Readings of both sources, of which the closest counts: the machine does not stand still between them.
const READINGS: usize = 3;

/// What was tried, and what came of it; or why it was not tried.
#[derive(Debug)]
pub struct Trials {
    /// `SCHED_FIFO` for a thread.
    pub fifo: Known<Fifo>,
    /// Nice −20 for a thread.
    pub nice: Known<Nice>,
    /// A lower `oom_score_adj` of our own.
    pub oom_score: Known<oom_score::OomScore>,
    /// The kernel programs.
    pub programs: Load,
    /// The Kubernetes API; none where pods do not come from there.
    pub api: Option<Known<Answered>>,
    /// The kubelet, asked what it goes by; none where it is not to be asked. What it says is in the configuration.
    pub configz: Option<Result<(), Unsaid>>,
}

/// What came of asking for nice −20.
#[derive(Debug, PartialEq, Eq)]
pub struct Nice {
    /// What the thread has then.
    pub value: i32,
    /// The kernel's answer, if it refused.
    pub refused: Option<String>,
}

/// What came of loading the kernel programs.
#[derive(Debug)]
pub enum Load {
    /// They were loaded, each as far as it goes.
    Done(Programs),
    /// Not even their maps could be made.
    Failed(String),
    /// It was not tried, since no program could run.
    NotTried(String),
}

/// What came of asking for real time.
#[derive(Debug, PartialEq, Eq)]
pub struct Fifo {
    /// The priority that was asked for.
    pub priority: u8,
    /// Why it was refused, if so.
    pub refused: Option<FifoRefusal>,
    /// Whether a thread gets it that first moves to the root cpu group; none where that was not needed.
    pub after_move: Option<Known<()>>,
}

/// Programs that were loaded.
#[derive(Debug)]
pub struct Programs {
    /// Each program, and why it does not run if so.
    pub states: Vec<ProgramState>,
    /// Memory of programs and maps while they were loaded, bytes.
    pub memory: Known<u64>,
    /// The sampler's own numbers beside those of the files.
    pub agreement: Known<Agreement>,
}

/// One kernel program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramState {
    /// Its name.
    pub name: &'static str,
    /// What it is part of.
    pub family: Family,
    /// Why it does not run; none if it does.
    pub absent: Option<String>,
}

/// Both memory signals from both sources, the files read before and after the sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The files' before.
    pub before: Numbers,
    /// The sampler's.
    pub sampler: Numbers,
    /// The files' after.
    pub after: Numbers,
}

impl Agreement {
    /// How far the sampler is outside of what the files say, bytes; none where nothing can be compared.
    pub fn difference(&self) -> Option<u64> {
        let outside = |number: fn(&Numbers) -> Option<i64>| {
            let (before, after) = (number(&self.before)?, number(&self.after)?);
            let sampler = number(&self.sampler)?;
            Some(sampler.abs_diff(sampler.clamp(before.min(after), before.max(after))))
        };
        let available = outside(|numbers| numbers.available);
        available.max(outside(|numbers| numbers.headroom))
    }
}

impl Trials {
    /// Tries everything on this machine.
    pub fn run(ground: Ground<'_>) -> Self {
        Self {
            fifo: try_fifo(ground),
            nice: on_a_thread(try_nice),
            oom_score: try_oom_score(ground.root),
            programs: try_programs(ground),
            api: ground
                .config
                .kubernetes
                .enabled
                .then(|| try_out(ground.config)),
            configz: None,
        }
    }

    /// Tries nothing, for this reason.
    pub fn none(why: &str) -> Self {
        Self {
            fifo: Err(why.to_owned()),
            nice: Err(why.to_owned()),
            oom_score: Err(why.to_owned()),
            programs: Load::NotTried(why.to_owned()),
            api: None,
            configz: None,
        }
    }
}

impl Load {
    /// The programs, if they were loaded.
    pub const fn done(&self) -> Option<&Programs> {
        match self {
            Self::Done(programs) => Some(programs),
            Self::Failed(_) | Self::NotTried(_) => None,
        }
    }
}

impl Programs {
    /// Why a family does not run as a whole, program by program.
    pub fn absent(&self, family: Family) -> impl Iterator<Item = (&'static str, &str)> {
        let of_family = self
            .states
            .iter()
            .filter(move |state| state.family == family);
        of_family.filter_map(|state| Some((state.name, state.absent.as_deref()?)))
    }
}

/// Runs something on a thread of its own, which alone is changed by it.
fn on_a_thread<T: Send>(work: impl FnOnce() -> Known<T> + Send) -> Known<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_panic)) => Err("the trial itself failed".to_owned()),
            Err(error) => Err(format!("no thread to try it on: {error}")),
        }
    })
}

fn try_fifo(ground: Ground<'_>) -> Known<Fifo> {
    let wanted = ground.config.realtime.priority.and_then(FifoPriority::new);
    let asked = wanted.unwrap_or(FifoPriority::GUARD);
    let (root, layout) = (ground.root, ground.layout.as_ref().ok());
    let refused = on_a_thread(|| Ok(refusal_of(root, layout, asked)))?;
    let needs_move = matches!(refused, Some(FifoRefusal::NoGroupRuntime { .. }));
    let after_move = layout.filter(|_| needs_move).map(|layout| {
        on_a_thread(|| {
            let standing = raise_thread(root, layout, asked, true);
            match standing.scheduling {
                Scheduling::Fifo(_) => Ok(()),
                Scheduling::Nice(_) => Err(standing.troubles.join("; ")),
            }
        })
    });
    Ok(Fifo {
        priority: asked.get(),
        refused,
        after_move,
    })
}

fn refusal_of(root: &Path, layout: Option<&Layout>, asked: FifoPriority) -> Option<FifoRefusal> {
    let errno = set_fifo(asked).err()?;
    Some(match layout {
        Some(layout) => diagnose(&refusal::Facts::gather(root, layout, asked, errno)),
        None => FifoRefusal::Unknown { errno },
    })
}

fn try_nice() -> Known<Nice> {
    let asked = known(rustix::process::setpriority_process(None, -20));
    Ok(Nice {
        value: known(rustix::process::getpriority_process(None))?,
        refused: asked.err(),
    })
}

/// Asks, and takes back what it was given.
fn try_oom_score(root: &Path) -> Known<oom_score::OomScore> {
    let before = number::<i64>(root, "/proc/self/oom_score_adj")?;
    let outcome = known(oom_score::adjust(root, OOM_SCORE))?;
    if matches!(outcome, oom_score::OomScore::Set(_)) {
        known(oom_score::adjust(root, before))?;
    }
    Ok(outcome)
}

fn try_programs(ground: Ground<'_>) -> Load {
    if !ground.config.kernel_programs {
        return Load::NotTried(
            "switched off in the configuration (kernelPrograms: false)".to_owned(),
        );
    }
    let wishes = Wishes {
        forensics: true,
        ..Wishes::default().recording(NODE_PERIOD_NS)
    };
    let decided = decide(ground.kernel, &wishes);
    if let Some((_, why)) = decided.absences().next()
        && decided.programs().all(|(_, state)| state.is_err())
    {
        return Load::NotTried(why.to_string());
    }
    let settings = coverage::settings(ground.kernel, wishes);
    let probe = match Probe::load(ground.kernel, &settings) {
        Ok(probe) => probe,
        Err(error) => return Load::Failed(error.to_string()),
    };
    let states = probe
        .coverage()
        .programs()
        .map(|(program, state)| ProgramState {
            name: program.name,
            family: program.family,
            absent: state.as_ref().err().map(ToString::to_string),
        });
    Load::Done(Programs {
        states: states.collect(),
        memory: loaded_bytes(ground.root),
        agreement: compare(probe, ground.root, ground.config, ground.layout),
    })
}

/// What this process holds in the kernel: every program and map has a descriptor that tells its size.
fn loaded_bytes(root: &Path) -> Known<u64> {
    let folder = root.join("proc/self/fdinfo");
    let failed = |error| format!("{}: {error}", folder.display());
    let mut seen: Vec<(bool, u64)> = Vec::new();
    let mut sum = 0_u64;
    for entry in fs::read_dir(&folder).map_err(failed)? {
        // One that was closed meanwhile is none.
        let Ok(text) = fs::read_to_string(entry.map_err(failed)?.path()) else {
            continue;
        };
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().parse::<u64>().ok()
        };
        let map = value("map_id:").map(|id| (true, id));
        let program = value("prog_id:").map(|id| (false, id));
        if let (Some(id), Some(bytes)) = (map.or(program), value("memlock:"))
            && !seen.contains(&id)
        {
            seen.push(id);
            sum = sum.saturating_add(bytes);
        }
    }
    Ok(sum)
}

/// Arms the sampler for this node as the guard does, and reads both sources.
fn compare(
    probe: Probe,
    root: &Path,
    config: &AgentConfig,
    layout: &Known<Layout>,
) -> Known<Agreement> {
    let layout = layout.as_ref().map_err(Clone::clone)?;
    let mut files = known(NodeFiles::open(root, layout, &node_plan(config)))?;
    files.find_pods();
    let figures = known(files.read(Moment::START))?;
    let terrain = Terrain {
        capacity: figures.memory.map_or(0, |seen| seen.capacity),
        pods_capacity: figures.pods.map(|seen| seen.capacity),
        node_is_group: files.node_group().is_some(),
        swap: saturated(files.slow().swap),
        pods_swap: saturated(files.slow().pods_swap),
        memory: config.memory_policy,
    };
    let mut kernel = Kernel::new(probe, None);
    if let Some(why) = kernel.without_sampler() {
        return Err(why.to_owned());
    }
    known(kernel.arm(&files, &config.policy, terrain))?;
    if let Some(why) = kernel.without_pods() {
        return Err(format!(
            "it cannot be armed for the group of all pods: {why}"
        ));
    }
    let mut readings = Vec::with_capacity(READINGS);
    for _ in 0..READINGS {
        let before = known(files.read(Moment::START))?.numbers();
        known(kernel.probe().tick())?;
        let sample = kernel.sample().ok_or("it takes no samples")?;
        readings.push(Agreement {
            before,
            sampler: kernel.figures(&sample).numbers(),
            after: known(files.read(Moment::START))?.numbers_by_zone(),
        });
    }
    let comparable = readings
        .into_iter()
        .filter(|reading| reading.difference().is_some());
    comparable
        .min_by_key(Agreement::difference)
        .ok_or_else(|| "it does not know the node's memory".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_map_and_program_is_counted_once() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/self/fdinfo");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("3", "pos:\t0\nmap_type:\t27\nmemlock:\t4096\nmap_id:\t7\n"),
            ("4", "pos:\t0\nmap_type:\t27\nmemlock:\t4096\nmap_id:\t7\n"),
            ("5", "prog_type:\t1\nmemlock:\t8192\nprog_id:\t7\n"),
            ("6", "pos:\t0\nflags:\t02\n"),
            ("7", "link_type:\ttracing\nprog_id:\t9\n"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        assert_eq!(loaded_bytes(root.path()), Ok(12_288));
        assert!(loaded_bytes(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_sampler_between_two_readings_of_the_files_is_right() {
        fn check(before: i64, sampler: i64, after: i64, expected: u64) {
            let numbers = |available: i64| Numbers {
                available: Some(available),
                headroom: None,
            };
            let reading = Agreement {
                before: numbers(before),
                sampler: numbers(sampler),
                after: numbers(after),
            };
            assert_eq!(reading.difference(), Some(expected));
        }
        check(100, 90, 80, 0);
        check(80, 90, 100, 0);
        check(100, 70, 80, 10);
        check(100, 100, 100, 0);
        check(-5, 5, -3, 8);
        let unread = Numbers::default();
        let nothing = Agreement {
            before: unread,
            sampler: unread,
            after: unread,
        };
        assert_eq!(nothing.difference(), None);
    }

    #[test]
    fn the_score_is_given_back() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("proc/self/oom_score_adj");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "100\n").unwrap();
        let outcome = try_oom_score(root.path());
        assert_eq!(outcome, Ok(oom_score::OomScore::Set(OOM_SCORE)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "100");
        assert!(try_oom_score(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_trial_happens_on_a_thread_of_its_own() {
        let own = std::thread::current().id();
        let other = on_a_thread(|| Ok(std::thread::current().id())).unwrap();
        assert_ne!(own, other);
    }
}

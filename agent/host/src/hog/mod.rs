//! Memory load made on purpose, always bounded, for the demonstration, benches and live tests.
//!
//! A hog takes memory of one kind at one rate. It is a process of its own (a re-execution of the current program with [`HogSpec::to_args`], or the `hog` program
//! of the test crate), because it is there to be killed. It is bounded five times over: by the size it was given, by a
//! deadline, by the group it joins before it takes anything, by a floor of free memory of the node below which it stops,
//! and by its parent, with whom it ends. The kernel's killer takes it first (`oom_score_adj` 1000).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Uid};
use rustix::thread::set_thread_res_uid;

use crate::error::HostError;
use crate::hot_file::write_value;

mod births;
mod file_load;
mod fork_load;
mod kernel_load;
mod memory_load;
mod pace;
mod progress;
mod raw;
mod spec;

pub use births::Births;
pub use pace::Stop;
pub use progress::Progress;
pub use spec::{HogSpec, Load, SpecError};

use pace::Pacer;

/// Why a hog could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HogError {
    /// The machine refused something.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A system call failed.
    #[error("{what}: {errno}")]
    Call {
        /// The act.
        what: &'static str,
        /// The kernel's answer.
        errno: rustix::io::Errno,
    },
    /// The specification lacks something its load needs.
    #[error("{load} needs {what}")]
    Needs {
        /// The load.
        load: Load,
        /// What is missing.
        what: &'static str,
    },
}

/// What a hog did before it came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HogReport {
    /// Bytes taken (of `ForkChurn`: processes forked).
    pub touched: u64,
    /// Why it stopped.
    pub stop: Stop,
}

/// A whole hog process: reads the specification from arguments (without the program's name), works, reports on stderr.
pub fn main(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    let spec = match HogSpec::from_args(arguments) {
        Ok(spec) => spec,
        Err(error) => {
            eprintln!("hog: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&spec) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hog: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does the work in this process: joins the groups, waits for the start, takes the memory, holds it.
///
/// # Errors
/// [`HogError`].
pub fn run(spec: &HogSpec) -> Result<HogReport, HogError> {
    offer_ourselves(spec);
    for entrance in &spec.join {
        write_value(entrance, "0")?;
    }
    let progress = spec
        .progress
        .as_deref()
        .map(progress::Writer::create)
        .transpose()?;
    let births = spec.births.as_deref().map(Births::open).transpose()?;
    let births = births.as_ref();
    if let Some(user) = spec.user.map(Uid::from_raw) {
        // Asked for once, and from then on known: before Linux 6.4 it comes from a file that another user may not read.
        let _page = rustix::param::page_size();
        set_thread_res_uid(user, user, user).map_err(|errno| HogError::Call {
            what: "becoming another user",
            errno,
        })?;
    }
    if spec.wait {
        wait_for_start()?;
    }
    let mut pacer = Pacer::start(spec, progress)?;
    let stop = match spec.load {
        Load::AnonTwin | Load::AnonHeld => memory_load::twin(spec, &mut pacer)?,
        Load::Anon | Load::AnonHuge | Load::Locked => memory_load::anonymous(spec, &mut pacer)?,
        Load::AnonChurn => memory_load::churn(spec, &mut pacer)?,
        Load::Shmem => memory_load::shared(spec, &mut pacer)?,
        Load::Parts => memory_load::parts(spec, &mut pacer)?,
        Load::CacheRead | Load::CacheChurn | Load::CacheWrite | Load::CacheWriteChurn => {
            file_load::page_cache(spec, &mut pacer)?
        }
        Load::Dentries => kernel_load::dentries(spec, &mut pacer)?,
        Load::Pipes => kernel_load::pipes(spec, &mut pacer)?,
        Load::ForkStorm => fork_load::storm(spec, births, &mut pacer)?,
        Load::ForkChurn => fork_load::churn(spec, births, &mut pacer)?,
        Load::SpawnChurn => fork_load::spawn_churn(spec, births, &mut pacer)?,
    };
    Ok(HogReport {
        touched: pacer.touched(),
        stop,
    })
}

/// First choice of the kernel's killer, no core dump, and no more address space than the load takes. None of this is
/// needed for the bounds that the load itself keeps.
fn offer_ourselves(spec: &HogSpec) {
    let _ = write_value(Path::new("/proc/self/oom_score_adj"), "1000");
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    if matches!(
        spec.load,
        Load::Anon
            | Load::AnonTwin
            | Load::AnonHeld
            | Load::AnonHuge
            | Load::AnonChurn
            | Load::Locked
            | Load::Parts
    ) {
        // Room for the program itself, and for aligning to huge pages.
        let most = Some(spec.bytes.saturating_add(1 << 30));
        let _ = rustix::process::setrlimit(
            Resource::As,
            Rlimit {
                current: most,
                maximum: most,
            },
        );
    }
}

/// One byte, or the end, of standard input.
fn wait_for_start() -> Result<(), HogError> {
    let mut byte = [0u8; 1];
    let read = || rustix::io::read(rustix::stdio::stdin(), &mut byte[..]);
    crate::hot_file::retry(read)
        .map(|_| ())
        .map_err(|errno| HogError::Call {
            what: "waiting for the start",
            errno,
        })
}

/// A specification with everything optional left out.
impl HogSpec {
    /// Takes so many bytes (of `ForkStorm` and `ForkChurn`: processes) at full speed, holds them, and ends at the
    /// deadline.
    pub fn new(load: Load, bytes: u64, deadline: Duration) -> Self {
        Self {
            load,
            bytes,
            deadline,
            rate: None,
            hold: true,
            wait: false,
            parent: None,
            floor: HogSpec::FLOOR,
            join: Vec::new(),
            progress: None,
            births: None,
            folder: None,
            user: None,
        }
    }

    /// Enters these groups first: the paths of their `cgroup.procs`.
    #[must_use]
    pub fn joining(mut self, entrances: Vec<PathBuf>) -> Self {
        self.join = entrances;
        self
    }

    /// Bytes (or processes) a second.
    #[must_use]
    pub fn at_rate(mut self, per_second: u64) -> Self {
        self.rate = Some(per_second);
        self
    }
}

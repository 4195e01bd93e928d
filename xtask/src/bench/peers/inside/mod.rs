//! What runs inside a guest: pods, the contenders one after the other, and a judge that knows none of them.
mod bystanders;
mod load;
mod pods;
mod rates;
mod swap;
mod systemd;
mod tool;
mod trial;
mod verdict;

use std::{
    collections::BTreeMap,
    ffi::CStr,
    fs,
    path::Path,
    thread::{self, sleep},
    time::Duration,
};

use anyhow::Context as _;
use brink_host::cgroup::Layout;
use rustix::{
    mount::{MountFlags, mount, mount_bind},
    process::{Resource, Rlimit, setrlimit},
};

use self::pods::Pods;
use super::judge::Judge;
use super::wire::{DISK, Found, JOB, Job, Line, Run, line};
use crate::{Verdict, bench::machine::Machine, vm::disk};

/// The truth's period, of which its sampler takes a hundredth.
const PERIOD: Duration = Duration::from_micros(200);
const FILES: u64 = 1 << 17;

/// What all runs share.
struct Ground {
    judge: Judge,
    pods: Pods,
    /// Bytes a second at the most, by name of the load.
    rates: BTreeMap<String, u64>,
}

/// Does the job that lies in the guest, and tells of each run as it ends.
///
/// # Errors
/// When the guest cannot be made ready; what fails in a run is told as that.
pub fn run() -> anyhow::Result<Verdict> {
    // We are to survive what we watch.
    fs::write("/proc/self/oom_score_adj", "-1000").context("oom_score_adj")?;
    // The first process may open few files, and so may everybody after it.
    let many = Some(FILES);
    let limit = Rlimit {
        current: many,
        maximum: many,
    };
    setrlimit(Resource::Nofile, limit).context("the limit of open files")?;
    let path = Path::new("/").join(JOB);
    let job = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let job: Job = serde_json::from_slice(&job).context("reading the job")?;
    thread::spawn(live);
    make_ready()?;
    let mut pods = Pods::new()?;
    let rates = rates::measure()?;
    let judge = Judge::new(&Layout::detect(Path::new("/"))?, pods::ROOT, PERIOD)?;
    pods.settle()?;
    let mut ground = Ground { judge, pods, rates };
    tell(&Line::Ready {
        machine: Box::new(Machine::read(Path::new("/"))),
        rates: ground.rates.clone(),
    })?;
    for run in &job.runs {
        tell(&Line::Begin(*run))?;
        match play(&mut ground, run) {
            Ok(found) => tell(&Line::Done(Box::new(found)))?,
            Err(error) => tell(&Line::Failed {
                number: run.number,
                why: format!("{error:#}"),
            })?,
        }
    }
    println!("the truth takes {} ‰ of a processor", ground.judge.cost()?);
    tell(&Line::End)?;
    Ok(Verdict::Passed)
}

/// A quiet run that shows nothing is made again, so often at the most.
const AGAIN: u64 = 3;

/// Plays a run, again where the pod that should have stayed away came below the limit.
fn play(ground: &mut Ground, run: &Run) -> anyhow::Result<Found> {
    let mut discarded = Vec::new();
    loop {
        let tried = discarded.len() as u64;
        let seed = run.seed.wrapping_add(tried);
        let found = trial::play(ground, &Run { seed, ..*run })?;
        if tried == AGAIN || !found.shows_nothing() {
            return Ok(Found { discarded, ..found });
        }
        discarded.push(found);
    }
}

/// Tells that the guest lives, as long as an ordinary thread of it does.
fn live() {
    const BEAT: Duration = Duration::from_secs(2);
    while tell(&Line::Alive).is_ok() {
        sleep(BEAT);
    }
}

fn tell(what: &Line) -> anyhow::Result<()> {
    println!("{}", line(what)?);
    Ok(())
}

/// Mounts the disk with the tools, and gives them what they look for.
fn make_ready() -> anyhow::Result<()> {
    fs::create_dir_all(tool::DISK)?;
    let device = disk::by_serial(DISK)?;
    let nothing: Option<&CStr> = None;
    mount(&device, tool::DISK, "ext4", MountFlags::empty(), nothing)
        .with_context(|| format!("mounting {}", device.display()))?;
    for folder in ["proc", "sys", "dev"] {
        let below = format!("{}/{folder}", tool::DISK);
        fs::create_dir_all(&below)?;
        mount_bind(format!("/{folder}"), &below).with_context(|| below.clone())?;
    }
    // Of what /sys holds, the tools need the control groups.
    let groups = format!("{}/sys/fs/cgroup", tool::DISK);
    mount_bind("/sys/fs/cgroup", &groups).with_context(|| groups.clone())?;
    for folder in ["tmp", "run", "run/oomd"] {
        fs::create_dir_all(format!("{}/{folder}", tool::DISK))?;
    }
    tool::prepare()
}

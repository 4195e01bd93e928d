//! The first process of a guest: makes a system of a bare kernel, does the job, leaves the answer on the disk.
use std::{
    ffi::{CStr, OsStr},
    fs::{self, File, Permissions},
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags},
    process::WaitOptions,
    system::{RebootCommand, reboot},
};

use super::{
    boot::Boot,
    choice,
    cpio::{self, Data, Entry},
    disk,
    image::MODULES,
    job::{ANSWER, Answer, Cgroup, JOB, Job, Program},
};
use crate::{
    Verdict,
    process::adopt_orphans,
    test::{
        Report,
        libtest::Outcome,
        live::{self, Listed, Manner},
        report::Suite,
    },
    workspace::stdout_of,
};

/// The files that go back to the host.
const OUT: &str = "/out";
/// Where the programs' output goes; the kernel's own goes to the first port.
const OUTPUT: &str = "/dev/ttyS1";
/// The serial number of the disk that files go back on.
const DISK: &str = "out";
/// The serial number of the disk for our own use.
const SCRATCH: &str = "scratch";
/// Where that is mounted, and what is temporary goes.
pub(super) const TEMPORARY: &str = "/scratch";
/// The controllers of version 1, each with a hierarchy of its own.
const CONTROLLERS: [(&str, &CStr); 4] = [
    ("memory", c"memory"),
    ("pids", c"pids"),
    ("cpu", c"cpu"),
    ("freezer", c"freezer"),
];

/// Options of a guest.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Answer at once: whoever asks wants to know whether a guest runs at all
    #[arg(long)]
    trial: bool,
    /// How the kernel was booted: only the tests that are for that are run
    #[arg(long, default_value = "whole")]
    boot: Boot,
    /// Begin with the test after so many of the list, which come last then
    #[arg(long, default_value_t = 0)]
    first: usize,
    /// Begin no test after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Compare Brink with other tools, by the job on a disk
    #[arg(long)]
    peers: bool,
}

/// Does what the first process of a guest is for, and restarts the machine, which ends its emulator.
///
/// # Errors
/// When it is started anywhere else. In a guest it never returns.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    if process::id() != 1 {
        bail!("this is the first process of a guest, started by `cargo xtask vm`");
    }
    if let Err(error) = serve(args) {
        // Without an answer the host shows the end of this output.
        eprintln!("error: {error:#}");
    }
    rustix::fs::sync();
    reboot(RebootCommand::Restart).context("restarting")?;
    bail!("the machine goes on");
}

fn serve(args: &Args) -> anyhow::Result<()> {
    let until = args
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    mount("proc", "/proc", None)?;
    mount("sysfs", "/sys", None)?;
    // Some kernels have mounted it already.
    let _mounted = mount("devtmpfs", "/dev", None);
    let output = File::options().write(true).open(OUTPUT).context(OUTPUT)?;
    rustix::stdio::dup2_stdout(&output).context("redirecting the output")?;
    rustix::stdio::dup2_stderr(&output).context("redirecting the output")?;
    if args.peers {
        // What the tools of others ask for.
        make_system(
            Cgroup::V2,
            &[&CONTROLLERS[..], &[("io", c"blkio")]].concat(),
        )?;
        return compare();
    }
    let path = Path::new("/").join(JOB);
    let job = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let job: Job = serde_json::from_slice(&job).context("reading the job")?;
    fs::create_dir(OUT).context(OUT)?;
    let mut answer = nothing_found(&job)?;
    if job.cgroup == Cgroup::V1 && args.boot != Boot::Bare {
        answer.skipped = missing()?;
    }
    if !args.trial && answer.skipped.is_none() {
        match args.boot {
            Boot::Whole => {
                let tests = choice::from_on(job.tests.of(Boot::Whole), args.first);
                work((&job, &tests), until, &mut answer)?;
            }
            Boot::Bare | Boot::NoPsi => work_without(&job, args.boot, until, &mut answer)?,
        }
    }
    deliver(&answer)
}

/// Starts the comparison as a process of its own, and collects every process that is left without a parent meanwhile.
fn compare() -> anyhow::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    let child = command.arg("compare").spawn().context("the comparison")?;
    let own = i32::try_from(child.id()).ok();
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, _status))) if Some(pid.as_raw_pid()) == own => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => bail!("waiting for the comparison: {error}"),
        }
    }
}

/// The answer before anything was done.
fn nothing_found(job: &Job) -> anyhow::Result<Answer> {
    let kernel =
        fs::read_to_string("/proc/sys/kernel/osrelease").context("the kernel's release")?;
    Ok(Answer {
        nonce: job.nonce.clone(),
        kernel: kernel.trim().to_owned(),
        skipped: None,
        report: Report::default(),
        programs: Vec::new(),
    })
}

fn work(
    (job, tests): (&Job, &[Listed]),
    until: Option<Instant>,
    answer: &mut Answer,
) -> anyhow::Result<()> {
    make_system(job.cgroup, &CONTROLLERS)?;
    load_modules(&answer.kernel)?;
    adopt_orphans()?;
    let said = stdout_of(&mut Command::new(&job.programs)).context("the kernel programs")?;
    answer.programs = serde_json::from_str::<Vec<Program>>(&said).context("the kernel programs")?;
    // What it finds is for whoever reads the file; its exit status tells of doubts only.
    let _doubts = keep(job, "doctor")?;
    answer.report.add(demo(job)?);
    run_tests((job, tests), until, answer)
}

/// The tests that are about such a kernel, and nothing else: most of the others need what it lacks.
fn work_without(
    job: &Job,
    boot: Boot,
    until: Option<Instant>,
    answer: &mut Answer,
) -> anyhow::Result<()> {
    let [_memory, others @ ..] = &CONTROLLERS;
    let controllers: &[_] = if boot == Boot::Bare {
        others
    } else {
        &CONTROLLERS
    };
    make_system(job.cgroup, controllers)?;
    adopt_orphans()?;
    run_tests((job, job.tests.of(boot)), until, answer)
}

fn run_tests(
    (job, tests): (&Job, &[Listed]),
    until: Option<Instant>,
    answer: &mut Answer,
) -> anyhow::Result<()> {
    let manner = Manner {
        promtool: OsStr::new("a guest has no promtool"),
        containerd: OsStr::new("a guest has no containerd"),
        agent: &job.agent,
        full: job.full,
        deadline: Duration::from_secs(job.deadline),
        until,
    };
    live::run_listed(tests, manner, &mut answer.report)
}

/// What this kernel lacks for version 1. That a controller has a row in /proc/cgroups does not say that it can be mounted.
fn missing() -> anyhow::Result<Option<String>> {
    let place = "/run/trial";
    fs::create_dir(place).context(place)?;
    match rustix::mount::mount(
        "cgroup",
        place,
        "cgroup",
        MountFlags::empty(),
        Some(c"memory"),
    ) {
        Ok(()) => {
            rustix::mount::unmount(place, UnmountFlags::empty()).context(place)?;
            Ok(None)
        }
        Err(Errno::INVAL) => Ok(Some(
            "this kernel has no memory controller on cgroup v1".to_owned(),
        )),
        Err(error) => Err(error).context("mounting the memory controller of cgroup v1"),
    }
}

/// Everything an ordinary system has mounted, and busybox under all its names.
fn make_system(cgroup: Cgroup, controllers: &[(&str, &CStr)]) -> anyhow::Result<()> {
    let mut install = Command::new("/bin/busybox");
    let installed = install.args(["--install", "-s", "/bin"]).status();
    if !installed.context("busybox")?.success() {
        bail!("busybox cannot be installed");
    }
    for (kind, place) in [
        ("tmpfs", "/dev/shm"),
        ("devpts", "/dev/pts"),
        ("tracefs", "/sys/kernel/tracing"),
        ("debugfs", "/sys/kernel/debug"),
        ("bpf", "/sys/fs/bpf"),
        ("securityfs", "/sys/kernel/security"),
    ] {
        fs::create_dir_all(place).with_context(|| place.to_owned())?;
        mount(kind, place, None)?;
    }
    make_scratch()?;
    // There is no other interface.
    let up = Command::new("/bin/ip")
        .args(["link", "set", "lo", "up"])
        .status();
    if !up.context("ip")?.success() {
        bail!("the loopback interface cannot be brought up");
    }
    match cgroup {
        Cgroup::V2 => {
            mount("cgroup2", "/sys/fs/cgroup", None)?;
            let path = "/sys/fs/cgroup/cgroup.subtree_control";
            // That of the freezer is in every group.
            let handed_on = controllers.iter().filter(|(name, _)| *name != "freezer");
            let handed_on: Vec<String> = handed_on.map(|(name, _)| format!("+{name}")).collect();
            fs::write(path, handed_on.join(" ")).with_context(|| path.to_owned())
        }
        Cgroup::V1 => {
            mount("tmpfs", "/sys/fs/cgroup", None)?;
            controllers.iter().try_for_each(|(name, options)| {
                let place = format!("/sys/fs/cgroup/{name}");
                fs::create_dir(&place).with_context(|| place.clone())?;
                mount("cgroup", &place, Some(options))
            })
        }
    }
}

/// Loads the modules there are for this kernel, in their order.
fn load_modules(release: &str) -> anyhow::Result<()> {
    let folder = Path::new("/").join(MODULES).join(release);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut modules: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    modules.sort();
    for module in modules {
        let mut insmod = Command::new("/bin/insmod");
        let status = insmod.arg(&module).status().context("insmod")?;
        if !status.success() {
            // Tests that need it say so.
            eprintln!("{} cannot be loaded", module.display());
        }
    }
    Ok(())
}

/// A file system on a disk, for everything temporary.
fn make_scratch() -> anyhow::Result<()> {
    let disk = disk::by_serial(SCRATCH)?;
    let mut mke2fs = Command::new("/bin/mke2fs");
    let made = mke2fs.arg(&disk).stdout(Stdio::null()).status();
    if !made.context("mke2fs")?.success() {
        bail!("no file system can be made on {}", disk.display());
    }
    rustix::mount::mount(&disk, TEMPORARY, "ext2", MountFlags::empty(), None)
        .with_context(|| format!("mounting {}", disk.display()))?;
    // Everybody's, as on any system.
    fs::set_permissions(TEMPORARY, Permissions::from_mode(0o1777)).context(TEMPORARY)
}

fn mount(kind: &str, place: &str, options: Option<&CStr>) -> anyhow::Result<()> {
    rustix::mount::mount(kind, place, kind, MountFlags::empty(), options)
        .with_context(|| format!("mounting {kind} on {place}"))
}

/// Runs a command of the agent and keeps its JSON among the files that go back; whether it succeeded.
fn keep(job: &Job, command: &str) -> anyhow::Result<bool> {
    let path = Path::new(OUT).join(command).with_extension("json");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    let mut agent = Command::new(&job.agent);
    agent.args([command, "-o", "json"]).stdout(file);
    let status = agent
        .status()
        .with_context(|| format!("starting {agent:?}"))?;
    Ok(status.success())
}

/// The demonstration, as a suite of one test.
fn demo(job: &Job) -> anyhow::Result<Suite> {
    let began = Instant::now();
    let held = keep(job, "demo")?;
    let outcome = Outcome {
        passed: usize::from(held),
        failed: usize::from(!held),
        held: held.then(|| "demo".to_owned()).into_iter().collect(),
        failures: (!held).then(|| "demo".to_owned()).into_iter().collect(),
        elapsed: began.elapsed(),
        ..Outcome::default()
    };
    Ok(Suite::told("brink demo", outcome))
}

/// Writes the files and the answer to the disk, the answer last.
fn deliver(answer: &Answer) -> anyhow::Result<()> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(OUT).context(OUT)? {
        let entry = entry.context(OUT)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        entries.push(Entry::new(&name, 0o644, Data::CopyOf(entry.path())));
    }
    let answer = Data::Bytes(serde_json::to_vec(answer)?);
    entries.push(Entry::new(ANSWER, 0o644, answer));
    let path = disk::by_serial(DISK)?;
    let mut archive = Vec::new();
    cpio::write(&mut archive, &entries)?;
    let write = || {
        let mut disk = File::options().write(true).open(&path)?;
        disk.write_all(&archive)?;
        disk.sync_all()
    };
    write().with_context(|| format!("writing to {}", path.display()))
}

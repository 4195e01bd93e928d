//! What the live tests of the probe share: a memory cgroup of their own, bounded memory in it, a loaded probe.
#![expect(dead_code, reason = "each test target uses its own part")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use brink_host::probe::abi::sample::Sample;
use brink_host::probe::{
    Absence, ArmedNode, Facts, Family, Probe, Roots, Signal, Wishes, coverage,
};
use brink_tests::slowed;

/// Longest wait for anything that should take milliseconds.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// Bytes in a mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// A loaded probe, or what this host lacks for it. A program that the kernel refuses is a failure.
pub(crate) fn probe(wishes: Wishes) -> Result<Probe, String> {
    let facts = Facts::gather(&Roots::default());
    let without = wishes.without.clone();
    let settings = coverage::settings(&facts, wishes);
    let probe = Probe::load(&facts, &settings).map_err(|error| error.to_string())?;
    for (program, why) in probe.coverage().absences() {
        match why {
            _ if program.is_spare() => {}
            Absence::NotWanted
                if matches!(program.family, Family::Forensics | Family::Recorder) => {}
            Absence::Refused(_) | Absence::NotAttached(_) => panic!("{}: {why}", program.name),
            _ if without.contains(&program.family) => {}
            _ => return Err(format!("{}: {why}", program.name)),
        }
    }
    Ok(probe)
}

/// A loaded probe whose sampler runs with the node armed.
pub(crate) fn sampling(wishes: Wishes) -> Result<Probe, String> {
    let mut probe = probe(wishes)?;
    arm(&mut probe);
    probe.start().map_err(|e| e.to_string())?;
    Ok(probe)
}

/// Arms the node as a housekeeping pass does.
pub(crate) fn arm(probe: &mut Probe) -> ArmedNode {
    probe
        .arm_node(meminfo("MemTotal"), || Ok(meminfo("MemFree")))
        .unwrap()
}

/// A sample taken by the running timer after now.
pub(crate) fn next_sample(probe: &Probe) -> Sample {
    let before = probe.sample().map_or(0, |sample| sample.tick);
    until("a tick", || {
        probe.sample().filter(|sample| sample.tick > before)
    })
}

/// Waits for something, at most [`DEADLINE`], slowed.
pub(crate) fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    let found = within(ask);
    assert!(found.is_some(), "waited {DEADLINE:?} for {what}");
    found.unwrap()
}

/// Waits for something that others may keep from happening, at most [`DEADLINE`], slowed.
pub(crate) fn within<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + slowed(DEADLINE);
    loop {
        if let Some(found) = ask() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The first waiting signal that `wanted` takes.
pub(crate) fn waiting<T>(
    probe: &mut Probe,
    mut wanted: impl FnMut(&Signal) -> Option<T>,
) -> Option<T> {
    let mut found = None;
    probe.drain_signals(usize::MAX, |signal| {
        found = found.take().or_else(|| wanted(signal));
    });
    found
}

/// Waits for the first signal that `wanted` takes.
pub(crate) fn signal<T>(
    probe: &mut Probe,
    what: &str,
    mut wanted: impl FnMut(&Signal) -> Option<T>,
) -> T {
    until(what, || waiting(probe, &mut wanted))
}

/// Bytes as the kernel programs count them.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap()
}

/// One reading of `/proc/meminfo`.
pub(crate) struct Meminfo(String);

impl Meminfo {
    pub(crate) fn read() -> Self {
        Self(fs::read_to_string("/proc/meminfo").unwrap())
    }

    /// A line's value, in bytes.
    pub(crate) fn get(&self, key: &str) -> u64 {
        let value = self
            .0
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let number = value
            .and_then(|value| value.split_whitespace().next())
            .unwrap();
        number.parse::<u64>().unwrap() * 1024
    }
}

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(key: &str) -> u64 {
    Meminfo::read().get(key)
}

/// Total of threads the kernel counts: the second number of `/proc/loadavg`'s fourth field.
pub(crate) fn threads() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let total = text
        .split_whitespace()
        .nth(3)
        .and_then(|field| field.split('/').nth(1));
    total
        .and_then(|total| total.parse().ok())
        .ok_or_else(|| io::Error::other(text))
}

/// A cgroup of the memory controller, removed with all that runs in it when dropped.
pub(crate) struct Group {
    path: PathBuf,
    v2: bool,
}

impl Group {
    /// A new group under the hierarchy's root, or why there can be none.
    pub(crate) fn new(label: &str) -> Result<Self, String> {
        let (root, v2) = memory_root()?;
        let path = root.join(brink_tests::cgroup_name(label));
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, v2 })
    }

    /// A new group inside this one, with a memory controller of its own; on cgroup v2 this one may then hold no
    /// process itself.
    pub(crate) fn child(&self, name: &str) -> Self {
        if self.v2 {
            fs::write(self.path.join("cgroup.subtree_control"), "+memory").unwrap();
        }
        let path = self.path.join(name);
        fs::create_dir(&path).unwrap();
        Self { path, v2: self.v2 }
    }

    /// On cgroup v2: takes the memory controller away from the groups inside this one, which stay. False on v1, where
    /// that cannot be.
    pub(crate) fn take_controller(&self) -> bool {
        if self.v2 {
            fs::write(self.path.join("cgroup.subtree_control"), "-memory").unwrap();
        }
        self.v2
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, v1: &str, v2: &str) -> PathBuf {
        self.path.join(if self.v2 { v2 } else { v1 })
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        fs::write(
            self.file("memory.limit_in_bytes", "memory.max"),
            bytes.to_string(),
        )
        .unwrap();
    }

    pub(crate) fn usage(&self) -> u64 {
        let text =
            fs::read_to_string(self.file("memory.usage_in_bytes", "memory.current")).unwrap();
        text.trim().parse().unwrap()
    }

    /// Inode number of the directory: the cgroup's id.
    pub(crate) fn id(&self) -> u64 {
        fs::metadata(&self.path).unwrap().ino()
    }

    pub(crate) fn open(&self) -> File {
        File::open(&self.path).unwrap()
    }

    pub(crate) fn processes(&self) -> usize {
        fs::read_to_string(self.path.join("cgroup.procs"))
            .unwrap()
            .lines()
            .count()
    }

    /// Runs a shell script whose process is in this group before its first command.
    pub(crate) fn run(&self, script: &str) -> Child {
        let enter = format!(
            "echo $$ > '{}/cgroup.procs' && {script}",
            self.path.display()
        );
        Command::new("sh")
            .args(["-c", &enter])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Charges that much shared memory to this group, at full speed, and returns its file.
    pub(crate) fn charge(&self, bytes: u64) -> Shared {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = PathBuf::from(format!(
            "/dev/shm/brink-test-{}-{number}",
            std::process::id()
        ));
        let shared = Shared { path };
        let script = format!(
            "exec dd if=/dev/zero of={} bs=1M count={}",
            shared.path.display(),
            bytes / MIB
        );
        assert!(self.run(&script).wait().unwrap().success());
        shared
    }

    fn kill_all(&self) {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for pid in text.lines() {
            let _ended = Command::new("kill")
                .args(["-9", pid])
                .stderr(Stdio::null())
                .status();
        }
    }

    /// Removes the group now.
    pub(crate) fn remove(self) {
        drop(self);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + slowed(DEADLINE);
        while fs::remove_dir(&self.path).is_err_and(|e| e.kind() != io::ErrorKind::NotFound) {
            self.kill_all();
            if Instant::now() > end {
                eprintln!("left behind: {}", self.path.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Shared memory, given back when dropped.
pub(crate) struct Shared {
    path: PathBuf,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}

/// Where the memory controller is mounted, and whether that is cgroup v2.
fn memory_root() -> Result<(PathBuf, bool), String> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
    let find = |kind: &str, option: &str| {
        mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find_map(|fields| {
                let fits = fields.get(2) == Some(&kind)
                    && fields
                        .get(3)
                        .is_some_and(|o| option.is_empty() || o.split(',').any(|o| o == option));
                fits.then(|| PathBuf::from(fields[1]))
            })
    };
    if let Some(root) = find("cgroup", "memory") {
        return Ok((root, false));
    }
    let root = find("cgroup2", "").ok_or("no cgroup file system is mounted")?;
    let control = root.join("cgroup.subtree_control");
    let on = fs::read_to_string(&control).map_err(|error| error.to_string())?;
    if on.split_whitespace().any(|name| name == "memory") {
        Ok((root, true))
    } else {
        Err(format!(
            "{}: the memory controller is not passed on",
            control.display()
        ))
    }
}

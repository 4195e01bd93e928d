//! A machine made of files: a whole one to begin with, of which a test takes away or changes what it is about.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use brink::config::{Checked, Sources, load};
use brink::doctor::{Check, Facts, Report, State, Trials, checks};

/// The machine, and the configuration of the agent on it.
pub(crate) struct Machine {
    folder: tempfile::TempDir,
    config: String,
}

const MEMINFO: &str = "\
MemTotal:        8388608 kB\nMemFree:         4194304 kB\nMemAvailable:    6291456 kB\nBuffers:           65536 kB\n\
Cached:          2097152 kB\nSwapCached:            0 kB\nActive(file):    1048576 kB\nInactive(file):  1048576 kB\n\
Unevictable:           0 kB\nMlocked:               0 kB\nDirty:                 0 kB\nWriteback:             0 kB\n\
AnonPages:       1703936 kB\nShmem:             65536 kB\nSReclaimable:     196608 kB\nSUnreclaim:        65536 kB\n\
KernelStack:       16384 kB\nPageTables:        49152 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n";

/// Σ min 16384 pages, Σ low 20480, Σ high 24576: 64, 80 and 96 MiB.
const ZONEINFO: &str = "\
Node 0, zone   Normal\n  pages free     1048576\n        min      16384\n        low      20480\n        high     24576\n\
        managed  2097152\n        protection: (0, 0)\n";

const STATUS: &str = "Name:\tbrink\nUid:\t0\t0\t0\t0\nNSpid:\t1\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";

const V2: &str = "30 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

const WHOLE: &[(&str, &str)] = &[
    ("proc/sys/kernel/hostname", "node-7\n"),
    ("proc/sys/kernel/osrelease", "6.18.3-cloud\n"),
    (
        "proc/sys/kernel/random/boot_id",
        "01234567-89ab-cdef-0123-456789abcdef\n",
    ),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
    ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
    ("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
    ("proc/sys/kernel/pid_max", "4194304\n"),
    ("proc/sys/kernel/threads-max", "63000\n"),
    ("proc/sys/net/core/bpf_jit_enable", "1\n"),
    ("proc/sys/vm/overcommit_memory", "0\n"),
    ("proc/sys/vm/panic_on_oom", "0\n"),
    ("proc/sys/vm/min_free_kbytes", "65536\n"),
    ("proc/meminfo", MEMINFO),
    ("proc/zoneinfo", ZONEINFO),
    ("proc/swaps", "Filename Type Size Used Priority\n"),
    ("proc/loadavg", "0.00 0.00 0.00 1/100 1\n"),
    ("proc/locks", ""),
    (
        "proc/cgroups",
        "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t0\t1\t1\n",
    ),
    (
        "proc/pressure/memory",
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\n",
    ),
    ("proc/self/status", STATUS),
    ("proc/self/statm", "25600 1 1 1 0 1 0\n"),
    ("proc/self/oom_score_adj", "0\n"),
    (
        "proc/self/mounts",
        "securityfs /sys/kernel/security securityfs rw 0 0\n",
    ),
    ("proc/self/mountinfo", V2),
    ("proc/self/cgroup", "0::/\n"),
    ("sys/devices/system/cpu/online", "0-3\n"),
    ("sys/devices/system/node/has_memory", "0\n"),
    (
        "sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    (
        "sys/kernel/security/lockdown",
        "[none] integrity confidentiality\n",
    ),
    ("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
    ("sys/fs/cgroup/cgroup.subtree_control", "memory pids\n"),
    ("sys/fs/cgroup/system.slice/cgroup.kill", ""),
];

impl Machine {
    /// One on which nothing is wrong that files can show; the kernel's type description is the one thing it lacks.
    pub(crate) fn whole() -> Self {
        let machine = Self::empty();
        for (path, text) in WHOLE {
            machine.write(path, text);
        }
        for (name, number) in [
            ("pid", 0xEFFF_FFFC_u32),
            ("cgroup", 0xEFFF_FFFB),
            ("user", 0xEFFF_FFFD),
        ] {
            machine.link(
                &format!("proc/self/ns/{name}"),
                &format!("{name}:[{number}]"),
            );
        }
        machine.process(
            i32::try_from(std::process::id()).unwrap(),
            "brink",
            "brink\0",
        );
        machine
    }

    /// One without a single file.
    pub(crate) fn empty() -> Self {
        Self {
            folder: tempfile::tempdir().expect("temporary folder"),
            config: String::new(),
        }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("fake folder");
        fs::write(path, text).expect("fake file");
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("fake folder");
        let _none_yet = fs::remove_file(&path);
        symlink(target, path).expect("fake link");
    }

    pub(crate) fn process(&self, pid: i32, name: &str, command_line: &str) {
        let zeroes = "0 ".repeat(18);
        let stat = format!(
            "{pid} ({name}) S 0 {pid} {pid} 0 -1 0 {zeroes}0 0 0 18446744073709551615 {zeroes}0 0 0 0 0 0 0\n"
        );
        self.write(&format!("proc/{pid}/stat"), &stat);
        let status = STATUS.replace("NSpid:\t1", &format!("NSpid:\t{pid}"));
        self.write(&format!("proc/{pid}/status"), &status);
        self.write(&format!("proc/{pid}/cmdline"), command_line);
        self.write(
            &format!("proc/{pid}/cgroup"),
            "0::/system.slice/x.service\n",
        );
        self.write(&format!("proc/{pid}/oom_score_adj"), "0\n");
    }

    /// Lines of the agent's configuration.
    pub(crate) fn configure(&mut self, yaml: &str) {
        self.config.push_str(yaml);
        self.config.push('\n');
    }

    /// The machine with one file of another content; for tables of cases.
    pub(crate) fn with(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    /// The machine with more configuration.
    pub(crate) fn configured(mut self, yaml: &str) -> Self {
        self.configure(yaml);
        self
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        let root = self.folder.path().display();
        let head = "apiVersion: brink.dev/v1alpha2\nkind: AgentConfiguration\n";
        let paths = format!("paths: {{root: {root}, stateDir: {root}/run/brink}}\n");
        self.write("brink.yaml", &format!("{head}{paths}{}", self.config));
        self.path("brink.yaml")
    }

    pub(crate) fn checked(&self) -> Checked {
        self.checked_by(None)
    }

    /// The configuration with what the kubelet says of itself.
    pub(crate) fn checked_by(&self, configz: Option<&str>) -> Checked {
        let sources = Sources {
            config: Some(self.config_file()),
            configz: configz.map(Into::into),
            ..Sources::default()
        };
        load(&sources).expect("a good configuration")
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts::gather(&self.checked(), |_| Trials::none("not tried in this test"))
    }

    pub(crate) fn report(&self) -> Report {
        let facts = self.facts();
        Report::new(&facts, checks(&facts))
    }

    pub(crate) fn check(&self, id: &str) -> Check {
        find(&self.report(), id).clone()
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }
}

/// The check of an id; each is there once.
pub(crate) fn find<'a>(report: &'a Report, id: &str) -> &'a Check {
    let all: Vec<&Check> = report
        .checks
        .iter()
        .filter(|check| check.id == id)
        .collect();
    assert_eq!(all.len(), 1, "{id}: {:?}", report.checks);
    all[0]
}

/// Asserts how a check ends, and that what it says has these words in it.
pub(crate) fn expect(check: &Check, state: State, words: &[&str]) {
    let said = format!("{check:?}");
    assert_eq!(check.state, state, "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

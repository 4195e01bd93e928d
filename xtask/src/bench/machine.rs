//! The facts of the machine without which a measurement means nothing.
use std::{fmt, fs, path::Path, time::Duration};

use serde::{Deserialize, Serialize};

/// What is known of the machine; what cannot be read is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of the kernel, without what whoever built it has added.
    pub kernel: Option<String>,
    /// Processor architecture of this build.
    pub architecture: String,
    /// Processors that we may run on.
    pub cpus: Option<usize>,
    /// The processor's name, where the kernel gives one.
    pub cpu_model: Option<String>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Swap in bytes.
    pub swap: Option<u64>,
    /// Mode of transparent huge pages: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// Frequency governor of the first processor; virtual machines have none.
    pub governor: Option<String>,
}

impl Machine {
    /// Reads `/proc` and `/sys` below `root`.
    pub fn read(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let line = |path: &str| read(path).map(|text| text.trim().to_owned());
        let meminfo = read("proc/meminfo").unwrap_or_default();
        Self {
            kernel: read("proc/sys/kernel/osrelease").and_then(|release| version(&release)),
            architecture: std::env::consts::ARCH.to_owned(),
            cpus: std::thread::available_parallelism().ok().map(Into::into),
            cpu_model: read("proc/cpuinfo").and_then(|text| field(&text, "model name")),
            memory: kilobytes(&meminfo, "MemTotal"),
            swap: kilobytes(&meminfo, "SwapTotal"),
            huge_pages: read("sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            governor: line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

/// Processor time that the hypervisor has taken from this machine since it was started; none where it is not told.
pub fn stolen() -> Option<Duration> {
    /// Ticks a second in `/proc/stat`, on every architecture.
    const USER_HZ: u64 = 100;
    let text = fs::read_to_string("/proc/stat").ok()?;
    let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: u64 = all.split_whitespace().nth(7)?.parse().ok()?;
    Some(Duration::from_millis(ticks * 1000 / USER_HZ))
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        let mebibytes = |value: Option<u64>| {
            value.map_or_else(
                || "unknown".to_owned(),
                |bytes| format!("{} MiB", bytes >> 20),
            )
        };
        let cpus = self
            .cpus
            .map_or_else(|| "unknown".to_owned(), |cpus| cpus.to_string());
        write!(
            f,
            "Linux {} on {}, {cpus} processors ({}), memory {}, swap {}, huge pages {}, governor {}",
            text(&self.kernel),
            self.architecture,
            text(&self.cpu_model),
            mebibytes(self.memory),
            mebibytes(self.swap),
            text(&self.huge_pages),
            text(&self.governor)
        )
    }
}

/// The number that a release begins with.
fn version(release: &str) -> Option<String> {
    let is_of_number = |each: char| each.is_ascii_digit() || each == '.';
    let end = release.find(|each| !is_of_number(each));
    let number = release[..end.unwrap_or(release.len())].trim_end_matches('.');
    (!number.is_empty()).then(|| number.to_owned())
}

/// The value of the first `key : value` line.
fn field(text: &str, key: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().to_owned())
}

/// A field of `/proc/meminfo`, which counts in KiB, in bytes.
fn kilobytes(meminfo: &str, key: &str) -> Option<u64> {
    field(meminfo, key)?
        .strip_suffix(" kB")?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// The chosen one of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_of(files: &[(&str, &str)]) -> Machine {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Machine::read(root.path())
    }

    #[test]
    fn facts_are_read_below_the_root() {
        let machine = machine_of(&[
            ("proc/sys/kernel/osrelease", "6.18.44-own\n"),
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: A Processor\nprocessor\t: 1\n",
            ),
            (
                "proc/meminfo",
                "MemTotal:        1024 kB\nSwapTotal:             0 kB\n",
            ),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never\n",
            ),
        ]);
        assert_eq!(machine.kernel.as_deref(), Some("6.18.44"));
        assert_eq!(machine.cpu_model.as_deref(), Some("A Processor"));
        assert_eq!((machine.memory, machine.swap), (Some(1 << 20), Some(0)));
        assert_eq!(machine.huge_pages.as_deref(), Some("madvise"));
        assert_eq!(machine.governor, None);
    }

    #[test]
    fn a_kernel_is_named_by_its_number() {
        for (release, expected) in [
            ("6.18.44\n", Some("6.18.44")),
            ("6.12.107+deb13-cloud-amd64\n", Some("6.12.107")),
            ("7.0-rc3", Some("7.0")),
            ("6.1.", Some("6.1")),
            ("own", None),
            ("", None),
        ] {
            assert_eq!(version(release).as_deref(), expected, "{release:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_unknown() {
        let machine = machine_of(&[("proc/meminfo", "MemTotal: many\n")]);
        let facts = (machine.kernel.is_some(), machine.memory, machine.swap);
        assert_eq!(facts, (false, None, None));
        assert!(machine.to_string().contains("memory unknown"), "{machine}");
    }
}

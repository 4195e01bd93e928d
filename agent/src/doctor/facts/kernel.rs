//! The kernel and the machine under it.

use std::path::Path;

use brink_host::probe::{self, Roots};

use super::source::{Known, list_length, number, text};

/// The kernel and the machine under it.
#[derive(Debug)]
pub struct Kernel {
    /// What kernel programs are decided by.
    pub probe: probe::Facts,
    /// Whether this process is in `/proc` under the root.
    pub has_proc: bool,
    /// The machine's name.
    pub host: Known<String>,
    /// The architecture this binary is for.
    pub architecture: &'static str,
    /// CPUs that are online.
    pub cpus: Known<u32>,
    /// `net.core.bpf_jit_enable`; only root can read it.
    pub jit: Known<u64>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Known<u64>,
    /// Whether securityfs is mounted, which shows the lockdown mode.
    pub securityfs: Known<bool>,
    /// `kernel.sched_rt_runtime_us`; −1 is no throttle.
    pub rt_runtime_us: Known<i64>,
    /// `kernel.sched_rt_period_us`.
    pub rt_period_us: Known<i64>,
}

impl Kernel {
    /// Reads everything under a root.
    pub fn read(root: &Path) -> Self {
        let roots = Roots {
            proc: root.join("proc"),
            sys: root.join("sys"),
        };
        let cpus = "/sys/devices/system/cpu/online";
        Self {
            probe: probe::Facts::gather(&roots),
            has_proc: root.join("proc/self/status").exists(),
            host: text(root, "/proc/sys/kernel/hostname"),
            architecture: std::env::consts::ARCH,
            cpus: text(root, cpus).and_then(|text| {
                list_length(&text).ok_or_else(|| format!("{cpus}: {text:?} is no list of CPUs"))
            }),
            jit: number(root, "/proc/sys/net/core/bpf_jit_enable"),
            unprivileged_bpf_disabled: number(root, "/proc/sys/kernel/unprivileged_bpf_disabled"),
            securityfs: text(root, "/proc/self/mounts").map(|mounts| {
                mounts
                    .lines()
                    .any(|line| line.split(' ').nth(2) == Some("securityfs"))
            }),
            rt_runtime_us: number(root, "/proc/sys/kernel/sched_rt_runtime_us"),
            rt_period_us: number(root, "/proc/sys/kernel/sched_rt_period_us"),
        }
    }

    /// The release as numbers: `6.18.44-fc` is (6, 18).
    pub fn version(&self) -> Option<(u32, u32)> {
        version(self.probe.release.as_ref().ok()?)
    }
}

/// Bytes of a page of this machine.
pub fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(['.', '-', '+', '_']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_every_distribution_are_read() {
        fn check(release: &str, expected: Option<(u32, u32)>) {
            assert_eq!(version(release), expected, "{release:?}");
        }
        check("6.18.44-custom", Some((6, 18)));
        check("5.15.0-1084-aws", Some((5, 15)));
        check("6.12.13+deb13-amd64", Some((6, 12)));
        check("7.0-rc1", Some((7, 0)));
        check("7.0+", Some((7, 0)));
        check("", None);
        check("six.one", None);
    }
}

//! Which capabilities this process has, by name, and which of them each ability of Brink needs.

use std::fmt;
use std::path::Path;

use crate::error::HostError;
use crate::hot_file::read_bytes;
use crate::scan;

/// The kernel's names in the order of their numbers (`linux/capability.h`, up to Linux 6.18).
const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// A capability, by the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability(u8);

impl Capability {
    /// Signals to processes of other users.
    pub const KILL: Self = Self(5);
    /// Files of other users.
    pub const DAC_OVERRIDE: Self = Self(1);
    /// `CAP_DAC_READ_SEARCH`: reads any file.
    pub const DAC_READ_SEARCH: Self = Self(2);
    /// Locked memory above the resource limit.
    pub const IPC_LOCK: Self = Self(14);
    /// Reading the memory layout and links of other users' processes.
    pub const SYS_PTRACE: Self = Self(19);
    /// The old umbrella right.
    pub const SYS_ADMIN: Self = Self(21);
    /// Real-time scheduling and negative nice values.
    pub const SYS_NICE: Self = Self(23);
    /// A lower `oom_score_adj`, higher resource limits.
    pub const SYS_RESOURCE: Self = Self(24);
    /// Reading kernel memory from kernel programs.
    pub const PERFMON: Self = Self(38);
    /// Loading kernel programs.
    pub const BPF: Self = Self(39);
}

impl fmt::Display for Capability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(usize::from(self.0)) {
            Some(name) => out.write_str(name),
            None => write!(out, "CAP_{}", self.0),
        }
    }
}

/// A set of capabilities, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapabilitySet(u64);

impl CapabilitySet {
    /// Whether the set has the capability.
    pub fn has(self, capability: Capability) -> bool {
        self.0 >> capability.0 & 1 == 1
    }

    /// What is in the set, in the order of the kernel's numbers.
    pub fn iter(self) -> impl Iterator<Item = Capability> {
        (0..64)
            .map(Capability)
            .filter(move |capability| self.has(*capability))
    }
}

impl FromIterator<Capability> for CapabilitySet {
    fn from_iter<I: IntoIterator<Item = Capability>>(all: I) -> Self {
        let bits = all.into_iter().map(|capability| 1 << capability.0);
        Self(bits.fold(0, |set, bit: u64| set | bit))
    }
}

/// The capability sets of a process that matter to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// What the process can do now.
    pub effective: CapabilitySet,
    /// What the process, and what it executes, could ever be given.
    pub bounding: CapabilitySet,
}

impl Capabilities {
    /// Reads those of this process from `proc/self/status` under a root.
    ///
    /// # Errors
    /// [`HostError`] with the path.
    pub fn of_self(root: &Path) -> Result<Self, HostError> {
        let path = root.join("proc/self/status");
        let text = read_bytes(&path)?;
        let set = |name: &'static str| match scan::lines(&text)
            .find_map(|line| line.strip_prefix(name.as_bytes()))
        {
            None => Err(HostError::Missing {
                path: path.clone(),
                what: name,
            }),
            Some(value) => {
                hexadecimal(value.trim_ascii())
                    .map(CapabilitySet)
                    .ok_or(HostError::Malformed {
                        path: path.clone(),
                        what: name,
                    })
            }
        };
        Ok(Self {
            effective: set("CapEff:")?,
            bounding: set("CapBnd:")?,
        })
    }

    /// What is missing for an ability; empty when it can be had.
    pub fn missing(&self, ability: Ability) -> Vec<Capability> {
        let lacking = |needed: &[Capability]| -> Vec<Capability> {
            needed
                .iter()
                .copied()
                .filter(|capability| !self.effective.has(*capability))
                .collect()
        };
        match ability {
            // CAP_SYS_ADMIN still contains both of the newer rights.
            Ability::KernelPrograms if self.effective.has(Capability::SYS_ADMIN) => Vec::new(),
            _ => lacking(ability.needs()),
        }
    }
}

/// What Brink wants to be able to do on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Load the kernel programs and let them read kernel counters.
    KernelPrograms,
    /// Kill processes of any user.
    Kill,
    /// Run the guard under `SCHED_FIFO`, or at nice −20.
    RealTime,
    /// Lock the agent's memory whatever `RLIMIT_MEMLOCK` says.
    LockMemory,
    /// Lower our own `oom_score_adj`.
    OomScore,
    /// Look into processes of other users (memory split, executable).
    InspectProcesses,
    /// Write to cgroups of other owners (thaw, kill, limits).
    ManageCgroups,
}

impl Ability {
    /// All of them, in the order a report lists them.
    pub const ALL: [Self; 7] = [
        Self::KernelPrograms,
        Self::Kill,
        Self::RealTime,
        Self::LockMemory,
        Self::OomScore,
        Self::InspectProcesses,
        Self::ManageCgroups,
    ];

    /// The capabilities it takes. `process_mrelease` needs none of its own (`mm/oom_kill.c` checks no right).
    pub const fn needs(self) -> &'static [Capability] {
        match self {
            Self::KernelPrograms => &[Capability::BPF, Capability::PERFMON],
            Self::Kill => &[Capability::KILL],
            Self::RealTime => &[Capability::SYS_NICE],
            Self::LockMemory => &[Capability::IPC_LOCK],
            Self::OomScore => &[Capability::SYS_RESOURCE],
            Self::InspectProcesses => &[Capability::SYS_PTRACE],
            Self::ManageCgroups => &[Capability::DAC_OVERRIDE],
        }
    }

    /// What is lost without it, for messages.
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::KernelPrograms => "kernel programs",
            Self::Kill => "killing processes of other users",
            Self::RealTime => "real-time scheduling",
            Self::LockMemory => "locked memory",
            Self::OomScore => "a lower oom_score_adj of our own",
            Self::InspectProcesses => "inspecting processes of other users",
            Self::ManageCgroups => "managing cgroups of other owners",
        }
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    // `from_str_radix` would take a sign.
    text.bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(status: &str) -> Result<Capabilities, HostError> {
        let root = tempfile::tempdir().expect("temporary folder");
        std::fs::create_dir_all(root.path().join("proc/self")).expect("fake tree");
        std::fs::write(root.path().join("proc/self/status"), status).expect("fake file");
        Capabilities::of_self(root.path())
    }

    #[test]
    fn sets_become_names() {
        let capabilities = fake("Name:\tx\nCapEff:\t0000000000800020\nCapBnd:\t000001fffeffffff\n")
            .expect("status");
        let names: Vec<String> = capabilities
            .effective
            .iter()
            .map(|one| one.to_string())
            .collect();
        assert_eq!(names, ["CAP_KILL", "CAP_SYS_NICE"]);
        assert!(!capabilities.bounding.has(Capability::SYS_RESOURCE));
        assert!(capabilities.bounding.has(Capability::BPF));
        assert_eq!(Capability(63).to_string(), "CAP_63");
        assert_eq!(Capability::BPF.to_string(), "CAP_BPF");
        assert_eq!(Capability::PERFMON.to_string(), "CAP_PERFMON");
        assert_eq!(Capability::SYS_RESOURCE.to_string(), "CAP_SYS_RESOURCE");
        assert_eq!(Capability::IPC_LOCK.to_string(), "CAP_IPC_LOCK");
    }

    #[test]
    fn what_is_missing_is_named_and_the_old_umbrella_still_counts() {
        fn check(effective: &str, ability: Ability, expected: &[Capability]) {
            let status = format!("CapEff:\t{effective}\nCapBnd:\t0\n");
            assert_eq!(
                fake(&status).expect("status").missing(ability),
                expected,
                "{effective} {ability:?}"
            );
        }
        check(
            "0",
            Ability::KernelPrograms,
            &[Capability::BPF, Capability::PERFMON],
        );
        check("200000", Ability::KernelPrograms, &[]);
        check(
            "8000000000",
            Ability::KernelPrograms,
            &[Capability::PERFMON],
        );
        check("c000000000", Ability::KernelPrograms, &[]);
        check("200000", Ability::RealTime, &[Capability::SYS_NICE]);
        check("20", Ability::Kill, &[]);
    }

    #[test]
    fn a_broken_status_is_an_error() {
        assert!(matches!(
            fake("Name:\tx\n"),
            Err(HostError::Missing {
                what: "CapEff:",
                ..
            })
        ));
        assert!(matches!(
            fake("CapEff:\t+1\nCapBnd:\t0\n"),
            Err(HostError::Malformed {
                what: "CapEff:",
                ..
            })
        ));
        assert!(matches!(
            fake("CapEff:\t\nCapBnd:\t0\n"),
            Err(HostError::Malformed {
                what: "CapEff:",
                ..
            })
        ));
    }
}

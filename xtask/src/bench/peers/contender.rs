//! Who is compared: Brink, what users install today, the kubelet as a model, and nothing at all.
use serde::{Deserialize, Serialize};

/// Bytes that everybody is told to keep free.
pub const LIMIT: u64 = 100 << 20;

/// Who is to act.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// The agent, enforcing, on its top rung.
    Brink,
    /// rfjakob's, in C.
    Earlyoom,
    /// hakavlad's, in Python.
    Nohang,
    /// Meta's, with a rule on everything the pods' group holds.
    Oomd,
    /// Meta's, with a rule on the anonymous memory of that group.
    OomdAnon,
    /// systemd's, with a rule on what is available where swap is full, and one on pressure.
    SystemdOomd,
    /// The kubelet's loop: a look every 10 s, one pod a pass, SIGKILL a second after SIGTERM.
    Kubelet,
    /// The kernel's OOM killer alone.
    Nothing,
}

/// What a contender goes by, as the truth reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signal {
    /// What could still be allocated, as Brink counts it.
    Headroom,
    /// `MemAvailable` of `/proc/meminfo`.
    Estimate,
    /// The kubelet's `memory.available`.
    WorkingSet,
    /// What the pods' group is charged, against the most that leaves the limit free.
    PodsUsage,
    /// `MemAvailable`, against a share of what it and `AnonPages` come to together.
    Share,
}

impl Signal {
    /// All of them, in the order of the truth's watches.
    pub const ALL: [Self; 5] = [
        Self::Headroom,
        Self::Estimate,
        Self::WorkingSet,
        Self::PodsUsage,
        Self::Share,
    ];

    /// Its place among the truth's watches.
    pub const fn place(self) -> usize {
        self as usize
    }

    /// The truth's limit for it, where everybody's is `limit`: of the last two the truth counts what is left above theirs,
    /// and a share that is reached is one that is crossed.
    pub const fn least(self, limit: i64) -> i64 {
        match self {
            Self::Headroom | Self::Estimate | Self::WorkingSet => limit,
            Self::PodsUsage => 0,
            Self::Share => 1,
        }
    }

    /// As the tables name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Headroom => "memory.headroom",
            Self::Estimate => "MemAvailable",
            Self::WorkingSet => "memory.available",
            Self::PodsUsage => "memory.current of the pods",
            Self::Share => "MemAvailable by its share",
        }
    }
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Brink,
        Self::Earlyoom,
        Self::Nohang,
        Self::Oomd,
        Self::OomdAnon,
        Self::SystemdOomd,
        Self::Kubelet,
        Self::Nothing,
    ];

    /// Those of the short form, for every change.
    pub const SHORT: [Self; 4] = [Self::Brink, Self::Earlyoom, Self::Kubelet, Self::Nothing];

    /// As the tables name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Brink => "Brink",
            Self::Earlyoom => "earlyoom",
            Self::Nohang => "nohang",
            Self::Oomd => "oomd, memory_above",
            Self::OomdAnon => "oomd, memory_above anon",
            Self::SystemdOomd => "systemd-oomd",
            Self::Kubelet => "kubelet (model)",
            Self::Nothing => "kernel OOM killer alone",
        }
    }

    /// What it goes by. The rules of oomd know the anonymous memory of a group, which the truth does not read; nothing
    /// else is in the pods' group but page cache and kernel memory, so its charge stands for both rules.
    pub const fn signal(self) -> Signal {
        match self {
            Self::Brink | Self::Nothing => Signal::Headroom,
            Self::Earlyoom => Signal::Share,
            Self::Nohang | Self::SystemdOomd => Signal::Estimate,
            Self::Oomd | Self::OomdAnon => Signal::PodsUsage,
            Self::Kubelet => Signal::WorkingSet,
        }
    }
}

/// What earlyoom has to be told so that it acts below so many bytes of `MemAvailable`, and not later.
///
/// It takes its amount as a part of all memory, and compares that with the part that is available of what user processes
/// have or could have, as these are now: `MemTotal`, `MemAvailable`, `AnonPages`.
pub(super) fn earlyoom_kib(limit: u64, [total, available, anon]: [u64; 3]) -> u64 {
    let user = u128::from(available.saturating_add(anon)).max(1);
    let bytes = u128::from(limit) * u128::from(total) / user;
    u64::try_from(bytes / 1024).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlyoom_acts_at_the_limit() {
        // 100 of 800 MiB that users have or could have are 125 of 1000.
        let mib = 1 << 20;
        let told = earlyoom_kib(100 * mib, [1000 * mib, 600 * mib, 200 * mib]);
        assert_eq!(told, 125 * 1024);
    }

    #[test]
    fn signals_are_where_the_truth_watches_them() {
        let places = Signal::ALL.map(Signal::place);
        assert_eq!(places, [0, 1, 2, 3, 4]);
    }
}

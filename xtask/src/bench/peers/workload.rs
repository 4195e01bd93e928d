//! What is run: loads that somebody has to answer, and quiet ones that nobody may answer with a kill.
use serde::{Deserialize, Serialize};

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Anonymous memory in 4K pages, at so many percent of the fastest.
    Anon(u8),
    /// Anonymous memory in huge pages.
    Huge(u8),
    /// Shared memory, which is tmpfs.
    Shared(u8),
    /// Kernel memory: full pipes, which no process is seen to hold.
    Pipes(u8),
    /// Processes that fork as soon as they can.
    ForkBomb,
    /// Two pods at once, each at half the fastest.
    Two,
    /// Nothing at all.
    Idle,
    /// A file several times as large as what is left, read once.
    Streaming,
    /// A file twice what is left above the limit, read again and again.
    Again,
    /// Names that are looked up and not there: reclaimable slab.
    Names,
    /// A pod that ends a margin above the limit and stays there.
    Near,
    /// A pod that goes there for a moment, again and again.
    Spikes,
}

impl Workload {
    /// The loads of the full form, from the mildest.
    pub const FULL: [Self; 17] = [
        Self::Anon(2),
        Self::Anon(10),
        Self::Anon(50),
        Self::Anon(100),
        Self::Huge(10),
        Self::Huge(100),
        Self::Shared(10),
        Self::Shared(100),
        Self::Pipes(100),
        Self::ForkBomb,
        Self::Two,
        Self::Idle,
        Self::Streaming,
        Self::Again,
        Self::Names,
        Self::Near,
        Self::Spikes,
    ];
    /// Those of the short form.
    pub const SHORT: [Self; 3] = [Self::Anon(100), Self::Shared(100), Self::Near];

    /// Whether a kill is wrong, whoever is killed.
    pub const fn is_quiet(self) -> bool {
        matches!(
            self,
            Self::Idle | Self::Streaming | Self::Again | Self::Names | Self::Near | Self::Spikes
        )
    }

    /// As the tables name it.
    pub fn word(self) -> String {
        match self {
            Self::Anon(percent) => format!("4K pages, {percent} %"),
            Self::Huge(percent) => format!("huge pages, {percent} %"),
            Self::Shared(percent) => format!("tmpfs, {percent} %"),
            Self::Pipes(percent) => format!("kernel memory (pipes), {percent} %"),
            Self::ForkBomb => "fork bomb".to_owned(),
            Self::Two => "two pods at once, 4K".to_owned(),
            Self::Idle => "idle".to_owned(),
            Self::Streaming => "page cache, streaming".to_owned(),
            Self::Again => "page cache, the same file again".to_owned(),
            Self::Names => "slab, reclaimable".to_owned(),
            Self::Near => "near the limit".to_owned(),
            Self::Spikes => "spikes near the limit".to_owned(),
        }
    }
}

//! What the container runtime was asked, and what came of it, in words of our own: the runtime's are a feature.

use std::collections::BTreeMap;
use std::path::PathBuf;

use brink_core::base::Span;
use brink_core::node::reclaim::Reclaim;

/// Where images and writable layers lie, as the runtime names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders {
    /// Images.
    pub images: Option<PathBuf>,
    /// Writable layers; none where the runtime does not tell them apart.
    pub layers: Option<PathBuf>,
}

/// What a reclaim may do.
pub struct Order<'a> {
    /// The ways, in order.
    pub ways: &'a [Reclaim],
    /// Nothing is removed: it is only told what would be.
    pub is_dry: bool,
    /// For how long an image stays at least; none for as long as by default.
    pub image_min_age: Option<Span>,
    /// What is known of the pod of that uid.
    pub pods: &'a (dyn Fn(&str) -> PodIs + Sync),
    /// Whether anything may be removed now; asked before each removal.
    pub may_act: &'a (dyn Fn() -> bool + Sync),
}

/// What is known of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodIs {
    /// It is to run.
    Wanted,
    /// It has succeeded or failed for good.
    Over,
    /// The API knows all pods of this node, and none of that uid.
    Missing,
    /// Nobody says.
    Unknown,
}

/// Says what the API knows of the pod of a uid.
pub type AsksApi = dyn Fn(&str) -> PodIs + Send + Sync;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Why, where that says more.
    pub why: Option<String>,
    /// Dead containers that were removed, or would be.
    pub containers: Vec<Removed>,
    /// Unused images, likewise.
    pub images: Vec<Removed>,
    /// How many images stay, by the word for why.
    pub kept: BTreeMap<&'static str, u64>,
    /// What the runtime says that these hold, in bytes; images may share layers.
    pub said_bytes: u64,
    /// What the runtime would not remove, and why.
    pub refused: Vec<String>,
}

/// What all of these held, in bytes; none where that is not said of one.
pub fn held(mut all: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    all.try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
}

/// One thing that was removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// A container as `namespace/pod container (id)`, an image by its name.
    pub name: String,
    /// What it held, in bytes, if the runtime says so.
    pub bytes: Option<u64>,
}

/// How a reclaim ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// All that could go is gone.
    #[default]
    Done,
    /// It was enough before all of it was gone.
    Enough,
    /// Nothing was to be removed.
    DryRun,
    /// The configuration says to remove nothing.
    Off,
    /// A kubelet owns the runtime.
    Kubelet,
    /// Orders were no longer carried out.
    Stopped,
    /// Time ran out.
    Late,
    /// There is no runtime, or it cannot be asked; by the fault's name.
    Lost(&'static str),
}

impl End {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Enough => "enough",
            Self::DryRun => "dryRun",
            Self::Off => "off",
            Self::Kubelet => "kubelet",
            Self::Stopped => "stopped",
            Self::Late => "late",
            Self::Lost(name) => name,
        }
    }
}

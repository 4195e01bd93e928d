//! Configuration: what was written, layer over layer, and what is decided by it.
//!
//! Files become trees whose values know their place ([`document`]); layers are merged by the kubelet's
//! rules ([`load`]); the merged tree is read once more against the schema and becomes [`AgentConfig`]. Every
//! layer is checked on its own too, so that all faults are told at once, each with its file and line.

pub mod access;
mod capacity;
pub mod check;
pub(crate) mod disks;
pub mod document;
mod events;
pub mod eviction;
pub mod finding;
mod folders;
mod idle;
pub mod kubelet;
mod kubernetes;
mod layers;
mod lead;
mod load;
mod margin;
mod outlets;
mod overrides;
pub(crate) mod schema;
mod settings;
mod show;
pub(crate) mod storage;
#[cfg(test)]
mod tests;
pub mod thresholds;
pub(crate) mod version;
mod workloads;

pub use capacity::of_agent as capacities_of;
pub use kubernetes::{Kubernetes, StreamingLists};
pub(crate) use layers::refuse_what_waits;
pub use layers::{drop_ins, read_documents, read_one};
pub use load::{Checked, Sources, load};
pub use margin::{LeadMargin, Raised};
pub use outlets::{EventFile, EventJournal, Outlets};
pub use overrides::{Form, Override, SETTINGS, Setting};
pub use settings::{
    AgentConfig, CgroupRule, Events, Filesystems, Hooks, KubeletFiles, LogFormat, LogLevel,
    LogSettings, NodeScope, OomScores, Paths, Pattern, Realtime, ReclaimPolicy, RunMode,
    RuntimeConfig, Selection, Workloads,
};
pub use show::{Shown, ShownRaised};
pub use storage::Storage;
pub use version::{API_VERSION, KIND, Migrated, VERSIONS, migrate, migrate_text};

/// A configuration as a file would have it, on a machine of which nothing is known.
#[cfg(test)]
pub(crate) fn of_text(text: &str) -> AgentConfig {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, text).unwrap();
    let sources = Sources {
        config: Some(file),
        capacities: Some(brink_core::node::policy::Capacities::from_fn(|_| None)),
        ..Sources::default()
    };
    let loaded = load(&sources);
    loaded.unwrap_or_else(|faults| panic!("{faults}")).config
}

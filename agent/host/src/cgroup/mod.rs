//! Control groups of both versions: where they are mounted, what a group uses and may use, and whose group it is.
//!
//! | module | what it answers |
//! |---|---|
//! | [`layout`] | v1, v2 or hybrid, and which mount holds which controller |
//! | [`dir`] | one group, held open, with its id |
//! | [`partial`] | whether a mount shows the machine's whole tree |
//! | [`membership`] | which groups a process is in |
//! | [`home`] | where our cgroup namespace begins, and what groups outside of it are called |
//! | [`usage`], [`limit`], [`stat`], [`events`], [`pids`] | one file each, v1 and v2 behind one type |
//! | [`account`] | everything the memory controller says of a group, for a record |
//! | [`swap`] | what a group may still swap out |
//! | [`walk`] | the groups below a group, with and without allocation |
//! | [`pod`] | the pod and container a kubelet's group name stands for |
//! | [`preference`], [`glob`] | what the owner of a group asked for, and patterns over group paths |
//! | [`owned`] | groups made and removed by ourselves: tests, benches, the demonstration |

pub mod account;
pub mod dir;
pub mod events;
pub mod glob;
pub mod home;
pub mod layout;
pub mod limit;
pub mod membership;
mod mounts;
pub mod owned;
pub mod partial;
pub mod pids;
pub mod pod;
pub mod preference;
pub mod stat;
pub mod swap;
pub mod usage;
pub mod walk;

pub use dir::{CgroupDir, CgroupId};
pub use home::Home;
pub use layout::{Controller, Hierarchy, Layout, Mode, Version};
pub use limit::Limit;

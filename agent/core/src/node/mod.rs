//! One node's decisions: what is observed, which threshold it crosses, who goes, and what is said.

pub mod admission;
pub mod choose;
pub mod condition;
pub mod gate;
pub mod grace;
pub mod headroom;
pub mod kubelet;
pub mod limits;
pub mod memcg;
pub mod message;
pub mod metrics;
pub mod observe;
pub mod policy;
pub mod rank;
pub mod reclaim;
pub mod requests;
pub mod signal;
pub mod threshold;
pub mod workload;

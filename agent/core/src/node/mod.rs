//! One node's decisions: what is observed, which threshold it crosses, who goes, and what is said.

pub mod choose;
pub mod condition;
pub mod gate;
pub mod observe;
pub mod policy;
pub mod rank;
pub mod requests;
pub mod signal;
pub mod threshold;
pub mod workload;

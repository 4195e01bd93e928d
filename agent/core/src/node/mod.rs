//! One node's decisions: what is observed, which threshold it crosses, who goes, and what is said.

pub mod action;
pub mod admission;
pub mod choose;
pub mod condition;
pub mod credit;
pub mod decision;
pub mod engine;
pub mod gate;
pub mod grace;
pub mod headroom;
pub mod input;
pub mod kubelet;
pub mod limits;
pub mod memcg;
pub mod message;
pub mod metrics;
pub mod observe;
pub mod order;
pub mod policy;
pub mod rank;
pub mod reclaim;
pub mod requests;
pub mod safety;
pub mod signal;
pub mod threshold;
pub mod workload;

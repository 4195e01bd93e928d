//! The record of a decision as people and programs read it: one versioned form, made from the ledger's.

pub mod kubelet;
pub mod text;
pub mod wire;

pub use wire::DecisionRecord;

//! The record of a decision as people and programs read it: one versioned form, made from the ledger's.

pub mod kubelet;
pub mod page;
pub mod root;
pub mod text;
pub mod told;
mod why;
pub mod wire;
pub mod words;

pub use page::page;
pub use wire::DecisionRecord;

//! The page: node, workloads and incidents in a browser, and one incident as a file of its own.

pub mod bundle;
mod export;

pub use export::export;

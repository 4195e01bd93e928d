//! Events and incidents told to people: one sentence for an event, one page for an incident.

pub mod chart;
pub mod headline;
pub mod missing;
pub mod page;
pub mod sentence;
mod tables;
#[cfg(test)]
mod tests;
mod workloads;

pub use headline::headline;
pub use page::page;
pub use sentence::{sentence, sentence_of_whom};

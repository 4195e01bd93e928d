//! Events and incidents told to people: one sentence for an event, one page for an incident.

pub mod headline;
pub mod sentence;

pub use headline::headline;
pub use sentence::sentence;

//! Metrics for scrapers and probes: `/metrics` in `OpenMetrics` and Prometheus text, `/livez`, `/readyz`.
//!
//! The figures are those of `brink status`, and what the clerk counts. No label has more values than this program has words
//! for, or the kernel has programs: nothing that a workload may name itself becomes one.

pub mod catalogue;
pub mod counters;
pub mod events;
pub mod exposition;
pub mod facts;
pub mod health;
pub mod histogram;
pub mod page;
#[cfg(test)]
mod reference;
pub mod routes;
#[cfg(test)]
mod tests;

pub use counters::Counters;

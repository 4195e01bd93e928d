//! What is written into the Kubernetes API: statuses of evicted pods, events, the node's conditions and its taint.
//!
//! Bodies and decisions are pure functions; [`deliver`] and [`herald`] carry them out.

mod again;
pub mod answer;
pub mod body;
pub mod conditions;
pub mod conflict;
pub mod deliver;
pub mod door;
#[cfg(test)]
pub(crate) mod fake;
mod forbidden;
pub mod herald;
pub mod kept;
mod owed;
pub mod plan;
pub mod request;
pub mod taint;

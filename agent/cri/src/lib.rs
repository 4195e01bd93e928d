//! Brink's side of the container runtime: what it holds, what of that may go when a disk runs full, and its removal.
//!
//! It speaks the Container Runtime Interface, version 1, over the runtime's own socket; [`generated`] has the part of it that is
//! spoken, and of all calls that change something only the two removals are in it.

pub mod call;
pub mod client;
pub mod connection;
pub mod endpoint;
pub mod fault;
pub mod generated;
pub mod layout;
pub mod plan;
pub mod state;
pub mod usage;

#[cfg(test)]
mod fake;

//! The runtime: everything around the guard that can wait.
//!
//! Four ordinary threads beside tokio's: the [`clerk`] takes the guard's reports and keeps the shared [`state`], the
//! [`watch`]er notices changes of workloads and of the stop button, the [`sentry`] what is made in evicted pods, the warmer
//! keeps figures fresh. Tokio serves the socket and the process's signals.

pub mod agent;
pub mod clerk;
pub mod cluster;
mod configured;
pub mod deliver;
pub mod enforcer;
pub mod equipment;
mod folders;
pub mod foresight;
pub mod foretold;
pub mod graces;
mod heard;
pub mod hooks;
pub mod journal;
mod kept;
pub mod named;
pub mod oom_tally;
mod outbox;
pub mod prepare;
pub mod process;
mod recording;
mod retry;
pub mod sentry;
mod starts;
pub mod state;
mod steps;
pub mod stop_button;
pub mod streaming;
pub mod watch;

/// Name of the enforcer's lock in the agent's folder under /run: agents that share the folder share the lock.
pub const LOCK: &str = "enforcer.lock";

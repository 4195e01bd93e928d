//! The node daemon and command line of Brink.

pub mod backend;
pub mod bell;
pub mod cli;
pub mod config;
pub mod control;
pub mod demo;
pub mod disks;
pub mod dns;
pub mod doctor;
pub mod equip;
#[cfg(test)]
mod fake;
pub mod forensics;
pub mod guard;
pub mod ledger;
pub mod metrics;
pub mod node_name;
pub mod oom_scores;
pub mod page;
pub mod pod;
pub mod record;
pub mod recorder;
pub mod replay;
pub mod runtime;
pub mod scenario;
pub mod storage;
pub mod story;
pub mod telling;
pub mod terminal;
pub mod top;
pub mod warmer;

//! The node daemon and command line of Brink.

pub mod backend;
pub mod cli;
pub mod config;
pub mod equip;
pub mod guard;
pub mod ledger;
pub mod pod;
pub mod record;
pub mod scenario;
pub mod warmer;

//! The node daemon and command line of Brink.

pub mod guard;
pub mod ledger;

//! The node daemon and command line of Brink.

pub mod equip;
pub mod guard;
pub mod ledger;
pub mod record;
pub mod warmer;

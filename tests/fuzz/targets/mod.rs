//! The entry points themselves, by what is read.

pub(crate) mod access;
pub(crate) mod cgroup;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod control;
pub(crate) mod disk;
pub(crate) mod document;
pub(crate) mod event_journal;
pub(crate) mod host;
pub(crate) mod journal;
pub(crate) mod ledger;
pub(crate) mod node;
pub(crate) mod outbox;
pub(crate) mod pod;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod runtime;
pub(crate) mod scenario;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod text;
pub(crate) mod traces;

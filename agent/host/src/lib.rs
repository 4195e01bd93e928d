//! Everything that touches this machine; every reader takes its root as an argument.

pub mod probe;

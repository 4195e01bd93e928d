//! Configuration: what was written, layer over layer, and what is decided by it.

pub mod document;
pub mod finding;

//! The versioned wire forms of everything that is told. Fields and kinds are only ever added.

pub mod data;
pub mod event;
pub mod field;
pub mod incident;
pub mod kind;
mod settle;
pub mod workloads;

/// The version of everything in this module.
pub const API_VERSION: &str = "brink.dev/v1alpha1";

#[cfg(test)]
mod tests;

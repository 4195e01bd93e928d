//! The interface as Rust has it: made from `proto/runtime.proto` by `cargo xtask gen`, and committed.

mod runtime_v1;

pub use runtime_v1::*;

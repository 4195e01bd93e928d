//! `cargo xtask`: the project's automation in Rust.
fn main() {}

//! The `brink` binary: node daemon and command line.
fn main() {}

//! The doctor on machines made of files: whole, empty, foreign, and with one thing wrong at a time.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

mod advice;
mod command;
mod host;
mod machine;
mod memory;
mod node;
mod remedies;
mod robust;
mod trials;

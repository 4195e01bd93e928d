//! The decisions of Brink: pure, deterministic, `no_std`; time is an argument.
#![no_std]

extern crate alloc;

pub mod base;
pub mod node;

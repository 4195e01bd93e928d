//! The kernel programs of Brink, one hook family a file.
#![no_std]
#![no_main]
#![feature(core_intrinsics)]
#![expect(
    internal_features,
    reason = "the target has atomic operations that `core::sync` does not offer"
)]

mod atomic;
mod cgroup;
mod controller;
mod emit;
mod engine;
mod forensics;
mod kernel;
mod maps;
mod object;
mod oom;
mod pass;
mod process;
mod reclaim;
mod sampler;
mod timer;

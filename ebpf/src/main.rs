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
mod oom;
mod pass;
mod process;
mod reclaim;
mod sampler;

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// Helpers that read kernel memory are open to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

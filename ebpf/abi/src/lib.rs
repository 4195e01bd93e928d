//! Records and settings shared by the kernel programs and the agent: `#[repr(C)]`, plain integers, no padding.
#![no_std]

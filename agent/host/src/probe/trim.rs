//! Memory that was freed, back to the kernel: the agent's budget counts what is resident.
#![expect(
    unsafe_code,
    reason = "the C library offers no safe way to shrink its heap"
)]

/// Returns the free pages of the heap to the kernel, where the C library can.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes the allocator's own locks, touches nothing that is in use, and may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

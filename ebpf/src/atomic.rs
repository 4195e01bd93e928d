//! Atomic operations on map values. The target declares none in `core::sync`, though kernels since 5.12 have them.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd, atomic_xchg};

/// Adds to a counter that other CPUs add to as well.
#[inline(always)]
pub fn add(counter: *mut u64, delta: u64) {
    // SAFETY: the callers pass aligned fields of map values, which outlive the program.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, delta) };
}

/// Adds to a signed counter and returns the sum.
#[inline(always)]
pub fn add_signed(counter: *mut i64, delta: i64) -> i64 {
    // SAFETY: as for `add`.
    let before = unsafe { atomic_xadd::<i64, i64, { AtomicOrdering::SeqCst }>(counter, delta) };
    before.wrapping_add(delta)
}

/// Replaces the value and returns the one before; no access around it moves across it.
#[inline(always)]
pub fn swap(place: *mut u64, value: u64) -> u64 {
    // SAFETY: as for `add`.
    unsafe { atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(place, value) }
}

/// Replaces `from` by `to`; false when something else was there.
#[inline(always)]
pub fn exchange(place: *mut u64, from: u64, to: u64) -> bool {
    // SAFETY: as for `add`.
    let (_, done) = unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(place, from, to)
    };
    done
}

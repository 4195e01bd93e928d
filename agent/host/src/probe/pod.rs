//! aya moves only types that promise to be plain; the shared types made that promise already.
#![expect(
    unsafe_code,
    reason = "aya's promise is an unsafe trait, and neither it nor the shared types are ours to change here"
)]

use brink_abi::Plain;

/// A shared type as aya takes it.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(super) struct Pod<T>(pub(super) T);

// SAFETY: `Plain` promises what `Pod` asks: `repr(C)` integers without padding, every bit pattern valid. The wrapper is
// transparent over it.
unsafe impl<T: Plain> aya::Pod for Pod<T> {}

//! From the kernel's units to those of the tables.

/// Bytes of a mebibyte.
pub(in crate::bench) const MIB: u64 = 1 << 20;

/// Milliseconds of nanoseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "differences of a run: far below 2^53 ns"
)]
pub(in crate::bench) fn millis(nanos: i64) -> f64 {
    nanos as f64 / 1e6
}

/// Microseconds of nanoseconds.
pub(in crate::bench) fn micros(nanos: i64) -> f64 {
    millis(nanos) * 1e3
}

/// Mebibytes of bytes.
#[expect(
    clippy::cast_precision_loss,
    reason = "bytes of a machine: far below 2^53"
)]
pub(in crate::bench) fn mebibytes(bytes: i64) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// The distance between two times of the monotonic clock, in nanoseconds.
pub(in crate::bench) fn between(from: u64, to: u64) -> i64 {
    to.cast_signed().wrapping_sub(from.cast_signed())
}

/// An amount as the kernel programs count.
pub(in crate::bench) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

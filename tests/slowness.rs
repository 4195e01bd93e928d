//! How much longer everything may take: emulated processors are several times slower than real ones.

use std::env;
use std::sync::LazyLock;
use std::time::Duration;

/// Says by what factor this machine is slower than the ones the tests were written on.
const VARIABLE: &str = "BRINK_TEST_SLOWNESS";
static FACTOR: LazyLock<u32> = LazyLock::new(|| factor(env::var(VARIABLE).ok().as_deref()));

/// A bound on how long something may take, as this machine takes it. Times that are part of what is tested (a grace
/// period, a pause) are no such bounds.
pub fn slowed(bound: Duration) -> Duration {
    bound.saturating_mul(*FACTOR)
}

/// Whether processors are emulated: under KVM bounds are doubled, and nothing is left out.
pub fn is_slow() -> bool {
    *FACTOR > 2
}

/// Whoever writes something else than a number has made a mistake, and gets the strictest bounds.
fn factor(value: Option<&str>) -> u32 {
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or(1)
        .max(1)
}

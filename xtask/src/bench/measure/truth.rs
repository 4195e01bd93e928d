//! The truth sampler: loaded, its ticks waited for, and everything from before them forgotten.
use std::time::Duration;

use anyhow::Context as _;
use brink_host::probe::{Facts, Roots, Wishes, coverage, truth::Truth};
use brink_tests::wait_until;

/// Loads it by what this kernel has.
///
/// # Errors
/// When the kernel does not take it.
pub(in crate::bench) fn load() -> anyhow::Result<Truth> {
    let facts = Facts::gather(&Roots::default());
    let truth = Truth::load(&coverage::settings(&facts, Wishes::default()));
    truth.context("loading the truth sampler")
}

/// Forgets what was seen.
///
/// # Errors
/// When the sampler cannot be reached, or does not tick.
pub(in crate::bench) fn forget(truth: &mut Truth) -> anyhow::Result<()> {
    // A tick that was under way may put one field back: the second time there is none.
    for _ in 0..2 {
        truth.reset()?;
        wait_for_tick(truth)?;
    }
    Ok(())
}

/// Until a tick has ended: its processor may be taken away for many of its periods.
///
/// # Errors
/// When the sampler cannot be reached, or does not tick.
pub(in crate::bench) fn wait_for_tick(truth: &Truth) -> anyhow::Result<()> {
    let before = truth.result()?.ticks;
    let ticked = || {
        let result = truth.result().ok()?;
        (result.ticks != before).then_some(())
    };
    wait_until(Duration::from_secs(1), ticked).context("the truth sampler does not tick")
}

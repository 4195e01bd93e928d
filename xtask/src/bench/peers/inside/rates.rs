//! How fast memory can be taken here at the most, by kind; and the warm-up, which touches all of it first.
use std::{collections::BTreeMap, time::Duration};

use brink_host::hog::{HogSpec, Load as Kind};

use super::{
    load::Load,
    pods::{Pod, available},
};
use crate::bench::measure::units::MIB;

/// Taken to measure a kind.
const SAMPLE: u64 = 256 * MIB;
const PATIENCE: Duration = Duration::from_mins(2);

/// Bytes a second at the most, by name of the kind.
pub(super) fn measure() -> anyhow::Result<BTreeMap<String, u64>> {
    take(Kind::Anon, available()? / 4 * 3)?;
    [Kind::Anon, Kind::AnonHuge, Kind::Shmem, Kind::Pipes]
        .into_iter()
        .map(|kind| Ok((kind.name().to_owned(), take(kind, SAMPLE)?)))
        .collect()
}

/// Takes so much at full speed and gives it back; bytes a second.
fn take(kind: Kind, bytes: u64) -> anyhow::Result<u64> {
    let spec = HogSpec {
        hold: false,
        ..HogSpec::new(kind, bytes, PATIENCE)
    };
    let mut load = Load::spawn(Pod::Leaker, &spec)?;
    load.start();
    let progress = load.wait_done(PATIENCE)?;
    let nanos = progress
        .finished_ns
        .saturating_sub(progress.started_ns)
        .max(1);
    let rate = u128::from(progress.touched) * 1_000_000_000 / u128::from(nanos);
    Ok(u64::try_from(rate)?)
}

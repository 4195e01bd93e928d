//! Touches and frees memory first: on a virtual machine a page the host has never given costs three to ten times more.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use brink_host::{
    cgroup::{Controller, Layout, owned::OwnedCgroup},
    hog::{HogSpec, Load},
    meminfo::MeminfoReader,
};
use brink_tests::Hog;

use super::{programs, units::MIB};

/// What is left untouched.
const SPARED: u64 = 2 << 30;
const SHORT: u64 = 3 << 30;
const PATIENCE: Duration = Duration::from_mins(3);

/// Touches all free memory but two gibibytes (of the short form, six gibibytes), and tells how much.
pub(in crate::bench) fn warm_up(short: bool) -> anyhow::Result<String> {
    if !rustix::process::geteuid().is_root() {
        return Ok("no warm-up without root".to_owned());
    }
    let free = MeminfoReader::open(Path::new("/"))?.read()?.free;
    let room = free.saturating_sub(SPARED);
    let bytes = if short { room.min(SHORT) } else { room };
    if bytes < 64 * MIB {
        return Ok("no free memory to warm up".to_owned());
    }
    let layout = Layout::detect(Path::new("/"))?;
    let group = OwnedCgroup::create(&layout, "bench", &[Controller::Memory])?;
    group.limit_memory(&layout, bytes + 64 * MIB)?;
    let began = Instant::now();
    let spec = HogSpec {
        hold: false,
        ..HogSpec::new(Load::Anon, bytes, PATIENCE)
    };
    let mut hog = Hog::spawn(&programs::hog()?, Some(&group), &spec)?;
    let status = hog.wait(PATIENCE)?;
    drop(hog);
    group.remove()?;
    Ok(format!(
        "warm-up: {} MiB touched and freed in {:.1?} ({status})",
        bytes / MIB,
        began.elapsed()
    ))
}

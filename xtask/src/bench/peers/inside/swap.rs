//! Swap for the one contender that looks at nothing else without it: small, and full before the load begins.
use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use brink_host::meminfo::MeminfoReader;

use super::{
    load::Load,
    pods::{Pod, resident},
    tool::DISK,
};
use crate::bench::measure::units::MIB;

/// Little against the limit, and much against what the kernel sets aside of it for each processor (64 pages), which counts as free.
const SIZE: u64 = 8 * MIB;
/// What is taken so that it can go there; some of it cannot.
const HELD: u64 = 11 * MIB;
const PATIENCE: Duration = Duration::from_secs(20);

/// Swap that is in use. Dropping it ends who lies in it, and gives it back.
pub(super) struct Swap {
    _area: Area,
    holder: Load,
}

/// A file that is swapped to, or about to be.
struct Area(PathBuf);

impl Swap {
    /// Fills it with a process of the pod that grows: who holds the most of it is killed.
    pub(super) fn full() -> anyhow::Result<Self> {
        let area = Area(Path::new(DISK).join("swap"));
        write(&area.0)?;
        busybox("mkswap", &area.0)?;
        busybox("swapon", &area.0)?;
        let holder = resident(Pod::Leaker, HELD)?;
        let swap = Self {
            _area: area,
            holder,
        };
        swap.fill()?;
        Ok(swap)
    }

    fn fill(&self) -> anyhow::Result<()> {
        let reclaim = Pod::Leaker.folder().join("memory.reclaim");
        let meminfo = MeminfoReader::open(Path::new("/"))?;
        let began = Instant::now();
        loop {
            // It fails when it has found less than it was asked for.
            let _short = fs::write(&reclaim, format!("{HELD} swappiness=200"));
            let info = meminfo.read()?;
            if is_full(info.swap_total, info.swap_free) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let (total, free, pid) = (info.swap_total, info.swap_free, self.holder.pid());
                bail!("{free} of {total} bytes of swap are free: process {pid} does not go there");
            }
            sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // What lies in it has to go somewhere else.
        let _killed = fs::write(Pod::Leaker.folder().join("cgroup.kill"), "1");
        let _off = busybox("swapoff", &self.0);
        let _removed = fs::remove_file(&self.0);
    }
}

/// Full to a twelfth, and so below the tenth at which systemd-oomd takes it for that.
const fn is_full(total: u64, free: u64) -> bool {
    total > 0 && free <= total / 12
}

/// Without holes, which the kernel does not take.
fn write(path: &Path) -> anyhow::Result<()> {
    let context = || format!("writing {}", path.display());
    let mut file = File::create(path).with_context(context)?;
    let block = vec![0; usize::try_from(SIZE)?];
    file.write_all(&block).with_context(context)?;
    file.sync_all().with_context(context)
}

fn busybox(name: &str, path: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("/bin/busybox");
    let status = command.arg(name).arg(path).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("starting {name}"))?;
    anyhow::ensure!(status.success(), "{name} {}: {status}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_at_all_is_not_full() {
        assert!(!is_full(0, 0));
        assert!(!is_full(SIZE, SIZE / 10) && !is_full(SIZE, SIZE));
        assert!(is_full(SIZE, 0) && is_full(SIZE, SIZE / 12));
    }
}

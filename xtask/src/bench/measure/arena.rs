//! The ground of a benchmark: a bounded group that is the node or holds the workloads, a victim, and a load beside them.
use std::{
    cell::Cell,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use brink_host::{
    cgroup::{Controller, Layout, owned::OwnedCgroup},
    hog::{HogSpec, Load},
};
use brink_tests::{Hog, wait_until};

use super::{programs, units::MIB};

/// Long enough for any benchmark; everything started ends by then at the latest.
pub(in crate::bench) const LONGEST: Duration = Duration::from_mins(10);
/// One mapping of a fault storm: less than a huge page, so that it comes in 4K pages whatever the setting.
const STORM_MAPPING: u64 = 3 * MIB / 2;
/// Storms for each processor.
const STORMS_A_CPU: usize = 2;

/// Groups, and what lives in them.
pub(in crate::bench) struct Arena {
    /// Where the hierarchies are.
    pub(in crate::bench) layout: Layout,
    sleepers: Vec<Child>,
    victims: Cell<usize>,
    workloads: Vec<OwnedCgroup>,
    /// All workloads, in a group with a limit.
    pub(in crate::bench) node: OwnedCgroup,
    /// For what must not count as the node's.
    pub(in crate::bench) beside: OwnedCgroup,
}

impl Arena {
    /// A node of so many bytes with so many workloads, each of them one small process.
    pub(in crate::bench) fn new(bytes: u64, workloads: usize) -> anyhow::Result<Self> {
        let layout = Layout::detect(Path::new("/"))?;
        let controllers = [Controller::Memory, Controller::Pids];
        let node = OwnedCgroup::create(&layout, "bench", &controllers)?;
        node.limit_memory(&layout, bytes)?;
        node.limit_tasks(&layout, 4096)?;
        let beside = OwnedCgroup::create(&layout, "bench", &controllers)?;
        beside.limit_memory(&layout, 512 * MIB)?;
        let mut arena = Self {
            layout,
            sleepers: Vec::new(),
            victims: Cell::new(0),
            workloads: Vec::new(),
            node,
            beside,
        };
        for number in 0..workloads {
            let group = arena.node.child(&format!("w{number:04}"))?;
            arena.sleepers.push(sleeper(&group)?);
            arena.workloads.push(group);
        }
        arena.settle()?;
        Ok(arena)
    }

    /// A further workload, empty: the next victim's. It is removed when dropped.
    pub(in crate::bench) fn next_victim(&self) -> anyhow::Result<OwnedCgroup> {
        let number = self.victims.get();
        self.victims.set(number + 1);
        self.workload(&format!("victim{number}"))
    }

    /// A further workload.
    pub(in crate::bench) fn workload(&self, name: &str) -> anyhow::Result<OwnedCgroup> {
        Ok(self.node.child(name)?)
    }

    /// Waits until every process is in its group.
    fn settle(&self) -> anyhow::Result<()> {
        let wanted = self.sleepers.len();
        let settled = wait_until(Duration::from_secs(20), || {
            let there = self.node.processes().ok()?.len();
            (there == wanted).then_some(())
        });
        settled.context("the workloads' processes did not start")
    }

    /// Gives the first workloads a limit of their own.
    pub(in crate::bench) fn limit(&self, count: usize, bytes: u64) -> anyhow::Result<()> {
        for workload in self.workloads.iter().take(count) {
            workload.limit_memory(&self.layout, bytes)?;
        }
        Ok(())
    }

    /// How many of the small processes are there.
    pub(in crate::bench) fn workloads_left(&self) -> anyhow::Result<usize> {
        Ok(self.node.processes()?.len())
    }

    /// Starts fault storms on every processor, beside the node.
    pub(in crate::bench) fn storm(&self) -> anyhow::Result<Vec<Hog>> {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        let spec = HogSpec::new(Load::AnonChurn, STORM_MAPPING, LONGEST);
        let start = |_| Ok(Hog::spawn(&programs::hog()?, Some(&self.beside), &spec)?);
        (0..cpus * STORMS_A_CPU).map(start).collect()
    }

    /// The glob of the small processes.
    pub(in crate::bench) fn glob_of_sleepers(&self) -> String {
        format!("{}/w*", self.node.group())
    }

    /// The glob of all workloads.
    pub(in crate::bench) fn glob(&self) -> String {
        format!("{}/*", self.node.group())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for sleeper in &mut self.sleepers {
            // It may have been killed, by whoever was measured.
            let _ended = sleeper.kill();
            let _reaped = sleeper.wait();
        }
    }
}

/// A process that does nothing, in this group before it does even that.
fn sleeper(group: &OwnedCgroup) -> anyhow::Result<Child> {
    let script = r#"for entrance; do echo $$ > "$entrance" || exit 1; done; exec sleep 900"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(group.entrances());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().context("starting a workload")
}

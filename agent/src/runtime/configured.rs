//! What a checked configuration is for the parts of an agent: its killer, hooks, journal, and the like.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use brink_core::node::signal::Signal;
use brink_host::cgroup::Layout;
use brink_host::clock::{BootId, ClockPair};
use brink_host::kill::Killer;
use brink_host::realtime::FifoPriority;

use super::hooks::Hooks;
use super::journal::Journal;
use super::named::Named;
use super::stop_button::StopButton;
use crate::config::AgentConfig;
use crate::equip;
use crate::guard::ports::Ports;
use crate::guard::{self, Realtime};
use crate::ledger::{Author, Rung};
use crate::storage::Keeper;
use crate::storage::keeper::Means;
use crate::storage::need::is_wanted;

/// The node's annotation counts where there is a cluster to have it.
pub(super) fn stop_button(config: &AgentConfig) -> StopButton {
    let button = StopButton::new(&config.paths.state_dir);
    if config.kubernetes.enabled {
        button.with_node()
    } else {
        button
    }
}

pub(super) fn killer(config: &AgentConfig, layout: &Layout) -> anyhow::Result<Killer> {
    let Realtime { priority, may_move } = realtime_of(config);
    Ok(equip::killer(
        &config.paths.root,
        layout,
        priority.is_some(),
        may_move,
    )?)
}

pub(super) fn realtime_of(config: &AgentConfig) -> Realtime {
    Realtime {
        priority: config.realtime.priority.and_then(FifoPriority::new),
        may_move: config.realtime.move_guard_to_root_cpu_group,
    }
}

pub(super) fn author(config: &AgentConfig, (boot, started): (BootId, ClockPair)) -> Author {
    Author {
        boot: boot.0,
        clocks: started,
        policy: config.memory_policy,
        rung: Rung::Poll,
    }
}

pub(super) fn hooks(config: &AgentConfig) -> anyhow::Result<Hooks> {
    let hooks = &config.hooks;
    Ok(Hooks::new(
        hooks.before_kill.clone(),
        hooks.after_kill.clone(),
        hooks.timeout,
    )?)
}

pub(super) fn journal(config: &AgentConfig) -> anyhow::Result<Option<Journal>> {
    let Some(path) = config.paths.journal.as_deref() else {
        return Ok(None);
    };
    let journal = Journal::create(
        path,
        guard::now(),
        config.policy.clone(),
        config.live_settings(),
    );
    journal
        .map(Some)
        .with_context(|| format!("cannot begin the journal {}", path.display()))
        .context(Named::JOURNAL)
}

pub(super) fn keeper(config: &AgentConfig, ports: &Arc<Ports>) -> anyhow::Result<Keeper> {
    let period = u64::try_from(config.storage.period.as_nanos())?;
    let period = Duration::from_nanos(period);
    let is_wanted = is_wanted(&config.policy);
    let means = Means {
        root: config.paths.root.clone(),
        filesystems: config.filesystems.clone(),
        endpoint: config.runtime.endpoint.clone(),
        period,
    };
    Ok(Keeper::start(means, is_wanted, Arc::clone(ports))?)
}

pub(super) fn uses_pids(config: &AgentConfig) -> bool {
    config
        .policy
        .thresholds()
        .iter()
        .any(|threshold| threshold.signal == Signal::PidAvailable)
}

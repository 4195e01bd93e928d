//! Starting to tell: who tells, numbers that go on over restarts, and the first event of the run.

use std::env;
use std::time::Duration;

use anyhow::Context as _;
use brink_host::clock::{self, BootId, ClockPair};
use brink_stream::hub::{Found, Hub, Identity, Limits, Numbers};
use brink_stream::journal;
use tracing::warn;

use super::Telling;
use crate::config::{AgentConfig, Kubernetes};
use crate::{guard, node_name};

/// The file in the state directory that numbers are reserved in.
const NUMBERS: &str = "events.numbers";
/// So long the journal's disk is waited for before the guard starts, where no number of this boot was left.
const MOMENT: Duration = Duration::from_millis(20);

impl Telling {
    /// Starts to tell, if the configuration says so: the run's first event is told before this returns. Nobody is protected
    /// before that, so it reads and writes one small file; [`Self::open_ways`] does what takes longer.
    ///
    /// # Errors
    /// When the thread that reserves numbers cannot be started.
    pub fn start(
        config: &AgentConfig,
        (boot, clocks): (BootId, ClockPair),
    ) -> anyhow::Result<Self> {
        if !config.events.enabled {
            return Ok(Self::off());
        }
        let path = config.paths.state_dir.join(NUMBERS);
        let identity = Identity {
            node: told_name(
                &config.kubernetes,
                env::var("NODE_NAME").ok().as_deref(),
                &node_name::of_machine(&config.paths.root),
            ),
            boot_id: boot.to_string(),
        };
        let uptime = Duration::from_nanos(clock::since_boot_ns());
        let kept = &config.events.journal;
        let was_before =
            || kept.enabled && journal::may_have(&kept.path, &identity.boot_id, MOMENT);
        let (numbers, found) = Numbers::open(&path, &identity.boot_id, uptime, was_before);
        report(&found);
        let is_first = matches!(found, Found::Nothing | Found::OtherBoot | Found::Elsewhere);
        let after = (!is_first).then(|| numbers.last());
        let hub = Hub::numbered(identity, numbers, Limits::default())
            .context("cannot start to number events")?;
        let telling = Self::new(hub, clocks);
        telling.started(config.mode.word(), guard::now(), after);
        Ok(telling)
    }
}

/// Says what was found, where it is not what a run leaves.
fn report(found: &Found) {
    match found {
        Found::Lost => warn!(
            "no number of this boot's events is left, and the event journal has some or does not say at once; this run's begin far beyond"
        ),
        Found::PutAside { aside, why } => {
            let aside = aside.display();
            warn!(%aside, why, "the numbers of events were damaged and have been put aside");
        }
        Found::Elsewhere => warn!(
            "another agent with this state directory numbers its events; this one's numbers begin far beyond them"
        ),
        Found::NotKept(why) => warn!(
            why,
            "the numbers of events cannot be kept; this run's begin far beyond those before, and it is tried again"
        ),
        Found::Nothing | Found::OtherBoot | Found::Continued => {}
    }
}

/// What the node is called in events: in a cluster as there, since the machine's name is that of the pod where the agent runs in one.
fn told_name(kubernetes: &Kubernetes, variable: Option<&str>, machine: &str) -> String {
    if !kubernetes.enabled {
        return machine.to_owned();
    }
    let found = node_name::of_cluster(kubernetes.node_name.as_deref(), variable, machine);
    // One that the API server is not asked by is told as it was given.
    found.unwrap_or_else(|error| error.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_the_name_of_the_cluster_where_it_is_in_one() {
        for (enabled, configured, variable, expected) in [
            (false, Some("a"), Some("b"), "Machine"),
            (true, Some("a"), Some("b"), "a"),
            (true, None, Some(" b "), "b"),
            (true, Some(""), None, "machine"),
            (true, None, Some(""), "machine"),
        ] {
            let kubernetes = Kubernetes {
                enabled,
                node_name: configured.map(str::to_owned),
                ..Kubernetes::default()
            };
            let told = told_name(&kubernetes, variable, "Machine");
            assert_eq!(told, expected, "{configured:?} {variable:?}");
        }
    }
}

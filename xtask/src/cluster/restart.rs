//! The API server of a cluster that is up, taken away and given back.
use std::{
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Signal, kill_process};

use super::{
    control_plane::{self, API_SERVER},
    down::Lock,
    groups::Groups,
    launch::Launcher,
    pki::Pki,
    state::State,
    supply,
};

/// How long the killed may take to be gone.
const DEATH: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);

/// Kills it, so that no watch is ended in good order and no answer is given any more.
///
/// # Errors
/// When there is none of ours, or it does not die.
pub(super) fn take_away(folder: &Path) -> anyhow::Result<()> {
    let _lock = Lock::take(folder)?;
    let state = State::read(folder).context("no cluster is up")?;
    let mut running = state.processes.iter().filter(|each| state.runs(each));
    let server = running.find(|each| each.name == API_SERVER);
    let server = server.context("no API server of the cluster runs")?;
    let pid = server.id().context("the number of a process")?;
    kill_process(pid, Signal::KILL).context("killing the API server")?;
    let until = Instant::now() + DEATH;
    while state.runs(server) {
        if Instant::now() > until {
            bail!("the API server does not die");
        }
        sleep(TICK);
    }
    Ok(())
}

/// Starts it as it was, and waits until it is ready. Its log begins anew.
///
/// # Errors
/// When it cannot be started, or is not ready in time.
pub(super) fn give_back(folder: &Path) -> anyhow::Result<()> {
    let _lock = Lock::take(folder)?;
    let mut state = State::read(folder).context("no cluster is up")?;
    state.processes.retain(|each| each.name != API_SERVER);
    let mut launcher = Launcher {
        folder: folder.to_owned(),
        groups: Groups::find()?.of_system(),
        bundle: supply::obtain()?,
        state,
    };
    control_plane::api_server(&mut launcher, &Pki::of(folder))
}

/// Starts it where it does not run.
///
/// # Errors
/// As [`give_back`].
pub(super) fn ensure(folder: &Path) -> anyhow::Result<()> {
    let state = State::read(folder).context("no cluster is up")?;
    let mut running = state.processes.iter().filter(|each| state.runs(each));
    if running.any(|each| each.name == API_SERVER) {
        return Ok(());
    }
    give_back(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::state::Process;

    #[test]
    fn only_a_server_of_ours_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |of: &Path| take_away(of).unwrap_err().to_string();
        assert_eq!(refused(folder.path()), "no cluster is up");
        let own = Process::new(API_SERVER, std::process::id()).unwrap();
        let before = Process {
            start: own.start + 1,
            ..own
        };
        let state = State {
            processes: vec![before],
            ..State::new().unwrap()
        };
        state.write(folder.path()).unwrap();
        // Another process has its number by now.
        assert!(refused(folder.path()).starts_with("no API server"));
    }
}

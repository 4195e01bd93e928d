//! `cargo xtask cluster up`: starts a cluster where none is.
use std::{fs, os::unix::fs::DirBuilderExt as _, path::Path, time::Instant};

use anyhow::{Context as _, bail};

use super::{
    control_plane,
    down::Lock,
    groups::Groups,
    launch::Launcher,
    machine, node,
    pki::Pki,
    preflight,
    state::{PROGRAMS, State},
    supply,
};
use crate::Verdict;

/// Starts one, or says that one is up already.
pub(super) fn run(folder: &Path) -> anyhow::Result<Verdict> {
    if is_up(folder)? {
        println!("the cluster is up already");
        tell(folder);
        return Ok(Verdict::Passed);
    }
    preflight::check()?;
    let bundle = supply::obtain()?;
    let began = Instant::now();
    make(folder)?;
    let _lock = Lock::take(folder)?;
    // Another `up` may have been before us.
    if is_up(folder)? {
        bail!(
            "another command has just started a cluster: `cargo xtask cluster status` tells of it"
        );
    }
    let state = State::new()?;
    state.write(folder)?;
    let groups = Groups::find()?;
    let mut launcher = Launcher {
        folder: folder.to_owned(),
        groups: Vec::new(),
        bundle,
        state,
    };
    let start = |launcher: &mut Launcher| {
        groups.make()?;
        launcher.groups = groups.of_system();
        begin(launcher)
    };
    start(&mut launcher).context(
        "what was started is left to be looked at; `cargo xtask cluster down` removes it",
    )?;
    println!(
        "the cluster is up after {:.0} s",
        began.elapsed().as_secs_f64()
    );
    tell(folder);
    Ok(Verdict::Passed)
}

/// Whether a whole one runs.
///
/// # Errors
/// When there is one that is not whole.
pub(super) fn is_up(folder: &Path) -> anyhow::Result<bool> {
    let state = State::read(folder);
    let population = Groups::find()?.population()?;
    match judge(state.as_ref(), population) {
        Ok(up) => Ok(up),
        Err(reason) => {
            bail!("there is a cluster already, and {reason}: `cargo xtask cluster down` removes it")
        }
    }
}

/// Whether a cluster with this state, and so many processes in its groups, is up, or why it is neither up nor away.
fn judge(state: Option<&State>, population: usize) -> Result<bool, String> {
    let Some(state) = state else {
        return if population == 0 {
            Ok(false)
        } else {
            Err(format!("nothing tells what its {population} processes are"))
        };
    };
    if !state.is_of_this_boot() {
        return Err("it is from before the machine was booted".to_owned());
    }
    if !state.complete {
        return Err("its start did not come to its end".to_owned());
    }
    let ended = state.ended();
    if ended.is_empty() {
        Ok(true)
    } else {
        Err(format!("of it ended: {}", ended.join(", ")))
    }
}

/// The folder, for root alone: there are keys in it.
fn make(folder: &Path) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder);
    made.with_context(|| format!("making {}", folder.display()))
}

fn begin(launcher: &mut Launcher) -> anyhow::Result<()> {
    let folder = launcher.folder.clone();
    let programs = folder.join(PROGRAMS);
    std::os::unix::fs::symlink(launcher.bundle.programs(), &programs)
        .with_context(|| format!("making {}", programs.display()))?;
    machine::prepare(&mut launcher.state, &folder, &launcher.bundle)?;
    let pki = Pki::of(&folder);
    pki.make()?;
    control_plane::start(launcher, &pki)?;
    node::start(launcher, &pki)?;
    launcher.state.complete = true;
    launcher.state.write(&folder)
}

fn tell(folder: &Path) {
    let config = Pki::of(folder).admin();
    println!("  export KUBECONFIG={}", config.display());
    println!(
        "  {}/bin/kubectl get pods --all-namespaces",
        folder.display()
    );
    println!(
        "  containers: {0}/bin/ctr --address {1} --namespace k8s.io containers list",
        folder.display(),
        node::socket(folder).display()
    );
    println!(
        "  logs: {}/logs; `cargo xtask cluster down` removes all of it",
        folder.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::state::Process;

    fn state(complete: bool, ended: bool) -> State {
        let own = Process::new("kubelet", std::process::id()).unwrap();
        let start = own.start + u64::from(ended);
        State {
            complete,
            processes: vec![Process { start, ..own }],
            ..State::new().unwrap()
        }
    }

    fn check(state: Option<&State>, population: usize, expected: Result<bool, &str>) {
        match (judge(state, population), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn only_a_whole_cluster_is_up() {
        check(None, 0, Ok(false));
        check(None, 3, Err("3 processes"));
        check(Some(&state(true, false)), 9, Ok(true));
        check(Some(&state(true, true)), 8, Err("ended: kubelet"));
        check(
            Some(&state(false, false)),
            9,
            Err("did not come to its end"),
        );
        let earlier = State {
            boot: "another".to_owned(),
            ..state(true, false)
        };
        check(Some(&earlier), 0, Err("booted"));
    }
}

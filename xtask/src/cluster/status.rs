//! `cargo xtask cluster status`: what of a cluster runs, and whether its node is ready.
use std::path::Path;

use super::{groups::Groups, launch::Kubectl, node, pki::NODE, state::State};
use crate::Verdict;

/// Prints it; only a cluster that is up and ready passes.
pub(super) fn run(folder: &Path) -> anyhow::Result<Verdict> {
    let population = Groups::find()?.population()?;
    let Some(state) = State::read(folder) else {
        println!("{}", without_state(population));
        return Ok(Verdict::Failed);
    };
    print!("{}", table(&state));
    let kubectl = Kubectl {
        program: folder.join("bin/kubectl"),
        folder: folder.to_owned(),
        groups: Vec::new(),
    };
    let ready = node::is_ready(&kubectl);
    let word = if ready { "ready" } else { "not ready" };
    println!("node {NODE}: {word}, as far as the API server says");
    println!("processes in all, those of pods too: {population}");
    if !state.complete {
        println!("its start did not come to its end: `cargo xtask cluster down` removes it");
    }
    let whole = state.complete && ready && state.ended().is_empty();
    Ok(Verdict::from_holds(whole))
}

fn without_state(population: usize) -> String {
    if population == 0 {
        "there is no cluster: `cargo xtask cluster up` starts one".to_owned()
    } else {
        format!(
            "{population} processes of a cluster run, and nothing tells what they are: `cargo xtask cluster down` removes them"
        )
    }
}

fn table(state: &State) -> String {
    let line = |process: &super::state::Process| {
        let word = if state.runs(process) {
            "runs"
        } else {
            "has ended"
        };
        format!("{:<24} {:>8}  {word}\n", process.name, process.pid)
    };
    state.processes.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::state::Process;

    #[test]
    fn who_has_ended_is_told() {
        let own = Process::new("etcd", std::process::id()).unwrap();
        let gone = Process {
            name: "kubelet".to_owned(),
            start: own.start + 1,
            ..own.clone()
        };
        let state = State {
            processes: vec![own, gone],
            ..State::new().unwrap()
        };
        let table = table(&state);
        let words: Vec<_> = table.lines().map(|line| line.ends_with("runs")).collect();
        assert_eq!(words, [true, false], "{table}");
    }
}

//! Scenario files, run by the kubelet's rules and by Brink's.

use std::convert::Infallible;

use brink::scenario::{Scenario, read, run, run_live};

use crate::Taken;
use crate::scratch::Scratch;

thread_local! {
    static FOLDER: Scratch = Scratch::new();
}

/// One scenario. It has a line a step, and the same ones each time.
pub(crate) fn scenario(bytes: &[u8]) -> Taken {
    FOLDER.with(|folder| {
        folder.clear();
        match read(&folder.write("scenario", bytes)) {
            Ok((scenario, _)) => {
                check(&scenario, kubelets);
                check(&scenario, live);
                Taken::Accepted
            }
            Err(faults) => {
                assert!(!faults.list.is_empty() && !faults.to_string().is_empty());
                Taken::Refused
            }
        }
    })
}

fn check(scenario: &Scenario, lines: fn(&Scenario) -> Vec<String>) {
    let first = lines(scenario);
    assert_eq!(first.len(), scenario.steps.len());
    assert_eq!(first, lines(scenario), "two runs differ");
}

fn kubelets(scenario: &Scenario) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(()) = run(scenario, |line| {
        lines.push(serde_json::to_string(line).unwrap_or_default());
        Ok::<(), Infallible>(())
    });
    lines
}

fn live(scenario: &Scenario) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(()) = run_live(scenario, |line| {
        lines.push(serde_json::to_string(line).unwrap_or_default());
        Ok::<(), Infallible>(())
    });
    lines
}

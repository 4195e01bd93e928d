//! Many kills of the kernel's in a row: none is lost, and what is told of each is whole.

use std::path::Path;
use std::time::Duration;

use brink_tests::kills::{Account, PARTS, kill_by_limits, listen};
use brink_tests::{lacks, slowed, wait_until};

use crate::support::{Node, PATIENCE};

/// Groups that take turns.
const GROUPS: u32 = 10;
const A_SECOND: u32 = 50;
/// Nothing is told for so long: there is nothing more.
const SILENCE: Duration = Duration::from_secs(15);

/// Times are no part of it: `cargo xtask bench forensics` holds those.
fn every_kill_is_told_whole(count: u32) {
    let mut node = Node::new(512);
    for number in 0..GROUPS {
        node.workload(&format!("w{number}"), "containers: [{name: c}]");
    }
    node.configure(
        "enforce",
        "evictionHard: {memory.available: 60Mi}\nevents: {enabled: true}",
    );
    let status = node.start(&[]);
    for name in ["oom_victim", "sigkill_sent"] {
        let mut programs = status.programs.iter();
        let program = programs.find(|program| program.name == name);
        if !program.is_some_and(|program| program.running) {
            lacks!("{name} does not run here: {:?}", status.rung_reasons);
        }
    }
    let known = wait_until(PATIENCE, || {
        let status = node.status()?;
        (status.workloads == GROUPS).then_some(())
    });
    assert!(known.is_some(), "{}", node.log());
    let listener = listen(&node.path("state/events.sock"), count, slowed(SILENCE)).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_brink-hog"));
    let ground = (&node.sandbox.layout, &node.groups[..]);
    let (killed, _took) = kill_by_limits(program, ground, (count, A_SECOND)).unwrap();
    let heard = listener.join().unwrap().unwrap();
    let account = Account::of(&killed, &heard).unwrap();
    let example = account.example.as_deref().unwrap_or("all are whole");
    let example = format!("{example}; told: {:?}", account.kinds);
    assert_eq!(account.missing, 0, "{example}\n{}", node.log());
    assert_eq!(account.uncounted, 0, "{example}\n{}", node.log());
    assert_eq!(account.pending, 0, "{example}");
    assert_eq!(account.wrong_limits, 0, "{example}");
    let count = usize::try_from(count).unwrap();
    assert_eq!(account.complete, count, "{example}");
    for part in PARTS {
        let filled = account.filled.get(part).copied().unwrap_or(0);
        assert!(100 * filled >= 99 * count, "{part}: {filled}; {example}");
    }
}

#[test]
fn a_hundred_kills_are_a_hundred_whole_incidents() {
    every_kill_is_told_whole(100);
}

#[test]
#[ignore = "slow: a thousand kills"]
fn a_thousand_kills_are_a_thousand_whole_incidents() {
    every_kill_is_told_whole(1000);
}

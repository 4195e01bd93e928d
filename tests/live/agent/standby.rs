//! Two agents on one node: one enforces, the other watches and takes over.

use std::fs;

use crate::support::{MIB, Node, PATIENCE, gone_after, lives};
use brink::control::client::ask;
use brink::control::protocol::{Answer, Question, Status};
use brink_host::hog::Load;
use brink_tests::wait_until;
use rustix::process::Signal;

pub(crate) fn status_at(node: &Node, socket: &str) -> Option<Status> {
    match ask(&node.path(socket), &Question::Status) {
        Ok(Answer::Status(status)) => Some(*status),
        _ => None,
    }
}

/// Starts an agent, and a second one with the same configuration and a socket of its own.
pub(crate) fn two_agents(node: &mut Node, settings: &str) {
    node.configure("enforce", settings);
    node.start(&[]);
    let config = fs::read_to_string(node.path("config.yaml")).unwrap();
    let other = node.path("other.sock");
    let with_socket = config.replace(
        "paths: {",
        &format!("paths: {{socket: '{}', ", other.display()),
    );
    fs::write(node.path("config.yaml"), with_socket).unwrap();
    let second = node.launch(&[]);
    assert_eq!(in_mode(node, "standby").pid, second);
}

/// Waits until the second agent is in a mode.
pub(crate) fn in_mode(node: &Node, wanted: &str) -> Status {
    let status = wait_until(PATIENCE, || {
        status_at(node, "other.sock").filter(|status| status.mode == wanted)
    });
    status.unwrap_or_else(|| panic!("not {wanted}: {}", node.log()))
}

#[test]
fn who_takes_over_takes_the_limits_on_kills_over() {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    let limits = "evictionHard: {memory.available: 60Mi}\nlimits: {burst: 1, refillInterval: 10m}";
    two_agents(&mut node, limits);
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    assert_eq!(node.finished(1).mode, "enforcing");
    node.stop_first(Signal::KILL);
    in_mode(&node, "enforcing");
    let second = node.holding(leaker, 260);
    in_mode(&node, "throttled");
    assert!(lives(&second), "{}", node.log());
}

#[test]
fn a_second_agent_stands_by_and_takes_over_when_the_first_is_gone() {
    let mut node = Node::new(300);
    let first_victim = node.workload("first", "containers: [{name: c}]");
    let second_victim = node.workload("second", "containers: [{name: c}]");
    two_agents(&mut node, "evictionHard: {memory.available: 60Mi}");

    let leak = node.load(first_victim, Load::Anon, 280 * MIB);
    gone_after(&leak);
    assert_eq!(node.finished(1).mode, "enforcing");
    let seen = wait_until(PATIENCE, || {
        status_at(&node, "other.sock").filter(|status| status.decisions > 0)
    });
    assert!(
        seen.is_some(),
        "the second decided too, and did nothing: {}",
        node.log()
    );

    node.stop_first(Signal::KILL);
    in_mode(&node, "enforcing");
    let leak = node.load(second_victim, Load::Anon, 280 * MIB);
    gone_after(&leak);
    let records = wait_until(PATIENCE, || {
        match ask(&node.path("other.sock"), &Question::Decisions) {
            Ok(Answer::Decisions(records)) => {
                let enforced = |record: &&brink::record::DecisionRecord| record.mode == "enforcing";
                (records.iter().filter(enforced).count() == 2).then_some(records)
            }
            _ => None,
        }
    });
    let records = records.expect("the decisions of both");
    let told: Vec<_> = records
        .iter()
        .map(|record| (record.victim_name(), record.mode.clone()))
        .collect();
    let enforced = |victim: &str| (victim.to_owned(), "enforcing".to_owned());
    assert_eq!(told, [enforced("test/first"), enforced("test/second")]);
    assert!(records[0].order < records[1].order, "numbers go on");
}

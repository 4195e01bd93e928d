//! Two agents on one node: one enforces, the other watches and takes over.

use std::fs;

use crate::support::{MIB, Node, PATIENCE, gone_after};
use brink::control::client::ask;
use brink::control::protocol::{Answer, Question, Status};
use brink_host::hog::Load;
use brink_tests::wait_until;
use rustix::process::Signal;

fn status_at(node: &Node, socket: &str) -> Option<Status> {
    match ask(&node.path(socket), &Question::Status) {
        Ok(Answer::Status(status)) => Some(*status),
        _ => None,
    }
}

#[test]
fn a_second_agent_stands_by_and_takes_over_when_the_first_is_gone() {
    let mut node = Node::new(300);
    let first_victim = node.workload("first", "containers: [{name: c}]");
    let second_victim = node.workload("second", "containers: [{name: c}]");
    node.configure("enforce", "evictionHard: {memory.available: 60Mi}");
    node.start(&[]);
    let config = fs::read_to_string(node.path("config.yaml")).unwrap();
    let other = node.path("other.sock");
    let with_socket = config.replace(
        "paths: {",
        &format!("paths: {{socket: '{}', ", other.display()),
    );
    fs::write(node.path("config.yaml"), with_socket).unwrap();
    let second = node.launch(&[]);
    let mode = |node: &Node, wanted: &str| {
        let status = wait_until(PATIENCE, || {
            status_at(node, "other.sock").filter(|status| status.mode == wanted)
        });
        status.unwrap_or_else(|| panic!("not {wanted}: {}", node.log()))
    };
    assert_eq!(mode(&node, "standby").pid, second);

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
    mode(&node, "enforcing");
    let leak = node.load(second_victim, Load::Anon, 280 * MIB);
    gone_after(&leak);
    let records = wait_until(PATIENCE, || match ask(&other, &Question::Decisions) {
        Ok(Answer::Decisions(records)) => {
            let enforced = |record: &&brink::record::DecisionRecord| record.mode == "enforcing";
            (records.iter().filter(enforced).count() == 2).then_some(records)
        }
        _ => None,
    });
    let records = records.expect("the decisions of both");
    let mut numbers: Vec<u64> = records.iter().map(|record| record.order).collect();
    numbers.dedup();
    assert_eq!(
        numbers.len(),
        records.len(),
        "numbers are unique: {numbers:?}"
    );
    assert_eq!(records.last().unwrap().victim_name(), "test/second");
}

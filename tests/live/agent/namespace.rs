//! An agent in a cgroup namespace of its own, as a container on cgroup v2 that is not privileged, with the machine's groups mounted.

use brink_host::cgroup::Mode;
use brink_host::hog::Load;
use brink_tests::skip;

use crate::support::{MIB, Node, gone_after, lives};

#[test]
fn from_a_cgroup_namespace_of_its_own_it_evicts_whom_it_finds_outside_and_never_itself() {
    let mut node = Node::new(300);
    if node.sandbox.layout.mode() != Mode::V2 {
        skip!(
            "needs control groups of version 2 alone: on version 1 no runtime makes such a namespace"
        );
    }
    let names = ["agent", "bystander", "leaker"];
    let [agent, bystander, leaker] =
        names.map(|name| node.workload(name, "containers: [{name: c}]"));
    let entrance = node.groups[agent].entrances().remove(0);
    node.within = vec![
        env!("CARGO_BIN_EXE_brink-hog").to_owned(),
        "in-namespace".to_owned(),
        entrance.display().to_string(),
    ];
    node.configure("enforce", "evictionHard: {memory.available: 60Mi}");

    let report = node.doctor();
    let checks = report["checks"].as_array().unwrap();
    let check = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap();
    let layout = check("cgroups.layout");
    assert_eq!(layout["state"], "ok", "{layout:#}");
    let home = node.groups[agent].group();
    assert!(layout.to_string().contains(home), "{layout:#}");
    let namespaces = check("rights.namespaces");
    assert_eq!(namespaces["state"], "ok", "{namespaces:#}");

    let status = node.start(&[]);
    assert_eq!(status.mode, "enforcing", "{}", node.log());
    let own = std::fs::read_link(format!("/proc/{}/ns/cgroup", status.pid)).unwrap();
    assert_ne!(own, std::fs::read_link("/proc/self/ns/cgroup").unwrap());
    let peaceful = node.holding(bystander, 20);
    let leak = node.load(leaker, Load::Anon, 280 * MIB);
    gone_after(&leak);
    let record = node.finished(1);
    assert_eq!(record.victim_name(), "test/leaker");
    // It knows itself by the name that everybody else has for its group.
    let mut ranking = record.ranking.iter();
    let itself = ranking.find(|place| place.name == "agent").unwrap();
    assert_eq!(itself.refusal.as_deref(), Some("protected"));
    assert!(lives(&peaceful), "{record:#?}");
    assert_eq!(node.decisions().len(), 1, "one kill was enough");
}

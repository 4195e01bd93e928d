//! What the configuration keeps out of events is in none of them.

use brink::control::http;
use brink_host::hog::Load;
use brink_stream::model::event::Event;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use brink_tests::{lacks, report_left_out, wait_until};
use rustix::process::Signal;

use crate::journal::in_state;
use crate::support::{MIB, Node, PATIENCE, gone_after};

/// Every event that is kept, as it was sent.
fn lines(node: &Node) -> Option<Vec<String>> {
    let answer = http::get(&node.path("state/events.sock"), "/v1/events?since=0");
    let text = answer.ok()?.text().ok()?;
    Some(text.lines().map(str::to_owned).collect())
}

/// The victims of the kernel's kill of a leak under this configuration, and all that was told, with the node.
fn victims(extra: &str) -> Result<(Node, Incident, Vec<String>), String> {
    let mut node = Node::new(300);
    let leaker = node.workload("leaker", "containers: [{name: c}]");
    node.groups[leaker]
        .limit_memory(&node.sandbox.layout, 32 * MIB)
        .unwrap();
    node.configure("enforce", extra);
    let status = node.start(&[]);
    let mut programs = status.programs.iter();
    if !programs.any(|program| program.name == "oom_victim" && program.running) {
        return Err(format!("nobody tells of OOMs: {:?}", status.rung_reasons));
    }
    gone_after(&node.load(leaker, Load::Anon, 100 * MIB));
    let told = wait_until(PATIENCE, || {
        let lines = lines(&node)?;
        let closed = lines.iter().find_map(|line| {
            let event: Event = serde_json::from_str(line).unwrap();
            let data = event.data.get().to_owned();
            (event.of == Kind::IncidentClosed).then_some(data)
        })?;
        Some((serde_json::from_str(&closed).unwrap(), lines))
    });
    let (incident, lines) = told.unwrap_or_else(|| panic!("{}", node.log()));
    Ok((node, incident, lines))
}

/// What stands in the arguments of a load, and nowhere else.
const ARGUMENT: &str = "/brink-hog-";

#[test]
fn arguments_of_processes_are_kept_out_where_the_configuration_says_so() {
    let hard = "evictionHard: {memory.available: 8Mi}\nevents: {enabled: true";
    let without = format!("{hard}, commandLines: false}}");
    let (_, incident, lines) = match victims(&without) {
        Ok(told) => told,
        Err(why) => lacks!("{why}"),
    };
    assert_eq!(incident.victims.len(), 1, "{incident:#?}");
    assert_eq!(incident.victims[0].argv, Field::Missing(Missing::Redacted));
    let told = lines.iter().find(|line| line.contains(ARGUMENT));
    assert_eq!(told, None);
    // Told otherwise, they are there, unless their process was quicker.
    let (mut node, incident, _) = match victims(&format!("{hard}}}")) {
        Ok(told) => told,
        Err(why) => lacks!("{why}"),
    };
    match &incident.victims[0].argv {
        Field::Value(argv) => assert!(argv.iter().any(|word| word.contains(ARGUMENT)), "{argv:?}"),
        Field::Missing(reason) => {
            assert_eq!(*reason, Missing::ProcessGone);
            report_left_out("what an earlier run told: its victim was quicker");
        }
    }
    // A later run that tells none shows nobody what this one has told.
    node.stop(Signal::TERM);
    node.configure("enforce", &without);
    node.start(&[]);
    in_state(&node, "state/brink.sock", "writing");
    let lines = self::lines(&node).unwrap_or_default();
    let of_it = |line: &String| line.contains("incident-closed") && line.contains(&incident.id);
    assert!(lines.iter().any(of_it), "{lines:?}");
    let told = lines.iter().find(|line| line.contains(ARGUMENT));
    assert_eq!(told, None);
    let target = format!("/v1/incidents/{}", incident.id);
    let answer = http::get(&node.path("state/events.sock"), &target).unwrap();
    let whole = answer.text().unwrap();
    assert!(
        whole.contains(&incident.id) && !whole.contains(ARGUMENT),
        "{whole}"
    );
}

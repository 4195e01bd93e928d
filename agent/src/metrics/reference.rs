//! The page of the documentation against what the agent tells.

use brink_core::node::condition::Condition;
use brink_core::node::limits::LimitKind;
use brink_core::node::signal::Signal;
use brink_host::probe::Row;

use super::catalogue::ALL;
use super::counters::{CHAIN, ENDS};
use super::events::{CAUSES, PLACES};
use super::exposition::{Family, Format, Kind};
use super::facts::QUEUES;
use super::page::{JOURNAL_STATES, MODES, RECORDED, REMOVED, RESULTS, RUNGS, SCOPES};
use crate::guard::disks::Role;
use crate::guard::rung::Rung;
use crate::record::words::word_of;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");

/// The list of the reference: one row a family, named as in the text format.
fn reference() -> String {
    let row = |family: &&Family| {
        let labels = family.labels.iter().map(|label| format!("`{label}`"));
        let labels: Vec<String> = labels.collect();
        let word = family.kind.word(Format::Text);
        let (name, help) = (family.sample_name(), family.help);
        format!("| `{name}` | {word} | {} | {help} |\n", labels.join(", "))
    };
    ALL.iter().map(row).collect()
}

#[test]
fn the_reference_lists_every_family() {
    let text = std::fs::read_to_string(PAGE).unwrap();
    // Another table, further down, sets some of them beside those of others.
    let (list, _) = text.split_once("## What the labels say").unwrap();
    let rows = list.lines().filter(|line| line.starts_with("| `"));
    let found: String = rows.map(|row| [row, "\n"].concat()).collect();
    let wanted = reference();
    assert!(
        found == wanted,
        "the list in docs/metrics.md must be\n{wanted}"
    );
}

/// Whoever looks at a counter after a restart has to know whether it began anew.
#[test]
fn counters_that_are_older_than_the_agent_are_named() {
    let text = std::fs::read_to_string(PAGE).unwrap();
    let (head, _) = text.split_once("## All of them").unwrap();
    let (_, older) = head
        .split_once("Counters begin at zero with the agent")
        .unwrap();
    for family in ALL.iter().filter(|family| family.kind == Kind::Counter) {
        let name = format!("`{}`", family.sample_name());
        let is_older = family.help.contains("since boot");
        assert_eq!(older.contains(&name), is_older, "{name}");
    }
}

/// What a label may say.
fn values() -> Vec<(&'static str, Vec<String>)> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let signals = Signal::ALL.iter().map(|signal| signal.name());
    let limits = LimitKind::ALL.iter().map(|kind| kind.name());
    let signals: Vec<&str> = signals.chain(limits).collect();
    let stages: Vec<&str> = CHAIN.iter().map(|(stage, _)| *stage).collect();
    vec![
        ("eviction_signal", owned(&signals)),
        ("filesystem", owned(&Role::ALL.map(Role::word))),
        ("result", owned(&RESULTS)),
        ("kind", owned(&REMOVED)),
        ("kind", owned(&["some", "full"])),
        ("type", owned(&["hard", "soft"])),
        ("mode", owned(&MODES)),
        ("rung", owned(&RUNGS.map(Rung::word))),
        ("condition", owned(&Condition::ALL.map(Condition::name))),
        ("scope", owned(&SCOPES)),
        ("end", ENDS.iter().map(word_of).collect()),
        ("queue", owned(&QUEUES)),
        ("ring", owned(&Row::ALL.map(Row::label))),
        ("cause", CAUSES.iter().map(word_of).collect()),
        ("place", owned(&PLACES)),
        ("state", owned(&JOURNAL_STATES)),
        ("of", owned(&RECORDED)),
        ("stage", owned(&stages)),
    ]
}

#[test]
fn every_value_of_a_label_is_in_the_reference() {
    let text = std::fs::read_to_string(PAGE).unwrap();
    let (_, rest) = text.split_once("## What the labels say").unwrap();
    let (labels, rest) = rest.split_once("### The stages").unwrap();
    let (stages, _) = rest.split_once("\n## ").unwrap();
    for (label, words) in values() {
        let rows = labels.lines().filter(|line| {
            let first = line.split('|').nth(1).unwrap_or_default();
            first.contains(&format!("`{label}`"))
        });
        let rows: String = rows.collect();
        // Each stage has a row of a table of its own.
        let place = if label == "stage" { stages } else { &rows };
        for word in words {
            assert!(place.contains(&format!("`{word}`")), "{word} of {label}");
        }
    }
}

/// A label without a row says nothing to whoever reads the page; `version` explains itself.
#[test]
fn every_label_has_a_row() {
    let text = std::fs::read_to_string(PAGE).unwrap();
    let (_, labels) = text.split_once("## What the labels say").unwrap();
    let firsts = labels.lines().filter_map(|line| line.split('|').nth(1));
    let firsts: String = firsts.collect();
    let of_all = ALL.iter().flat_map(|family| family.labels);
    for label in of_all.filter(|label| **label != "version") {
        assert!(
            firsts.contains(&format!("`{label}`")) || *label == "stage",
            "{label}"
        );
    }
}

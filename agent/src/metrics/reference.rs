//! The page of the documentation against what the agent tells.

use brink_host::probe::Row;

use super::catalogue::ALL;
use super::counters::{CHAIN, ENDS};
use super::events::{CAUSES, PLACES};
use super::exposition::{Family, Format};
use super::facts::QUEUES;
use super::page::{JOURNAL_STATES, MODES, RECORDED};
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

#[test]
fn every_value_of_a_label_is_in_the_reference() {
    let text = std::fs::read_to_string(PAGE).unwrap();
    let stages = CHAIN.iter().map(|(stage, _)| (*stage).to_owned());
    let ends = ENDS.iter().map(word_of);
    let modes = MODES
        .iter()
        .chain(&QUEUES)
        .chain(&JOURNAL_STATES)
        .chain(&RECORDED);
    let modes = modes.map(|word| (*word).to_owned());
    let causes = CAUSES.iter().map(word_of);
    let places = PLACES.iter().map(|word| (*word).to_owned());
    let rings = Row::ALL.map(|row| row.label().to_owned());
    let words = stages.chain(ends).chain(modes).chain(causes);
    for word in words.chain(places).chain(rings) {
        assert!(text.contains(&format!("`{word}`")), "{word}");
    }
}

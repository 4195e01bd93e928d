//! Machines that are empty, foreign, partial or hostile: always a report, never a panic, and a terminal that is not steered.

use std::collections::HashSet;
use std::fs;

use brink::doctor::{Check, Page, Report, State};
use proptest::prelude::*;

use crate::machine::{Machine, find};

fn page(report: &Report, width: usize, colour: bool) -> String {
    Page {
        report,
        width,
        colour,
        all: colour,
    }
    .to_string()
}

#[test]
fn an_empty_root_is_a_report_that_says_so() {
    let report = Machine::empty().report();
    assert_eq!(find(&report, "config.root").state, State::Failed);
    assert_eq!(find(&report, "cgroups.layout").state, State::Failed);
    assert!(report.has_failed());
    assert_eq!(report.rung, "poll");
    assert!(report.counts.unknown > 10, "{:?}", report.counts);
    // Nothing that could not be looked at passes for being well.
    let well: Vec<&str> = report
        .checks
        .iter()
        .filter(|check| check.state == State::Ok)
        .map(|check| check.id.as_str())
        .collect();
    for id in [
        "kernel.release",
        "memory.signals",
        "rights.capabilities",
        "cgroups.memory",
    ] {
        assert!(!well.contains(&id), "{well:?}");
    }
}

#[test]
fn ids_are_unique_and_checks_come_in_order_of_importance() {
    for machine in [Machine::empty(), Machine::whole()] {
        let report = machine.report();
        let ids: HashSet<&str> = report
            .checks
            .iter()
            .map(|check| check.id.as_str())
            .collect();
        assert_eq!(ids.len(), report.checks.len());
        assert!(report.checks.is_sorted_by_key(|check| check.state));
        for check in &report.checks {
            assert!(!check.found.is_empty(), "{check:?}");
        }
        assert_advised(&report);
    }
}

/// Asserts that whatever is not well says what follows from it, and what to do about it.
#[track_caller]
fn assert_advised(report: &Report) {
    let is_bad = |check: &&Check| matches!(check.state, State::Failed | State::Warning);
    for check in report.checks.iter().filter(is_bad) {
        assert!(check.follows.is_some(), "{check:?}");
        assert!(!check.next.is_empty(), "{check:?}");
        let is_said = check.next.iter().all(|step| !step.text.is_empty());
        assert!(is_said, "{check:?}");
    }
}

#[test]
fn every_id_is_in_the_documentation() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/doctor.md");
    let docs = fs::read_to_string(docs).expect("the page of the doctor");
    let machine = Machine::whole().configured("hooks: {afterKill: /bin/true}\npodsCgroup: /pods");
    machine.process(900, "earlyoom", "earlyoom\0");
    for report in [machine.report(), Machine::empty().report()] {
        for check in &report.checks {
            assert!(
                docs.contains(&format!("`{}`", check.id)),
                "{} is not in docs/doctor.md",
                check.id
            );
        }
    }
}

#[test]
fn what_the_machine_says_does_not_steer_the_terminal() {
    let evil = "evil\x1b]0;owned\x07\x1b[2J\u{202e}";
    let machine = Machine::whole()
        .with("proc/sys/kernel/hostname", evil)
        .with("proc/sys/kernel/osrelease", &format!("6.18{evil}"));
    machine.process(900, "earlyoom", &format!("earlyoom\0-m\0{evil}\0"));
    let report = machine.report();
    let page = page(&report, 80, false);
    assert!(page.contains("evil\\u{1b}"), "{page}");
    let steers = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
    assert_eq!(page.chars().filter(|letter| steers(*letter)).count(), 0);
    let json = serde_json::to_string(&report).unwrap();
    assert!(!json.contains('\x1b'), "JSON escapes what is not text");
}

#[test]
fn a_page_fits_its_terminal_and_ends_with_the_verdict() {
    let report = Machine::empty().report();
    for width in [0, 60, 80, 120, 400] {
        let page = page(&report, width, false);
        let widest = page
            .lines()
            // Commands are not broken, so that they can be copied; neither are titles, nor long words such as paths.
            .filter(|line| {
                let is_title = line.starts_with(char::is_uppercase);
                let is_command = line.trim_start().starts_with("$ ");
                let has_short_words = line.split_whitespace().all(|word| word.len() < 20);
                !is_title && !is_command && has_short_words
            })
            .map(|line| line.chars().count())
            .max();
        assert!(
            widest.unwrap_or(0) <= width.clamp(60, 110),
            "{width}: {page}"
        );
        assert!(
            page.trim_end()
                .lines()
                .any(|line| line.starts_with("verdict: rung poll"))
        );
    }
    assert!(!page(&report, 80, false).contains('\x1b'));
    assert!(page(&report, 80, true).contains("\x1b[1;31mFAILED\x1b[0m"));
}

/// Every file of the machine, to be damaged.
fn files(machine: &Machine) -> Vec<std::path::PathBuf> {
    let mut folders = vec![machine.root().to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

#[test]
fn each_missing_file_is_survived() {
    let count = files(&Machine::whole()).len();
    assert!(count > 30);
    for index in 0..count {
        let machine = Machine::whole();
        let file = files(&machine).swap_remove(index);
        fs::remove_file(&file).unwrap();
        let report = machine.report();
        assert!(!page(&report, 80, false).is_empty(), "{}", file.display());
        assert_advised(&report);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_content_of_any_file_is_survived(at: prop::sample::Index, content in prop::collection::vec(any::<u8>(), 0..200)) {
        let machine = Machine::whole();
        let files = files(&machine);
        fs::write(&files[at.index(files.len())], content).unwrap();
        let report = machine.report();
        prop_assert!(page(&report, 80, true).contains("verdict: "));
        assert_advised(&report);
    }
}

//! `brink simulate` over the scenarios of the workspace.

use std::fs;

use serde_json::Value;

use super::{run, stderr, stdout, tests_folder};

/// Every scenario with its file and the lines that are expected of it.
fn scenarios() -> Vec<(String, Vec<Value>)> {
    let folder = tests_folder("scenarios");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let expected = fs::read_to_string(path.with_extension("jsonl")).unwrap();
        let lines = expected
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        found.push((path.to_str().unwrap().to_string(), lines));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    assert!(found.len() >= 10, "{}", found.len());
    found
}

fn lines(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

#[test]
fn every_scenario_gives_its_lines() {
    for (file, expected) in scenarios() {
        let output = run(&["simulate", "-o", "json", &file], "");
        assert_eq!(output.status.code(), Some(0), "{file}: {}", stderr(&output));
        assert_eq!(lines(&stdout(&output)), expected, "{file}");
    }
}

#[test]
fn the_keys_come_in_the_published_order() {
    let (file, _) = scenarios().swap_remove(0);
    let output = stdout(&run(&["simulate", &file], ""));
    for line in output.lines() {
        let keys = [
            "at",
            "met",
            "ready",
            "conditions",
            "reclaim",
            "ranking",
            "evict",
        ];
        let places: Vec<_> = keys
            .map(|key| line.find(&format!("\"{key}\":")).unwrap())
            .into();
        assert!(places.is_sorted() && places[0] == 1, "{line}");
    }
}

#[test]
fn several_files_are_told_apart_and_all_of_them_checked_first() {
    let all = scenarios();
    let files: Vec<&str> = all.iter().map(|(file, _)| file.as_str()).collect();
    let output = run(&[&["simulate"], &files[..]].concat(), "");
    assert_eq!(output.status.code(), Some(0));
    let mut found = lines(&stdout(&output)).into_iter();
    for (file, expected) in &all {
        for line in expected {
            let mut line = line.clone();
            line["file"] = file.as_str().into();
            assert_eq!(found.next().unwrap(), line);
        }
    }
    assert_eq!(found.next(), None);

    let output = run(
        &["simulate", files[0], "/nonexistent", "-", files[1]],
        "kind: Pod\n",
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output), "", "nothing is run if anything is wrong");
    let said = stderr(&output);
    assert!(said.contains("/nonexistent: cannot be read"), "{said}");
    assert!(
        said.contains("<stdin>:1:7: kind: \"Pod\": unknown kind"),
        "{said}"
    );
}

#[test]
fn the_live_engine_runs_every_scenario() {
    for (file, expected) in scenarios() {
        let output = run(&["simulate", "--live", &file], "");
        assert_eq!(output.status.code(), Some(0), "{file}: {}", stderr(&output));
        let found = lines(&stdout(&output));
        assert_eq!(found.len(), expected.len());
        for line in found {
            for key in ["mode", "order", "actions", "evict", "ranking"] {
                assert!(line.get(key).is_some(), "{key} of {line}");
            }
        }
        assert_eq!(
            output.stdout,
            run(&["simulate", "--live", &file], "").stdout
        );
    }
}

#[test]
fn steps_that_say_nothing_are_told() {
    let head = "apiVersion: brink.dev/v1alpha1\nkind: Scenario\n";
    for (steps, flags, said) in [
        ("[]", &[][..], "there is no step: write steps such as"),
        ("[{at: 1s}]", &[], "no step has a signal of the kubelet's: "),
        ("[{at: 1s}]", &["--live"], "no step has a signal: "),
        (
            "[{at: 1s, signals: {memory.available: {available: 4Gi, capacity: 8Gi}}}]",
            &[],
            "",
        ),
    ] {
        let text = format!("{head}steps: {steps}\n");
        let output = run(&[&["simulate", "-"], flags].concat(), &text);
        let found = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{found}");
        assert!(
            found.contains(said) && found.is_empty() == said.is_empty(),
            "{steps}: {found}"
        );
    }
}

//! The published schemas, and that the output keeps to them.

use std::fs;

use brink::record::text::refusal_words;
use brink_core::base::Reason;
use brink_tests::schema::{Schema, assert_keeps_to as check};

use super::{replay, run, stdout, tests_folder};

#[test]
fn every_line_of_every_scenario_keeps_to_its_schema() {
    let mut files = Vec::new();
    for entry in fs::read_dir(tests_folder("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            files.push(path.to_str().unwrap().to_string());
        }
    }
    assert!(files.len() > 1);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    for (name, flags) in [
        ("simulate", &["simulate"][..]),
        ("simulate-live", &["simulate", "--live"]),
    ] {
        let output = stdout(&run(&[flags, &files[..]].concat(), ""));
        assert!(output.lines().count() > 10);
        output.lines().for_each(|line| check(name, line));
    }
}

#[test]
fn configurations_keep_to_theirs() {
    let good = "evictionHard: {memory.available: 5%, pid.available: 7}\nevictionMinimumReclaim: {pid.available: 3%}\n";
    for text in [good, "mode: x\nevictionHard: 7\n"] {
        check(
            "config-check",
            &stdout(&run(&["config", "check", "-o", "json", "-"], text)),
        );
    }
    let args = ["config", "show", "-o", "json", "--origin", "--config", "-"];
    check("config-show", &stdout(&run(&args, good)));
}

#[test]
fn the_doctor_keeps_to_its_own() {
    for root in ["/", "/nonexistent"] {
        let args = ["doctor", "-o", "json", "--host-root", root];
        check("doctor", &stdout(&run(&args, "")));
    }
}

#[test]
fn a_replay_keeps_to_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let output = stdout(&run(
        &["replay", "-o", "json", &replay::journal(&folder)],
        "",
    ));
    assert_eq!(output.lines().count(), 6);
    output.lines().for_each(|line| check("replay", line));
}

#[test]
fn every_schema_is_read_and_has_its_own_address() {
    let mut names: Vec<String> = fs::read_dir(tests_folder("../docs/schemas"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() > 10, "{names:?}");
    let documented = fs::read_to_string(tests_folder("../docs/cli.md")).unwrap();
    for file in names {
        let name = file.strip_suffix(".schema.json").unwrap();
        let text = fs::read_to_string(tests_folder("../docs/schemas").join(&file)).unwrap();
        let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            schema["$id"],
            format!("https://brink.dev/schemas/v1alpha1/{file}")
        );
        // Every word in it is one that the checker knows, whatever the value.
        let _found = Schema::published(name).violations(&serde_json::json!({}));
        assert!(
            documented.contains(&format!("schemas/{file}")),
            "{file} is not in docs/cli.md"
        );
    }
}

#[test]
fn every_reason_to_refuse_is_published() {
    let text = fs::read_to_string(tests_folder("../docs/schemas/common.schema.json")).unwrap();
    let schema: serde_json::Value = serde_json::from_str(&text).unwrap();
    let refusal = &schema["$defs"]["rankedWorkload"]["properties"]["refusal"];
    let published = refusal["anyOf"][0]["enum"].as_array().unwrap();
    let published: Vec<_> = published.iter().filter_map(|word| word.as_str()).collect();
    let words = Reason::ALL.map(Reason::word);
    let given = words
        .into_iter()
        .filter(|word| refusal_words(word) != refusal_words("?"));
    assert_eq!(published, given.collect::<Vec<_>>());
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let line = r#"{"at":5,"met":[{"signal":"x","op":"LessThan","grace_s":0,"value":{},"min_reclaim":null}],"ready":[],"conditions":["X"],"reclaim":[],"ranking":[],"more":1}"#;
    let found =
        |name, text| Schema::published(name).violations(&serde_json::from_str(text).unwrap());
    for (name, text, parts) in [
        (
            "simulate",
            line,
            &[
                ".at: type",
                ".met[0]",
                ".conditions[0]: enum",
                ": required",
                ": additionalProperties",
            ][..],
        ),
        (
            "replay",
            r#"{"steps":1,"differing":0,"lost":0,"decisions":"many","continues":false}"#,
            &[".decisions: type"],
        ),
        (
            "decision-list",
            r#"{"decisions":[{"victim":{"priority":"high"}}]}"#,
            &[
                ".decisions[0].victim.priority: type",
                ".decisions[0]: required",
                ": required",
            ],
        ),
    ] {
        let found = found(name, text);
        for part in parts {
            assert!(
                found.iter().any(|one| one.contains(part)),
                "{part}: {found:#?}"
            );
        }
    }
}

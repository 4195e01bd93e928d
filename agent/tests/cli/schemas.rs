//! The published schemas, and that the output keeps to them.

use std::fs;

use brink::record::text::{held_words, refusal_words};
use brink_core::base::Reason;
use brink_stream::model::kind::Kind;
use brink_tests::schema::{Schema, assert_keeps_to as check};
use serde_json::{Value, json};

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
fn answers_keep_to_theirs_with_advice_met_thresholds_and_a_root() {
    let read = |path: &str| -> Value {
        let text = fs::read_to_string(tests_folder(path)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let explanation = read("fuzz/corpus/answers/explanation")["body"].take();
    assert!(explanation["advice"].is_array());
    check("explanation", &explanation.to_string());
    let status = read("fuzz/corpus/answers/status")["body"].take();
    let is_met = |one: &&Value| one["met"] == true;
    let met = status["thresholds"].as_array().unwrap().iter().find(is_met);
    for (name, mut answer) in [
        ("explanation", explanation),
        (
            "ranking",
            read("fuzz/corpus/answers/ranking")["body"].take(),
        ),
    ] {
        answer["met"] = json!([met.unwrap()]);
        check(name, &answer.to_string());
        answer["met"][0]["held"] = json!("kubelet");
        check(name, &answer.to_string());
    }
    let mut decision =
        read("events/v1alpha1/eviction-completed.json")["data"]["decision"]["value"].take();
    let known = read("../agent/tests/page/incident-full.json")["forkRoot"].take();
    for root in [known, json!({"missing": "lost"})] {
        decision["forkRoot"] = root;
        check("decision", &decision.to_string());
    }
}

/// Every schema, by its name below the folder.
fn published() -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["", "events/"] {
        for entry in fs::read_dir(tests_folder("../docs/schemas").join(folder)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                names.push(format!("{folder}{}", entry.file_name().to_str().unwrap()));
            }
        }
    }
    names.sort();
    names
}

#[test]
fn every_schema_is_read_and_has_its_own_address() {
    let names = published();
    assert!(names.len() > 12, "{names:?}");
    let documented = fs::read_to_string(tests_folder("../docs/cli.md")).unwrap();
    for file in names {
        let name = file.strip_suffix(".schema.json").unwrap();
        let text = fs::read_to_string(tests_folder("../docs/schemas").join(&file)).unwrap();
        let schema: Value = serde_json::from_str(&text).unwrap();
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

/// Every event that was ever told in this version, by its kind.
fn samples() -> Vec<(String, String)> {
    let files = fs::read_dir(tests_folder("events/v1alpha1")).unwrap();
    let sample = |path: std::path::PathBuf| {
        let kind = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (kind, fs::read_to_string(&path).unwrap())
    };
    let mut samples: Vec<_> = files.map(|file| sample(file.unwrap().path())).collect();
    samples.sort();
    samples
}

#[test]
fn every_sample_of_an_event_keeps_to_the_schema_made_from_the_types() {
    let samples = samples();
    assert_eq!(samples.len(), Kind::ALL.len());
    for (kind, text) in &samples {
        check("events/event", text);
        let event: Value = serde_json::from_str(text).unwrap();
        if Kind::from_word(kind).unwrap().is_incident() {
            check("events/incident", &event["data"].to_string());
        }
    }
}

#[test]
fn incidents_keep_to_theirs_however_much_is_known() {
    for text in [
        include_str!("../page/incident-full.json"),
        include_str!("../page/incident-bare.json"),
    ] {
        check("events/incident", text);
    }
    let oom = &samples().into_iter().find(|(kind, _)| kind == "oom-kill");
    let event: Value = serde_json::from_str(&oom.as_ref().unwrap().1).unwrap();
    let list = json!({"apiVersion": "brink.dev/v1alpha1", "kind": "IncidentList", "items": [event["data"]]});
    check("incident-list", &list.to_string());
}

/// A schema that takes anything would keep nobody from anything.
#[test]
fn an_event_that_is_none_is_found_out() {
    let samples = samples();
    let sample = |kind: &str| {
        let found = samples.iter().find(|(known, _)| known == kind);
        serde_json::from_str::<Value>(&found.unwrap().1).unwrap()
    };
    let wrong = |kind: &str, pointer: &str, value: Value| {
        let mut event = sample(kind);
        *event.pointer_mut(pointer).unwrap() = value;
        Schema::published("events/event").violations(&event)
    };
    for (kind, pointer, value) in [
        ("loss", "/seq", json!("1")),
        ("loss", "/type", json!("lost")),
        ("loss", "/type", json!("pressure")),
        ("loss", "/data/count", json!(null)),
        ("loss", "/data", json!({})),
        ("pressure", "/apiVersion", json!("brink.dev/v2")),
        ("oom-kill", "/data/cause", json!("bad luck")),
        (
            "oom-kill",
            "/data/limit",
            json!({"missing": "not implemented"}),
        ),
        (
            "oom-kill",
            "/data/limit",
            json!({"value": 1, "missing": "lost"}),
        ),
        (
            "oom-kill",
            "/data/memoryStat",
            json!({"value": {"anon": "x"}}),
        ),
        ("oom-kill", "/data/victims/0/pid", json!(null)),
    ] {
        assert!(!wrong(kind, pointer, value).is_empty(), "{kind} {pointer}");
    }
}

#[test]
fn every_reason_to_refuse_is_published() {
    let text = fs::read_to_string(tests_folder("../docs/schemas/common.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
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
fn every_reason_to_hold_a_threshold_is_published() {
    let text = fs::read_to_string(tests_folder("../docs/schemas/status.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let held = &schema["$defs"]["thresholdState"]["properties"]["held"];
    let published = held["anyOf"][0]["enum"].as_array().unwrap();
    let mut published: Vec<_> = published.iter().filter_map(|word| word.as_str()).collect();
    let words = Reason::ALL.map(Reason::word);
    let given = words
        .into_iter()
        .filter(|word| held_words(word) != held_words("?"));
    let mut given: Vec<_> = given.collect();
    published.sort_unstable();
    given.sort_unstable();
    assert_eq!(published, given);
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
            r#"{"steps":1,"differing":0,"lost":0,"cut":0,"misplaced":0,"decisions":"many","continues":false}"#,
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

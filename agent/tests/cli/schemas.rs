//! The published schemas, and that the output keeps to them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{run, stdout, tests_folder};

/// The schema of that name.
fn schema(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas");
    let text = fs::read_to_string(folder.join(format!("{name}.schema.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Where `value` does not keep to `schema`; the words of JSON Schema that ours use, and no others.
fn violations(schema: &Value, root: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    let fails = |schema: &Value| !violations(schema, root, value, at).is_empty();
    for (word, wanted) in schema.as_object().unwrap() {
        let holds = match word.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let pointer = wanted.as_str().unwrap().trim_start_matches('#');
                !fails(root.pointer(pointer).unwrap())
            }
            "type" => match wanted.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_i64() || value.is_u64(),
                "number" => value.is_number(),
                "boolean" => value.is_boolean(),
                "null" => value.is_null(),
                other => panic!("type {other}"),
            },
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "anyOf" => wanted.as_array().unwrap().iter().any(|one| !fails(one)),
            "oneOf" => {
                wanted
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|one| !fails(one))
                    .count()
                    == 1
            }
            "required" => wanted
                .as_array()
                .unwrap()
                .iter()
                .all(|key| value.get(key.as_str().unwrap()).is_some()),
            "additionalProperties" => {
                assert_eq!(wanted, false);
                let known = schema["properties"].as_object().unwrap();
                value
                    .as_object()
                    .is_none_or(|map| map.keys().all(|key| known.contains_key(key)))
            }
            "properties" => {
                for (key, one) in wanted.as_object().unwrap() {
                    if let Some(inner) = value.get(key) {
                        found.extend(violations(one, root, inner, &format!("{at}.{key}")));
                    }
                }
                true
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(violations(wanted, root, item, &format!("{at}[{index}]")));
                }
                true
            }
            other => panic!("{other} is no word of ours"),
        };
        if !holds {
            found.push(format!("{at}: {word}: {value}"));
        }
    }
    found
}

#[track_caller]
fn check(name: &str, text: &str) {
    let schema = schema(name);
    let found = violations(&schema, &schema, &serde_json::from_str(text).unwrap(), "");
    assert!(found.is_empty(), "{name}: {found:#?}");
}

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
fn the_checker_finds_what_is_wrong() {
    let line = r#"{"at":5,"met":[{"signal":"x","op":"LessThan","grace_s":0,"value":{},"min_reclaim":null}],"ready":[],"conditions":["X"],"reclaim":[],"ranking":[],"more":1}"#;
    let schema = schema("simulate");
    let found = violations(&schema, &schema, &serde_json::from_str(line).unwrap(), "");
    for part in [
        ".at: type",
        ".met[0]",
        ".conditions[0]: enum",
        ": required",
        ": additionalProperties",
    ] {
        assert!(
            found.iter().any(|one| one.contains(part)),
            "{part}: {found:#?}"
        );
    }
}

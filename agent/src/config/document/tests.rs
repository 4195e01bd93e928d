//! Documents from text to tree and back.

use proptest::prelude::*;

use super::*;
use crate::config::finding::Report;

fn read(text: &str) -> Result<Vec<Node>, SyntaxError> {
    let mut origins = Origins::default();
    let source = origins.add(Origin::File("f".into()));
    parse(text.as_bytes(), source, Limits::WRITTEN)
}

fn one(text: &str) -> Node {
    let mut documents = read(text).unwrap_or_else(|error| panic!("{text:?}: {error:?}"));
    assert_eq!(documents.len(), 1, "{text:?}");
    documents.remove(0)
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
    assert_eq!(to_json(&one(text)), expected, "{text:?}");
}

#[track_caller]
fn check_error(text: &str, line: u32, part: &str) {
    let error = read(text).unwrap_err();
    assert_eq!(error.position.map(|at| at.line), Some(line), "{error:?}");
    assert!(error.message.contains(part), "{error:?}");
}

#[test]
fn yaml_and_json_give_the_same_tree() {
    check(
        "a: 1\nb: [x, 'y', \"z\"]\nc: {d: null}\n",
        r#"{"a":1,"b":["x","y","z"],"c":{"d":null}}"#,
    );
    check(
        "{\"a\": 1,\n\t\"b\": [\"x\", \"y\\/\\u00e9\\ud83d\\ude00\"], \"c\": {\"d\": null}}",
        r#"{"a":1,"b":["x","y/é😀"],"c":{"d":null}}"#,
    );
    check(
        "{\"a\":{\"b\":{}},\"c\":[],\"d\":1.5e3,\"e\":true}",
        r#"{"a":{"b":{}},"c":[],"d":1500.0,"e":true}"#,
    );
    check(
        "a:\n- 1\n- b: 2\n  c: |\n    two\n    lines\n",
        r#"{"a":[1,{"b":2,"c":"two\nlines\n"}]}"#,
    );
    check("'a': yes\n\"b\": !!str 5\n", r#"{"a":true,"b":"5"}"#);
}

#[test]
fn documents_are_told_apart_and_empty_ones_dropped() {
    assert_eq!(read("").unwrap().len(), 0);
    assert_eq!(read("# only a comment\n").unwrap().len(), 0);
    assert_eq!(read("---\na: 1\n---\n---\nb: 2\n---\n").unwrap().len(), 2);
    assert_eq!(one("\u{feff}a: 1").entries().len(), 1);
}

#[test]
fn aliases_and_merges_are_put_in() {
    check(
        "a: &x {b: 1, c: 2}\nd: *x\ne: {<<: *x, c: 3}\n",
        r#"{"a":{"b":1,"c":2},"d":{"b":1,"c":2},"e":{"c":3,"b":1}}"#,
    );
    check(
        "x: &x {a: 1}\ny: &y {a: 2, b: 2}\nz: {<<: [*x, *y]}\n",
        r#"{"x":{"a":1},"y":{"a":2,"b":2},"z":{"a":1,"b":2}}"#,
    );
    check("{\"<<\": 1}", r#"{"<<":1}"#);
}

#[test]
fn every_node_knows_its_place() {
    let tree = one("a: 1\nb:\n  - c: xyz\n");
    let list = tree.get("b").unwrap();
    let Value::List(items) = &list.value else {
        panic!("{list:?}");
    };
    let leaf = items[0].get("c").unwrap();
    let place = leaf.site.position.unwrap();
    assert_eq!((place.line, place.column), (3, 8));
    assert_eq!(path_to(&tree, leaf), "b[0].c");
    let key = items[0].entry("c").unwrap().site.position.unwrap();
    assert_eq!((key.line, key.column), (3, 5));
}

#[test]
fn what_is_no_document_is_refused_with_its_place() {
    check_error("a: 1\nb: [1, 2\n", 2, "");
    check_error("a: *x\n", 1, "anchor");
    check_error("a: &x [*x]\n", 1, "alias");
    check_error("a: 1\n? [b]\n: 2\n", 2, "key");
    let deep = "[".repeat(65) + &"]".repeat(65);
    check_error(&deep, 1, "64 levels");
    let error = parse(b"a: b\nc: \xff\n", SourceId(1), Limits::WRITTEN).unwrap_err();
    let place = error.position.unwrap();
    assert_eq!((place.line, place.column), (2, 4));
    assert_eq!(error.message, "not UTF-8");
}

#[test]
fn a_bomb_does_not_go_off() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_string();
    for level in 1..20 {
        let before = level - 1;
        let aliases = vec![format!("*a{before}"); 9].join(", ");
        bomb.extend([format!("a{level}: &a{level} [{aliases}]\n")]);
    }
    let error = read(&bomb).unwrap_err();
    assert!(error.message.contains("more than 200000"), "{error:?}");
    let (long, aliases) = ("x".repeat(10_000), "*a, ".repeat(500));
    let error = read(&format!("a: &a {long}\nb: [{aliases}]\n")).unwrap_err();
    let said = "more than 4194304 bytes of text, those of aliases counted each time";
    assert_eq!(error.message, said);
}

#[test]
fn a_map_has_so_many_keys_and_no_more() {
    fn check(keys: usize, expected: Result<usize, &str>) {
        let lines: Vec<String> = (0..keys).map(|key| format!("k{key}: 1\n")).collect();
        let read = read(&lines.concat()).map(|documents| documents[0].entries().len());
        assert_eq!(
            read.map_err(|error| error.message),
            expected.map_err(str::to_owned)
        );
    }
    check(10_000, Ok(10_000));
    check(10_001, Err("a map of more than 10000 keys"));
}

#[test]
fn a_file_that_is_wrong_throughout_is_described_in_part_and_counted() {
    let tree = one(&"a: 1\n".repeat(9_000));
    let (origins, mut report) = (Origins::default(), Report::default());
    Reader::new(&tree, &origins, &mut report).fields(&tree, &["b"], Keys::Closed);
    let faults = report.into_result().unwrap_err();
    // Each of them is unknown, and all but the first are there twice.
    assert_eq!(faults.list.len() + faults.dropped, 9_000 + 8_999);
}

#[test]
fn what_yaml_would_not_read_is_written_in_another_way() {
    fn check(json: &str, expected: &str) {
        let node = one(json);
        let yaml = to_yaml(&node, &|_| None);
        assert_eq!(yaml, expected);
        assert_eq!(
            read(&yaml).map(|read| to_json(&read[0])),
            Ok(to_json(&node))
        );
    }
    check(
        r#"{"a": "\u007f\u0085\u2028\ufeffé"}"#,
        "a: \"\\u007f\\u0085\\u2028\\ufeffé\"\n",
    );
    let long = "k".repeat(1001);
    check(
        &format!(r#"{{"{long}": {{"a": 1}}}}"#),
        &format!("? {long}\n:\n  a: 1\n"),
    );
    check(
        &format!(r#"[{{"{long}": [2], "b": 1}}]"#),
        &format!("- ? {long}\n  :\n    - 2\n  b: 1\n"),
    );
}

#[test]
fn the_reader_finds_everything_at_once() {
    let tree = one("mode: 5\nmodes: x\nlist: {}\nmode: y\nspan: 10\nsize: 10x\nnumber: 1.5\n");
    let mut origins = Origins::default();
    origins.add(Origin::File("f.yaml".into()));
    let mut report = Report::default();
    let mut reader = Reader::new(&tree, &origins, &mut report);
    let known = ["mode", "list", "span", "size", "number"];
    let fields = reader.fields(&tree, &known, Keys::Closed);
    let _ = reader.word(fields.get("mode").unwrap(), &[("x", 1)]);
    let _ = reader.list(fields.get("list").unwrap());
    let _ = reader.span(fields.get("span").unwrap(), brink_core::base::Span::ZERO);
    let _ = reader.quantity(fields.get("size").unwrap());
    let _ = reader.integer(fields.get("number").unwrap(), 0, 9);
    let faults = report.into_result().unwrap_err();
    let said: Vec<String> = faults.list.iter().map(ToString::to_string).collect();
    for (at, part) in [
        "f.yaml:2:1: modes: unknown key; did you mean mode?",
        "f.yaml:3:7: list: this is a map; accepted: a list",
        "f.yaml:4:1: mode: the key is there twice",
        "f.yaml:4:7: mode: \"y\": unknown word; did you mean x?",
        "f.yaml:5:7: span: \"10\": missing unit in duration",
        "f.yaml:6:7: size: \"10x\": a quantity is a number and a suffix",
        "f.yaml:7:9: number: \"1.5\": not in range",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(said[at].starts_with(part), "{}", said[at]);
    }
    assert_eq!(said.len(), 7, "{said:#?}");
}

#[test]
fn yaml_is_written_with_remarks_in_one_column() {
    let tree = one("a: {b: 10%, c: ['x y', 'yes', '5']}\nd: {}\n");
    let remark = |node: &Node| matches!(node.value, Value::Text(_)).then(|| "text".to_string());
    assert_eq!(
        to_yaml(&tree, &remark),
        "a:\n  b: 10%     # text\n  c:\n    - \"x y\"  # text\n    - \"yes\"  # text\n    \
         - \"5\"    # text\nd: {}\n"
    );
}

/// Trees without repeated keys, nulls at the top and numbers that JSON writes differently.
fn trees() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        "\\PC{0,12}".prop_map(serde_json::Value::from),
        "[-+.0-9eExyno~ #:&*!|>%@`'\"{}\\[\\],\\n\\t]{0,8}".prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            proptest::collection::btree_map("\\PC{1,8}", inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn json_is_read_as_what_it_is(tree in trees()) {
        prop_assume!(!tree.is_null());
        for text in [tree.to_string(), serde_json::to_string_pretty(&tree).unwrap()] {
            let read = read(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error:?}")))?;
            prop_assert_eq!(to_json(&read[0]), tree.clone(), "{}", text);
        }
    }

    #[test]
    fn what_is_written_is_read_back(tree in trees()) {
        prop_assume!(!tree.is_null());
        let node = one(&tree.to_string());
        let yaml = to_yaml(&node, &|_| Some("a remark".into()));
        let again = read(&yaml).map_err(|error| TestCaseError::fail(format!("{yaml}: {error:?}")))?;
        prop_assert_eq!(to_json(&again[0]), tree, "{}", yaml);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, text in "[-a:&*!|>%@ '\"{}\\[\\],#?<\\n\\t]{0,60}") {
        let _ = parse(&bytes, SourceId(1), Limits::WRITTEN);
        let _ = parse(text.as_bytes(), SourceId(1), Limits::WRITTEN);
    }
}

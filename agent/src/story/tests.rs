//! Pages and sentences of the committed samples: whole, within the terminal, and not steered by any name.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use brink_stream::model::event::Event;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use serde_json::{Value, json};

use super::{missing, page, sentence};
use crate::page::bundle::INCIDENT;
use crate::terminal::Style;

/// An incident of which everything is known.
const FULL: &str = include_str!("../../tests/page/incident-full.json");
/// Its schema, which is made from the types.
const SCHEMA: &str = include_str!("../../../docs/schemas/events/incident.schema.json");

fn sample(kind: Kind) -> Event {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/events/v1alpha1");
    let text = fs::read_to_string(folder.join(format!("{}.json", kind.word()))).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_kind_has_a_sentence() {
    for kind in Kind::ALL {
        let told = sentence(&sample(kind));
        assert!(
            !told.starts_with('{') && told.len() > 10,
            "{}: {told}",
            kind.word()
        );
    }
    let crossed = sentence(&sample(Kind::ThresholdCrossed));
    assert_eq!(
        crossed,
        "hard memory.available<100Mi crossed: 97.0Mi available of 8.0Gi"
    );
    let killed = sentence(&sample(Kind::KillObserved));
    assert_eq!(
        killed,
        "kubelet (pid 990) killed shop/web-5d9c7, container app (java, pid 4711) with SIGKILL"
    );
}

/// Null with its reason beside it is as missing as any other field.
#[test]
fn what_is_missing_of_a_workload_is_told_with_the_rest() {
    let mut incident: Incident =
        serde_json::from_str(sample(Kind::EvictionCompleted).data.get()).unwrap();
    let Field::Value(identity) = &mut incident.workload else {
        panic!("the sample has one");
    };
    identity.owner_missing = Some(Missing::Lost);
    identity.container_missing = Some(Missing::NotApplicable);
    let found = missing::missing(&incident);
    let (_, lost) = found
        .iter()
        .find(|(reason, _)| *reason == Missing::Lost)
        .unwrap();
    assert!(lost.contains(&"workload.owner".to_owned()), "{found:?}");
    let mut all = found.iter().flat_map(|(_, fields)| fields);
    assert!(
        !all.any(|field| field.contains("container")),
        "it does not apply"
    );
}

/// Not without a word: the reader looks for the cgroup.
#[test]
fn where_the_node_is_drawn_for_want_of_the_cgroup_it_is_said_why() {
    let check = |missing: Option<Missing>, expected: bool| {
        let mut incident: Incident =
            serde_json::from_str(sample(Kind::OomKill).data.get()).unwrap();
        let Field::Value(recording) = &mut incident.recording else {
            panic!("the sample has one");
        };
        if missing.is_some() {
            recording.cgroup.clear();
        }
        recording.cgroup_missing = missing;
        let page = page(&incident, Style::default(), true);
        let said =
            page.contains("the victim's cgroup was not recorded: no time or room to take it");
        assert_eq!(said, expected, "{page}");
        let draws_node = page.contains("The node's memory.available before it");
        assert_eq!(draws_node, missing.is_some());
    };
    check(None, false);
    check(Some(Missing::Lost), true);
    check(Some(Missing::NotApplicable), false);
}

/// Nothing that is not known is a zero, and each has its reason at the end.
#[test]
fn what_is_unknown_is_told_as_unknown() {
    let mut full: Value = serde_json::from_str(FULL).unwrap();
    let known = "12.5 % some, 3.2";
    assert!(told(&full).contains(known), "{}", told(&full));
    let pressure = &mut full["node"]["value"]["pressure"]["value"];
    (pressure["full"], pressure["fullMissing"]) = (Value::Null, json!("kernelLacksIt"));
    let line = &mut full["topOfNode"]["value"][0];
    (line["swap"], line["swapMissing"]) = (Value::Null, json!("processGone"));
    (line["oomScoreAdj"], line["oomScoreAdjMissing"]) = (Value::Null, json!("lost"));
    full["recording"] = json!({"value": {
        "node": [], "nodeMissing": "notPermitted", "cgroup": [], "cgroupMissing": "lost", "others": [],
        "reclaimsMissing": "programNotLoaded", "nodeStallMissing": "kernelLacksIt",
    }});
    let page = told(&full);
    assert!(
        page.contains("12.5 % some, full unknown, over 10 s"),
        "{page}"
    );
    let mut lines = page.lines();
    let row = lines.find(|line| line.contains("prometheus"));
    let cells: Vec<&str> = row.expect("its row").split_whitespace().collect();
    assert_eq!(cells[cells.len() - 2..], ["unknown", "unknown"], "{page}");
    let incident: Incident = serde_json::from_value(full).unwrap();
    let found = missing::missing(&incident);
    let check = |reason, field: &str| {
        let of = found.iter().find(|(known, _)| *known == reason);
        let fields = of.map(|(_, fields)| fields.clone()).unwrap_or_default();
        assert!(
            fields.iter().any(|known| known == field),
            "{field}: {found:?}"
        );
    };
    check(Missing::KernelLacksIt, "node.pressure.full");
    check(Missing::ProcessGone, "topOfNode.swap");
    check(Missing::Lost, "topOfNode.oomScoreAdj");
    check(Missing::NotPermitted, "recording.node");
    check(Missing::ProgramNotLoaded, "recording.reclaims");
    check(Missing::KernelLacksIt, "recording.nodeStall");
}

#[test]
fn a_page_fits_its_terminal_and_no_name_steers_it() {
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_incident()) {
        let event = sample(kind);
        let hostile = event
            .data
            .get()
            .replace("java", "\\u001b[2J\\u202eja")
            .replace("shop", "\\nshop");
        let incident: Incident = serde_json::from_str(&hostile).unwrap();
        for width in [80, 120] {
            let style = Style {
                width: Some(width),
                colour: false,
            };
            for is_ascii in [true, false] {
                let page = page(&incident, style, is_ascii);
                for line in page.lines() {
                    assert!(line.chars().count() <= width, "{line}");
                    assert!(
                        !line
                            .chars()
                            .any(|letter| letter.is_control() || letter == '\u{202e}'),
                        "{line:?}"
                    );
                }
                assert!(page.lines().count() > 20, "{page}");
            }
        }
    }
}

/// However long they are, and wherever they stand.
#[test]
fn long_names_lose_their_middle_on_a_terminal_alone() {
    let long = format!("web-{}", "x".repeat(150));
    let group = format!("/kubepods.slice/{long}.slice");
    let event = sample(Kind::OomKill);
    let text = event.data.get().replace("web-5d9c7", &long);
    let text = text.replace("/kubepods.slice", &group);
    let incident: Incident = serde_json::from_str(&text).unwrap();
    let of = |width| {
        let colour = false;
        page(&incident, Style { width, colour }, true)
    };
    let narrow = of(Some(80));
    for line in narrow.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(narrow.contains('…') && !narrow.contains(&long), "{narrow}");
    let pipe = of(None);
    for whole in [format!("shop/{long}"), group] {
        assert!(pipe.contains(&whole), "{whole}\n{pipe}");
    }
}

fn told(incident: &Value) -> String {
    let incident: Incident = serde_json::from_value(incident.clone()).unwrap();
    page(&incident, Style::default(), true)
}

#[test]
fn forks_kills_by_others_and_the_configuration_are_told() {
    let told = told(&serde_json::from_str(FULL).unwrap());
    for part in [
        "  process    bomb, pid 4177, started 7384.001250 s after boot\n",
        "  arguments  sh -c :(){ :|:& };: # <b>bomb</b>\n",
        "  forked by  java, pid 4121, started 7000.000000 s after boot\n",
        "  share      1990 of the 2048 that were forked last descend from it\n",
        "   PID  NAME         UTC              BY PID  BY            SIGNAL CODE\n",
        "  4188  cart-helper  12:00:04.000250     990  runtime-shim           -6\n  and 3 more\n",
        "  mode       enforcing, memory policy confirmed\n",
        "  transition conditions hold 5m0s longer\n",
        "  grace      45 s at most, of a soft eviction\n",
        "  THRESHOLD                         MINIMUM RECLAIM\n",
        "  memory.available<256Mi                       64Mi\n",
        "  memory.available<512Mi for 1m30s\n",
        "prefer (annotation)",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
}

/// Texts that stand in one field alone, by their places in it; the page has them as they are.
const TEXTS: [(&str, &str); 14] = [
    ("id", "mark-id"),
    ("evidence/0", "mark-evidence"),
    ("at/wall", "2026-01-02T03:04:05.060708Z"),
    ("victims/0/comm", "mark-victim"),
    ("otherKills/0/comm", "mark-killed"),
    ("workload/value/uid", "mark-workload"),
    ("trigger/value/comm", "mark-trigger"),
    ("forkRoot/value/comm", "mark-root"),
    ("limit/value/cgroup", "/mark-limit"),
    ("cgroups/value/0/path", "/mark-cgroup"),
    ("topOfCgroup/value/0/comm", "mark-of-cgroup"),
    ("topOfNode/value/0/comm", "mark-of-node"),
    ("workloads/value/lines/0/name", "mark-ranked"),
    ("configuration/value/mode", "mark-mode"),
];

/// The same of what the page has in its own words. Decision and recording are those of an order of ours.
fn figures(ours: &Value) -> [(&'static str, Value, &'static str); 10] {
    let (decision, recording) = (ours["decision"].clone(), ours["recording"].clone());
    let freed = json!(123 << 20);
    [
        ("cause", json!("groupOom"), " together: "),
        ("isFinal", json!(false), "still open: more is to come"),
        ("course/end", Value::Null, "still open: more is to come"),
        ("course/freed/value", freed, "123Mi given back"),
        ("moreVictims", json!(77), "77 processes of 79"),
        ("moreOtherKills", json!(83), "and 83 more"),
        ("memoryStat/value/mark", json!(1_u64 << 40), "  mark "),
        ("node/value/pressure/value/some", json!(77.5), "77.5 % some"),
        ("decision", decision, "`brink explain 5` tells it whole"),
        ("recording", recording, "memory.available before it"),
    ]
}

/// Which telling of the incident it is says nothing to whoever has asked for the latest.
const NOT_IN_THE_TEXT: [&str; 1] = ["revision"];

fn fields(of: &Value) -> BTreeSet<&str> {
    of.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Whether a script reads this very field.
fn reads(script: &str, field: &str) -> bool {
    let read = format!("incident.{field}");
    let mut rests = script.split(&read).skip(1);
    rests.any(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// A new field is shown on both pages, and has its mark above.
#[test]
fn every_field_of_an_incident_is_shown() {
    let full: Value = serde_json::from_str(FULL).unwrap();
    let ours = sample(Kind::EvictionCompleted);
    let ours: Value = serde_json::from_str(ours.data.get()).unwrap();
    let mut marked = full.clone();
    marked["memoryStat"]["value"]["mark"] = json!(0);
    let texts = TEXTS.map(|(place, text)| (place, json!(text), text));
    let marks: Vec<_> = figures(&ours).into_iter().chain(texts).collect();
    for (place, value, _) in &marks {
        let found = marked.pointer_mut(&format!("/{place}"));
        *found.expect(place) = value.clone();
    }

    let places = marks
        .iter()
        .filter_map(|(place, ..)| place.split('/').next());
    let looked_for: BTreeSet<&str> = places.chain(NOT_IN_THE_TEXT).collect();
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let known = fields(&schema["properties"]);
    assert_eq!(looked_for, known);
    let typed: Incident = serde_json::from_value(marked.clone()).unwrap();
    let typed = serde_json::to_value(typed).unwrap();
    assert_eq!(fields(&typed), known, "as `cargo xtask gen` writes them");

    let (before, after) = (told(&full), told(&marked));
    for (place, _, text) in &marks {
        assert!(after.contains(text), "{place} is not shown\n{after}");
        assert!(!before.contains(text), "{text} is said without {place}");
    }
    for field in known {
        assert!(reads(INCIDENT.text, field), "{field} in {}", INCIDENT.path);
    }
}

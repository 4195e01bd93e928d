//! Pages and sentences of the committed samples: whole, within the terminal, and not steered by any name.

use std::fs;
use std::path::Path;

use brink_stream::model::event::Event;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;

use super::{missing, page, sentence};
use crate::terminal::Style;

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

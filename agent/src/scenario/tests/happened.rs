//! Scenarios of kills that were not ours, from the committed sample of one.

use brink_stream::model::event::Event;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{CgroupPoint, Incident, NodePoint, Recording};

use super::*;

const MIB: u64 = 1 << 20;

fn incident() -> Incident {
    let text = include_str!("../../../../tests/events/v1alpha1/incident-closed.json");
    let event: Event = serde_json::from_str(text).unwrap();
    serde_json::from_str(event.data.get()).unwrap()
}

/// The file and its notes; the file is one that can be run, without a warning.
#[track_caller]
fn made(incident: &Incident) -> (Value, Vec<String>) {
    let Written { file, notes } = of_incident(incident).unwrap();
    let (_, warnings) = read_text(&file.to_string()).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    (file, notes)
}

/// What a workload uses in each step, with the step's time.
fn usage(file: &Value, of: &str) -> Vec<(String, String)> {
    let steps = file["steps"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of_step = |step: &Value| (text(&step["at"]), text(&step["usage"][of]["memory"]));
    steps.map(of_step).collect()
}

fn point(before_ms: u32, mib: u64) -> CgroupPoint {
    CgroupPoint {
        before_ms,
        usage: (mib + 1) * MIB,
        working_set: mib * MIB,
        ..CgroupPoint::default()
    }
}

fn node(before_ms: u32, mib: i64) -> NodePoint {
    NodePoint {
        before_ms,
        available: mib << 20,
        headroom: (mib - 10) << 20,
        ..NodePoint::default()
    }
}

#[test]
fn usage_is_that_of_the_time_where_it_was_recorded() {
    let mut incident = incident();
    let Field::Value(recording) = &mut incident.recording else {
        panic!("it has one");
    };
    recording.node = [9_000, 5_000, 0].map(|before| node(before, 700)).into();
    recording.cgroup = [(8_000, 100), (5_000, 200), (20, 500)]
        .map(|(before, mib)| point(before, mib))
        .into();
    recording.others[0].points = vec![point(6_000, 30)];
    let (file, _) = made(&incident);
    let bytes = |all: [(&str, u64); 3]| -> Vec<(String, String)> {
        let all = all.into_iter();
        let bytes = all.map(|(at, mib)| (at.to_owned(), (mib * MIB).to_string()));
        bytes.collect()
    };
    let (first, second, last) = ("0ms", "4000ms", "9000ms");
    assert_eq!(
        usage(&file, "shop/web-5d9c7"),
        bytes([(first, 108), (second, 208), (last, 508)]),
        "before the first reading the first counts, and 8 MiB of it were elsewhere"
    );
    assert_eq!(
        usage(&file, "data/db"),
        bytes([(first, 30), (second, 30), (last, 30)])
    );
    assert_eq!(
        usage(&file, "jobs/batch-2"),
        bytes([(first, 700), (second, 700), (last, 700)]),
        "as it was at the kill"
    );

    // A second container beside the victim's, and a group inside that.
    let Field::Value(recording) = &mut incident.recording else {
        panic!("it has one");
    };
    let mut side = recording.others[0].clone();
    side.points = vec![point(9_000, 7)];
    for path in [
        "/kubepods.slice/pod0e1f/side",
        "/kubepods.slice/pod0e1f/side/inner",
    ] {
        side.path = path.to_owned();
        recording.others.push(side.clone());
    }
    let (file, notes) = made(&incident);
    assert_eq!(
        usage(&file, "shop/web-5d9c7"),
        bytes([(first, 108), (second, 208), (last, 508)]),
        "7 of these were there"
    );
    let parts = "/kubepods.slice/pod0e1f/app, /kubepods.slice/pod0e1f/side";
    assert!(notes.iter().any(|note| note.ends_with(parts)), "{notes:#?}");

    // The pod's own is better than its parts.
    let Field::Value(recording) = &mut incident.recording else {
        panic!("it has one");
    };
    side.path = "/kubepods.slice/pod0e1f".to_owned();
    side.points = vec![point(9_000, 600)];
    recording.others.push(side);
    let (file, notes) = made(&incident);
    assert_eq!(
        usage(&file, "shop/web-5d9c7"),
        bytes([(first, 600), (second, 600), (last, 600)])
    );
    let of_parts = |note: &String| note.contains("of these of its cgroups alone");
    assert!(!notes.iter().any(of_parts), "{notes:#?}");
}

#[test]
fn no_dip_between_two_steps_is_lost() {
    let mut incident = incident();
    let points = (0..6_000).rev().map(|number| node(number * 10, 900));
    let mut points: Vec<NodePoint> = points.collect();
    for before in [50_010, 7_770, 1_230, 0] {
        let place = points.iter().position(|point| point.before_ms == before);
        points[place.unwrap()] = node(before, i64::from(before % 97));
    }
    incident.recording = Field::Value(Recording {
        node: points,
        ..Recording::default()
    });
    let (file, notes) = made(&incident);
    let steps = file["steps"].as_array().unwrap();
    assert!((60..100).contains(&steps.len()), "{}", steps.len());
    let available = |step: &Value| {
        let text = &step["signals"]["memory.available"]["available"];
        text.as_str().unwrap().parse::<i64>().unwrap() >> 20
    };
    let dips: Vec<i64> = steps
        .iter()
        .map(available)
        .filter(|mib| *mib < 97)
        .collect();
    assert_eq!(dips, [50_010 % 97, 7_770 % 97, 1_230 % 97, 0]);
    let headroom = &steps[0]["signals"]["memory.headroom"];
    assert_eq!(
        *headroom,
        json!({"available": (890_i64 << 20).to_string(), "capacity": (8_i64 << 30).to_string()})
    );
    assert!(!notes.iter().any(|note| note.contains("swap")));
}

#[test]
fn what_is_missing_or_approximate_is_said() {
    let mut whole = incident();
    let check = |incident: &Incident, part: &str| {
        let (file, notes) = made(incident);
        assert!(
            notes.iter().any(|note| note.contains(part)),
            "{part}: {notes:#?}"
        );
        file
    };
    let mut bare = whole.clone();
    bare.recording = Field::Missing(Missing::Lost);
    let file = check(
        &bare,
        "the time before is not in the record (no time or room to take it)",
    );
    assert_eq!(file["steps"].as_array().unwrap().len(), 1);
    assert_eq!(
        file["steps"][0]["signals"]["memory.available"]["available"],
        "3250585600"
    );

    if let Field::Value(node) = &mut whole.node {
        node.usable_swap = Field::Value(10 * MIB);
    }
    if let Field::Value(table) = &mut whole.workloads {
        table.lines[0].usage = Field::Missing(Missing::Lost);
        table.lines[0].usage_age_ms = None;
    }
    let file = check(&whole, "what jobs/batch-2 used is not known");
    assert_eq!(file["steps"][0]["usage"]["jobs/batch-2"], Value::Null);
    let file = check(&whole, "usable swap is known as of the kill alone");
    assert_eq!(file["steps"][0]["headroom"]["swap"], 10 * MIB);

    if let Field::Value(table) = &mut whole.workloads {
        table.lines.clear();
    }
    check(&whole, "no workload is in it");
}

#[test]
fn the_thresholds_are_those_that_were_configured() {
    let told = incident();
    let (file, notes) = made(&told);
    let expected = json!({
        "evictionHard": {"memory.available": "100Mi"},
        "evictionSoft": {"memory.available": "300Mi"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s"},
        "evictionMinimumReclaim": {"memory.available": "64Mi"},
        "evictionPressureTransitionPeriod": "5m0s",
        "evictionMaxPodGracePeriod": 30,
        "headroomHard": "50Mi",
        "memoryPolicy": "confirmed",
    });
    assert_eq!(file["config"], expected);
    assert_eq!(file["notes"], json!(notes), "the file says it too");
    // Read again, they are the same ones.
    let Field::Value(known) = &told.configuration else {
        panic!("it has one");
    };
    let read = scenario(&file.to_string()).policy;
    let written: Vec<String> = read.thresholds().iter().map(ToString::to_string).collect();
    assert_eq!(written, known.thresholds);
}

#[test]
fn of_thresholds_that_were_not_configured_or_are_not_known_it_says_what_to_add() {
    let check = |change: &dyn Fn(&mut Incident), part: &str| -> Value {
        let mut changed = incident();
        change(&mut changed);
        let (mut file, notes) = made(&changed);
        let of_it = notes.iter().any(|note| note.contains(part));
        assert!(of_it && !notes.is_empty(), "{part}: {notes:#?}");
        file["config"].take()
    };
    let empty = json!({"evictionHard": {}, "headroomHard": "0%"});
    let older = |incident: &mut Incident| {
        incident.configuration = Field::Missing(Missing::BeforeStart);
    };
    let part =
        "are not in the record (from before the agent's start), and none is set: write one to try";
    assert_eq!(check(&older, part), empty);
    let set = |signal: &'static str| {
        move |incident: &mut Incident| {
            if let Field::Value(known) = &mut incident.configuration {
                known.parts.truncate(1);
                known.parts[0].signal = signal.to_owned();
            }
        }
    };
    let bare = check(
        &set("pid.available"),
        "no threshold of memory was configured",
    );
    assert_eq!(bare["evictionHard"], json!({"pid.available": "100Mi"}));
    let _bare = check(
        &set("pid.available"),
        "thresholds of pid.available are never met",
    );
    let alone = check(&set("memory.available"), "change them in config");
    assert_eq!(alone["enforceNodeAllocatable"], json!(["none"]));
}

#[test]
fn a_scenario_without_a_threshold_of_what_it_has_is_told_apart() {
    let check = |config: &str, is_live: bool, expected: &[&str]| {
        let steps = "steps: [{at: 0s, signals: {memory.available: {available: 1, capacity: 9}, memory.headroom: {available: 1, capacity: 9}}}]\n";
        let scenario = scenario(&format!("{HEAD}notes: [a word]\nconfig: {config}\n{steps}"));
        let found = scenario.unwatched(is_live).unwrap_or_default();
        let names: Vec<&str> = found.iter().map(|signal| signal.name()).collect();
        assert_eq!(names, expected, "{config}");
    };
    let both = ["memory.available", "memory.headroom"];
    check("{}", false, &[]);
    check("{evictionHard: {}}", false, &both[..1]);
    check("{evictionHard: {pid.available: 5}}", false, &both[..1]);
    check("{evictionHard: {}}", true, &[]);
    check("{evictionHard: {}, headroomHard: 0%}", true, &both);
}

#[test]
fn without_workloads_or_node_there_is_none() {
    let check = |change: fn(&mut Incident), part: &str| {
        let mut incident = incident();
        change(&mut incident);
        let problem = of_incident(&incident).unwrap_err();
        assert!(problem.contains(part), "{part}: {problem}");
    };
    check(
        |incident| incident.workloads = Field::Missing(Missing::BeforeStart),
        "no table of the node's workloads: from before the agent's start",
    );
    check(
        |incident| incident.node = Field::Missing(Missing::Lost),
        "no state of the node",
    );
    check(
        |incident| {
            if let Field::Value(node) = &mut incident.node {
                node.capacity = Field::Missing(Missing::Lost);
            }
        },
        "no capacity of the node",
    );
}

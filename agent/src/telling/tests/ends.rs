//! How the incidents of our own orders end: who else killed, and what was not seen.

use brink_stream::model::incident::{ForkRoot, MOST_OTHER_KILLS, OtherKill};

use super::*;

/// The record of an order has who else killed meanwhile, and says so by the sender.
#[test]
fn who_else_killed_while_an_order_was_open_is_in_its_evidence() {
    let (telling, mut reader) = telling();
    telling.ordered(&decided(5, "enforcing"), None);
    telling.tell_waiting();
    let most = u32::try_from(MOST_OTHER_KILLS).unwrap();
    for pid in 0..most + 2 {
        let kill = OtherKill {
            at: Time::new(0, 7),
            pid,
            comm: "web".to_owned(),
            sender_pid: if pid == 1 { 78 } else { 77 },
            sender_comm: "sh".to_owned(),
            signal_code: 0,
        };
        telling.amend(|_| true, |incident| incident.killed_by_other(kill));
    }
    telling.completed(&over(decided(5, "enforcing"), "gone"), None);
    let told = events(&mut reader);
    assert!(!told[0].data.get().contains("otherKills"), "nobody had");
    let closed = incident(&told[1]);
    assert_eq!(closed.other_kills.len(), MOST_OTHER_KILLS);
    assert_eq!(closed.more_other_kills, Some(2));
    let expected = [
        "somebody else killed as well: process 77 (sh) sent SIGKILL to 15 processes, process 0 (web) first",
        "somebody else killed as well: process 78 (sh) sent SIGKILL to 1 process, process 1 (web) first",
        "somebody else killed as well: 2 more processes, which found no room here",
    ];
    assert_eq!(closed.evidence[2..], expected);
}

/// A record ends before its victim where that takes long, where others come after it, or where it leaves the roster: what was
/// not seen is lost, and nobody is said to live on for it.
#[test]
fn an_end_that_was_not_seen_is_lost() {
    let closed = |record: DecisionRecord| {
        let (telling, mut reader) = telling();
        telling.ordered(&decided(5, "enforcing"), None);
        telling.completed(&record, None);
        incident(&events(&mut reader)[1]).course
    };
    let unseen = |mut record: DecisionRecord| {
        record.stages.retain(|stage| stage.stage != "gone");
        record
    };
    let check =
        |end: &str, change: fn(&mut DecisionRecord), expected: &Field<bool>, exit: Missing| {
            let mut record = unseen(over(decided(5, "enforcing"), end));
            change(&mut record);
            let course = closed(record);
            assert_eq!(&course.container_survived, expected, "{end}");
            assert_eq!(course.exited, Field::Missing(exit), "{end}");
            course
        };
    let lost = Field::Missing(Missing::Lost);
    let course = check("stalled", |_| {}, &lost, Missing::Lost);
    assert_eq!(course.memory_back, Field::Missing(Missing::Lost));
    let course = check("memory-back", |_| {}, &lost, Missing::Lost);
    assert!(course.memory_back.value().is_some(), "that was seen");
    // Of a kill by an agent before us no more than its last signal is known.
    let by_another: fn(&mut DecisionRecord) = |record| {
        record.kill = None;
        for stage in &mut record.stages {
            if stage.stage == "firstSignal" {
                "lastSignal".clone_into(&mut stage.stage);
            }
        }
    };
    let course = check("stalled", by_another, &lost, Missing::Lost);
    assert_eq!(course.killed, Field::Missing(Missing::Lost));
    // Whoever was asked may go yet, and who was neither asked nor killed lives on.
    let asked: fn(&mut DecisionRecord) = |record| {
        record.kill = None;
        "asked".clone_into(&mut record.stages[2].stage);
    };
    let course = check("stopped", asked, &lost, Missing::Lost);
    assert_eq!(course.killed, Field::Missing(Missing::NotApplicable));
    let nobody: fn(&mut DecisionRecord) = |record| {
        record.stages.truncate(2);
        if let Some(kill) = &mut record.kill {
            kill.signalled = 0;
        }
    };
    check(
        "failed",
        nobody,
        &Field::Value(true),
        Missing::NotApplicable,
    );
}

/// What the decision has of the root of a bomb, its incident has too, also where nobody could add it while that was open.
#[test]
fn the_root_of_a_bomb_is_that_of_the_decision() {
    let closed = |was_opened: bool, root: Option<Field<ForkRoot>>| {
        let (telling, mut reader) = telling();
        let mut record = decided(5, "enforcing");
        record.threshold.signal = "pid.available".to_owned();
        if was_opened {
            telling.ordered(&record, None);
        }
        record.fork_root = root;
        telling.completed(&over(record, "gone"), None);
        incident(events(&mut reader).last().unwrap())
    };
    let full = include_str!("../../../tests/page/incident-full.json");
    let full: Incident = serde_json::from_str(full).unwrap();
    let root = full.fork_root;
    assert!(root.value().is_some());
    for was_opened in [true, false] {
        let known = closed(was_opened, Some(root.clone()));
        assert_eq!(known.fork_root, root, "{was_opened}");
        let decision = known.decision.value().unwrap();
        assert_eq!(decision.get("forkRoot"), None, "it is said once");
        let unknown = closed(was_opened, None).fork_root;
        assert_eq!(unknown, Field::Missing(Missing::Lost), "{was_opened}");
    }
}

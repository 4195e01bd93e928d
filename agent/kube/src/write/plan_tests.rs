//! Sequences of answers and of what the watch sees, and what is done next.

use std::time::Duration;

use brink_core::base::Span;

use super::super::forbidden::CONVINCING;
use super::super::owed::{LONGEST, REASONS, REFUSALS, REPEATS, SETTLING, SETTLING_UNSEEN};
use super::*;
use crate::outbox::entry::tests::entry;
use crate::outbox::{End, Part};
use crate::retry::SELDOM;

#[path = "plan_waits_tests.rs"]
mod waits;

fn at(millis: i64) -> Moment {
    Moment::from_secs(1000) + Span::from_millis(millis)
}

fn there(is_terminal: bool, version: u64) -> Seen {
    Seen::There {
        is_terminal,
        keeps_reason: true,
        version: Some(version),
    }
}

fn away() -> Verdict {
    Verdict::Later {
        why: "connection refused".to_owned(),
        after: None,
        of: Scope::Server,
    }
}

fn refused(of: Scope) -> Verdict {
    Verdict::Later {
        why: "forbidden".to_owned(),
        after: None,
        of,
    }
}

/// When something is asked within `long`, if each answer is that.
fn asked(plan: &mut Plan, from: Moment, long: Span, verdict: &Verdict) -> Vec<Moment> {
    let (mut now, mut asked) = (from, Vec::new());
    while now.since(from) < long {
        match plan.next(now) {
            Next::Do(key, act) => {
                asked.push(now);
                assert!(asked.len() < 1000, "it is asked without an end");
                plan.settle(&key, act, verdict.clone(), now);
            }
            Next::Wait(until) => now = until,
            Next::Idle => break,
        }
    }
    asked
}

/// What is done now; panics if there is nothing.
#[track_caller]
fn due(plan: &Plan, now: Moment) -> (Key, Act) {
    match plan.next(now) {
        Next::Do(key, act) => (key, act),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn settle(plan: &mut Plan, now: Moment, verdict: Verdict) -> (Act, Told) {
    let (key, act) = due(plan, now);
    (act, plan.settle(&key, act, verdict, now).unwrap())
}

#[test]
fn statuses_go_before_events_and_the_oldest_first() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    plan.add(entry(2), at(0));
    plan.add(entry(1), at(0));
    assert_eq!(plan.len(), 2);
    let mut done = Vec::new();
    for _ in 0..4 {
        let (key, act) = due(&plan, at(0));
        plan.settle(&key, act, Verdict::Done(Some(5)), at(0));
        done.push((key == entry(1).key, act));
    }
    let (first, second) = (true, false);
    assert_eq!(
        done,
        [
            (first, Act::Status),
            (second, Act::Status),
            (first, Act::Event),
            (second, Act::Event)
        ]
    );
    assert!(matches!(plan.next(at(0)), Next::Wait(_)));
}

#[test]
fn what_was_never_written_goes_before_what_is_written_once_more() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    for _ in 0..2 {
        settle(&mut plan, at(0), Verdict::Done(Some(5)));
    }
    // A kubelet writes over the first, while the second is killed.
    plan.look(|_| there(false, 6), at(0));
    plan.add(entry(2), at(1000));
    let mut done = Vec::new();
    for _ in 0..2 {
        let (key, act) = due(&plan, at(1000));
        plan.settle(&key, act, Verdict::Done(Some(7)), at(1000));
        done.push((key == entry(1).key, act));
    }
    assert_eq!(done, [(false, Act::Status), (true, Act::Status)]);
}

#[test]
fn a_server_that_is_away_is_asked_once_for_all_and_less_and_less_often() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    plan.add(entry(2), at(0));
    let mut now = at(0);
    let mut waits = Vec::new();
    // Each is tried once, and from then on one stands for both.
    settle(&mut plan, now, away());
    for _ in 0..12 {
        let (act, told) = settle(&mut plan, now, away());
        assert_eq!(act, Act::Status);
        assert_eq!(told.waits.as_deref(), Some("connection refused"));
        assert!(!told.is_changed);
        let Next::Wait(until) = plan.next(now) else {
            panic!("somebody is told although nobody listens");
        };
        waits.push(until.since(now).as_nanos() / 1_000_000);
        now = until;
    }
    assert!((400..=1000).contains(&waits[0]), "{waits:?}");
    assert!(waits[4] > waits[0] && waits[11] >= 15_000, "{waits:?}");
    assert!(waits.iter().all(|&wait| wait <= 30_000), "{waits:?}");
    // The watch is back: nobody waits any longer.
    settle(&mut plan, now, away());
    assert!(matches!(plan.next(now), Next::Wait(_)));
    plan.open();
    assert_eq!(due(&plan, now).1, Act::Status);
}

#[test]
fn what_a_server_never_takes_keeps_nobody_waiting() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), away());
    // One that is new does not wait for it.
    plan.add(entry(2), at(1));
    let (key, _) = due(&plan, at(1));
    assert_eq!(key, entry(2).key);
    plan.settle(&key, Act::Status, Verdict::Done(Some(5)), at(1));
    // Nor do those that waited with it.
    plan.add(entry(3), at(2));
    let (mut now, mut order) = (at(2), Vec::new());
    for _ in 0..6 {
        if let Next::Wait(until) = plan.next(now) {
            now = until;
        }
        let (key, act) = due(&plan, now);
        let verdict = if key == entry(1).key {
            away()
        } else {
            Verdict::Done(Some(5))
        };
        plan.settle(&key, act, verdict, now);
        order.push((key, act));
    }
    let place = |order_number, act| {
        order
            .iter()
            .position(|done| *done == (entry(order_number).key, act))
    };
    assert_eq!(place(3, Act::Status), Some(0), "{order:?}");
    assert!(
        place(2, Act::Event) < Some(4) && place(3, Act::Event) < Some(4),
        "{order:?}"
    );
}

#[test]
fn there_is_room_for_as_many_as_the_outbox_has() {
    let mut plan = Plan::new("node-a", 7);
    for order in 0..ENTRIES as u64 {
        assert!(plan.add(entry(order), at(0)));
    }
    assert!(!plan.add(entry(9999), at(0)));
    assert!(plan.add(entry(3), at(0)), "it is there already");
    assert_eq!(plan.len(), ENTRIES);
}

#[test]
fn a_server_that_asks_to_be_left_alone_is() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    let slow = Verdict::Later {
        why: "429".to_owned(),
        after: Some(Duration::from_secs(7)),
        of: Scope::Server,
    };
    settle(&mut plan, at(0), slow);
    let Next::Wait(until) = plan.next(at(0)) else {
        panic!("it is left alone");
    };
    assert!(until >= at(7000) && until <= at(9000), "{until:?}");
    plan.open();
    assert_eq!(plan.next(at(1)), Next::Wait(until));
    assert_eq!(due(&plan, until), (entry(1).key, Act::Status));
}

#[test]
fn what_one_is_refused_another_is_tried_with() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    plan.add(entry(2), at(0));
    settle(&mut plan, at(0), refused(Scope::Act));
    assert_eq!(due(&plan, at(0)), (entry(2).key, Act::Status));
    // It may: so the first one is tried again.
    settle(&mut plan, at(0), Verdict::Done(Some(5)));
    assert_eq!(due(&plan, at(0)), (entry(1).key, Act::Status));
    settle(&mut plan, at(0), refused(Scope::Act));
    assert_eq!(due(&plan, at(0)), (entry(2).key, Act::Event));
    assert!(plan.is_refused());
}

#[test]
fn a_right_that_is_missing_is_asked_for_by_one_of_all_and_ever_less_often() {
    let hour = Span::from_secs(3600);
    for (of, at_once) in [(Scope::Act, CONVINCING as usize), (Scope::Account, 1)] {
        let mut plan = Plan::new("node-a", 7);
        for order in 0..ENTRIES as u64 {
            plan.add(entry(order), at(0));
        }
        let first = asked(&mut plan, at(0), hour, &refused(of));
        let begun = first.iter().filter(|time| **time == at(0)).count();
        assert_eq!(begun, at_once, "{of:?}");
        assert!(first.len() <= 24, "{of:?}: {}", first.len());
        let ten_hours = Span::from_secs(36_000);
        let later = asked(&mut plan, at(0) + hour, ten_hours, &refused(of));
        assert!((40..=61).contains(&later.len()), "{of:?}: {}", later.len());
        for two in later.windows(2) {
            let wait = two[1].since(two[0]);
            assert!(
                wait >= span(SELDOM) && wait <= span(SELDOM * 3 / 2),
                "{of:?}: {wait:?}"
            );
        }
    }
}

/// Many that are refused in one moment are one refusal: the wait is the first one's.
#[test]
fn a_burst_of_refusals_is_waited_for_once() {
    let mut plan = Plan::new("node-a", 7);
    for order in 0..u64::from(CONVINCING) {
        plan.add(entry(order), at(0));
    }
    for _ in 0..CONVINCING {
        settle(&mut plan, at(0), refused(Scope::Act));
    }
    let Next::Wait(until) = plan.next(at(0)) else {
        panic!("{:?}", plan.next(at(0)));
    };
    assert!(until <= at(0) + Span::from_millis(750), "{until:?}");
}

/// Twenty that were refused all the time since they came.
fn refused_for_an_hour(of: Scope) -> Plan {
    let mut plan = Plan::new("node-a", 7);
    for order in 0..20 {
        plan.add(entry(order), at(0));
    }
    asked(&mut plan, at(0), Span::from_secs(3600), &refused(of));
    plan
}

#[test]
fn a_right_that_was_given_has_all_told_at_once() {
    let hour = Span::from_secs(3600);
    for of in [Scope::Act, Scope::Account] {
        let mut plan = refused_for_an_hour(of);
        assert!(plan.is_refused(), "{of:?}");
        // By then one that is new waits as well.
        plan.add(entry(20), at(0) + hour);
        let Next::Wait(until) = plan.next(at(0) + hour) else {
            panic!("{of:?}: it is not waited");
        };
        let told = asked(
            &mut plan,
            until,
            Span::from_secs(1),
            &Verdict::Done(Some(5)),
        );
        assert_eq!(told, [until; 42], "{of:?}: statuses and events");
        assert!(!plan.is_refused(), "{of:?}");
        // The next refusal is a first one.
        plan.add(entry(99), until);
        settle(&mut plan, until, refused(of));
        let Next::Wait(again) = plan.next(until) else {
            panic!("{of:?}: it is not waited");
        };
        assert!(again.since(until) <= Span::from_millis(750), "{of:?}");
    }
}

#[test]
fn what_is_refused_of_one_kind_is_told_of_another() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), Verdict::Done(Some(5)));
    for _ in 0..2 * CONVINCING {
        let now = if let Next::Wait(until) = plan.next(at(0)) {
            until
        } else {
            at(0)
        };
        let (act, _) = settle(&mut plan, now, refused(Scope::Act));
        assert_eq!(act, Act::Event);
    }
    plan.add(entry(2), at(0));
    assert_eq!(due(&plan, at(0)), (entry(2).key, Act::Status));
}

#[test]
fn another_account_is_tried_at_once_and_once() {
    let hour = Span::from_secs(3600);
    for of in [Scope::Act, Scope::Account] {
        let mut plan = refused_for_an_hour(of);
        plan.ask_again();
        let soon = asked(&mut plan, at(0) + hour, span(SELDOM), &refused(of));
        assert_eq!(soon, [at(0) + hour], "{of:?}");
        // The server is heard of by others all the time.
        plan.open();
        assert!(matches!(plan.next(at(0) + hour), Next::Wait(_)), "{of:?}");
    }
}

#[test]
fn a_conflict_is_looked_into_and_another_pod_is_left_alone() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), Verdict::Look("409".to_owned()));
    let (act, told) = settle(&mut plan, at(0), Verdict::Never(End::Replaced));
    assert_eq!(act, Act::Look);
    assert_eq!(told.entry.status_part, Part::Ended(End::Replaced));
    // It happened all the same: the event tells so.
    let (act, _) = settle(&mut plan, at(0), Verdict::Done(None));
    assert_eq!(act, Act::Event);
    let told = plan.look(|_| Seen::Unknown, at(0));
    assert!(told[0].is_over && plan.is_empty());
}

#[test]
fn a_conflict_that_stays_is_the_servers_last_word() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    let mut now = at(0);
    for _ in 0..REFUSALS {
        let (act, _) = settle(&mut plan, now, Verdict::Look("422 no".to_owned()));
        assert_eq!(act, Act::Status);
        settle(&mut plan, now, Verdict::Same);
        now = now + Span::from_secs(60);
    }
    let part = &plan.entry(&entry(1).key).unwrap().status_part;
    assert_eq!(part, &Part::Ended(End::Refused("422 no".to_owned())));
}

#[test]
fn a_status_that_is_written_over_is_written_again_until_it_holds() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), Verdict::Done(Some(100)));
    settle(&mut plan, at(0), Verdict::Done(None));
    // The watch still tells of what was before.
    assert_eq!(plan.look(|_| there(false, 99), at(1)), []);
    assert!(matches!(plan.next(at(1)), Next::Wait(_)));
    plan.look(|_| there(false, 101), at(10));
    assert_eq!(due(&plan, at(10)), (entry(1).key, Act::Status));
    settle(&mut plan, at(10), Verdict::Done(Some(102)));
    assert_eq!(plan.look(|_| there(true, 102), at(11)), []);
    // The event was posted once.
    let Next::Wait(until) = plan.next(at(11)) else {
        panic!("nothing is owed");
    };
    assert_eq!(until, at(10) + SETTLING);
    assert!(plan.look(|_| there(true, 102), until)[0].is_over);
}

#[test]
fn a_reason_that_is_taken_away_is_written_again_a_few_times() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), Verdict::Done(Some(100)));
    settle(&mut plan, at(0), Verdict::Done(None));
    let (mut now, mut version, mut written) = (at(0), 101, 0);
    let gone = |version| Seen::There {
        is_terminal: true,
        keeps_reason: false,
        version: Some(version),
    };
    while !plan.is_empty() {
        plan.look(|_| gone(version), now);
        match plan.next(now) {
            Next::Do(key, act) => {
                assert_eq!(act, Act::Status);
                written += 1;
                plan.settle(&key, act, Verdict::Done(Some(version)), now);
                version += 1;
            }
            Next::Wait(until) => now = until,
            Next::Idle => break,
        }
    }
    assert_eq!(written, REASONS);
    assert!(plan.is_empty(), "it is over all the same");
}

#[test]
fn what_was_written_is_told_whatever_became_of_the_pod_since() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), Verdict::Done(Some(100)));
    plan.look(|_| there(false, 101), at(10));
    let (act, told) = settle(&mut plan, at(10), Verdict::Never(End::Gone));
    assert_eq!((act, told.entry.status_part), (Act::Status, Part::Done));
}

#[test]
fn nobody_is_argued_with_for_ever() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    let (mut now, mut version, mut written) = (at(0), 100, 0);
    while let (Next::Do(key, act), true) = (plan.next(now), written < 1000) {
        written += u32::from(act == Act::Status);
        plan.settle(&key, act, Verdict::Done(Some(version)), now);
        version += 1;
        now = now + Span::from_secs(2);
        plan.look(|_| there(false, version), now);
    }
    assert_eq!(written, REPEATS + 1);
}

#[test]
fn a_pod_that_is_gone_or_unseen_is_over() {
    for (seen, after) in [
        (Seen::Gone, Span::from_nanos(0)),
        (Seen::Unknown, SETTLING_UNSEEN),
    ] {
        let mut plan = Plan::new("node-a", 7);
        plan.add(entry(1), at(0));
        settle(&mut plan, at(0), Verdict::Done(None));
        assert_eq!(plan.look(|_| seen, at(0)), [], "the event is owed");
        settle(&mut plan, at(0), Verdict::Done(None));
        let told = plan.look(|_| seen, at(0) + after);
        assert!(told[0].is_over && plan.is_empty(), "{seen:?}");
    }
}

#[test]
fn nothing_waits_in_a_circle() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), Verdict::Done(Some(1)));
    settle(&mut plan, at(0), Verdict::Done(None));
    let (mut now, mut looks) = (at(0), 0);
    while let Next::Wait(until) = plan.next(now) {
        assert!(until > now, "{until:?}");
        now = until;
        plan.look(|_| there(false, 1), now);
        looks += 1;
    }
    assert!(plan.is_empty() && looks <= 3, "{looks}");
}

#[test]
fn what_was_owed_for_too_long_is_given_up_and_told() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), away());
    assert_eq!(plan.look(|_| Seen::Unknown, at(1)), []);
    let told = plan.look(|_| Seen::Unknown, at(0) + LONGEST);
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(told.is_over && told.is_changed);
    assert_eq!(told.entry.event_part, Part::Ended(End::Expired));
    assert_eq!(plan.next(at(0) + LONGEST), Next::Idle);
}

#[test]
fn what_the_last_run_had_written_is_looked_after() {
    let mut plan = Plan::new("node-a", 7);
    let mut before = entry(1);
    before.status_part = Part::Done;
    before.event_part = Part::Done;
    plan.add(before, at(0));
    plan.look(|_| there(false, 7), at(5));
    assert_eq!(due(&plan, at(5)), (entry(1).key, Act::Status));
}

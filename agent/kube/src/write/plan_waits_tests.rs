//! What is told of those that wait for a right, and what says nothing of rights.

use super::*;

#[test]
fn what_waits_for_a_right_that_others_were_refused_says_so_once() {
    for (of, begun) in [(Scope::Act, CONVINCING), (Scope::Account, 1)] {
        let mut plan = Plan::new("node-a", 7);
        for order in 0..u64::from(begun) {
            plan.add(entry(order), at(0));
            settle(&mut plan, at(0), refused(of));
        }
        // Those have it from the server.
        assert_eq!(plan.look(|_| Seen::Unknown, at(0)), [], "{of:?}");
        plan.add(entry(99), at(0));
        let expected = Told {
            entry: entry(99),
            waits: Some("another was refused: forbidden".to_owned()),
            is_changed: false,
            is_over: false,
        };
        let told = plan.look(|_| Seen::Unknown, at(0));
        assert_eq!(told, [expected], "{of:?}");
        assert_eq!(plan.look(|_| Seen::Unknown, at(1)), [], "{of:?}");
    }
}

#[test]
fn a_server_that_was_away_is_no_reason_once_a_right_is_missing() {
    let mut plan = Plan::new("node-a", 7);
    for order in 0..=u64::from(CONVINCING) {
        plan.add(entry(order), at(0));
        settle(&mut plan, at(0), away());
    }
    assert_eq!(plan.look(|_| Seen::Unknown, at(0)), []);
    plan.open();
    for _ in 0..CONVINCING {
        settle(&mut plan, at(1), refused(Scope::Act));
    }
    let told = plan.look(|_| Seen::Unknown, at(1));
    let waits: Vec<_> = told.iter().map(|told| told.waits.as_deref()).collect();
    assert_eq!(waits, [Some("another was refused: forbidden")]);
}

#[test]
fn who_waits_says_what_is_missing_now_and_not_what_was_missing_before() {
    let mut plan = Plan::new("node-a", 7);
    for order in 0..=u64::from(CONVINCING) {
        plan.add(entry(order), at(0));
    }
    settle(&mut plan, at(0), refused(Scope::Account));
    let told = plan.look(|_| Seen::Unknown, at(0));
    assert_eq!(told.len(), CONVINCING as usize, "all others");
    // Another token, whose role lacks a right.
    plan.ask_again();
    for _ in 0..CONVINCING {
        settle(&mut plan, at(1), refused(Scope::Act));
    }
    let told = plan.look(|_| Seen::Unknown, at(1));
    assert_eq!(told.len(), 1, "who was not tried: {told:?}");
    assert_eq!(plan.look(|_| Seen::Unknown, at(1)), []);
}

#[test]
fn an_event_that_waits_for_its_right_says_so_when_its_status_is_told() {
    let mut plan = Plan::new("node-a", 7);
    for order in 0..=u64::from(CONVINCING) {
        plan.add(entry(order), at(0));
    }
    for _ in 0..=CONVINCING {
        let (act, _) = settle(&mut plan, at(0), Verdict::Done(Some(5)));
        assert_eq!(act, Act::Status);
    }
    for _ in 0..CONVINCING {
        let (act, _) = settle(&mut plan, at(0), refused(Scope::Act));
        assert_eq!(act, Act::Event);
    }
    let told = plan.look(|_| Seen::Unknown, at(0));
    let [told] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(told.entry.status_part, Part::Done);
    assert!(told.waits.as_deref().unwrap().contains("forbidden"));
}

#[test]
fn what_cannot_be_asked_for_says_nothing_of_rights() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    settle(&mut plan, at(0), refused(Scope::Act));
    plan.add(entry(2), at(1));
    let (key, act) = due(&plan, at(1));
    let end = || End::Refused("no such name".to_owned());
    let told = plan.give_up(&key, act, end()).unwrap();
    assert!(told.is_changed && !told.is_over);
    assert_eq!(told.entry.status_part, Part::Ended(end()));
    assert!(plan.is_refused());
    let (key, act) = due(&plan, at(1));
    assert_eq!((&key, act), (&entry(2).key, Act::Event));
    plan.give_up(&key, act, end());
    assert!(matches!(plan.next(at(1)), Next::Wait(_)));
    let told = plan.look(|_| Seen::Unknown, at(1));
    assert!(told[0].is_over && plan.len() == 1);
}

#[test]
fn what_cannot_be_asked_for_does_not_end_the_quiet_that_a_server_has_asked_for() {
    let mut plan = Plan::new("node-a", 7);
    plan.add(entry(1), at(0));
    let slow = Verdict::Later {
        why: "429".to_owned(),
        after: Some(Duration::from_secs(7)),
        of: Scope::Server,
    };
    settle(&mut plan, at(0), slow);
    plan.add(entry(2), at(0));
    plan.add(entry(3), at(0));
    let end = End::Refused("no such name".to_owned());
    for act in [Act::Status, Act::Event] {
        plan.give_up(&entry(2).key, act, end.clone());
    }
    assert!(matches!(plan.next(at(0)), Next::Wait(_)));
}

//! Kills and exits in every order, and the incidents that must come of them.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A process whose start nobody told.
fn id(pid: u32) -> Who {
    Who { pid, start: None }
}

fn chosen(pid: u32, at: u64, decision: Option<(u32, u64)>) -> Chosen {
    let who = id(pid);
    Chosen { at, who, decision }
}

fn killed(pid: u32, at: u64, sender: Sender, workload: Option<&str>) -> Killed {
    Killed {
        at,
        who: id(pid),
        sender,
        workload: workload.map(Arc::from),
    }
}

#[test]
fn a_group_that_falls_to_one_decision_is_one_incident() {
    let mut all = Correlator::default();
    let group = Some((7, 100));
    assert_eq!(all.chosen(&chosen(1, 200, group)), Answer::Opened(Key(1)));
    assert_eq!(all.chosen(&chosen(2, 210, group)), Answer::Joined(Key(1)));
    let later = Some((7, 300));
    assert_eq!(all.chosen(&chosen(3, 400, later)), Answer::Opened(Key(2)));
    // Nobody knows what these two fell to.
    assert_eq!(all.chosen(&chosen(4, 400, None)), Answer::Opened(Key(3)));
    assert_eq!(all.chosen(&chosen(5, 400, None)), Answer::Opened(Key(4)));
}

#[test]
fn who_shares_a_victims_memory_is_one_more_of_its_incident() {
    let mut all = Correlator::default();
    assert_eq!(all.shares(Key(1), id(2), 210), Answer::Nobodys);
    all.chosen(&chosen(1, 200, None));
    assert_eq!(all.shares(Key(1), id(2), 210), Answer::Joined(Key(1)));
    assert_eq!(all.shares(Key(1), id(2), 211), Answer::Known);
    assert_eq!(
        all.shares(Key(1), id(1), 212),
        Answer::Known,
        "the victim itself"
    );
    // It is over when both have exited, in whatever order.
    assert_eq!(all.exited(id(1), 300), Some((Key(1), false)));
    assert_eq!(all.exited(id(2), 400), Some((Key(1), true)));
    assert_eq!(all.due(400 + SETTLE), [(Key(1), End::Exited)]);
    assert_eq!(
        all.shares(Key(1), id(3), 500 + SETTLE),
        Answer::Nobodys,
        "too late"
    );
}

#[test]
fn what_is_told_twice_is_one() {
    let mut all = Correlator::default();
    all.chosen(&chosen(1, 200, None));
    assert_eq!(all.chosen(&chosen(1, 201, None)), Answer::Known);
    let signal = killed(1, 199, Sender::Kernel, Some("web"));
    assert_eq!(all.killed(&signal), Answer::Known);
    all.exited(id(1), 300);
    assert_eq!(all.due(300 + SETTLE), [(Key(1), End::Exited)]);
    assert_eq!(all.chosen(&chosen(1, 200, None)), Answer::Known, "late");
    // The id has been given to somebody else.
    let again = chosen(1, 200 + TWICE + 1, None);
    assert_eq!(all.chosen(&again), Answer::Opened(Key(2)));
}

/// The id of a victim is another process's, which is a victim of its own, however soon.
#[test]
fn whoever_has_the_id_of_a_victim_by_now_is_another_one() {
    let mut all = Correlator::default();
    let one = |start| Who { pid: 1, start };
    let at = |start, at| Chosen {
        at,
        who: one(start),
        decision: None,
    };
    assert_eq!(all.chosen(&at(Some(5), 200)), Answer::Opened(Key(1)));
    // Nobody has heard yet that the first one is gone.
    assert_eq!(all.chosen(&at(Some(9), 300)), Answer::Opened(Key(2)));
    assert_eq!(all.chosen(&at(Some(5), 301)), Answer::Known);
    assert_eq!(all.chosen(&at(None, 302)), Answer::Known, "one of both");
    assert_eq!(all.exited(one(Some(5)), 400), Some((Key(1), true)));
    assert_eq!(all.incident_of(one(Some(9))), Some(Key(2)));
    assert_eq!(all.incident_of(one(Some(5))), None);
    assert_eq!(all.exited(one(Some(9)), 500), Some((Key(2), true)));
    // Both have been for less than a second.
    let signal = Killed {
        who: one(Some(11)),
        ..killed(1, 600, Sender::Process(9), Some("web"))
    };
    assert_eq!(all.killed(&signal), Answer::Opened(Key(3)));
    assert_eq!(all.chosen(&at(Some(9), 601)), Answer::Known);
    // So it is with the id of a thread: the process has it, and whoever tells of the thread knows no start.
    let thread = |start| Who { pid: 4, start };
    all.remember(thread(Some(5)), 700);
    assert_eq!(all.chosen(&chosen(4, 701, None)), Answer::Known);
    let other = Chosen {
        who: thread(Some(12)),
        ..chosen(4, 702, None)
    };
    assert_eq!(all.chosen(&other), Answer::Opened(Key(4)));
}

#[test]
fn signals_are_told_apart_by_their_sender() {
    let mut all = Correlator::default();
    let mut check = |sender, workload, expected| {
        assert_eq!(all.killed(&killed(1, 0, sender, workload)), expected);
    };
    check(Sender::Ourselves, Some("web"), Answer::Ours);
    check(Sender::Kernel, Some("web"), Answer::Nobodys);
    check(Sender::Process(9), None, Answer::Nobodys);
    check(Sender::Process(9), Some("web"), Answer::Opened(Key(1)));
}

#[test]
fn one_act_of_a_sender_is_one_incident() {
    let mut all = Correlator::default();
    let mut check = |pid, at, sender, workload, expected| {
        let signal = killed(pid, at, Sender::Process(sender), Some(workload));
        assert_eq!(all.killed(&signal), expected, "{pid}");
    };
    check(1, 0, 9, "web", Answer::Opened(Key(1)));
    check(2, ONE_ACT, 9, "web", Answer::Joined(Key(1)));
    check(3, 1, 8, "web", Answer::Opened(Key(2)));
    check(4, 1, 9, "db", Answer::Opened(Key(3)));
    check(5, ONE_ACT + 1, 9, "web", Answer::Opened(Key(4)));
}

#[test]
fn what_others_send_while_we_had_ordered_is_told_beside_the_order_or_apart() {
    let mut all = Correlator::default();
    let check = |all: &mut Correlator, pid, at, expected| {
        let signal = killed(pid, at, Sender::Process(9), Some("web"));
        assert_eq!(all.killed(&signal), expected, "{at}");
    };
    all.ordered("web".into());
    check(&mut all, 1, 5, Answer::Beside);
    let ours = killed(1, 5, Sender::Ourselves, Some("web"));
    assert_eq!(all.killed(&ours), Answer::Ours);
    all.completed("web", SECOND);
    let late = killed(2, SECOND + AFTERMATH, Sender::Process(9), Some("web"));
    assert_eq!(all.killed(&late), Answer::Beside);
    assert_eq!(all.apart(&late), Answer::Opened(Key(1)));
    assert_eq!(all.killed(&late), Answer::Known);
    check(&mut all, 3, SECOND + AFTERMATH + 1, Answer::Joined(Key(1)));
    all.due(SECOND + AFTERMATH + 1);
    assert!(all.orders.is_empty(), "it is over and done with");
}

/// An order whose end was lost on its way is not said to have ended just now, however much later somebody kills.
#[test]
fn an_order_whose_end_nobody_told_of_is_forgotten() {
    let mut all = Correlator::default();
    all.ordered("web".into());
    all.ordered("db".into());
    all.completed("db", SECOND);
    let kill = |pid, workload| killed(pid, 2 * SECOND, Sender::Process(9), Some(workload));
    assert_eq!(all.killed(&kill(1, "web")), Answer::Beside);
    assert!(!all.has_ended("web"));
    assert_eq!(all.apart(&kill(1, "web")), Answer::Opened(Key(1)));
    assert_eq!(all.killed(&kill(2, "web")), Answer::Joined(Key(1)));
    assert_eq!(all.killed(&kill(3, "db")), Answer::Beside);
    assert!(all.has_ended("db") && all.has_ended("db"));
}

/// The kernel's own choice is an incident whatever we had ordered, and its signal is none.
#[test]
fn an_oom_while_we_had_ordered_is_the_kernels() {
    let mut all = Correlator::default();
    all.ordered("web".into());
    assert_eq!(all.chosen(&chosen(1, 5, None)), Answer::Opened(Key(1)));
    let signal = killed(1, 6, Sender::Kernel, Some("web"));
    assert_eq!(all.killed(&signal), Answer::Known);
    assert_eq!(all.apart(&signal), Answer::Nobodys);
}

#[test]
fn an_incident_closes_after_its_last_exit_or_at_its_time() {
    let mut all = Correlator::default();
    let group = Some((7, 100));
    all.chosen(&chosen(1, 0, group));
    all.chosen(&chosen(2, 0, group));
    all.chosen(&chosen(3, SECOND, None));
    assert_eq!(all.exited(id(1), 10), Some((Key(1), false)));
    assert_eq!(all.exited(id(2), 20), Some((Key(1), true)));
    assert_eq!(all.exited(id(2), 20), None);
    assert_eq!(all.next_due(), Some(20 + SETTLE));
    assert_eq!(all.due(19 + SETTLE), []);
    assert_eq!(all.due(20 + SETTLE), [(Key(1), End::Exited)]);
    assert_eq!(all.next_due(), Some(SECOND + LONGEST));
    assert_eq!(all.due(SECOND + LONGEST), [(Key(2), End::TimedOut)]);
    assert_eq!((all.next_due(), all.open()), (None, 0));
    all.chosen(&chosen(4, 0, None));
    assert_eq!(all.close(), [(Key(3), End::AgentEnds)]);
}

#[test]
fn what_finds_no_room_is_counted() {
    let mut all = Correlator::default();
    let most = u32::try_from(MOST_OPEN).unwrap();
    for pid in 0..most {
        assert!(matches!(
            all.chosen(&chosen(pid, 0, None)),
            Answer::Opened(_)
        ));
    }
    assert_eq!(all.chosen(&chosen(most, 0, None)), Answer::Lost);
    assert_eq!(all.chosen(&chosen(most, 0, None)), Answer::Known);
    let mut all = Correlator::default();
    let group = Some((7, 100));
    let most = u32::try_from(MOST_VICTIMS).unwrap();
    for pid in 0..most {
        all.chosen(&chosen(pid, 0, group));
    }
    let beyond = all.chosen(&chosen(most, 0, group));
    assert_eq!(beyond, Answer::Counted(Key(1)));
}

#[derive(Clone, Debug)]
enum Move {
    Choose(u32, Option<(u32, u64)>),
    Kill(u32, Sender, bool),
    Exit(u32),
    Wait(u64),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let pid = 0_u32..400;
    let decision = proptest::option::of((0_u32..3, 0_u64..3));
    let sender = prop_oneof![
        Just(Sender::Kernel),
        Just(Sender::Ourselves),
        (0_u32..3).prop_map(Sender::Process)
    ];
    let one = prop_oneof![
        (pid.clone(), decision).prop_map(|(pid, decision)| Move::Choose(pid, decision)),
        (pid.clone(), sender, any::<bool>()).prop_map(|(pid, by, of)| Move::Kill(pid, by, of)),
        pid.prop_map(Move::Exit),
        (0..10 * SECOND).prop_map(Move::Wait),
    ];
    proptest::collection::vec(one, 0..600)
}

proptest! {
    #[test]
    fn every_incident_opens_once_and_closes_once_in_time(moves in moves()) {
        let mut all = Correlator::default();
        let mut open: HashMap<Key, u64> = HashMap::new();
        let mut now = 0;
        for next in moves {
            let answer = match next {
                Move::Choose(pid, decision) => all.chosen(&chosen(pid, now, decision)),
                Move::Kill(pid, sender, of) => {
                    all.killed(&killed(pid, now, sender, of.then_some("web")))
                }
                Move::Exit(pid) => {
                    all.exited(id(pid), now);
                    Answer::Known
                }
                Move::Wait(longer) => {
                    now += longer;
                    for (key, end) in all.due(now) {
                        let began = open.remove(&key);
                        prop_assert!(began.is_some(), "{key:?} closes once");
                        prop_assert!(end == End::Exited || now >= began.unwrap_or(0) + LONGEST);
                    }
                    Answer::Known
                }
            };
            match answer {
                Answer::Opened(key) => prop_assert!(open.insert(key, now).is_none()),
                Answer::Joined(key) | Answer::Counted(key) => prop_assert!(open.contains_key(&key)),
                Answer::Lost => prop_assert_eq!(open.len(), MOST_OPEN),
                _ => {}
            }
            prop_assert!(all.open() == open.len() && all.open() <= MOST_OPEN);
            prop_assert!(all.recent.len() <= REMEMBERED && all.orders.len() <= MOST_OPEN);
            prop_assert_eq!(all.next_due().is_some(), !open.is_empty());
        }
        all.due(now + LONGEST);
        prop_assert_eq!((all.open(), all.victims.len()), (0, 0));
    }
}

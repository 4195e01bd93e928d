//! Who is told from whom by one signal of the kernel's.

use brink_host::probe::forensics::{Actor, Process, Stack, Stacks};

use super::*;

const AT: u64 = 5_000_000_000;

fn process(tgid: u32, total_vm: Option<u64>) -> Process {
    Process {
        tgid,
        tid: tgid,
        comm: "twin".to_owned(),
        total_vm,
        ..Process::default()
    }
}

fn actor(tid: u32) -> Actor {
    Actor {
        tgid: 7,
        tid,
        comm: "taker".to_owned(),
        uid: 0,
        cgroup: None,
        unified: None,
    }
}

fn mark(victim: u32) -> Oom {
    Oom {
        at_ns: AT,
        victim: process(victim, Some(4096)),
        is_signalled: true,
        trigger: actor(8),
        decision: None,
        stacks: Stacks {
            kernel: Stack::Frames(Vec::new()),
            user: Stack::Frames(Vec::new()),
        },
    }
}

fn kill(tgid: u32) -> Kill {
    Kill {
        at_ns: AT + 3_000_000,
        target: process(tgid, Some(4096)),
        sender: actor(8),
        code: SignalCode::Kernel,
        is_group: true,
        stacks: None,
    }
}

#[test]
fn whoever_shares_the_memory_of_the_latest_victim_belongs_to_it() {
    let check = |change: fn(&mut Kill), expected: bool| {
        let mut sharers = Sharers::default();
        sharers.marked(&mark(1));
        assert!(sharers.belong(1, Key(3)).is_empty());
        let mut kill = kill(2);
        change(&mut kill);
        let found = sharers.take(&kill);
        assert_eq!(found, expected.then_some((Key(3), 1)), "{kill:?}");
    };
    check(|_| (), true);
    check(|kill| kill.at_ns = AT + SOON + 1, false);
    check(|kill| kill.at_ns = AT - 1, false);
    check(|kill| kill.code = SignalCode::User, false);
    check(|kill| kill.sender.tid = 9, false);
    check(|kill| kill.target.tgid = 1, false);
    check(|kill| kill.target.total_vm = Some(8192), false);
    check(|kill| kill.target.total_vm = None, false);
}

#[test]
fn who_is_killed_before_the_incident_is_known_waits_for_it() {
    let mut sharers = Sharers::default();
    sharers.marked(&mark(1));
    for tgid in 2..100 {
        assert_eq!(sharers.take(&kill(tgid)), None);
    }
    assert!(sharers.belong(5, Key(9)).is_empty(), "another victim");
    assert_eq!(sharers.belong(1, Key(3)).len(), WAITING);
    assert_eq!(sharers.lost(), 98 - WAITING as u64, "there was no room");
    assert_eq!(sharers.take(&kill(100)), Some((Key(3), 1)));
    sharers.marked(&mark(6));
    assert_eq!(sharers.take(&kill(101)), None, "it waits for the next one");
    assert_eq!(sharers.belong(6, Key(4)).len(), 1);
}

#[test]
fn who_waits_for_an_incident_that_never_comes_is_counted_as_lost() {
    let mut sharers = Sharers::default();
    sharers.marked(&mark(1));
    assert_eq!(sharers.take(&kill(2)), None);
    assert_eq!(sharers.lost(), 0);
    sharers.marked(&mark(6));
    assert!(sharers.belong(6, Key(4)).is_empty());
    assert_eq!(sharers.lost(), 1);
}

#[test]
fn who_leads_a_namespace_and_ends_kills_for_no_memory() {
    let mut sharers = Sharers::default();
    sharers.marked(&mark(1));
    sharers.belong(1, Key(3));
    sharers.ended(1);
    assert!(
        sharers.take(&kill(2)).is_some(),
        "others may still be to come"
    );
    sharers.ended(7);
    assert_eq!(sharers.take(&kill(3)), None);
}

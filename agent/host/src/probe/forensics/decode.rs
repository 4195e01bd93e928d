//! From the bytes of the ring of kills to a record. Any bytes are answered; none are trusted.

use brink_abi::forensics::{
    self, DECISION_ENTERED, DECISION_FOUND, END, EndRecord, FRAME_ADDRESS, FRAME_BUILD_ID, Figures,
    KILL, KillRecord, OOM, OomRecord, RELEASED, ReleasedRecord, STACKED_KILL, StackedKillRecord,
    UserFrame,
};
use brink_abi::plain;
use brink_abi::record::{Head, UNKNOWN};

use super::super::decode::{DecodeError, name};
use super::told::{
    Actor, Decision, End, Frame, Kill, Limit, Method, Oom, Process, Released, Stack, Stacks, Told,
};

/// Reads a record of the ring of kills.
///
/// # Errors
/// [`DecodeError`] for an unknown kind, or fewer bytes than the kind needs.
pub fn told(bytes: &[u8]) -> Result<Told, DecodeError> {
    let kind = plain::read::<Head>(bytes).map(|head| head.kind);
    let found = match kind {
        Some(OOM) => plain::read(bytes).map(|record| Told::Oom(Box::new(oom(&record)))),
        Some(KILL) => plain::read(bytes).map(|record| Told::Kill(Box::new(kill(&record, None)))),
        Some(STACKED_KILL) => plain::read(bytes).map(|record: StackedKillRecord| {
            let stacks = stacks(&record.stacks);
            Told::Kill(Box::new(kill(&record.kill, Some(stacks))))
        }),
        Some(END) => plain::read(bytes).map(|record| Told::End(end(&record))),
        Some(RELEASED) => plain::read(bytes).map(|record| Told::Released(released(&record))),
        _ => None,
    };
    found.ok_or(DecodeError {
        length: bytes.len(),
        kind,
    })
}

fn oom(record: &OomRecord) -> Oom {
    Oom {
        at_ns: record.head.at_ns,
        victim: process(&record.victim),
        is_signalled: record.signalled != 0,
        trigger: actor(&record.trigger),
        decision: decision(record),
        stacks: stacks(&record.stacks),
    }
}

fn stacks(found: &forensics::Stacks) -> Stacks {
    let kernel = |bytes: usize| {
        let frames = found.kernel.iter().take(bytes / size_of::<u64>());
        frames.copied().filter(|address| *address != 0).collect()
    };
    let user = |bytes: usize| {
        let frames = found.user.iter().take(bytes / size_of::<UserFrame>());
        frames.filter_map(frame).collect()
    };
    Stacks {
        kernel: stack(found.kernel_bytes, kernel),
        user: stack(found.user_bytes, user),
    }
}

fn stack<T>(bytes: i32, frames: impl FnOnce(usize) -> Vec<T>) -> Stack<T> {
    usize::try_from(bytes).map_or(Stack::Failed(bytes), |bytes| Stack::Frames(frames(bytes)))
}

fn frame(frame: &UserFrame) -> Option<Frame> {
    match frame.status {
        FRAME_BUILD_ID => Some(Frame::File {
            build_id: frame.build_id,
            offset: frame.offset,
        }),
        FRAME_ADDRESS => Some(Frame::Address(frame.offset)),
        _ => None,
    }
}

fn decision(record: &OomRecord) -> Option<Decision> {
    let found = &record.decision;
    let method = match record.method {
        DECISION_ENTERED => Method::Entered,
        DECISION_FOUND => Method::Found,
        _ => return None,
    };
    // A cgroup that could not be named is none that is known.
    let limit = match found.cgroup {
        0 => Limit::Node,
        id => Limit::Cgroup {
            id: known(id)?,
            usage: known(found.usage),
            max: known(found.max),
        },
    };
    Some(Decision {
        method,
        at_ns: found.at_ns,
        limit,
        gfp: found.gfp,
        order: found.order,
        total: known(found.total).unwrap_or(0),
        points: found.points,
        constraint: found.constraint,
    })
}

fn kill(record: &KillRecord, stacks: Option<Stacks>) -> Kill {
    Kill {
        at_ns: record.head.at_ns,
        target: process(&record.target),
        sender: actor(&record.sender),
        code: record.code.into(),
        is_group: record.group != 0,
        stacks,
    }
}

fn end(record: &EndRecord) -> End {
    End {
        at_ns: record.head.at_ns,
        tgid: record.tgid,
        start_ns: known(record.start_ns),
        exit_code: record.exit_code,
    }
}

fn released(record: &ReleasedRecord) -> Released {
    Released {
        at_ns: record.head.at_ns,
        tgid: record.tgid,
        start_ns: known(record.start_ns),
    }
}

fn process(found: &Figures) -> Process {
    Process {
        tgid: found.tgid,
        tid: found.tid,
        comm: name(&found.comm).into_owned(),
        start_ns: known(found.start_ns),
        uid: (found.uid != u32::MAX).then_some(found.uid),
        oom_score_adj: (found.oom_score_adj != i32::MIN).then_some(found.oom_score_adj),
        anon: counted(found.anon),
        file: counted(found.file),
        shmem: counted(found.shmem),
        swap: counted(found.swap),
        page_tables: counted(found.page_tables),
        total_vm: counted(found.total_vm),
        peak: counted(found.peak),
        cgroup: known(found.cgroup),
        unified: known(found.unified),
    }
}

fn actor(found: &forensics::Actor) -> Actor {
    Actor {
        tgid: found.tgid,
        tid: found.tid,
        comm: name(&found.comm).into_owned(),
        uid: found.uid,
        cgroup: known(found.cgroup),
        unified: known(found.unified),
    }
}

fn known(number: u64) -> Option<u64> {
    (number != UNKNOWN).then_some(number)
}

/// A counter with parts that are added later may be a little below zero, in whole pages.
fn counted(number: u64) -> Option<u64> {
    known(number).map(|number| u64::try_from(number.cast_signed()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use brink_abi::Plain;
    use brink_abi::plain::bytes_of;
    use proptest::prelude::*;

    use super::super::SignalCode;
    use super::*;

    fn head<T: Plain>(kind: u32) -> Head {
        Head {
            kind,
            size: u32::try_from(size_of::<T>()).unwrap(),
            at_ns: 5,
            submit_ns: 6,
        }
    }

    fn oom_of(change: impl FnOnce(&mut OomRecord)) -> Oom {
        let mut record = OomRecord {
            head: head::<OomRecord>(OOM),
            ..Plain::ZERO
        };
        change(&mut record);
        let Ok(Told::Oom(oom)) = told(bytes_of(&record)) else {
            panic!("no record of a victim")
        };
        *oom
    }

    #[test]
    fn a_kill_comes_back_as_it_went() {
        let mut record = KillRecord {
            head: head::<KillRecord>(KILL),
            code: -6,
            ..Plain::ZERO
        };
        record.target.tgid = 7;
        record.target.uid = u32::MAX;
        record.target.oom_score_adj = i32::MIN;
        record.target.anon = 4096_u64.wrapping_neg();
        record.target.file = UNKNOWN;
        record.sender.comm[..4].copy_from_slice(b"bash");
        let Ok(Told::Kill(kill)) = told(bytes_of(&record)) else {
            panic!("no record of a kill")
        };
        assert_eq!(
            (kill.at_ns, kill.target.tgid, kill.code),
            (5, 7, SignalCode::Thread)
        );
        assert_eq!((kill.target.uid, kill.target.oom_score_adj), (None, None));
        // A little below zero is nothing, and not unknown.
        assert_eq!((kill.target.anon, kill.target.file), (Some(0), None));
        assert_eq!(kill.sender.comm, "bash");
    }

    #[test]
    fn codes_have_names_and_keep_their_numbers() {
        for code in [0, -1, -2, -6, 0x80, 17, i32::MIN] {
            assert_eq!(SignalCode::from(code).number(), code);
        }
    }

    #[test]
    fn a_decision_counts_only_with_a_method_and_a_cgroup() {
        let of = |method, cgroup| {
            oom_of(|record| {
                record.method = method;
                record.decision.cgroup = cgroup;
            })
            .decision
            .map(|decision| decision.limit)
        };
        assert_eq!(of(DECISION_ENTERED, 0), Some(Limit::Node));
        let limit = Limit::Cgroup {
            id: 9,
            usage: Some(0),
            max: Some(0),
        };
        assert_eq!(of(DECISION_FOUND, 9), Some(limit));
        assert_eq!(of(DECISION_FOUND, UNKNOWN), None);
        assert_eq!(of(0, 9), None);
    }

    #[test]
    fn stacks_end_where_the_record_says() {
        let oom = oom_of(|record| {
            record.stacks.kernel.fill(1);
            record.stacks.kernel_bytes = 24;
            record.stacks.user[0].status = FRAME_ADDRESS;
            record.stacks.user[0].offset = 3;
            record.stacks.user[1].status = 77;
            record.stacks.user_bytes = i32::MAX;
        });
        assert_eq!(oom.stacks.kernel, Stack::Frames(vec![1, 1, 1]));
        assert_eq!(oom.stacks.user, Stack::Frames(vec![Frame::Address(3)]));
        let failed = oom_of(|record| record.stacks.user_bytes = -14);
        assert_eq!(failed.stacks.user, Stack::Failed(-14));
    }

    #[test]
    fn a_kill_has_stacks_only_where_they_were_sent() {
        let mut record = StackedKillRecord {
            kill: KillRecord {
                head: head::<StackedKillRecord>(STACKED_KILL),
                ..Plain::ZERO
            },
            ..Plain::ZERO
        };
        record.kill.sender.tgid = 7;
        record.stacks.kernel[0] = 1;
        record.stacks.kernel_bytes = 8;
        record.stacks.user_bytes = -14;
        let of = |bytes: &[u8]| match told(bytes) {
            Ok(Told::Kill(kill)) => (kill.sender.tgid, kill.stacks),
            other => panic!("{other:?}"),
        };
        let stacks = Stacks {
            kernel: Stack::Frames(vec![1]),
            user: Stack::Failed(-14),
        };
        assert_eq!(of(bytes_of(&record)), (7, Some(stacks)));
        record.kill.head = head::<KillRecord>(KILL);
        assert_eq!(of(bytes_of(&record.kill)), (7, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(mut bytes in proptest::collection::vec(any::<u8>(), 0..2500), kind in 60u8..70) {
            if let Some(first) = bytes.get_mut(..4) {
                first.copy_from_slice(&[kind, 0, 0, 0]);
            }
            let whole = match u32::from(kind) {
                OOM => size_of::<OomRecord>(),
                KILL => size_of::<KillRecord>(),
                END => size_of::<EndRecord>(),
                RELEASED => size_of::<ReleasedRecord>(),
                STACKED_KILL => size_of::<StackedKillRecord>(),
                _ => usize::MAX,
            };
            prop_assert_eq!(told(&bytes).is_ok(), bytes.len() >= whole);
        }
    }
}

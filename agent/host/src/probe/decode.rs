//! From the bytes of a ring to a signal or a piece of evidence. Any bytes are answered; none are trusted.

use brink_abi::record::{
    BAND, CGROUP, CROSSING, CgroupRecord, EMPTY, EXEC, EXIT, EmptyRecord, ExecRecord, ExitRecord,
    HEARTBEAT, Head, RECLAIM, RETRY, ReclaimRecord, RetryRecord, THREADS, ThreadsRecord, VICTIM,
    VictimRecord,
};
use brink_abi::sample::SampleRecord;
use brink_abi::{MAX_PATH, plain};
use thiserror::Error;

/// One record of the small ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// a watch went below its limit, came back, or became unknown
    Crossing(SampleRecord),
    /// the smallest slack halved or doubled
    Band(SampleRecord),
    /// nothing changed for a second
    Heartbeat(SampleRecord),
    /// the OOM killer chose
    Victim(VictimRecord),
    /// an allocation is about to give up reclaiming
    Retry(RetryRecord),
    /// a watched process, or one of a watched cgroup, has exited
    Exit(ExitRecord),
    /// a watched cgroup has no process left
    Empty(EmptyRecord),
    /// the threads of the system crossed their limit
    Threads(ThreadsRecord),
}

/// One record of the large ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence<'a> {
    /// a long reclaim ended
    Reclaim(ReclaimRecord),
    /// a cgroup came, went, was entered or emptied
    Cgroup(CgroupChange<'a>),
    /// a watched process started another program
    Exec(ExecRecord),
}

/// A change of a cgroup, its path still in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupChange<'a> {
    /// when and how
    pub head: Head,
    /// `CGROUP_*` of [`brink_abi::record`]
    pub change: u32,
    /// depth, the root being 0
    pub level: u32,
    /// inode number of the directory
    pub id: u64,
    /// thread-group id of what was attached, or whether populated
    pub value: u32,
    /// from the root of the hierarchy; kernels allow any bytes but `/` and NUL in a name
    pub path: &'a [u8],
    /// the path was longer than a record holds
    pub cut: bool,
}

/// Bytes that are no record of this ring.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{length} bytes of kind {kind:?} are no record of this ring")]
pub struct DecodeError {
    /// bytes found
    pub length: usize,
    /// the kind they claim, if there are that many bytes
    pub kind: Option<u32>,
}

/// Reads a record of the small ring.
///
/// # Errors
/// [`DecodeError`] for an unknown kind, or fewer bytes than the kind needs.
pub fn signal(bytes: &[u8]) -> Result<Signal, DecodeError> {
    let kind = kind(bytes)?;
    let found = match kind {
        CROSSING => plain::read(bytes).map(Signal::Crossing),
        BAND => plain::read(bytes).map(Signal::Band),
        HEARTBEAT => plain::read(bytes).map(Signal::Heartbeat),
        VICTIM => plain::read(bytes).map(Signal::Victim),
        RETRY => plain::read(bytes).map(Signal::Retry),
        EXIT => plain::read(bytes).map(Signal::Exit),
        EMPTY => plain::read(bytes).map(Signal::Empty),
        THREADS => plain::read(bytes).map(Signal::Threads),
        _ => None,
    };
    found.ok_or(DecodeError {
        length: bytes.len(),
        kind: Some(kind),
    })
}

/// Reads a record of the large ring.
///
/// # Errors
/// [`DecodeError`] for an unknown kind, or fewer bytes than the kind needs.
pub fn evidence(bytes: &[u8]) -> Result<Evidence<'_>, DecodeError> {
    let kind = kind(bytes)?;
    let found = match kind {
        RECLAIM => plain::read(bytes).map(Evidence::Reclaim),
        CGROUP => change(bytes).map(Evidence::Cgroup),
        EXEC => plain::read(bytes).map(Evidence::Exec),
        _ => None,
    };
    found.ok_or(DecodeError {
        length: bytes.len(),
        kind: Some(kind),
    })
}

fn kind(bytes: &[u8]) -> Result<u32, DecodeError> {
    plain::read::<Head>(bytes)
        .map(|head| head.kind)
        .ok_or(DecodeError {
            length: bytes.len(),
            kind: None,
        })
}

fn change(bytes: &[u8]) -> Option<CgroupChange<'_>> {
    const PATH: usize = core::mem::offset_of!(CgroupRecord, path);
    let record: CgroupRecord = plain::read(bytes)?;
    let length = (record.length as usize).min(MAX_PATH);
    Some(CgroupChange {
        head: record.head,
        change: record.change,
        level: record.level,
        id: record.id,
        value: record.value,
        path: bytes.get(PATH..PATH + length)?,
        cut: length >= MAX_PATH - 1,
    })
}

/// The text of a name the kernel terminated with NUL.
pub fn name(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end])
}

#[cfg(test)]
mod tests {
    use brink_abi::Plain;
    use brink_abi::plain::bytes_of;
    use proptest::prelude::*;

    use super::*;

    fn head<T: Plain>(kind: u32) -> Head {
        Head {
            kind,
            size: u32::try_from(size_of::<T>()).unwrap(),
            at_ns: 1,
            submit_ns: 2,
        }
    }

    #[test]
    fn each_signal_comes_back_as_it_went() {
        let victim = VictimRecord {
            head: head::<VictimRecord>(VICTIM),
            pid: 42,
            ..Plain::ZERO
        };
        assert_eq!(signal(bytes_of(&victim)), Ok(Signal::Victim(victim)));
        let mut sample = SampleRecord::ZERO;
        sample.head = head::<SampleRecord>(BAND);
        sample.sample.available = -5;
        assert_eq!(signal(bytes_of(&sample)), Ok(Signal::Band(sample)));
        let exit = ExitRecord {
            head: head::<ExitRecord>(EXIT),
            tgid: 7,
            ..Plain::ZERO
        };
        assert_eq!(signal(bytes_of(&exit)), Ok(Signal::Exit(exit)));
    }

    #[test]
    fn rings_do_not_mix() {
        let reclaim = ReclaimRecord {
            head: head::<ReclaimRecord>(RECLAIM),
            ..Plain::ZERO
        };
        assert_eq!(
            signal(bytes_of(&reclaim)),
            Err(DecodeError {
                length: size_of::<ReclaimRecord>(),
                kind: Some(RECLAIM)
            })
        );
        assert_eq!(evidence(bytes_of(&reclaim)), Ok(Evidence::Reclaim(reclaim)));
    }

    #[test]
    fn a_path_ends_where_the_record_says_and_not_after() {
        let mut record = CgroupRecord {
            head: head::<CgroupRecord>(CGROUP),
            ..Plain::ZERO
        };
        record.path[..4].copy_from_slice(b"/a/b");
        for (length, path, cut) in [(4, &b"/a/b"[..], false), (u32::MAX, &record.path[..], true)] {
            record.length = length;
            let bytes = bytes_of(&record).to_vec();
            let Ok(Evidence::Cgroup(found)) = evidence(&bytes) else {
                panic!("{length}")
            };
            assert_eq!((found.path, found.cut), (path, cut));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), kind in 0u8..40) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            let _ = (signal(&bytes), evidence(&bytes));
        }

        #[test]
        fn a_cut_record_is_an_error(cut in 0usize..size_of::<ThreadsRecord>()) {
            let record = ThreadsRecord { head: head::<ThreadsRecord>(THREADS), ..Plain::ZERO };
            prop_assert!(signal(&bytes_of(&record)[..cut]).is_err());
        }
    }
}

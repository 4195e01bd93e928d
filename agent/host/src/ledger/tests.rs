//! What of a ledger survives: reopening, tearing, damage, and files that are none.

use super::*;
use proptest::prelude::*;

const SHAPE: LedgerShape = LedgerShape {
    slots: 3,
    record: 13,
    completion: 5,
    format: 7,
};
const BOOT: BootId = BootId([9; 16]);

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("ledger");
    (folder, path)
}

fn fill(ledger: &mut Ledger, byte: u8) -> SlotId {
    ledger.record(|record| record.fill(byte))
}

#[test]
fn records_and_completions_survive_reopening() {
    let (_folder, path) = folder();
    let (mut ledger, opening) = Ledger::open(&path, SHAPE, BOOT).expect("new");
    assert_eq!(opening, Opening::Created);
    let slots = [
        fill(&mut ledger, 1),
        fill(&mut ledger, 2),
        fill(&mut ledger, 3),
        fill(&mut ledger, 4),
    ];
    assert_eq!(slots.map(|slot| slot.sequence), [1, 2, 3, 4]);
    assert!(!ledger.complete(slots[0], |_| panic!("the slot was used again")));
    assert!(ledger.complete(slots[3], |completion| completion.fill(40)));
    drop(ledger);
    let (mut ledger, opening) = Ledger::open(&path, SHAPE, BOOT).expect("again");
    assert_eq!(opening, Opening::Resumed { records: 3 });
    let mut found: Vec<_> = ledger
        .entries()
        .map(|entry| (entry.slot.sequence, entry.record[12], entry.completion))
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [(2, 2, None), (3, 3, None), (4, 4, Some(&[40; 5][..]))]
    );
    assert_eq!(fill(&mut ledger, 5).sequence, 5);
}

#[test]
fn marks_survive_a_torn_completion_and_go_with_their_record() {
    let (_folder, path) = folder();
    let (mut ledger, _) = Ledger::open(&path, SHAPE, BOOT).expect("new");
    let slot = fill(&mut ledger, 1);
    assert!(ledger.mark(slot, 0, 70) && ledger.mark(slot, 3, 90));
    assert!(!ledger.mark(slot, MARKS, 1), "there are no more");
    let torn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ledger.complete(slot, |_| panic!("dies while completing"));
    }));
    assert!(torn.is_err());
    drop(ledger);
    let (mut ledger, _) = Ledger::open(&path, SHAPE, BOOT).expect("again");
    let marks = |ledger: &Ledger| {
        ledger
            .entries()
            .map(|entry| entry.marks)
            .collect::<Vec<_>>()
    };
    assert_eq!(marks(&ledger), [[70, 0, 0, 90]]);
    // The slots are used again.
    for _ in 0..3 {
        fill(&mut ledger, 2);
    }
    assert!(!ledger.mark(slot, 1, 80));
    assert_eq!(marks(&ledger), [[0; MARKS]; 3]);
}

#[test]
fn looking_says_what_opening_would_find_and_changes_nothing() {
    let (_folder, path) = folder();
    let look = || Ledger::look(&path, SHAPE, BOOT).expect("readable");
    assert_eq!(look(), Found::Nothing);
    assert!(!path.exists());
    drop(Ledger::open(&path, SHAPE, BOOT).expect("new"));
    assert_eq!(look(), Found::Ours);
    let before_last_boot = Ledger::look(&path, SHAPE, BootId([8; 16])).expect("readable");
    assert!(
        matches!(&before_last_boot, Found::Other(why) if why.contains("boot")),
        "{before_last_boot:?}"
    );
    fs::write(&path, "something else").expect("write");
    assert!(matches!(look(), Found::Other(why) if why.contains("bytes")));
    assert_eq!(fs::read(&path).expect("read"), b"something else");
}

#[test]
fn a_record_that_was_not_finished_is_none() {
    let (_folder, path) = folder();
    let (mut ledger, _) = Ledger::open(&path, SHAPE, BOOT).expect("new");
    let slot = fill(&mut ledger, 1);
    let torn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ledger.complete(slot, |_| panic!("dies while completing"));
    }));
    assert!(torn.is_err());
    assert_eq!(
        ledger
            .entries()
            .map(|entry| (entry.record[0], entry.completion))
            .collect::<Vec<_>>(),
        [(1, None)]
    );
    let torn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ledger.record(|_| panic!("dies while recording"));
    }));
    assert!(torn.is_err());
    drop(ledger);
    let (_, opening) = Ledger::open(&path, SHAPE, BOOT).expect("again");
    assert_eq!(opening, Opening::Resumed { records: 1 });
}

#[test]
fn what_is_not_ours_is_set_aside_and_reported() {
    fn check(damage: impl Fn(&Path), shape: LedgerShape, boot: BootId, expected: &str) {
        let (_folder, path) = folder();
        let (mut ledger, _) = Ledger::open(&path, SHAPE, BOOT).expect("new");
        fill(&mut ledger, 1);
        drop(ledger);
        damage(&path);
        let (ledger, opening) = Ledger::open(&path, shape, boot).expect("a fresh one");
        let Opening::Replaced { aside, why } = opening else {
            panic!("{expected}: {opening:?}")
        };
        assert!(why.contains(expected), "{why:?} should say {expected:?}");
        assert!(aside.exists() || aside.is_symlink());
        assert_eq!(ledger.entries().count(), 0);
    }
    let nothing = |_: &Path| {};
    check(
        nothing,
        LedgerShape { format: 8, ..SHAPE },
        BOOT,
        "layout or format",
    );
    check(
        nothing,
        LedgerShape { slots: 4, ..SHAPE },
        BOOT,
        "bytes and not",
    );
    check(nothing, SHAPE, BootId([8; 16]), "before the last boot");
    let last_number = |path: &Path| {
        let mut bytes = fs::read(path).expect("read");
        let last = LAST_SEQUENCE - 1 - (LAST_SEQUENCE - 2) % u64::from(SHAPE.slots);
        bytes[HEADER..HEADER + 8].copy_from_slice(&last.to_ne_bytes());
        fs::write(path, bytes).expect("write");
    };
    check(last_number, SHAPE, BOOT, "beyond what a boot can have");
    check(
        |path| fs::write(path, b"x").expect("write"),
        SHAPE,
        BOOT,
        "1 bytes and not",
    );
    let zeroes =
        |path: &Path| fs::write(path, vec![0; SHAPE.length().expect("small")]).expect("write");
    check(zeroes, SHAPE, BOOT, "does not begin as a ledger");
    let link = |path: &Path| {
        fs::remove_file(path).expect("remove");
        std::os::unix::fs::symlink("/etc/passwd", path).expect("link");
    };
    check(link, SHAPE, BOOT, "not a plain file");
}

#[test]
fn a_shape_out_of_bounds_is_refused() {
    let (_folder, path) = folder();
    for shape in [
        LedgerShape { slots: 0, ..SHAPE },
        LedgerShape {
            slots: u32::MAX,
            record: u32::MAX,
            ..SHAPE
        },
    ] {
        assert!(
            matches!(
                Ledger::open(&path, shape, BOOT),
                Err(HostError::Unsupported { .. })
            ),
            "{shape:?}"
        );
    }
}

proptest! {
    #[test]
    fn the_newest_records_are_always_there(slots in 1..6u32, written in 0..20u8) {
        let (_folder, path) = folder();
        let shape = LedgerShape { slots, record: 1, completion: 0, format: 1 };
        let (mut ledger, _) = Ledger::open(&path, shape, BOOT).expect("new");
        for byte in 0..written {
            fill(&mut ledger, byte);
        }
        let mut found: Vec<u8> = ledger.entries().map(|entry| entry.record[0]).collect();
        found.sort_unstable();
        let oldest = written.saturating_sub(u8::try_from(slots).expect("small"));
        prop_assert_eq!(found, (oldest..written).collect::<Vec<_>>());
    }

    #[test]
    fn any_damage_is_survived(at in 0..HEADER + 3 * 40, byte: u8) {
        let (_folder, path) = folder();
        let (mut ledger, _) = Ledger::open(&path, SHAPE, BOOT).expect("new");
        fill(&mut ledger, 1);
        drop(ledger);
        let mut bytes = fs::read(&path).expect("read");
        if let Some(damaged) = bytes.get_mut(at) {
            *damaged = byte;
        }
        fs::write(&path, bytes).expect("write");
        let (mut ledger, _) = Ledger::open(&path, SHAPE, BOOT).expect("open");
        fill(&mut ledger, 2);
    }
}

//! The ledger as a dead agent, or a damaged file, left it.

use std::fs;

use brink::ledger::{Completion, DECISIONS, Record};
use brink::record::{DecisionRecord, page};
use brink::terminal::Style;
use brink_host::clock::BootId;
use brink_host::ledger::{Entry, Found, Ledger, LedgerShape, Opening};

use crate::Taken;
use crate::scratch::Scratch;

/// As the agent's, but small enough to be mutated.
pub const SHAPE: LedgerShape = LedgerShape {
    slots: 3,
    record: 768,
    completion: 160,
    ..DECISIONS
};
/// The boot that every input was written in.
const BOOT: BootId = BootId([7; 16]);
/// Where the slots begin.
const HEADER: usize = 4096;
const NAME: &str = "ledger";

thread_local! {
    static FOLDER: Scratch = Scratch::new();
}

/// The slots behind a good header; behind a first byte of 1 a whole file.
pub(crate) fn ledger(bytes: &[u8]) -> Taken {
    FOLDER.with(|folder| {
        folder.clear();
        let path = folder.join(NAME);
        let _none_yet = fs::remove_file(&path);
        let Ok((fresh, _)) = Ledger::open(&path, SHAPE, BOOT) else {
            return Taken::Refused;
        };
        drop(fresh);
        let mut file = fs::read(&path).unwrap_or_default();
        match bytes.split_first() {
            Some((1, whole)) => file = whole.to_vec(),
            Some((_, slots)) => {
                let room = file.get_mut(HEADER..).unwrap_or_default();
                let length = room.len().min(slots.len());
                room[..length].copy_from_slice(&slots[..length]);
            }
            None => {}
        }
        folder.write(NAME, &file);
        folder.write("ledger.aside", b"");
        check(folder)
    })
}

/// What is found can be told, and what is written next survives, whatever was there.
fn check(folder: &Scratch) -> Taken {
    let path = folder.join(NAME);
    let Ok(found) = Ledger::look(&path, SHAPE, BOOT) else {
        return Taken::Refused;
    };
    let Ok((mut ledger, opening)) = Ledger::open(&path, SHAPE, BOOT) else {
        return Taken::Refused;
    };
    let is_ours = found == Found::Ours;
    assert_eq!(
        matches!(opening, Opening::Resumed { .. }),
        is_ours,
        "{opening:?}"
    );
    let read = ledger.entries().filter(is_read).count();
    let newest = ledger.entries().map(|entry| entry.slot.sequence).max();
    let slot = ledger.record(|record| record.fill(3));
    assert!(Some(slot.sequence) > newest, "{slot:?} after {newest:?}");
    assert!(ledger.mark(slot, 1, 5));
    assert!(ledger.complete(slot, |completion| completion.fill(4)));
    drop(ledger);
    let Ok((ledger, opening)) = Ledger::open(&path, SHAPE, BOOT) else {
        return Taken::Refused;
    };
    assert!(
        matches!(opening, Opening::Resumed { records: 1.. }),
        "{opening:?}"
    );
    let ours = ledger.entries().find(|entry| entry.slot == slot);
    let is_whole = ours.is_some_and(|entry| {
        let completion = entry.completion.unwrap_or_default();
        let is_marked = entry.marks == [0, 5, 0, 0];
        entry.record.iter().all(|byte| *byte == 3) && completion.first() == Some(&4) && is_marked
    });
    assert!(is_whole, "what was written last is not there: {ours:?}");
    Taken::from_accepted(is_ours && read > 0)
}

/// Whether it holds a decision; one that is read can be written again, and told.
fn is_read(entry: &Entry<'_>) -> bool {
    let Some((record, completion)) = Record::read(entry) else {
        return false;
    };
    let mut again = vec![0; entry.record.len()];
    if let Ok(written) = postcard::to_slice(&record, &mut again) {
        let back: Result<Record<'_>, _> = postcard::from_bytes(written);
        assert!(back.is_ok_and(|back| format!("{back:?}") == format!("{record:?}")));
    }
    told(&record, completion.as_ref());
    told(&record, None);
    true
}

fn told(record: &Record<'_>, completion: Option<&Completion>) {
    let record = DecisionRecord::new(record, completion);
    let json = serde_json::to_string(&record).unwrap_or_default();
    let back: Result<DecisionRecord, _> = serde_json::from_str(&json);
    assert_eq!(back.ok().as_ref(), Some(&record), "{json}");
    for width in [None, Some(40)] {
        let text = page(
            &record,
            Style {
                width,
                colour: false,
            },
        );
        assert!(!text.is_empty() && !text.contains('\x1b'));
    }
}

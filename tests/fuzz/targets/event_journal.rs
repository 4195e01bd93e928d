//! The event journal as a crash, a bad disk or somebody else left it.

use std::fs;
use std::time::Duration;

use brink_stream::journal::Limits;
use brink_stream::journal::disk::Folder;
use brink_stream::journal::read::{Cursor, Kept, Most, Reader};
use brink_stream::journal::record::{Head, Piece, first};
use brink_stream::journal::store::Store;

use crate::Taken;
use crate::scratch::Scratch;

const BOOT: &str = "3f2a0000-0000-4000-8000-000000000000";
const NAME: &str = "events-000000000001.log";
const LIMITS: Limits = Limits {
    size: 1 << 20,
    age: Duration::from_mins(1),
};
const OURS: u64 = 1 << 60;

thread_local! {
    static FOLDER: Scratch = Scratch::new();
}

/// The records behind a good head; behind a first byte of 1 a whole file.
pub(crate) fn event_journal(bytes: &[u8]) -> Taken {
    let (kind, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let head = Head {
        boot_id: BOOT.to_owned(),
        begun: 1,
    };
    let head = head.encode().unwrap_or([0; _]);
    let mut file = head.to_vec();
    if *kind == 1 {
        file.clear();
    }
    file.extend_from_slice(rest);
    let whole = check_pieces(rest);
    FOLDER.with(|folder| {
        folder.clear();
        for entry in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let _gone = fs::remove_file(entry.path());
        }
        folder.write(NAME, &file);
        let found = check_files(folder);
        if *kind != 1 {
            assert!(found >= whole, "{found} of {whole} events");
        }
        Taken::from_accepted(found > 0)
    })
}

/// Every byte belongs to one piece. Returns how many events stand whole in front of everything else.
fn check_pieces(mut bytes: &[u8]) -> usize {
    let (mut whole, mut is_clean) = (0, true);
    loop {
        let passed = match first(bytes) {
            Piece::Record(record) => {
                let mut again = Vec::new();
                record.encode(&mut again);
                let is_known = again == bytes[..record.size()];
                whole += usize::from(is_clean && is_known);
                record.size()
            }
            Piece::Unreadable(length) => {
                is_clean = false;
                length
            }
            Piece::Short(needed) => {
                assert!(needed > bytes.len());
                return whole;
            }
            Piece::End => return whole,
        };
        assert!((1..=bytes.len()).contains(&passed));
        bytes = &bytes[passed..];
    }
}

/// What is readable stays readable, and the journal goes on behind it. Returns how many events were found.
fn check_files(folder: &Scratch) -> usize {
    let before = read(folder);
    let Ok(disk) = Folder::of(folder.path()) else {
        return 0;
    };
    let opened = Store::open(disk, LIMITS, BOOT, 2);
    assert!(opened.is_ok(), "{opened:?}");
    let Ok((mut store, recovery)) = opened else {
        return 0;
    };
    let last = before.last().map(|kept| kept.seq);
    assert_eq!(recovery.last.map(|last| last.1), last);
    let names = fs::read_dir(folder.path()).into_iter().flatten();
    let aside = recovery.put_aside.len();
    assert!(names.count() >= aside);
    assert!(store.push(OURS, b"{}\n", 2));
    assert!(store.write(2).is_ok());
    let after = read(folder);
    let (ours, others) = after.split_last().unzip();
    assert_eq!(ours.map(|ours: &Kept| ours.seq), Some(OURS));
    assert_eq!(others, Some(&before[..]));
    before.len()
}

fn read(folder: &Scratch) -> Vec<Kept> {
    let most = Most {
        events: 3,
        bytes: 4096,
    };
    let (mut kept, mut cursor) = (Vec::new(), Cursor::default());
    let Ok(disk) = Folder::of(folder.path()) else {
        return kept;
    };
    let reader = Reader::new(disk);
    while let Ok(page) = reader.page(cursor, most)
        && !page.events.is_empty()
    {
        kept.extend(page.events);
        cursor = page.cursor;
    }
    kept
}

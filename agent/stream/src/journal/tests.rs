//! What is kept through power cuts, full disks, damage and age.

use std::time::Duration;

use super::Limits;
use super::disk::{Disk as _, Folder};
use super::read::{After, Cursor, Kept, Most, Reader};
use super::recover::Recovery;
use super::simulated::{FATES, Fate, Simulated};
use super::store::Store;

const BOOT: &str = "3f2a0000-0000-4000-8000-000000000000";
const OTHER_BOOT: &str = "00000000-0000-4000-8000-000000000001";
const ALL: Most = Most {
    events: usize::MAX,
    bytes: usize::MAX,
};
const HOUR: i64 = 3_600_000_000;

const SMALL: Limits = Limits {
    size: 8 << 10,
    age: Duration::from_hours(1600),
};

fn open(disk: &Simulated, now: i64) -> (Store<Simulated>, Recovery) {
    Store::open(disk.clone(), SMALL, BOOT, now).unwrap()
}

fn text(seq: u64) -> Vec<u8> {
    format!("{{\"seq\":{seq},\"filler\":\"{}\"}}\n", "x".repeat(60)).into_bytes()
}

fn all(disk: &Simulated) -> Vec<Kept> {
    let page = Reader::new(disk.clone()).page(Cursor::default(), ALL);
    page.unwrap().events
}

fn numbers(disk: &Simulated) -> Vec<u64> {
    all(disk).iter().map(|kept| kept.seq).collect()
}

/// Writes events from `first` on in small groups, each of them synced; how many are safe when the power fails.
fn write_until_cut(disk: &Simulated, first: u64, last: u64) -> u64 {
    let mut safe = first - 1;
    let Ok((mut store, _)) = Store::open(disk.clone(), SMALL, BOOT, 1) else {
        return safe;
    };
    let mut seq = first;
    while seq <= last {
        // Three writes between syncs: any of them can be there without the others.
        for _ in 0..3 {
            for _ in 0..2 {
                assert!(store.push(seq, &text(seq), 1));
                seq += 1;
            }
            if store.write(1).is_err() {
                return safe;
            }
        }
        if store.sync().is_err() || disk.has_failed() {
            return safe;
        }
        safe = seq - 1;
    }
    safe
}

/// After the cut: everything that was safe is there, unless it had to go for its age or size; all in order, as written.
fn check_cut(disk: &Simulated, safe: u64, told: u64) {
    let (mut store, recovery) = open(disk, 2);
    assert_eq!(recovery.put_aside, [], "nothing is taken for foreign");
    let kept = all(disk);
    let seen: Vec<u64> = kept.iter().map(|kept| kept.seq).collect();
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    assert!(seen.iter().all(|seq| *seq <= told));
    assert!(kept.iter().all(|kept| *kept.text == *text(kept.seq)));
    // A journal of 8 KiB has 40 of these events, of which a few may be newer ones that were not safe.
    let owed = safe.saturating_sub(30)..=safe;
    for seq in owed.filter(|seq| *seq > 0) {
        assert!(seen.contains(&seq), "{seq} was safe: {seen:?}");
    }
    assert_eq!(recovery.last.map(|last| last.1), seen.last().copied());
    store.push(1000, &text(1000), 2);
    store.write(2).unwrap();
    store.sync().unwrap();
    assert_eq!(numbers(disk).last(), Some(&1000), "it goes on");
}

#[test]
fn a_power_cut_after_any_act_loses_nothing_that_was_safe() {
    const LAST: u64 = 84;
    let mut cuts = 0;
    for acts in 0.. {
        let disk = Simulated::default();
        disk.fail_after(acts);
        let safe = write_until_cut(&disk, 1, LAST);
        if !disk.has_failed() {
            break;
        }
        // Every act between has every fate, in every combination.
        let between = disk.between();
        assert!(between.len() < 7, "few enough to try all: {between:?}");
        for mut choice in 0..between.iter().product() {
            let chosen: Vec<Fate> = between
                .iter()
                .map(|fates| {
                    let fate = FATES[choice % fates];
                    choice /= fates;
                    fate
                })
                .collect();
            check_cut(&disk.after_cut(|at| chosen[at]), safe, LAST);
            cuts += 1;
        }
    }
    assert!(cuts > 500, "{cuts} cuts");
}

#[test]
fn a_second_power_cut_while_it_goes_on_loses_nothing_either() {
    let disk = Simulated::default();
    disk.fail_after(23);
    let safe = write_until_cut(&disk, 1, 100);
    for fate in FATES {
        for acts in 0..30 {
            let again = disk.after_cut(|_| fate);
            again.fail_after(acts);
            let next = 200;
            let more = write_until_cut(&again, next, 240);
            for fate in FATES {
                let last = again.after_cut(|_| fate);
                let seen = numbers(&last);
                for seq in (1..=safe).chain(next..=more) {
                    assert!(seen.contains(&seq), "{seq} was safe: {seen:?}");
                }
            }
        }
    }
}

#[test]
fn it_stays_within_its_size_and_keeps_the_newest() {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    for seq in 1..=5000_u64 {
        assert!(store.push(seq, &text(seq), 5));
        if seq % 7 == 0 {
            store.write(5).unwrap();
            assert!(disk.used() as u64 <= SMALL.size, "{}", disk.used());
            assert_eq!(disk.used() as u64, store.size());
        }
    }
    store.write(5).unwrap();
    let seen = numbers(&disk);
    assert!(seen.len() > 40, "{}", seen.len());
    assert_eq!(seen.last(), Some(&5000));
    assert!(seen.windows(2).all(|two| two[0] + 1 == two[1]));
    assert!(!store.push(5001, &vec![b'x'; 3000], 5), "a quarter at most");
}

#[test]
fn it_forgets_what_is_too_old() {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    for hour in 0..3000_i64 {
        let now = hour * HOUR;
        if hour % 50 == 0 {
            let seq = hour.unsigned_abs() + 1;
            store.push(seq, &text(seq), now);
        }
        store.write(now).unwrap();
    }
    let seen = numbers(&disk);
    assert_eq!(seen.last(), Some(&2951));
    let oldest = 3000 - i64::try_from(seen[0]).unwrap();
    assert!((1550..=1800).contains(&oldest), "{oldest} hours");
}

#[test]
fn a_sector_that_cannot_be_read_costs_what_was_behind_it_in_its_file() {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    for seq in 1..=4 {
        store.push(seq, &text(seq), 0);
    }
    store.write(0).unwrap();
    let length = disk.used() as u64;
    drop(store);
    // In the third event.
    disk.set_unreadable(&super::store::name(1), length * 5 / 8);
    let (mut store, recovery) = open(&disk, 1);
    assert_eq!(recovery.last.map(|last| last.1), Some(2));
    assert!(recovery.unreadable > 0 && recovery.put_aside.is_empty());
    store.push(5, &text(5), 1);
    store.write(1).unwrap();
    let page = Reader::new(disk.clone()).page(Cursor::default(), ALL);
    let page = page.unwrap();
    let seen: Vec<u64> = page.events.iter().map(|kept| kept.seq).collect();
    assert_eq!(seen, [1, 2, 5]);
    assert!(page.unreadable > 0);
    // Where the head cannot be read it is no segment.
    disk.set_unreadable(&super::store::name(1), 0);
    let (_, recovery) = open(&disk, 2);
    assert_eq!(recovery.put_aside.len(), 1);
    assert_eq!(numbers(&disk), [5]);
}

#[test]
fn a_clock_that_comes_late_costs_nothing_of_before_the_boot() {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    store.push(1, &text(1), 100_000 * HOUR);
    store.write(100_000 * HOUR).unwrap();
    drop(store);
    // The next boot begins long ago, and learns the time later.
    let (mut store, _) = Store::open(disk.clone(), SMALL, OTHER_BOOT, 5 * HOUR).unwrap();
    store.push(1, &text(1), 5 * HOUR);
    store.write(5 * HOUR).unwrap();
    store.push(2, &text(2), 100_001 * HOUR);
    store.write(100_001 * HOUR).unwrap();
    assert_eq!(numbers(&disk), [1, 1, 2]);
}

#[test]
fn what_is_too_old_goes_where_nothing_is_written_any_more_too() {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    store.push(1, &text(1), 0);
    store.write(0).unwrap();
    let kept = |store: &mut Store<Simulated>, hour: i64| {
        store.write(hour * HOUR).unwrap();
        let segments = Reader::new(disk.clone()).segments().unwrap();
        (numbers(&disk), segments)
    };
    assert_eq!(kept(&mut store, 100), (vec![1], vec![1]));
    // It is over, and its age counts from when the next one was begun.
    assert_eq!(kept(&mut store, 101), (vec![1], vec![1, 2]));
    assert_eq!(kept(&mut store, 1_701), (vec![1], vec![1, 2]));
    assert_eq!(kept(&mut store, 1_702), (vec![], vec![2]));
    // An empty one is not over, whatever its age.
    assert_eq!(kept(&mut store, 9_000), (vec![], vec![2]));
    // Who has the number of an event that is gone learns that others may have been.
    let reader = Reader::new(disk.clone());
    assert!(matches!(reader.after(BOOT, 1), Ok(After::Cut(_))));
    store.push(2, &text(2), 9_001 * HOUR);
    assert_eq!(kept(&mut store, 9_001), (vec![2], vec![2]));
    // The same for what an earlier run has left, of this boot or another one.
    drop(store);
    let (mut store, _) = Store::open(disk.clone(), SMALL, OTHER_BOOT, 9_100 * HOUR).unwrap();
    assert_eq!(kept(&mut store, 9_100), (vec![2], vec![2, 3]));
    assert_eq!(kept(&mut store, 10_701), (vec![], vec![3]));
}

#[test]
fn a_full_disk_is_an_error_and_what_waits_is_written_when_there_is_room() {
    for capacity in 0..1200 {
        let disk = Simulated::default();
        let (mut store, _) = open(&disk, 0);
        disk.set_capacity(Some(capacity));
        let mut failed = 0;
        for seq in 1..=8 {
            store.push(seq, &text(seq), 0);
            if let Err(error) = store.write(0) {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
                failed += 1;
            }
            assert!(disk.used() <= capacity);
        }
        assert!(failed > 0, "at {capacity}");
        // A reader meanwhile, and a run that is killed now, see whole events.
        let seen = numbers(&disk);
        assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
        let (_, recovery) = open(&disk.after_cut(|_| Fate::Stays), 0);
        assert_eq!((recovery.torn, recovery.put_aside.len()), (0, 0));
        disk.set_capacity(None);
        store.write(0).unwrap();
        assert_eq!(numbers(&disk), (1..=8).collect::<Vec<_>>());
    }
}

/// A store that has written the first event, on a disk that makes nothing safe.
fn unsafe_store() -> (Simulated, Store<Simulated>) {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    store.push(1, &text(1), 0);
    store.write(0).unwrap();
    disk.set_sync_fails(true);
    (disk, store)
}

#[test]
fn what_a_segment_that_is_over_could_not_make_safe_is_counted() {
    let (disk, mut store) = unsafe_store();
    // Its age alone ends the segment.
    let later = i64::MAX / 2;
    store.push(2, &text(2), later);
    assert!(store.write(later).is_err());
    disk.set_sync_fails(false);
    store.write(later).unwrap();
    store.sync().unwrap();
    assert_eq!(store.take_doubtful(), 1);
}

#[test]
fn a_sync_that_fails_is_told_and_a_new_segment_begun() {
    let (disk, mut store) = unsafe_store();
    assert!(store.sync().is_err());
    assert_eq!((store.take_doubtful(), store.take_doubtful()), (1, 0));
    disk.set_sync_fails(false);
    store.push(2, &text(2), 0);
    store.write(0).unwrap();
    store.sync().unwrap();
    assert_eq!(numbers(&disk.after_cut(|_| Fate::Goes)).last(), Some(&2));
    assert_eq!(disk.list().unwrap().len(), 2);
}

#[test]
fn a_clean_journal_is_gone_on_with_and_a_damaged_one_left_as_it_is() {
    let disk = Simulated::default();
    let write = |seq: u64| {
        let (mut store, recovery) = open(&disk, 0);
        store.push(seq, &text(seq), 0);
        store.write(0).unwrap();
        recovery
    };
    assert_eq!(write(1), Recovery::default());
    assert_eq!(write(2).last, Some((BOOT.to_owned(), 1)));
    write(3);
    assert_eq!(disk.list().unwrap(), ["events-000000000001.log"]);
    // One bit in the middle: that event is lost, and nothing is written behind the others.
    disk.edit("events-000000000001.log", |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    });
    let recovery = write(4);
    assert_eq!(recovery.last, Some((BOOT.to_owned(), 3)));
    assert_eq!((recovery.unreadable > 100, recovery.torn), (true, 0));
    assert_eq!(numbers(&disk), [1, 3, 4]);
    assert_eq!(disk.list().unwrap().len(), 2);
    // A file that is something else keeps its bytes, under another name.
    disk.edit("events-000000000002.log", |bytes| {
        *bytes = b"root:x:0:0:".repeat(20);
    });
    let recovery = write(5);
    let aside = ("events-000000000002.log", "events-000000000002.log.damaged");
    assert_eq!(recovery.put_aside, [(aside.0.into(), aside.1.into())]);
    assert_eq!(numbers(&disk), [1, 3, 5]);
}

#[test]
fn a_reader_goes_on_where_it_stopped() {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    for seq in 1..=30 {
        let now = i64::try_from(seq).unwrap();
        store.push(seq * 2, &text(seq * 2), now);
        store.write(now).unwrap();
    }
    let reader = Reader::new(disk.clone());
    let (mut cursor, mut seen) = (Cursor::default(), Vec::new());
    loop {
        let most = Most {
            events: 7,
            bytes: 400,
        };
        let page = reader.page(cursor, most).unwrap();
        if page.events.is_empty() {
            break;
        }
        assert!(page.events.len() <= 4, "bounded by bytes");
        seen.extend(page.events.iter().map(|kept| kept.seq));
        cursor = page.cursor;
    }
    assert_eq!(seen, (1..=30).map(|seq| seq * 2).collect::<Vec<_>>());
    store.push(62, &text(62), 31);
    store.write(31).unwrap();
    let page = reader.page(cursor, ALL).unwrap();
    assert_eq!(page.events.len(), 1, "what came since");
    for seq in 0..=62 {
        let After::Kept(cursor) = reader.after(BOOT, seq).unwrap() else {
            panic!("nothing was removed");
        };
        let page = reader.page(cursor, ALL).unwrap();
        let first = page.events.first().map(|kept| kept.seq);
        let expected = (seq < 62).then_some((seq / 2 + 1) * 2);
        assert_eq!(first, expected, "after {seq}");
    }
    assert_eq!(reader.after("other", 1).unwrap(), After::UnknownBoot);
    for time in 0..=31 {
        let found = reader.since(time).unwrap().map(|(_, seq)| seq);
        let before = u64::try_from((time - 1).max(0)).unwrap();
        assert_eq!(found, (before > 0).then_some(before * 2), "since {time}");
    }
}

#[test]
fn what_was_removed_is_known_to_be_missing() {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    for seq in 1..=500 {
        store.push(seq, &text(seq), 0);
        store.write(0).unwrap();
    }
    let first = numbers(&disk)[0];
    let reader = Reader::new(disk);
    assert!(matches!(reader.after(BOOT, 3).unwrap(), After::Cut(_)));
    assert!(matches!(reader.after(BOOT, first).unwrap(), After::Kept(_)));
}

/// A head that is none any more.
fn damage(disk: &Simulated, segment: u64) {
    disk.edit(&super::store::name(segment), |bytes| bytes[3] ^= 4);
}

/// The numbers of so many events from there on, whether some before them are missing, and where it goes on.
fn some(disk: &Simulated, from: Cursor, events: usize) -> (Vec<u64>, bool, Cursor) {
    let most = Most { events, ..ALL };
    let page = Reader::new(disk.clone()).page(from, most).unwrap();
    let numbers = page.events.iter().map(|kept| kept.seq);
    (numbers.collect(), page.is_cut, page.cursor)
}

/// A journal of as many segments, each with two events.
fn segments_of_two(count: u64) -> Simulated {
    let disk = Simulated::default();
    let (mut store, _) = open(&disk, 0);
    for segment in 1..=count {
        // The one before it is over by its age.
        let now = i64::try_from(segment).unwrap() * 101 * HOUR;
        for seq in [2 * segment - 1, 2 * segment] {
            store.push(seq, &text(seq), now);
        }
        store.write(now).unwrap();
    }
    disk
}

#[test]
fn a_segment_that_was_put_aside_is_told_of_once_with_the_event_behind_it() {
    let disk = segments_of_two(5);
    damage(&disk, 3);
    let (_, recovery) = open(&disk, 505 * HOUR);
    assert_eq!(recovery.put_aside.len(), 1);
    let (seen, is_cut, before) = some(&disk, Cursor::default(), 4);
    assert_eq!((seen, is_cut), (vec![1, 2, 3, 4], false));
    let (seen, is_cut, behind) = some(&disk, before, 1);
    assert_eq!((seen, is_cut), (vec![7], true));
    let (seen, is_cut, _) = some(&disk, behind, 9);
    assert_eq!((seen, is_cut), (vec![8, 9, 10], false));
    let (seen, is_cut, _) = some(&disk, Cursor::default(), 9);
    assert_eq!((seen.len(), is_cut), (8, true));
    let reader = Reader::new(disk.clone());
    for (after, first, expected) in [(4, 7, true), (5, 7, true), (7, 8, false)] {
        let After::Kept(cursor) = reader.after(BOOT, after).unwrap() else {
            panic!("nothing was removed");
        };
        let (seen, is_cut, _) = some(&disk, cursor, 1);
        assert_eq!((seen, is_cut), (vec![first], expected), "after {after}");
    }
    // Somebody has removed that too: it was there all the same.
    disk.remove("events-000000000003.log.damaged").unwrap();
    let (seen, is_cut, _) = some(&disk, before, 1);
    assert_eq!((seen, is_cut), (vec![7], true));
}

#[test]
fn what_is_written_behind_a_file_that_was_put_aside_has_a_gap_before_it() {
    let disk = segments_of_two(3);
    let (_, _, end) = some(&disk, Cursor::default(), 4);
    damage(&disk, 3);
    let now = 303 * HOUR;
    drop(open(&disk, now));
    let (seen, is_cut, _) = some(&disk, end, 9);
    assert_eq!((seen, is_cut), (vec![], true), "nothing is behind it yet");
    // The run that put it aside has written nothing; the next one does.
    let (mut store, recovery) = open(&disk, now);
    assert_eq!(recovery.put_aside, []);
    store.push(9, &text(9), now);
    store.write(now).unwrap();
    let reader = Reader::new(disk.clone());
    assert_eq!(reader.segments().unwrap(), [1, 2, 4]);
    let (seen, is_cut, behind) = some(&disk, end, 9);
    assert_eq!((seen, is_cut), (vec![9], true));
    assert_eq!(some(&disk, behind, 9), (vec![], false, behind));
}

/// Files that were put aside stay for ever; whoever reads from the oldest on is told of none that is older.
#[test]
fn a_file_that_was_put_aside_before_all_that_is_kept_is_no_loss() {
    let disk = segments_of_two(4);
    damage(&disk, 1);
    drop(open(&disk, 404 * HOUR));
    let from_the_oldest = || {
        let (seen, is_cut, _) = some(&disk, Cursor::default(), 9);
        (seen[0], is_cut)
    };
    assert_eq!(from_the_oldest(), (3, true), "it may be as young");
    disk.remove(&super::store::name(2)).unwrap();
    assert_eq!(from_the_oldest(), (5, false));
}

#[test]
fn a_journal_says_whether_it_may_have_events_of_a_boot() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events");
    let patience = Duration::from_mins(1);
    let both = || [BOOT, OTHER_BOOT].map(|boot| super::may_have(&path, boot, patience));
    let write = |boot: &str| {
        let folder = Folder::make(&path).unwrap();
        let (mut store, _) = Store::open(folder, SMALL, boot, 0).unwrap();
        store.push(1, &text(1), 0);
        store.write(0).unwrap();
    };
    assert_eq!(both(), [false, false], "there is none");
    write(BOOT);
    assert_eq!(both(), [true, false]);
    write(OTHER_BOOT);
    assert_eq!(both(), [false, true]);
    std::fs::write(path.join(super::store::name(3)), "").unwrap();
    assert_eq!(both(), [false, true], "one that was never begun");
    std::fs::write(path.join(super::store::name(4)), [7_u8; 200]).unwrap();
    assert_eq!(both(), [true, true], "nobody knows of which it was");
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    assert_eq!(both(), [true, true], "nor what is to be there");
    // Who asks a disk that hangs goes on.
    let (hanging, disk) = std::sync::mpsc::channel::<()>();
    let ask = move || disk.recv().is_ok();
    assert!(super::answer(Duration::from_millis(1), ask));
    drop(hanging);
}

#[test]
fn the_folder_is_for_its_owner_alone_and_for_one_agent() {
    use std::os::unix::fs::PermissionsExt as _;
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("var/events");
    let folder = Folder::make(&path).unwrap();
    assert!(folder.lock().unwrap());
    assert!(!Folder::of(&path).unwrap().lock().unwrap());
    let (mut store, _) = Store::open(folder, SMALL, BOOT, 0).unwrap();
    store.push(1, &text(1), 0);
    store.write(0).unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("events-000000000001.log")), 0o600);
    let reader = Reader::new(Folder::of(&path).unwrap());
    let page = reader.page(Cursor::default(), ALL).unwrap();
    assert_eq!(page.events.len(), 1, "read while it is written");
}

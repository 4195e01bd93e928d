//! A journal whose files somebody else takes away while it is written.

use std::fs;
use std::time::Duration;

use super::Limits;
use super::disk::{Disk as _, Folder};
use super::read::{After, Cursor, Most, Reader};
use super::simulated::Simulated;
use super::store::{Store, name};

const BOOT: &str = "3f2a0000-0000-4000-8000-000000000000";
const ALL: Most = Most {
    events: usize::MAX,
    bytes: usize::MAX,
};
const LIMITS: Limits = Limits {
    size: 1 << 20,
    age: Duration::from_hours(1),
};

/// Writes one event, and makes it safe.
fn write<D: super::disk::Disk>(store: &mut Store<D>, seq: u64) -> std::io::Result<()> {
    store.push(seq, format!("{{\"seq\":{seq}}}\n").as_bytes(), 1);
    store.write(1)?;
    store.sync()
}

fn numbers<D: super::disk::Disk>(reader: &Reader<D>) -> Vec<u64> {
    let kept = reader.page(Cursor::default(), ALL).unwrap().events;
    kept.iter().map(|one| one.seq).collect()
}

#[test]
fn a_segment_that_was_taken_away_is_not_written_any_more() {
    let disk = Simulated::default();
    let (mut store, _) = Store::open(disk.clone(), LIMITS, BOOT, 1).unwrap();
    write(&mut store, 1).unwrap();
    store.push(2, b"{}\n", 1);
    store.write(1).unwrap();
    disk.remove(&name(1)).unwrap();
    write(&mut store, 3).unwrap();
    assert_eq!(store.take_doubtful(), 1, "number 2 was not safe yet");
    assert_eq!(disk.list().unwrap(), [name(2)]);
    let reader = Reader::new(disk);
    assert_eq!(numbers(&reader), [3]);
    assert!(matches!(reader.after(BOOT, 1), Ok(After::Cut(_))));
}

#[test]
fn who_reads_past_a_segment_that_was_taken_away_is_told() {
    let disk = Simulated::default();
    let (mut store, _) = Store::open(disk.clone(), LIMITS, BOOT, 1).unwrap();
    write(&mut store, 1).unwrap();
    // Each taken away is followed by a new one.
    for (number, seq) in [(1, 2), (2, 3)] {
        if number == 2 {
            disk.remove(&name(2)).unwrap();
        } else {
            disk.rename(&name(1), "elsewhere").unwrap();
        }
        write(&mut store, seq).unwrap();
    }
    disk.rename("elsewhere", &name(1)).unwrap();
    assert_eq!(disk.list().unwrap(), [name(1), name(3)]);
    let reader = Reader::new(disk);
    let Ok(After::Kept(cursor)) = reader.after(BOOT, 1) else {
        panic!("number 1 is there");
    };
    let page = reader.page(cursor, ALL).unwrap();
    assert!(page.is_cut, "{page:?}");
    assert_eq!(page.events.len(), 1);
}

#[test]
fn another_agents_folder_is_left_alone_and_one_with_a_journal_taken_up() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("events");
    let folder = Folder::make(&path).unwrap();
    assert!(folder.lock().unwrap());
    let (mut store, _) = Store::open(folder, LIMITS, BOOT, 1).unwrap();
    write(&mut store, 1).unwrap();
    fs::rename(&path, root.path().join("moved")).unwrap();
    let theirs = Folder::make(&path).unwrap();
    assert!(theirs.lock().unwrap());
    let (mut their_store, _) = Store::open(theirs, LIMITS, "theirs", 1).unwrap();
    for seq in [70, 71] {
        write(&mut their_store, seq).unwrap();
        assert!(write(&mut store, 2).is_err());
    }
    let names = || {
        let names = Folder::of(&path).unwrap().list().unwrap();
        names.into_iter().collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(), [name(1)].into());
    // They have gone: what they left stays, and what comes is behind it.
    drop(their_store);
    store.write(1).and_then(|()| store.sync()).unwrap();
    assert_eq!(names(), [name(1), name(2)].into());
    let reader = Reader::new(Folder::of(&path).unwrap());
    assert_eq!(numbers(&reader), [70, 71, 2, 2], "both attempts");
}

#[test]
fn a_folder_that_was_taken_away_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("var/events");
    let folder = Folder::make(&path).unwrap();
    assert!(folder.lock().unwrap());
    let (mut store, _) = Store::open(folder, LIMITS, BOOT, 1).unwrap();
    for seq in 1..4 {
        write(&mut store, seq).unwrap();
    }
    fs::remove_dir_all(root.path().join("var")).unwrap();
    write(&mut store, 4).unwrap();
    let kept = || numbers(&Reader::new(Folder::of(&path).unwrap()));
    assert_eq!(kept(), [4]);
    assert!(!Folder::of(&path).unwrap().lock().unwrap(), "it is ours");
    // Nothing can be made for a while.
    fs::remove_dir_all(&path).unwrap();
    fs::remove_dir(root.path().join("var")).unwrap();
    fs::write(root.path().join("var"), "in the way").unwrap();
    for _ in 0..2 {
        assert!(write(&mut store, 5).is_err());
        store.push(5, b"{}\n", 1);
    }
    fs::remove_file(root.path().join("var")).unwrap();
    let again = (0..3).any(|_| store.write(1).and_then(|()| store.sync()).is_ok());
    assert!(again);
    assert_eq!(kept().last(), Some(&5));
}

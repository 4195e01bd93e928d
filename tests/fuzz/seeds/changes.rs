//! Readings of fanotify's queue, as the kernel hands them out.

use super::write;

const MODIFY: u64 = 0x2;
const MOVED_FROM: u64 = 0x40;
const OVERFLOW: u64 = 0x4000;
const ONDIR: u64 = 0x4000_0000;
/// A record with the handle of a folder, and one with that of a file.
const FOLDER: u8 = 3;
const FILE: u8 = 1;

pub(super) fn readings() {
    let written = event(MODIFY, &[record(FOLDER, &[7; 8])]);
    let moved = event(MOVED_FROM | ONDIR, &[record(FOLDER, &[8; 12])]);
    let as_a_file = event(MODIFY, &[record(FILE, &[9; 8])]);
    write(
        "changes",
        "a-write-and-a-move",
        &[written, moved, as_a_file].concat(),
    );
    write("changes", "overflow", &event(OVERFLOW, &[]));
}

fn record(kind: u8, handle: &[u8]) -> Vec<u8> {
    const BEFORE: usize = 20;
    let length = (BEFORE + handle.len()).next_multiple_of(4);
    let mut record = vec![kind, 0];
    record.extend(u16::try_from(length).unwrap_or(0).to_ne_bytes());
    record.extend([5; 8]);
    record.extend(u32::try_from(handle.len()).unwrap_or(0).to_ne_bytes());
    record.extend(1_i32.to_ne_bytes());
    record.extend(handle);
    record.resize(length, 0);
    record
}

fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
    const HEAD: u16 = 24;
    let records = records.concat();
    let length = usize::from(HEAD) + records.len();
    let mut event = u32::try_from(length).unwrap_or(0).to_ne_bytes().to_vec();
    event.extend([3, 0]);
    event.extend(HEAD.to_ne_bytes());
    event.extend(mask.to_ne_bytes());
    event.extend((-1_i32).to_ne_bytes());
    event.extend(4242_i32.to_ne_bytes());
    event.extend(records);
    event
}

//! Records into the rings, and the count of each one's fate: seen = sent + dropped + filtered.

use aya_ebpf::maps::RingBuf;
use brink_abi::Plain;
use brink_abi::record::Head;

use crate::atomic::add;
use crate::maps::{EVIDENCE, FORENSICS, LOSS, SIGNALS};
use crate::timer::now;

/// Ring flag: wake the reader whether or not it has caught up.
pub const FORCE_WAKEUP: u64 = 2;
/// Ring flag: never wake the reader for this record.
const NO_WAKEUP: u64 = 1;
/// Ring query: bytes that wait for the reader.
const WAITING: u64 = 0;
/// Ring query: its size in bytes.
const SIZE: u64 = 1;

/// When a record wakes the reader: at once, or once an eighth of the ring waits. The ring's own choice, to wake a reader that
/// has caught up, would leave a hurried record lying behind one that nobody was woken for.
#[derive(Clone, Copy)]
pub enum Wake {
    AtOnce,
    WhenFilling,
}

/// What became of an occasion to send a record.
#[derive(Clone, Copy)]
pub enum Fate {
    Seen,
    Sent,
    Dropped,
    Filtered,
}

/// Counts on `row` of the loss table.
#[inline(always)]
pub fn count(row: u32, fate: Fate) {
    let Some(loss) = LOSS.get_ptr_mut(row) else {
        return;
    };
    // SAFETY: a map value is valid for the whole run of the program.
    let counter = unsafe {
        match fate {
            Fate::Seen => &raw mut (*loss).seen,
            Fate::Sent => &raw mut (*loss).sent,
            Fate::Dropped => &raw mut (*loss).dropped,
            Fate::Filtered => &raw mut (*loss).filtered,
        }
    };
    add(counter, 1);
}

/// Reserves a record, lets `fill` write all of it but the head, and submits it. The caller has counted it as seen.
#[inline(always)]
fn emit<T: Plain>(
    ring: &RingBuf,
    wake: u64,
    row: u32,
    kind: u32,
    at: u64,
    fill: impl FnOnce(*mut T),
) {
    let Some(mut entry) = ring.reserve::<T>(0) else {
        count(row, Fate::Dropped);
        return;
    };
    let record = entry.as_mut_ptr();
    fill(record);
    let head = Head {
        kind,
        size: size_of::<T>() as u32,
        at_ns: at,
        submit_ns: now(),
    };
    // SAFETY: the reserved memory holds a `T`, and every record begins with a `Head`.
    unsafe { record.cast::<Head>().write(head) };
    entry.submit(wake);
    count(row, Fate::Sent);
}

/// Sends a record on the small ring.
#[inline(always)]
pub fn signal<T: Plain>(row: u32, kind: u32, at: u64, fill: impl FnOnce(*mut T)) {
    emit(&SIGNALS, FORCE_WAKEUP, row, kind, at, fill);
}

/// The same for what may wait for the guard's next look.
#[inline(always)]
pub fn unhurried_signal<T: Plain>(row: u32, kind: u32, at: u64, fill: impl FnOnce(*mut T)) {
    emit(
        &SIGNALS,
        flags(Wake::WhenFilling, &SIGNALS),
        row,
        kind,
        at,
        fill,
    );
}

/// Sends a record on the ring of kills, whose last eighth is left to those who are `first`.
#[inline(always)]
pub fn kill<T: Plain>(
    first: bool,
    wake: Wake,
    row: u32,
    kind: u32,
    at: u64,
    fill: impl FnOnce(*mut T),
) {
    if !first && !has_room() {
        count(row, Fate::Dropped);
        return;
    }
    emit(&FORENSICS, flags(wake, &FORENSICS), row, kind, at, fill);
}

/// Whether the ring of kills has room for those who are not first.
#[inline(always)]
pub fn has_room() -> bool {
    let size = FORENSICS.query(SIZE);
    FORENSICS.query(WAITING) <= size - size / 8
}

/// Whether it has room for what is not needed.
#[inline(always)]
pub fn is_quiet() -> bool {
    FORENSICS.query(WAITING) < FORENSICS.query(SIZE) / 8
}

/// Sends a record on the large ring.
#[inline(always)]
pub fn evidence<T: Plain>(wake: Wake, row: u32, kind: u32, at: u64, fill: impl FnOnce(*mut T)) {
    emit(&EVIDENCE, flags(wake, &EVIDENCE), row, kind, at, fill);
}

#[inline(always)]
fn flags(wake: Wake, ring: &RingBuf) -> u64 {
    match wake {
        Wake::AtOnce => FORCE_WAKEUP,
        Wake::WhenFilling if ring.query(WAITING) > ring.query(SIZE) / 8 => FORCE_WAKEUP,
        Wake::WhenFilling => NO_WAKEUP,
    }
}

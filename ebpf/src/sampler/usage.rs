//! Reading the usage of armed cgroups.

use aya_ebpf::cty::c_void;
use brink_abi::MAX_SLOTS;
use brink_abi::sample::{USAGE_EMPTY, USAGE_GONE, USAGE_KNOWN, USAGE_UNKNOWN, Usage, UsageTable};

use crate::atomic::{add, swap};
use crate::controller::Controller;
use crate::engine::{Engine, Slot, begin, finish};
use crate::maps::{SAMPLER, SLOTS, USAGE};
use crate::pass::pass;
use crate::timer::now;

/// Bytes charged to the slot's cgroup; `None` when the check failed or nothing is armed.
#[inline(always)]
pub fn charged(slot: *const Slot) -> Option<i64> {
    if matches!(state(slot), USAGE_EMPTY | USAGE_GONE) {
        return None;
    }
    // SAFETY: a map value.
    Controller::charged(unsafe { &raw const (*slot).controller })
}

/// Writes one entry of the usage table; what follows sees every write of other CPUs before it.
#[inline(always)]
pub fn write(table: *mut UsageTable, index: u32, bytes: u64, generation: u64, state: u32) {
    // Every index here is one of a map as long as the table. The mask says so to verifiers that lose a comparison.
    let index = index as usize & (MAX_SLOTS - 1);
    // SAFETY: a map value, and the index is below the length of its entries. Generation and state are the entry's last
    // eight bytes, in this order.
    unsafe {
        let entry = (&raw mut (*table).entries).cast::<Usage>().add(index);
        (*entry).bytes = bytes;
        let mark = entry.cast::<u64>().add(1);
        swap(mark, generation & 0xffff_ffff | u64::from(state) << 32);
    }
}

/// The mask needs it.
const _: () = assert!(MAX_SLOTS.is_power_of_two());

/// Reads every slot, so that the record about to be told carries its numbers. Returns 1 when there was one to read.
#[inline(never)]
pub fn sweep(engine: *mut Engine) -> u32 {
    let (Some(table), Some(meter)) = (USAGE.get_ptr_mut(0), SAMPLER.get_ptr_mut(0)) else {
        return 0;
    };
    // SAFETY: all are map values, held by the caller.
    unsafe {
        let end = (*engine).slot_end;
        if end == 0 {
            return 0;
        }
        let at = now();
        let number = begin(&raw mut (*table).started);
        pass(&SLOTS, refresh, end);
        (*table).swept_ns = at;
        (*table).sweeps += 1;
        finish(&raw mut (*table).finished, number);
        (*meter).sweeps += 1;
        (*meter).sweep_ns += now().wrapping_sub(at);
    }
    1
}

/// Reads one slot into the usage table.
extern "C" fn refresh(
    _map: *mut c_void,
    index: *const u32,
    slot: *mut Slot,
    end: *const u64,
) -> i64 {
    // SAFETY: the helper's arguments.
    let (index, end, generation) = unsafe { (*index, *end, (*slot).generation) };
    let (Some(table), true) = (USAGE.get_ptr_mut(0), u64::from(index) < end) else {
        return 1;
    };
    let armed = !matches!(state(slot), USAGE_EMPTY | USAGE_GONE);
    if armed {
        match charged(slot) {
            Some(bytes) => write(table, index, bytes as u64, generation, USAGE_KNOWN),
            None => unknown(table, index, generation),
        }
    }
    // Asked after the entry was written: a removal meanwhile must not leave a number standing.
    if state(slot) == USAGE_GONE {
        write(table, index, 0, generation, USAGE_GONE);
    }
    0
}

/// The slot's state as the removal's hook left it.
#[inline(always)]
fn state(slot: *const Slot) -> u32 {
    // SAFETY: a map value.
    unsafe { (&raw const (*slot).state).read_volatile() as u32 }
}

#[inline(always)]
fn unknown(table: *mut UsageTable, index: u32, generation: u64) {
    write(table, index, 0, generation, USAGE_UNKNOWN);
    if let Some(meter) = SAMPLER.get_ptr_mut(0) {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*meter).unknown_slots }, 1);
    }
}

//! Binding slots to cgroups, and freeing them: by command, or by the cgroup's removal.

use aya_ebpf::helpers::bpf_get_current_task;
use brink_abi::command::{self, Mailbox, Terms};
use brink_abi::sample::{USAGE_EMPTY, USAGE_GONE, USAGE_PENDING};

use super::usage::write;
use crate::atomic::{add, swap};
use crate::controller::{Controller, STATE_BYTES};
use crate::engine::{Engine, Slot};
use crate::kernel::{cgroup_id, layout, opened_cgroup, read};
use crate::maps::{SAMPLER, SLOT_OF, SLOTS, USAGE};

/// Binds a slot to the cgroup behind the command's descriptor: [`command::ARM_SLOT`].
#[inline(never)]
pub fn arm(engine: *mut Engine, mailbox: *mut Mailbox) -> u32 {
    // SAFETY: both are map values, held by the caller.
    unsafe {
        let given = &(*mailbox).command;
        let index = given.slot;
        disarm(index);
        let Some(slot) = SLOTS.get_ptr_mut(index) else {
            return command::INVALID;
        };
        let Some(cgroup) = opened_cgroup(bpf_get_current_task(), given.fd) else {
            return command::NOT_A_CGROUP;
        };
        let Some(level) = read::<i32>(cgroup, layout!(cgroup_level)) else {
            return command::NOT_A_CGROUP;
        };
        if level == 0 {
            return command::ROOT_CGROUP;
        }
        if layout!(css_bytes) as usize > STATE_BYTES {
            return command::UNSUPPORTED;
        }
        if !bind(slot, cgroup, layout!(cgroup_memory)) {
            return command::NO_MEMORY_CONTROLLER;
        }
        (*slot).terms = given.terms;
        (*slot).generation = u64::from(given.generation);
        if SLOT_OF.insert((*slot).id, index, 0).is_err() {
            return command::TOO_MANY;
        }
        // Checked after the removal's hook can find the slot: a removal before this point shows in the flags, one
        // after it finds the slot.
        if !Controller::is_valid(&raw const (*slot).controller) {
            let _ = SLOT_OF.remove((*slot).id);
            return command::NO_MEMORY_CONTROLLER;
        }
        (*slot).state = u64::from(USAGE_PENDING);
        (*engine).slot_end = (*engine).slot_end.max(u64::from(index) + 1);
        (*mailbox).reply.cgroup = (*slot).id;
        (*mailbox).reply.level = level as u64;
    }
    command::OK
}

/// Notes where the controller lies that the cgroup has at this offset, and by what it will be known again; false where there
/// is none.
#[inline(always)]
pub fn bind(slot: *mut Slot, cgroup: u64, controller: u32) -> bool {
    let (Some(controller), Some(id)) = (Controller::find(cgroup, controller), cgroup_id(cgroup))
    else {
        return false;
    };
    // SAFETY: a map value, held by the caller.
    unsafe {
        (*slot).controller = controller;
        (*slot).id = id;
    }
    true
}

/// Frees a slot: [`command::DISARM_SLOT`].
#[inline(never)]
pub fn disarm(index: u32) -> u32 {
    let (Some(slot), Some(table)) = (SLOTS.get_ptr_mut(index), USAGE.get_ptr_mut(0)) else {
        return command::INVALID;
    };
    // SAFETY: both are map values, held by the caller.
    unsafe {
        if (*slot).state != u64::from(USAGE_EMPTY) {
            let _ = SLOT_OF.remove((*slot).id);
        }
        (*slot).state = u64::from(USAGE_EMPTY);
    }
    write(table, index, 0, 0, USAGE_EMPTY);
    command::OK
}

/// Replaces a slot's terms: [`command::SET_TERMS`].
#[inline(always)]
pub fn set_terms(index: u32, terms: Terms) -> u32 {
    let Some(slot) = SLOTS.get_ptr_mut(index) else {
        return command::INVALID;
    };
    // SAFETY: a map value, held by the caller.
    unsafe { (*slot).terms = terms };
    command::OK
}

/// Disarms the slot of a cgroup that is being removed. Called by the removal's hook, beside a tick at most.
#[inline(always)]
pub fn forget(id: u64) {
    let Some(index) = SLOT_OF.get_ptr_mut(id) else {
        return;
    };
    // SAFETY: a map value.
    let index = unsafe { index.read() };
    let (Some(slot), Some(table)) = (SLOTS.get_ptr_mut(index), USAGE.get_ptr_mut(0)) else {
        return;
    };
    // SAFETY: both are map values. A sweep beside us asks for the state again after it wrote its number.
    unsafe {
        if (*slot).id == id {
            swap(&raw mut (*slot).state, u64::from(USAGE_GONE));
            write(table, index, 0, (*slot).generation, USAGE_GONE);
        }
    }
    let _ = SLOT_OF.remove(id);
    if let Some(meter) = SAMPLER.get_ptr_mut(0) {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*meter).gone_slots }, 1);
    }
}

//! Usage of armed cgroups, and the checks without which an address is not read.
//!
//! A slot keeps the address of a cgroup's memory controller. The kernel frees that memory only a grace period after it
//! took the controller offline, and every program and timer callback runs inside a read-side section. So a controller
//! that is online, under the armed serial number, stays readable for the rest of the run; one that is not is unknown.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_task;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use brink_abi::command::{self, Mailbox, Terms};
use brink_abi::sample::{
    USAGE_EMPTY, USAGE_GONE, USAGE_KNOWN, USAGE_PENDING, USAGE_UNKNOWN, Usage, UsageTable,
};
use brink_abi::{MAX_SLOTS, Plain};

use crate::atomic::add;
use crate::engine::{Engine, Slot};
use crate::kernel::{cgroup_id, layout, pointer, read};
use crate::maps::{SAMPLER, SLOT_OF, SLOTS, USAGE};

/// Bytes of the controller's state that hold what is compared.
const STATE_BYTES: usize = 128;

/// The cgroup whose directory the calling task has open as `fd`.
#[inline(always)]
pub fn cgroup_of(fd: i32) -> Option<u64> {
    // SAFETY: the helper takes no argument.
    let task = unsafe { bpf_get_current_task() };
    let table = pointer(pointer(task, layout!(task_files))?, layout!(files_fdt))?;
    let size: u32 = read(table, layout!(fdtable_max))?;
    if fd < 0 || fd as u32 >= size {
        return None;
    }
    let files = pointer(table, layout!(fdtable_fd))?;
    let file = pointer(files.wrapping_add(u64::from(fd as u32) << 3), 0)?;
    let inode = pointer(file, layout!(file_inode))?;
    let node = pointer(inode, layout!(inode_private))?;
    let cgroup = pointer(node, layout!(kernfs_priv))?;
    (pointer(cgroup, layout!(cgroup_kn))? == node).then_some(cgroup)
}

/// Binds a slot to the cgroup behind the command's descriptor: [`command::ARM_SLOT`].
#[inline(never)]
pub fn arm(engine: *mut Engine, mailbox: *mut Mailbox) -> u32 {
    // SAFETY: `mailbox` is a map value.
    let (index, fd, generation, terms) = unsafe {
        let given = &(*mailbox).command;
        (given.slot, given.fd, given.generation, given.terms)
    };
    if layout!(css_bytes) as usize > STATE_BYTES {
        return command::UNSUPPORTED;
    }
    disarm(index);
    let Some(slot) = SLOTS.get_ptr_mut(index) else {
        return command::INVALID;
    };
    let Some(cgroup) = cgroup_of(fd) else {
        return command::NOT_A_CGROUP;
    };
    let (Some(css), Some(id)) = (pointer(cgroup, layout!(cgroup_memory)), cgroup_id(cgroup)) else {
        return command::NO_MEMORY_CONTROLLER;
    };
    let (Some(level), Some(serial)) = (
        read::<i32>(cgroup, layout!(cgroup_level)),
        read::<u64>(css, layout!(css_serial)),
    ) else {
        return command::NO_MEMORY_CONTROLLER;
    };
    if level == 0 {
        return command::ROOT_CGROUP;
    }
    // SAFETY: `slot` is a map value.
    unsafe {
        (*slot).css = css;
        (*slot).cgroup = cgroup;
        (*slot).serial = serial;
        (*slot).id = id;
        (*slot).terms = terms;
        (*slot).generation = generation;
    }
    if SLOT_OF.insert(id, index, 0).is_err() {
        return command::TOO_MANY;
    }
    // Checked after the slot can be found by the cgroup's removal: a removal before this point shows in the flags,
    // one after it finds the slot.
    if !valid(slot) {
        let _ = SLOT_OF.remove(id);
        return command::NO_MEMORY_CONTROLLER;
    }
    // SAFETY: all are map values.
    unsafe {
        (*slot).state = USAGE_PENDING;
        (*engine).slot_end = (*engine).slot_end.max(u64::from(index) + 1);
        (*mailbox).reply.cgroup = id;
        (*mailbox).reply.level = level as u64;
    }
    command::OK
}

/// Frees a slot: [`command::DISARM_SLOT`].
#[inline(never)]
pub fn disarm(index: u32) -> u32 {
    let (Some(slot), Some(table)) = (SLOTS.get_ptr_mut(index), USAGE.get_ptr_mut(0)) else {
        return command::INVALID;
    };
    // SAFETY: both are map values.
    unsafe {
        if (*slot).state != USAGE_EMPTY {
            let _ = SLOT_OF.remove((*slot).id);
        }
        (*slot).state = USAGE_EMPTY;
    }
    write(table, index, Usage::ZERO);
    command::OK
}

/// Replaces a slot's terms: [`command::SET_TERMS`].
#[inline(always)]
pub fn set_terms(index: u32, terms: Terms) -> u32 {
    let Some(slot) = SLOTS.get_ptr_mut(index) else {
        return command::INVALID;
    };
    // SAFETY: `slot` is a map value.
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
    // SAFETY: both are map values.
    unsafe {
        if (*slot).id == id {
            (*slot).state = USAGE_GONE;
            write(
                table,
                index,
                Usage {
                    bytes: 0,
                    generation: (*slot).generation,
                    state: USAGE_GONE,
                },
            );
        }
    }
    let _ = SLOT_OF.remove(id);
    if let Some(meter) = SAMPLER.get_ptr_mut(0) {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*meter).gone_slots }, 1);
    }
}

/// Whether the controller behind the slot is online and still the one that was armed.
#[inline(always)]
fn valid(slot: *const Slot) -> bool {
    // SAFETY: `slot` is a map value.
    let (css, cgroup, serial) = unsafe { ((*slot).css, (*slot).cgroup, (*slot).serial) };
    let mut state = [0u64; STATE_BYTES / 8];
    let state = (&raw mut state).cast::<u8>();
    // SAFETY: `state` is that long; the helper checks the address it reads from.
    if unsafe { bpf_probe_read_kernel(state.cast(), STATE_BYTES as u32, css as *const c_void) } != 0
    {
        return false;
    }
    // SAFETY: the three offsets lie inside `css_bytes`, which `arm` compared with the length of `state`.
    unsafe {
        let flags = state
            .add(layout!(css_flags) as usize)
            .cast::<u32>()
            .read_volatile();
        state
            .add(layout!(css_cgroup) as usize)
            .cast::<u64>()
            .read_volatile()
            == cgroup
            && state
                .add(layout!(css_serial) as usize)
                .cast::<u64>()
                .read_volatile()
                == serial
            && flags & (layout!(css_online) | layout!(css_dying)) == layout!(css_online)
    }
}

/// Bytes charged to the slot's cgroup; `None` when the check failed or nothing is armed.
#[inline(always)]
pub fn charged(slot: *mut Slot) -> Option<i64> {
    // SAFETY: `slot` is a map value.
    let (css, state) = unsafe { ((*slot).css, (*slot).state) };
    if state == USAGE_EMPTY || state == USAGE_GONE || !valid(slot) {
        return None;
    }
    let memcg = css.wrapping_sub(u64::from(layout!(memcg_css)));
    let pages: i64 = read(memcg, layout!(memcg_usage))?;
    Some(pages.max(0) << layout!(page_shift))
}

/// Writes one entry of the usage table.
#[inline(always)]
fn write(table: *mut UsageTable, index: u32, usage: Usage) {
    if (index as usize) < MAX_SLOTS {
        // SAFETY: `table` is a map value, and `index` was just compared with the length of its entries.
        unsafe {
            (&raw mut (*table).entries)
                .cast::<Usage>()
                .add(index as usize)
                .write(usage)
        };
    }
}

/// Reads one slot into the usage table.
#[inline(always)]
pub fn refresh(table: *mut UsageTable, index: u32, slot: *mut Slot) {
    // SAFETY: `slot` is a map value.
    let (state, generation) = unsafe { ((*slot).state, (*slot).generation) };
    if state == USAGE_EMPTY || state == USAGE_GONE {
        return;
    }
    let usage = match charged(slot) {
        Some(bytes) => Usage {
            bytes: bytes as u64,
            generation,
            state: USAGE_KNOWN,
        },
        None => Usage {
            bytes: 0,
            generation,
            state: USAGE_UNKNOWN,
        },
    };
    if usage.state == USAGE_UNKNOWN
        && let Some(meter) = SAMPLER.get_ptr_mut(0)
    {
        // SAFETY: a map value.
        add(unsafe { &raw mut (*meter).unknown_slots }, 1);
    }
    write(table, index, usage);
}

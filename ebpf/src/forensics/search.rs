//! The `oom_control` of a decision under way, where the kernel does not let its functions be hooked.
//!
//! Every caller of `out_of_memory` keeps it on its stack. While a victim is marked, it holds the address of the chosen
//! process; a word with that address counts only if what lies around it is an `oom_control`: the order of an allocation, and
//! either a memory cgroup, which leads to a cgroup that leads back to it, or none and the node's pages.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_get_current_task;
use aya_ebpf::helpers::generated::bpf_loop;
use brink_abi::layout::ABSENT;

use super::{at, number};
use crate::kernel::layout;

/// log2 of the bytes of a kernel stack that are searched, from its lower end: what 64-bit kernels have at least.
const STACK_SHIFT: u32 = 14;
/// Largest order of an allocation.
const MAX_ORDER: i64 = 20;
/// More pages than any machine has.
const MAX_PAGES: u64 = 1 << 44;

/// What is looked for, and what was found.
#[repr(C)]
struct Search {
    /// behind the last word
    top: u64,
    leader: u64,
    task: u64,
    control: u64,
}

/// Address of the `oom_control` on the current stack whose choice was `task` or its process's first one, 0 if there is none.
#[inline(always)]
pub fn search(leader: u64, task: u64) -> u64 {
    if layout!(oom_chosen) == ABSENT || layout!(task_stack) == ABSENT {
        return 0;
    }
    // SAFETY: the helper takes no argument.
    let stack = at(unsafe { bpf_get_current_task() }, layout!(task_stack));
    if stack == 0 || leader == 0 {
        return 0;
    }
    let mut search = Search {
        top: stack.wrapping_add(1 << STACK_SHIFT),
        leader,
        task,
        control: 0,
    };
    let words = 1 << (STACK_SHIFT - 3);
    // SAFETY: `look` is what the helper calls, and the context outlives the call.
    unsafe { bpf_loop(words, look as *mut c_void, (&raw mut search).cast(), 0) };
    search.control
}

/// Looks at one word, from the upper end down: live frames lie above what is left of former ones.
extern "C" fn look(index: u32, search: *mut Search) -> i64 {
    // SAFETY: the context that `search` passes.
    let (top, leader, task) = unsafe { ((*search).top, (*search).leader, (*search).task) };
    let place = top.wrapping_sub((u64::from(index) + 1) << 3);
    let word = at(place, 0);
    if word != leader && word != task {
        return 0;
    }
    let control = place.wrapping_sub(u64::from(layout!(oom_chosen)));
    if !is_control(control) {
        return 0;
    }
    // SAFETY: as above.
    unsafe { (*search).control = control };
    1
}

#[inline(always)]
fn is_control(control: u64) -> bool {
    let order = number::<i32>(control, layout!(oom_order)) as i64;
    if !(-1..=MAX_ORDER).contains(&order) {
        return false;
    }
    let memcg = at(control, layout!(oom_memcg));
    if memcg == 0 {
        let (total, constraint) = (
            number::<i64>(control, layout!(oom_total)),
            number::<i32>(control, layout!(oom_constraint)),
        );
        return total != 0 && total < MAX_PAGES && constraint < 3;
    }
    let state = memcg.wrapping_add(u64::from(layout!(memcg_css)));
    at(at(state, layout!(css_cgroup)), layout!(cgroup_memory)) == state
}

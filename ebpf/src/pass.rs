//! Passes over an array map by a helper's loop: the verifier then looks at the body once, not once an element.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::bpf_for_each_map_elem;
use aya_ebpf::maps::Array;

/// Body of a pass: the map, the index, the element, the context. Non-zero ends the pass.
pub type Body<T> = extern "C" fn(*mut c_void, *const u32, *mut T, *const u64) -> i64;

/// Calls `body` for the elements until one call ends the pass. Returns how many calls were made.
#[inline(always)]
pub fn pass<T>(map: &'static Array<T>, body: Body<T>, context: u64) -> u64 {
    let map = core::ptr::from_ref(map).cast_mut().cast();
    // The helper wants the context on the stack.
    let context = (&raw const context).cast_mut().cast();
    // SAFETY: `Body` is what the helper calls for an array, and the context outlives the call.
    unsafe { bpf_for_each_map_elem(map, body as *mut c_void, context, 0) as u64 }
}

/// What a body returns after element `index`: 1 when it was the last of `count`, which saves a call.
#[inline(always)]
pub fn ends(index: u32, count: u64) -> i64 {
    i64::from(u64::from(index) + 1 >= count)
}

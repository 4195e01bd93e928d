//! The stacks of the current task, as the kernel follows them.

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::bpf_get_stack;
use brink_abi::forensics::Stacks;

/// Flags of the stack helper.
const USER_STACK: u64 = 1 << 8;
const USER_BUILD_ID: u64 = 1 << 11;

/// Takes both stacks, from the context of the program.
///
/// # Safety
/// `stacks` is memory of a record that was reserved.
#[inline(always)]
pub unsafe fn take(context: *mut c_void, stacks: *mut Stacks) {
    // SAFETY: the caller's promise; the helper keeps to the given lengths.
    unsafe {
        let kernel = &raw mut (*stacks).kernel;
        let size = size_of_val(&*kernel) as u32;
        (*stacks).kernel_bytes = bpf_get_stack(context, kernel.cast(), size, 0) as i32;
        let user = &raw mut (*stacks).user;
        let size = size_of_val(&*user) as u32;
        let flags = USER_STACK | USER_BUILD_ID;
        (*stacks).user_bytes = bpf_get_stack(context, user.cast(), size, flags) as i32;
    }
}

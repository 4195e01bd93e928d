//! A cgroup's controller by its address, and the check without which an address is not read.
//!
//! The kernel frees a controller's memory only a grace period after it took the controller offline, and every program and
//! timer callback runs inside a read-side section. So a controller that is online, under the serial number it was found
//! with, stays readable for the rest of the run; one that is not is unknown.

use core::mem::MaybeUninit;

use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;

use crate::kernel::{layout, pointer, read};

/// Bytes of a controller's state that hold what is compared. Where `css_bytes` is more, nothing may be found.
pub const STATE_BYTES: usize = 128;

/// Where a controller lies, and what it is known again by.
#[repr(C)]
pub struct Controller {
    /// address of the controller's state; 0 for none
    pub css: u64,
    /// its cgroup and serial number when it was found; each check compares both
    pub cgroup: u64,
    pub serial: u64,
}

impl Controller {
    /// The controller that the cgroup has at this offset.
    #[inline(always)]
    pub fn find(cgroup: u64, offset: u32) -> Option<Self> {
        let css = pointer(cgroup, offset)?;
        let serial = read(css, layout!(css_serial))?;
        Some(Self {
            css,
            cgroup,
            serial,
        })
    }

    /// Whether it is online and still the one that was found.
    #[inline(always)]
    pub fn is_valid(this: *const Self) -> bool {
        // Zeroing it, byte by byte, would take longer than all the rest.
        let mut state = MaybeUninit::<[u64; STATE_BYTES / 8]>::uninit();
        let state = state.as_mut_ptr().cast::<u64>();
        // SAFETY: `this` is a map value. The helper checks the address it reads from and fills what it is given. The three
        // offsets lie inside `css_bytes`, which whoever found it compared with the length of `state`.
        unsafe {
            let from = (*this).css as *const c_void;
            if bpf_probe_read_kernel(state.cast(), STATE_BYTES as u32, from) != 0 {
                return false;
            }
            let flags = state.byte_add(layout!(css_flags) as usize).cast::<u32>();
            let flags = flags.read_volatile();
            let cgroup = state.byte_add(layout!(css_cgroup) as usize).read_volatile();
            let serial = state.byte_add(layout!(css_serial) as usize).read_volatile();
            let online = flags & (layout!(css_online) | layout!(css_dying)) == layout!(css_online);
            online && cgroup == (*this).cgroup && serial == (*this).serial
        }
    }

    /// Bytes charged to a memory controller; `None` when the check failed.
    #[inline(always)]
    pub fn charged(this: *const Self) -> Option<i64> {
        if !Self::is_valid(this) {
            return None;
        }
        // SAFETY: a map value.
        let css = unsafe { (*this).css };
        let memcg = css.wrapping_sub(u64::from(layout!(memcg_css)));
        let pages: i64 = read(memcg, layout!(memcg_usage))?;
        Some(pages.max(0) << layout!(page_shift))
    }
}

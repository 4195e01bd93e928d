//! The clock, and timers of the kernel's.

use aya_ebpf::bindings::bpf_timer;
use aya_ebpf::btf_maps::Array as BtfArray;
use aya_ebpf::cty::c_void;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::{bpf_timer_init, bpf_timer_set_callback};

const CLOCK_MONOTONIC: u64 = 1;

/// The kernel finds the timer by the BTF name of its type, so the map must be a BTF map.
#[repr(C)]
pub struct TimerSlot {
    pub timer: bpf_timer,
}

/// A map of one timer.
pub type TimerMap = BtfArray<TimerSlot, 1, 0>;

/// What a timer calls: its map, its key, the slot it lies in.
pub type Callback = extern "C" fn(*mut c_void, *mut u32, *mut TimerSlot) -> i64;

/// The slot's timer, which calls that from now on; none where the kernel refuses it. It stands still until it is started.
///
/// # Safety
/// `slot` is a value of the map.
#[inline(always)]
pub unsafe fn timer(
    map: &'static TimerMap,
    slot: *mut TimerSlot,
    callback: Callback,
) -> Option<*mut bpf_timer> {
    // SAFETY: the timer lies in the map that is passed with it, and the callback has the signature the kernel calls.
    unsafe {
        let timer = &raw mut (*slot).timer;
        let map = core::ptr::from_ref(map).cast_mut().cast();
        // Refused as busy when it was initialised before, which is as good.
        bpf_timer_init(timer, map, CLOCK_MONOTONIC);
        (bpf_timer_set_callback(timer, callback as *mut c_void) == 0).then_some(timer)
    }
}

/// Monotonic time in nanoseconds.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_ktime_get_ns() }
}

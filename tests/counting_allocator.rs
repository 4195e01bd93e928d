//! A global allocator that counts what each thread allocates, to prove that a path allocates nothing.
//!
//! ```text
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let (answer, count) = counting_allocator::during(|| reader.read());
//! assert_eq!(count, 0);
//! ```
#![expect(
    unsafe_code,
    reason = "an allocator is unsafe to implement; this one only counts and asks the system's"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

thread_local! {
    /// Not lazily made and never dropped, so that counting allocates nothing itself.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    /// Bytes taken less bytes given back on this thread. What another thread frees is not seen here.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The most that was held since somebody began to look.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The thread that [`watch`] named, and its count.
static WATCHED: AtomicI32 = AtomicI32::new(0);
static OF_WATCHED: AtomicU64 = AtomicU64::new(0);

/// The system's allocator with a count a thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingAllocator;

/// Allocations, reallocations and frees of this thread so far; always 0 unless [`CountingAllocator`] is the program's.
pub fn count() -> u64 {
    COUNT.get()
}

/// Counts for one thread, from now on, what another one can read: its id as the kernel knows it.
pub fn watch(thread: i32) {
    WATCHED.store(thread, Ordering::Relaxed);
}

/// Allocations, reallocations and frees of the watched thread so far.
pub fn of_watched() -> u64 {
    OF_WATCHED.load(Ordering::Relaxed)
}

/// Runs something and tells how often it allocated, reallocated or freed on this thread.
pub fn during<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = count();
    let answer = work();
    (answer, count() - before)
}

/// Runs something and tells how many bytes it held at a time on this thread, at most; always 0 unless
/// [`CountingAllocator`] is the program's.
pub fn peak_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    let outer = PEAK.replace(before);
    let answer = work();
    let peak = PEAK.get();
    PEAK.set(outer.max(peak));
    (answer, usize::try_from(peak - before).unwrap_or(0))
}

/// Counts bytes that are taken, or given back where the number is negative. No layout is larger than `isize::MAX`.
fn hold(bytes: isize) {
    let held = HELD.get().wrapping_add(bytes);
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

fn add() {
    COUNT.set(COUNT.get() + 1);
    let watched = WATCHED.load(Ordering::Relaxed);
    if watched != 0 && watched == rustix::thread::gettid().as_raw_nonzero().get() {
        OF_WATCHED.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: needed to be a global allocator. Every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    /// # Safety
    /// As [`GlobalAlloc`] asks.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add();
        hold(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] asks.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add();
        hold(-layout.size().cast_signed());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] asks.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add();
        hold(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// # Safety
    /// As [`GlobalAlloc`] asks.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add();
        hold(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

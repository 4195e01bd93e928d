//! libFuzzer's door: one program for all entry points; `BRINK_FUZZ` says which.
#![no_main]

use std::sync::LazyLock;

use brink_fuzz::{TARGETS, Target};
use brink_tests::counting_allocator::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("BRINK_FUZZ").unwrap_or_default();
    Target::find(&name).unwrap_or_else(|| {
        let names = TARGETS.map(|target| target.name).join(", ");
        eprintln!("BRINK_FUZZ={name:?} is no entry point; they are {names}");
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    TARGET.check(bytes);
});

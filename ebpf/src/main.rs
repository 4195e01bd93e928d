//! The kernel programs of Brink, one hook family a file.
#![no_std]
#![no_main]

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

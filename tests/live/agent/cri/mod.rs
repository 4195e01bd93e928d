//! The container runtime as it is: a real containerd with real containers, what reclaim does to them, and an agent that asks for it.

mod apart;
mod containerd;
mod denied;
mod image;
mod limits;
mod pods;
mod reclaim;
mod short_disk;
mod trouble;
mod writers;

/// Runs a test's tale to its end. One thread: what it starts dies with the thread that has started it.
fn told<T>(tale: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(tale)
}

/// A containerd with these images, or the end of the test with the reason why there is none.
macro_rules! start {
    ($images:expr) => {
        match $crate::cri::containerd::programs() {
            Ok(programs) => $crate::cri::containerd::Containerd::start(&programs, None, $images)
                .expect("a containerd that runs"),
            Err(reason) => brink_tests::skip!("{reason}"),
        }
    };
}
use start;

/// The `Ground` of whoever asks, with that, or the end of the test with the reason why there is none.
macro_rules! ground {
    ($($with:expr),+) => {{
        let programs = match $crate::cri::containerd::programs() {
            Ok(programs) => programs,
            Err(reason) => brink_tests::skip!("{reason}"),
        };
        match Ground::new(&programs, $($with),+) {
            Ok(ground) => ground,
            Err(reason) => brink_tests::lacks_disk!("{reason}"),
        }
    }};
}
use ground;

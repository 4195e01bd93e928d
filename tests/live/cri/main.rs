//! The container runtime as it is: a real containerd with real containers, and what reclaim does to them.
#![cfg(test)]

mod containerd;
mod denied;
mod image;
mod pods;
mod reclaim;
mod trouble;

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
        match $crate::containerd::programs() {
            Ok(programs) => $crate::containerd::Containerd::start(&programs, $images)
                .expect("a containerd that runs"),
            Err(reason) => brink_tests::skip!("{reason}"),
        }
    };
}
pub(crate) use start;

//! How a test says that it cannot run here, so that it is counted as skipped and not as passed.
use std::io::{self, Write as _};

/// What a test function may return, and the value that stands for "nothing went wrong".
pub trait Outcome {
    /// The value of a test that stops here.
    fn skipped() -> Self;
}

impl Outcome for () {
    fn skipped() -> Self {}
}

impl<E> Outcome for Result<(), E> {
    fn skipped() -> Self {
        Ok(())
    }
}

/// Writes the line `BRINK-SKIP <test>: <reason>` that `cargo xtask test` counts. It goes to stderr past
/// libtest, which keeps what a passing test prints to itself. `probe` is any item inside the test.
pub fn report_skip<T>(_probe: T, reason: &str) {
    let path = std::any::type_name::<T>();
    let test = path.rsplit_once("::").map_or(path, |(test, _)| test);
    let test = test.trim_end_matches("::{{closure}}");
    let test = test.split_once("::").map_or(test, |(_crate, test)| test);
    let line = format!("BRINK-SKIP {test}: {}\n", reason.replace('\n', " "));
    // A test whose stderr is closed has nobody to tell.
    drop(io::stderr().write_all(line.as_bytes()));
}

/// Writes the line `BRINK-LEFT-OUT <what, and why>` in the same way: the test goes on, and this part of it shows nothing here.
pub fn report_left_out(what: &str) {
    let line = format!("BRINK-LEFT-OUT {}\n", what.replace('\n', " "));
    // A test whose stderr is closed has nobody to tell.
    drop(io::stderr().write_all(line.as_bytes()));
}

/// Ends the test as skipped, with the reason: `skip!("needs BTF: {error}")`.
///
/// For test functions that return nothing or a `Result`; the reason is a format string.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        fn probe() {}
        $crate::report_skip(probe, &::std::format!($($reason)+));
        return $crate::Outcome::skipped();
    }};
}

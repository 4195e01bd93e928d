//! The doctor: what this machine offers, which rung follows from it, why, and what to do about it.
//!
//! Three steps and three types. [`Facts`] are what was read and tried, each of them known or with the reason why it is
//! not; [`checks()`] turns them into [`Check`]s, and decides nothing else; a [`Report`] puts them in order of importance
//! under a verdict. Nothing on the machine is changed: what has to be tried is tried on this process or on threads that
//! end at once, and kernel programs are unloaded again.

mod advice;
mod check;
mod checks;
pub mod facts;
mod report;
pub(crate) mod rules;
mod text;
mod verdict;

pub use check::{Check, State, Step};
pub use checks::checks;
pub use facts::{Facts, Known, Trials};
pub use report::{Counts, Machine, Report};
pub use rules::advice_on;
pub use text::Page;
pub use verdict::Verdict;

use std::path::Path;

use crate::config::{Checked, RunMode};
use crate::runtime::cluster::Unsaid;
use facts::process::Process;

/// What this process lacks to do what an agent in this mode does; failed where it cannot do it at all.
pub fn rights(mode: RunMode) -> Check {
    checks::capabilities(&Process::read(Path::new("/")), mode)
}

/// What helps where this process was denied to write a file: to be root, in these words, or for root what keeps it from root's rights.
pub fn past_denial(as_root: &str) -> String {
    let process = Process::read(Path::new("/"));
    advice::past_denial(&process, advice::Denied::Writing, Step::words(as_root)).text
}

/// Looks at this machine, with everything that can be tried.
pub fn examine(checked: &Checked) -> Report {
    examine_asked(checked, None)
}

/// The same where the kubelet was asked what it goes by: the configuration has what it said, `configz` whether it did.
pub fn examine_asked(checked: &Checked, configz: Option<Result<(), Unsaid>>) -> Report {
    let facts = Facts::gather(checked, |ground| Trials {
        configz,
        ..Trials::run(ground)
    });
    Report::new(&facts, checks(&facts))
}

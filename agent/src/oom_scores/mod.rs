//! `oom_score_adj` of containers: what each should have, what its first process has, and, where that is asked for, setting it.
//!
//! The value is worked out with the roster, by [`brink_core::node::oom_score`]. The warmer's thread looks at a slow pace, slower
//! while memory is short, and tells what differs; the guard has no part in it.

mod audit;
mod expect;

pub use audit::{Auditor, Difference, Rounds, look_at};
pub use expect::{Audited, Of, Runner, expect};

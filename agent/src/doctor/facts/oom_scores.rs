//! What the first process of each container has as `oom_score_adj`, and what it should have.

use std::path::Path;

use brink_core::node::workload::full_name;

use crate::config::OomScores;
use crate::oom_scores::{Audited, Runner, look_at};

/// The containers that are looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// How many.
    pub looked_at: usize,
    /// Those that have another value than they should.
    pub differing: Vec<Differing>,
    /// Those that could not be read, one sentence each.
    pub unread: Vec<String>,
}

/// A container with another value than it should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differing {
    /// The workload, and the container where that is known.
    pub name: String,
    /// What its first process has.
    pub value: i64,
    /// What it should have.
    pub expected: i64,
    /// How many of its other processes have another value than the first.
    pub others: usize,
    /// Whose word the expected value is.
    pub runner: Runner,
}

impl Audit {
    /// Looks at what the configuration says is to be looked at.
    pub fn read(root: &Path, scores: OomScores, all: &[Audited]) -> Self {
        let mut audit = Self::default();
        for one in all.iter().filter(|one| scores.looks_at(one.runner)) {
            audit.looked_at += 1;
            match look_at(root, one) {
                Ok(None) => {}
                Ok(Some(seen)) => audit.differing.push(Differing {
                    name: name_of(one),
                    value: seen.value,
                    expected: one.score.plain,
                    others: seen.others,
                    runner: one.runner,
                }),
                Err(error) => audit.unread.push(error.to_string()),
            }
        }
        audit
    }
}

fn name_of(one: &Audited) -> String {
    let (namespace, name, _) = &one.workload;
    let workload = full_name(namespace, name);
    match &one.container {
        Some(container) => format!("{workload} (container {container})"),
        None => workload,
    }
}

//! Soak and chaos: one real agent through what goes wrong on real nodes, and books that must balance afterwards.
#![cfg(test)]

mod audit;
mod bombs;
mod books;
mod census;
mod chance;
mod churn;
mod clock;
mod disk;
mod mixed;
mod restart;
mod scene;
mod starved;
mod stopped;
#[expect(dead_code, reason = "the tests of the agent use the rest")]
#[path = "../agent/support.rs"]
mod support;
mod truth;
mod wave;

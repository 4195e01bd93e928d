//! Soak and chaos: one real agent through what goes wrong on real nodes, and books that must balance afterwards.

mod audit;
mod bombs;
mod books;
mod census;
mod churn;
mod clock;
pub(crate) mod disk;
mod mixed;
mod restart;
mod scene;
mod starved;
mod stopped;
mod truth;
mod wave;

//! The whole agent on the real kernel: `brink run` in a bounded node, and what it does there.
#![cfg(test)]

mod bare;
mod bombs;
mod cli;
mod collector;
mod demo;
mod enforce;
mod events;
mod journal;
mod kinds;
mod ladder;
mod metrics;
mod nested;
mod no_psi;
mod numbers;
mod oom;
mod oom_scores;
mod outlets;
mod page;
mod pods;
mod redaction;
mod restart;
mod rungs;
mod scenario;
mod shortages;
mod soak;
mod socket;
mod standby;
mod storage;
mod storm;
mod support;
mod swap;
mod taken_up;
mod top;
mod upkeep;
mod whom;

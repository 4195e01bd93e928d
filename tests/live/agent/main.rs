//! The whole agent on the real kernel: `brink run` in a bounded node, and what it does there.
#![cfg(test)]

mod cli;
mod demo;
mod enforce;
mod events;
mod rungs;
mod socket;
mod standby;
mod support;
mod upkeep;
mod whom;

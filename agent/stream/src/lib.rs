//! The event stream of Brink: what is told, and how it reaches those who listen.
//!
//! Nothing here knows the guard, the host or the core: what happens is handed in as a [`model::event::Draft`], and
//! [`hub::Hub`] numbers it and keeps the newest for whoever reads, by [`serve`] or inside the agent.

pub mod cloud_event;
pub mod hub;
pub mod journal;
pub mod model;
pub mod outlet;
pub mod serve;

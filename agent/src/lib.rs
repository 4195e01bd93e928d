//! Brink: the node monitor that acts before a Linux node goes over the brink.

pub mod config;
pub mod pod;

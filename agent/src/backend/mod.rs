//! The backend: pods and cgroup patterns become a roster, and every change of either becomes a new one.

pub mod bind;
pub mod build;
pub mod facts;
pub mod parts;
pub mod protect;
pub mod source;

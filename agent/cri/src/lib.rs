//! Brink's side of the container runtime: what it holds, what of that may go when a disk runs full, and its removal.
//!
//! It speaks the Container Runtime Interface, version 1, over the runtime's own socket; [`generated`] has the part of it that is
//! spoken, and of all calls that change something only the two removals are in it. Nothing but dead containers and unused images is
//! ever removed, and each of them only after it was looked at once more.
//!
//! # How it is called
//!
//! Everything waits for a runtime that may hang, so it belongs on a tokio runtime of its own and never on the guard's way: the
//! guard asks for a reclaim over its queue and hears by another what came of it.
//!
//! 1. [`endpoint::find`] names the sockets there are; [`client::Client::connect`] takes one and asks who answers. Each way to fail
//!    is a [`fault::CriError`] of its own. A client whose connection has ended says so by [`client::Client::is_closed`]: connect
//!    anew, with waits between.
//! 2. [`client::Client::places`] tells where images and writable layers lie; measure these folders as often as the filesystems need
//!    it.
//! 3. Every five minutes, as the kubelet does, [`usage::Records::observe`] with [`client::Runtime::read`]: it knows which image was
//!    in use when. What its first look finds counts as old.
//! 4. When a threshold is met, [`brink_core::node::reclaim::functions`] names the ways for its signal. [`plan::plan`] is the dry
//!    run; [`act::act`] removes, asks after each of these ways whether it was enough, and tells what it did.
//!    [`brink_core::node::reclaim::is_sufficient`] is the kubelet's answer, which it gives after the last.
//!
//! Pods are told from dead ones by the caller, who knows them from the API or from manifests ([`plan::Fate`]). While a kubelet owns
//! the runtime nothing is removed unless [`plan::Policy::beside_kubelet`] says so: it has a garbage collector of its own.

pub mod act;
pub mod call;
pub mod client;
pub mod connection;
pub mod endpoint;
pub mod fault;
pub mod generated;
pub mod layout;
pub mod plan;
pub mod state;
pub mod usage;

#[cfg(test)]
mod fake;

//! The socket between agent and command line: one line of JSON asks, one line of JSON answers.

pub mod client;
pub mod http;
mod kubernetes_view;
pub mod protocol;
mod recorder_view;
pub mod server;
mod storage_view;
pub mod views;

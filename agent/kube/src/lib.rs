//! Brink's side of the Kubernetes API: the pods of this node, and what is told of them.
//!
//! The only crate that names a Kubernetes client. It decides nothing, touches no file of the machine but those that a
//! kubeconfig names and what is to be told after a restart, and runs no program but a kubeconfig's credential plugin. [`pods`] keeps
//! what the API says of this node's pods for whoever binds them to control groups; [`outbox`] and [`write`] tell it of evictions and of the node, once each; [`mod@pause`] follows
//! the annotation that stops enforcement; [`configz`] asks the kubelet what it goes by.

pub mod client;
pub mod configz;
pub mod outbox;
pub mod pause;
pub mod pods;
pub mod retry;
pub mod watch;
pub mod write;

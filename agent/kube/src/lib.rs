//! Brink's side of the Kubernetes API: the pods of this node, and what is told of them.
//!
//! The only crate that names a Kubernetes client. It touches no file of the machine but those that a kubeconfig names, and
//! decides nothing: [`pods`] keeps what the API says of this node's pods for whoever binds them to control groups.

pub mod client;
pub mod node;
pub mod pods;
pub mod retry;
pub mod watch;

//! What Kubernetes is told: that a pod was evicted, how the node stands, and whom the kernel killed.
//!
//! The threads of the runtime tell [`Deliver`], which never keeps anybody waiting; with a cluster, tasks of tokio's carry it on.

#[cfg(feature = "kubernetes")]
mod beside;
#[cfg(feature = "kubernetes")]
mod containers;
#[cfg(feature = "kubernetes")]
mod fold;
#[cfg(feature = "kubernetes")]
pub mod speaker;
#[cfg(feature = "kubernetes")]
pub mod tasks;
#[cfg(feature = "kubernetes")]
mod words;

use std::fmt;
use std::sync::Arc;

use brink_core::node::condition::ConditionSet;
use brink_core::node::observe::Observations;
use brink_core::node::policy::Policy;
use brink_core::node::safety::Mode;
use brink_core::node::workload::Workload;
use brink_host::probe::abi::record::VictimRecord;

use crate::guard::ports::Evicted;
use crate::guard::roster::Roster;
use crate::record::DecisionRecord;

/// Somebody who tells Kubernetes; none of these blocks on anything but a small file.
pub trait Tell: Send + Sync {
    /// An order was given. `victim` is as the guard had it, and `policy` is in force.
    fn ordered(&self, record: &DecisionRecord, victim: &Workload, policy: &Policy);
    /// The node was looked at: these conditions hold, by these observations and this policy, and orders are carried out or not.
    fn looked(&self, seen: (ConditionSet, &Observations), policy: &Policy, mode: Mode);
    /// The kernel's own killer chose a process.
    fn oom_kill(&self, kill: &VictimRecord);
    /// This agent enforces, and the decisions of this boot are known: what the agent before it left is told now, and of those
    /// that were `evicted` lately what it had no time to put in.
    fn take_up(&self, evicted: &[Evicted]);
    /// The workloads are these from now on.
    fn follow(&self, roster: &Roster);
}

/// Where it is told; nowhere without a cluster.
#[derive(Clone, Default)]
pub struct Deliver(Option<Arc<dyn Tell>>);

impl Deliver {
    /// To somebody.
    pub fn to(tell: Arc<dyn Tell>) -> Self {
        Self(Some(tell))
    }

    /// Whoever is told; none without a cluster.
    pub fn get(&self) -> Option<&dyn Tell> {
        self.0.as_deref()
    }
}

impl fmt::Debug for Deliver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whom = self.0.as_ref().map_or("nobody", |_| "a cluster");
        f.debug_tuple("Deliver").field(&whom).finish()
    }
}

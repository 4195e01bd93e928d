//! The node's own cgroups in the sampler: the one that is the node, and the one all pods live in, without which it does too.

use std::os::fd::AsFd as _;

use brink_core::base::Moment;
use brink_core::node::policy::Policy;
use brink_core::node::signal::Signal;
use brink_host::probe::ProbeError;
use brink_host::probe::abi::command::Terms;

use super::Kernel;
use crate::guard::figures::saturated;
use crate::guard::files::{GroupFiles, NodeFiles};
use crate::guard::watches::{NODE_SLOT, PODS_SLOT, Terrain};

impl Kernel {
    /// Why the sampler does not have the cgroup of all pods, though there is one: that alone is read from files then.
    pub fn without_pods(&self) -> Option<&str> {
        self.without_pods.as_deref()
    }

    /// Whether the sampler tells of every threshold on what all pods may use together: it has their cgroup, or there is nothing to
    /// cross.
    pub fn tells_of_pods(&self, policy: &Policy) -> bool {
        let mut thresholds = policy.thresholds().iter();
        self.without_pods.is_none()
            || self.pods_capacity.is_none()
            || thresholds.all(|threshold| threshold.signal != Signal::AllocatableMemoryAvailable)
    }

    /// Of a terrain what the sampler reaches: a watch on a slot without a cgroup would take room and tell nothing.
    pub(super) fn reached(&self, terrain: Terrain) -> Terrain {
        Terrain {
            pods_capacity: terrain
                .pods_capacity
                .filter(|_| self.without_pods.is_none()),
            ..terrain
        }
    }

    pub(super) fn arm_group(&mut self, slot: u32, group: &GroupFiles) -> Result<(), ProbeError> {
        let at = Moment::START;
        let unread = Terms {
            limit: group.limit().map_or(i64::MAX, saturated),
            inactive_file: 0,
            reclaimable: 0,
        };
        let terms = group.read(at).map_or(unread, |figures| figures.terms);
        let id = group.dir().id().0;
        let armed = self.armed.get(slot as usize).copied().flatten();
        if armed == Some(id) {
            return self.set_terms(slot, terms);
        }
        self.arm_slot(slot, id, group.dir().as_fd(), terms)?;
        self.note_terms(slot, terms);
        Ok(())
    }

    /// Points the sampler at the cgroup of all pods. A kubelet makes it anew at times, and one that is being removed cannot be had: the
    /// node's own signals do not wait for it.
    pub(super) fn arm_pods(&mut self, group: Option<&GroupFiles>) {
        self.without_pods = None;
        match group.map(|group| self.arm_group(PODS_SLOT, group)) {
            Some(Ok(())) => {}
            Some(Err(error)) => self.leave_pods(&error),
            None => self.disarm_group(PODS_SLOT),
        }
    }

    /// Leaves the cgroup of all pods to the files.
    fn leave_pods(&mut self, error: &ProbeError) {
        self.disarm_group(PODS_SLOT);
        self.without_pods = Some(error.to_string());
    }

    /// Lets go of a cgroup of the node's own.
    fn disarm_group(&mut self, slot: u32) {
        let armed = self.armed.get_mut(slot as usize);
        if armed.and_then(Option::take).is_some() {
            let _gone_already = self.probe.disarm_slot(slot);
        }
        if let Some(known) = self.terms.get_mut(slot as usize) {
            *known = None;
        }
    }

    /// Tells the sampler of other terms than it has: each time brings a tick.
    fn set_terms(&mut self, slot: u32, terms: Terms) -> Result<(), ProbeError> {
        let known = self.terms.get(slot as usize).copied().flatten();
        if known != Some(terms) {
            self.probe.set_slot_terms(slot, terms)?;
            self.note_terms(slot, terms);
        }
        Ok(())
    }

    fn note_terms(&mut self, slot: u32, terms: Terms) {
        if let Some(known) = self.terms.get_mut(slot as usize) {
            *known = Some(terms);
        }
    }

    /// Brings what user space knows of the node's own cgroups up to date. Where that fails for the one of all pods it is left to the
    /// files until the next pass.
    ///
    /// # Errors
    /// [`ProbeError`], of the cgroup that is the node.
    pub fn refresh_terms(&mut self, files: &NodeFiles) -> Result<(), ProbeError> {
        let terms_of = |group: Option<&GroupFiles>| {
            let read = group.map(|group| group.read(Moment::START));
            read.and_then(Result::ok).map(|figures| figures.terms)
        };
        if let Some(terms) = terms_of(files.node_group()) {
            self.set_terms(NODE_SLOT, terms)?;
        }
        let pods = files.pods_group().filter(|_| self.without_pods.is_none());
        if let Some(terms) = terms_of(pods)
            && let Err(error) = self.set_terms(PODS_SLOT, terms)
        {
            self.leave_pods(&error);
        }
        Ok(())
    }
}

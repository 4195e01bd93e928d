//! What becomes of an incident's fields while it is open, and as it closes.

use super::event::Time;
use super::field::{Field, Missing};
use super::incident::{Identity, Incident, MOST_OTHER_KILLS, NodeState, OtherKill};

impl Incident {
    /// A victim has exited at that time.
    pub fn exited(&mut self, pid: u32, at: &Time) {
        let mut victims = self.victims.iter_mut();
        if let Some(victim) = victims.find(|victim| victim.pid == pid) {
            victim.exited = Field::Value(at.clone());
        }
    }

    /// Somebody else has killed as well.
    pub fn killed_by_other(&mut self, kill: OtherKill) {
        if self.other_kills.len() < MOST_OTHER_KILLS {
            self.other_kills.push(kill);
        } else {
            let more = self.more_other_kills.unwrap_or(0);
            self.more_other_kills = Some(more.saturating_add(1));
        }
    }
}

impl Identity {
    /// Takes over what another one knows of the same workload, where this one knows nothing.
    pub fn completed_by(&mut self, other: &Self) {
        if self.qos.is_none() {
            (self.qos, self.qos_missing) = (other.qos.clone(), other.qos_missing);
        }
        if self.request.is_none() {
            (self.request, self.request_missing) = (other.request, other.request_missing);
        }
        if self.owner.is_none() {
            (self.owner, self.owner_missing) = (other.owner.clone(), other.owner_missing);
        }
    }

    /// Whether its container is told by the id alone.
    pub fn is_container_unnamed(&self) -> bool {
        self.container.is_some() && self.container == self.container_id
    }

    /// Nothing of it is still to come: what is pending is missing for `reason`.
    pub fn settle(&mut self, reason: Missing) {
        for missing in [
            &mut self.container_missing,
            &mut self.qos_missing,
            &mut self.request_missing,
            &mut self.owner_missing,
        ] {
            if *missing == Some(Missing::Pending) {
                *missing = Some(reason);
            }
        }
    }
}

impl NodeState {
    /// Nothing of it is still to come: what is pending is missing for `reason`.
    pub fn settle(&mut self, reason: Missing) {
        self.available.settle(reason);
        self.headroom.settle(reason);
        self.capacity.settle(reason);
        self.usable_swap.settle(reason);
        self.meminfo.settle(reason);
        self.vmstat.settle(reason);
        self.zones.settle(reason);
        self.pressure.settle(reason);
        self.reclaim_ns.settle(reason);
    }
}

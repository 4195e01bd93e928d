//! An eviction of ours as it is seen from outside: who is killed, in which cgroups, on what node.

use std::collections::BTreeMap;
use std::time::Instant;

use brink_host::cgroup::Controller;
use brink_host::cgroup::walk::groups_below;
use brink_host::clock::since_boot_ns;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{CgroupState, Incident, NodeState, ProcessLine, Victim};

use super::MOST_VICTIMS;
use super::gather::victim::Told;
use super::gather::{field, group, top, victim};
use super::scene::Scene;

/// Cgroups of one workload that are looked into.
const MOST_GROUPS: usize = 64;

/// What was seen of a workload that was ordered to go.
#[derive(Debug)]
pub(super) struct Seen {
    victims: Vec<Victim>,
    more: u32,
    cgroups: Field<Vec<CgroupState>>,
    memory_stat: Field<BTreeMap<String, u64>>,
    top_of_cgroup: Field<Vec<ProcessLine>>,
    node: NodeState,
}

/// An order whose incident is to have the table of the node.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) uid: String,
    pub(super) since: Instant,
}

impl Scene {
    /// Looks at a workload that was just ordered to go; nothing where its cgroups are not known.
    pub(super) fn eviction(&mut self, uid: &str) -> Option<Seen> {
        let groups = self.identities.groups_of(uid);
        let opened = self.open(groups.first()?);
        let dir = opened.first().and_then(|first| first.dir.as_ref());
        let memory_stat = dir.map_or_else(
            || Field::Missing(Missing::ProcessGone),
            |dir| field(dir.memory_statistics(), group::absent(dir)),
        );
        let pids = self.processes_of(&groups);
        let named = pids.iter().take(MOST_VICTIMS);
        let victims: Vec<Victim> = named.map(|pid| self.process(*pid)).collect();
        let lines = top::of_group(&self.root, &pids);
        Some(Seen {
            more: u32::try_from(pids.len() - victims.len()).unwrap_or(u32::MAX),
            victims,
            cgroups: Field::Value(opened.iter().map(group::state).collect()),
            memory_stat,
            top_of_cgroup: if pids.is_empty() {
                Field::Missing(Missing::ProcessGone)
            } else {
                Field::Value(lines)
            },
            // What reclaim cost is in the decision.
            node: self.node.read(Field::Missing(Missing::NotApplicable)),
        })
    }

    /// The processes of cgroups and of all below them.
    fn processes_of(&self, groups: &[String]) -> Vec<i32> {
        let Some(hierarchy) = self.layout.hierarchy(Controller::Memory) else {
            return Vec::new();
        };
        let below = groups.iter().flat_map(|path| {
            let below = groups_below(hierarchy, path, MOST_GROUPS);
            // Of a workload with more cgroups than that, its own.
            below.unwrap_or_else(|_| vec![path.clone()])
        });
        let opened = below.filter_map(|path| {
            let opened = group::open_one(hierarchy, &path)?;
            opened.processes().ok()
        });
        opened.flatten().collect()
    }

    fn process(&self, pid: i32) -> Victim {
        let told = Told {
            pid: pid.unsigned_abs(),
            ..Told::default()
        };
        victim::read(self.reader(), &told, since_boot_ns())
    }
}

impl Seen {
    /// Adds it to the incident, where that does not know better.
    pub(super) fn fill(&mut self, incident: &mut Incident) {
        if incident.victims.is_empty() && !self.victims.is_empty() {
            incident.victims = std::mem::take(&mut self.victims);
            incident.more_victims = self.more;
        }
        take(&mut incident.cgroups, &mut self.cgroups);
        take(&mut incident.memory_stat, &mut self.memory_stat);
        take(&mut incident.top_of_cgroup, &mut self.top_of_cgroup);
        if let Field::Value(node) = &mut incident.node {
            take(&mut node.meminfo, &mut self.node.meminfo);
            take(&mut node.zones, &mut self.node.zones);
            take(&mut node.pressure, &mut self.node.pressure);
        }
    }
}

fn take<T>(field: &mut Field<T>, seen: &mut Field<T>) {
    if matches!(field, Field::Missing(Missing::Pending)) {
        std::mem::swap(field, seen);
    }
}

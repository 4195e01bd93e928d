//! The scene of a kill: who was killed, in which cgroup, on what node, with what is known of each.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use brink_host::cgroup::pod::PodRoots;
use brink_host::cgroup::{Controller, Layout};
use brink_host::clock::{monotonic_ns, since_boot_ns};
use brink_host::probe::abi::record::{UNKNOWN, VictimRecord};
use brink_host::probe::shortage::Shortage;
use brink_stream::model::event::Time;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{CgroupState, Limit, ProcessLine, Victim};
use brink_stream::model::kind::Kind;

use super::collector::Plan;
use super::compose;
use super::gather::group::{self, Opened};
use super::gather::node::NodeReader;
use super::gather::top::{self, NodeTable};
use super::gather::{field, victim};
use super::identity::{Identities, Snapshot};
use super::limit::{Level, infer};
use super::open::{Open, own_memory};
use crate::runtime::equipment::Loaded;

/// What is read, and what was known before.
pub(super) struct Scene {
    pub(super) root: PathBuf,
    pub(super) layout: Layout,
    command_lines: bool,
    loaded: Arc<Loaded>,
    pub(super) identities: Identities,
    pub(super) node: NodeReader,
    table: NodeTable,
    /// What lies between use and limit at most when a limit is hit, in bytes.
    slack: u64,
}

/// Pages that a processor may charge in advance, and with them those of one huge page.
const CHARGED_AHEAD: u64 = 64;
const LARGEST_CHARGE: u64 = 512;

impl Scene {
    pub(super) fn new(plan: &Plan) -> Self {
        let page = rustix::param::page_size() as u64;
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Self {
            root: plan.root.clone(),
            layout: plan.layout.clone(),
            command_lines: plan.command_lines,
            loaded: Arc::clone(&plan.loaded),
            identities: Identities::new(PodRoots::new(&plan.scope, plan.node.pods.as_deref())),
            node: NodeReader::open(&plan.root, &plan.layout, &plan.node),
            table: NodeTable::default(),
            slack: page * (CHARGED_AHEAD * cpus + LARGEST_CHARGE),
        }
    }

    /// Takes a roster over, and looks at the counts of those cgroups that are new.
    pub(super) fn follow(&mut self, snapshot: Snapshot) {
        let new = self.identities.follow(snapshot, monotonic_ns());
        for path in new.iter().flat_map(|path| group::ancestry(path)) {
            if self.identities.has_ooms(&path) {
                continue;
            }
            let opened = self.open(&path).into_iter().next();
            let ooms = opened.and_then(|opened| own_ooms(&opened));
            self.identities.ooms(&path, ooms);
        }
    }

    /// The table of the node for what happened at `at`; none while it is being made.
    pub(super) fn table_of_node(&mut self, at: Instant) -> Option<Vec<ProcessLine>> {
        self.table.part(&self.root, at)
    }

    /// Who was chosen, with what its files still say.
    pub(super) fn victim(&self, record: &VictimRecord) -> Victim {
        let mut victim = victim::read(self.reader(), &compose::told(record), since_boot_ns());
        if let Some(known) = self.path_of(record.cgroup) {
            victim.cgroup = Field::Value(known);
        } else if record.cgroup != UNKNOWN && self.id_of(&victim.cgroup) != Some(record.cgroup) {
            // A process that has exited is told as in the root.
            victim.cgroup = Field::Missing(Missing::ProcessGone);
        }
        victim
    }

    /// How victims are read.
    pub(super) fn reader(&self) -> victim::Reader<'_> {
        victim::Reader {
            root: &self.root,
            layout: &self.layout,
            command_lines: self.command_lines,
        }
    }

    /// An OOM of the kernel's with its first victim.
    pub(super) fn oom(&mut self, record: &VictimRecord, victim: Victim, at: &Time) -> Open {
        let owed = own_memory(&victim);
        let shortage = Shortage::of(record);
        let path = victim.cgroup.value().cloned();
        let mut opened = path
            .as_deref()
            .map_or_else(Vec::new, |path| self.open(path));
        let states: Vec<CgroupState> = opened.iter().map(group::state).collect();
        let limit = self.limit(&opened, &states, shortage);
        let cause = compose::cause(shortage, limit.as_ref(), &states);
        let node = self.node.read(self.reclaimed(record.cgroup));
        let before = before(&states, limit.as_ref(), owed);
        let mut incident = compose::blank(cause, at, victim, node);
        incident.evidence = compose::evidence(record, shortage);
        incident.trigger = Field::Value(compose::trigger(record, self.cgroup_of_trigger(record)));
        incident.limit = Field::or(limit, Missing::ProgramNotLoaded);
        if let Some(path) = &path {
            self.describe(&mut incident, path, &opened);
            incident.cgroups = Field::Value(states);
        }
        Open {
            incident,
            opens: Some(Kind::OomKill),
            is_told: false,
            since: Instant::now(),
            group: if opened.is_empty() {
                None
            } else {
                opened.swap_remove(0).dir
            },
            before,
            least: None,
            owed,
        }
    }

    /// What is known of the victim's workload and cgroup.
    fn describe(
        &mut self,
        incident: &mut brink_stream::model::incident::Incident,
        path: &str,
        opened: &[Opened],
    ) {
        let identity = self.identities.identity(path);
        incident.workload = Field::or(identity, Missing::NotApplicable);
        let Some(dir) = opened.first().and_then(|first| first.dir.as_ref()) else {
            return;
        };
        self.identities.learn(dir.id().0, path, monotonic_ns());
        incident.memory_stat = field(dir.memory_statistics(), group::absent(dir));
        let processes = field(dir.processes(), Missing::ProcessGone);
        incident.top_of_cgroup = match processes {
            Field::Missing(reason) => Field::Missing(reason),
            Field::Value(processes) => {
                let lines = top::of_group(&self.root, &processes);
                let victims = incident.victims.iter().map(compose::line);
                Field::Value(victims.fold(lines, top::with))
            }
        };
    }

    /// Whose limit was hit, from what the cgroups show.
    fn limit(
        &mut self,
        opened: &[Opened],
        states: &[CgroupState],
        shortage: Shortage,
    ) -> Option<Limit> {
        let pairs = opened.iter().zip(states);
        let levels: Vec<Level> = pairs
            .map(|(opened, state)| {
                let now = own_ooms(opened);
                let before = self.identities.ooms(&state.path, now);
                group::level(state, before, now)
            })
            .collect();
        infer(&levels, shortage, self.slack)
    }

    pub(super) fn open(&self, path: &str) -> Vec<Opened> {
        let hierarchy = self.layout.hierarchy(Controller::Memory);
        hierarchy.map_or_else(Vec::new, |hierarchy| group::open(hierarchy, path))
    }

    fn path_of(&self, id: u64) -> Option<String> {
        self.identities.path(id).map(str::to_owned)
    }

    fn id_of(&self, path: &Field<String>) -> Option<u64> {
        let opened = self.open(path.value()?);
        Some(opened.first()?.dir.as_ref()?.id().0)
    }

    fn cgroup_of_trigger(&self, record: &VictimRecord) -> Field<String> {
        if let Some(known) = self.path_of(record.trigger_cgroup) {
            return Field::Value(known);
        }
        let pid = i32::try_from(record.trigger_tgid).unwrap_or(0);
        victim::membership(&self.root, &self.layout, pid)
    }

    /// What reclaim had cost the tasks of a cgroup, in nanoseconds.
    fn reclaimed(&self, id: u64) -> Field<u64> {
        let Some(meters) = self.loaded.meters() else {
            return Field::Missing(Missing::ProgramNotLoaded);
        };
        match meters.cgroup(id) {
            Ok(meter) => Field::Value(meter.map_or(0, |meter| meter.direct_ns + meter.memcg_ns)),
            Err(_) => Field::Missing(Missing::Lost),
        }
    }
}

fn own_ooms(opened: &Opened) -> Option<u64> {
    opened.dir.as_ref()?.own_ooms().ok().flatten()
}

/// Bytes that were in use in the victim's cgroup when it was chosen, at the least. Where its own limit was hit, it was full.
fn before(states: &[CgroupState], limit: Option<&Limit>, owed: u64) -> u64 {
    let own = states.first();
    let usage = own.and_then(|state| state.usage.value().copied());
    let full = own.filter(|state| limit.is_some_and(|limit| limit.cgroup == state.path));
    let full = full.and_then(|state| state.max.value().copied().flatten());
    let least = usage.max(full).unwrap_or(0);
    least.max(owed)
}

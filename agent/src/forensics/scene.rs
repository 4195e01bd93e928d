//! The scene of a kill: who was killed, in which cgroup, on what node, with what is known of each.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use brink_core::base::Moment;
use brink_host::cgroup::pod::PodRoots;
use brink_host::cgroup::{Controller, Layout};
use brink_host::clock::{monotonic_ns, since_boot_ns};
use brink_host::kill::KillTarget;
use brink_host::probe::forensics::{self as told, Decision, Kill};
use brink_host::probe::shortage::Shortage;
use brink_host::probe::{BirthReader, GfpNames};
use brink_stream::model::event::Time;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{
    Cause, CgroupState, Confidence, Incident, Limit, LimitMethod, ProcessLine, Victim,
};
use brink_stream::model::kind::Kind;
use brink_stream::model::workloads::Workloads;

use super::choice::{Actor, Choice};
use super::collector::Plan;
use super::compose::{self, Order};
use super::gather::group::{self, Opened};
use super::gather::node::NodeReader;
use super::gather::top::{self, NodeTable};
use super::gather::{field, victim};
use super::identity::{Identities, Snapshot};
use super::limit::{Level, infer};
use super::open::{Open, own_memory};
use super::roll::Roll;
use crate::runtime::equipment::Loaded;

/// What is read, and what was known before.
pub(super) struct Scene {
    pub(super) root: PathBuf,
    pub(super) layout: Layout,
    command_lines: bool,
    pub(super) loaded: Arc<Loaded>,
    /// Who forked whom, if anybody keeps it.
    pub(super) births: Option<BirthReader>,
    /// Names of allocation flags, if the kernel tells any.
    pub(super) gfp_names: Option<GfpNames>,
    pub(super) identities: Identities,
    /// The workloads of the last roster; none before the first.
    roll: Option<Roll>,
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
            births: None,
            gfp_names: None,
            identities: Identities::new(PodRoots::new(&plan.scope, plan.node.pods.named())),
            roll: None,
            node: NodeReader::open(&plan.root, &plan.layout, &plan.node),
            table: NodeTable::default(),
            slack: page * (CHARGED_AHEAD * cpus + LARGEST_CHARGE),
        }
    }

    /// Takes a roster over, and looks at the counts of those cgroups that are new.
    pub(super) fn follow(&mut self, mut snapshot: Snapshot) {
        self.roll = Some(std::mem::take(&mut snapshot.roll));
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
    pub(super) fn table_of_node(&mut self, at: Instant) -> Option<Field<Vec<ProcessLine>>> {
        self.table.part(&self.root, at)
    }

    /// Who was killed, with what its files still say. `cgroup` is the id of its memory cgroup.
    pub(super) fn victim(&self, told: &victim::Told, cgroup: Option<u64>) -> Victim {
        let mut victim = victim::read(self.reader(), told, since_boot_ns());
        let Some(id) = cgroup else {
            return victim;
        };
        victim.cgroup = match self.path_of(id) {
            Some(known) => Field::Value(known),
            None => self.confirmed(victim.cgroup, id),
        };
        victim
    }

    /// The path of a cgroup if it belongs to a workload. What belongs to none is looked up once.
    pub(super) fn workloads_cgroup(&mut self, id: Option<u64>, pid: i32) -> Option<String> {
        let id = id?;
        if let Some(path) = self.identities.path(id) {
            let is_workloads = self.identities.uid(path).is_some();
            return is_workloads.then(|| path.to_owned());
        }
        let Field::Value(path) = victim::membership(&self.root, &self.layout, pid) else {
            return None;
        };
        if self.id_of(&path) != Ok(id) {
            return None;
        }
        self.identities.learn(id, &path, monotonic_ns());
        self.identities.uid(&path).is_some().then_some(path)
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
    pub(super) fn oom(&mut self, choice: &Choice, victim: Victim, at: &Time) -> Open {
        let owed = own_memory(&victim);
        let path = victim.cgroup.value().cloned();
        let opened = path
            .as_deref()
            .map_or_else(Vec::new, |path| self.open(path));
        let mut states: Vec<CgroupState> = opened.iter().map(group::state).collect();
        let inferred = self.limit(&opened, &states, choice.shortage);
        let unknown = compose::unknown(&victim);
        let limit = match &choice.exact {
            Some(exact) => self.exact(exact, (&opened, &mut states), unknown),
            None => Field::or(inferred, undecided(choice, &opened, unknown)),
        };
        let cause = compose::cause(choice.shortage, limit.value(), &states);
        let node = self.node.read(self.reclaimed(choice.cgroup));
        let before = before(&states, limit.value(), owed);
        let mut incident = compose::blank(cause, at, victim, node);
        incident.evidence = choice.evidence();
        let cgroup = self.cgroup_of(&choice.trigger);
        let names = self.gfp_names.as_ref();
        incident.trigger = Field::Value(compose::trigger(choice, cgroup, names));
        incident.limit = limit;
        let kernel_stack = choice.kernel_stack.value().cloned().unwrap_or_default();
        let known = (before, owed, kernel_stack);
        let mut open = self.opened(Kind::OomKill, incident, (path, opened, states), known);
        open.group_id = choice.cgroup;
        open
    }

    /// A kill by somebody else with its first victim.
    pub(super) fn foreign(&mut self, kill: &Kill, order: Order, victim: Victim, at: &Time) -> Open {
        let owed = own_memory(&victim);
        let path = victim.cgroup.value().cloned();
        let opened = path
            .as_deref()
            .map_or_else(Vec::new, |path| self.open(path));
        let states: Vec<CgroupState> = opened.iter().map(group::state).collect();
        let node = self.node.read(self.reclaimed(kill.target.cgroup));
        let mut incident = compose::blank(Cause::ForeignKill, at, victim, node);
        incident.evidence = compose::foreign(kill, order);
        let sender = Actor {
            pid: kill.sender.tgid,
            tid: kill.sender.tid,
            comm: kill.sender.comm.clone(),
            cgroup: kill.sender.cgroup,
        };
        let cgroup = self.cgroup_of(&sender);
        let (trigger, kernel_stack) = compose::sender(kill, cgroup);
        incident.trigger = Field::Value(trigger);
        let known = (before(&states, None, owed), owed, kernel_stack);
        let mut open = self.opened(Kind::KillObserved, incident, (path, opened, states), known);
        open.group_id = kill.target.cgroup;
        open
    }

    fn opened(
        &mut self,
        opens: Kind,
        mut incident: Incident,
        (path, mut opened, states): (Option<String>, Vec<Opened>, Vec<CgroupState>),
        (before, owed, kernel_stack): (u64, u64, Vec<u64>),
    ) -> Open {
        let workloads = self.workloads(&incident.at, &states, before);
        if let Some(path) = &path {
            self.describe(&mut incident, path, &opened);
            incident.cgroups = Field::Value(states);
        }
        Open {
            incident,
            workloads,
            opens: Some(opens),
            is_told: false,
            since: Instant::now(),
            container: path.as_deref().and_then(|path| self.container(path)),
            group: if opened.is_empty() {
                None
            } else {
                opened.swap_remove(0).dir.ok()
            },
            group_id: None,
            before,
            least: None,
            memories: 1,
            released: 0,
            kernel_stack,
            owed,
        }
    }

    /// The workloads as they stood: `states` are the victim's cgroup, which used `before` bytes at the least, and those above.
    fn workloads(&self, at: &Time, states: &[CgroupState], before: u64) -> Field<Workloads> {
        let fresh = |path: &str| {
            let state = states.iter().find(|state| state.path == path)?;
            Some(state.usage.value().copied().unwrap_or(0).max(before))
        };
        let at = Moment::from_nanos(at.monotonic_ns);
        let table = self.roll.as_ref().map(|roll| roll.table(at, fresh));
        Field::or(table, Missing::BeforeStart)
    }

    /// The limit that the kernel itself names; what that cgroup used then is put into its state. Where nobody knows its path, it is
    /// missing for `unknown`.
    fn exact(
        &self,
        exact: &Decision,
        (opened, states): (&[Opened], &mut [CgroupState]),
        unknown: Missing,
    ) -> Field<Limit> {
        let (id, usage, max) = match exact.limit {
            told::Limit::Node => return Field::Value(from_kernel("/")),
            told::Limit::Cgroup { id, usage, max } => (id, usage, max),
        };
        let is_it = |opened: &Opened| opened.dir.as_ref().is_ok_and(|dir| dir.id().0 == id);
        let place = opened.iter().position(is_it);
        if let Some(state) = place.and_then(|place| states.get_mut(place)) {
            if let Some(usage) = usage {
                state.usage = Field::Value(usage);
            }
            if let Some(max) = max {
                state.max = Field::Value(Some(max));
            }
            return Field::Value(from_kernel(&state.path));
        }
        let path = self.path_of(id);
        Field::or(path.map(|path| from_kernel(&path)), unknown)
    }

    /// What is known of the victim's workload and cgroup.
    fn describe(&mut self, incident: &mut Incident, path: &str, opened: &[Opened]) {
        incident.workload = self.identities.told(path);
        let dir = match group::first(opened) {
            Ok(dir) => dir,
            Err(reason) => {
                incident.memory_stat = Field::Missing(reason);
                incident.top_of_cgroup = Field::Missing(reason);
                return;
            }
        };
        self.identities.learn(dir.id().0, path, monotonic_ns());
        incident.memory_stat = field(dir.memory_statistics(), group::absent(dir));
        let processes = field(dir.processes(), Missing::ProcessGone);
        incident.top_of_cgroup = processes.map(|processes| {
            let lines = top::of_group(&self.root, &processes);
            top::with_victims(lines, &incident.victims)
        });
    }

    /// Looks once more whose workload it was, or which container, if no roster had it when the incident was opened.
    pub(super) fn identify(&self, incident: &mut Incident) {
        let first = incident.victims.first();
        let Some(Field::Value(path)) = first.map(|first| &first.cgroup) else {
            return;
        };
        match &mut incident.workload {
            Field::Missing(Missing::Pending) => incident.workload = self.identities.told(path),
            Field::Value(known) if known.is_container_unnamed() => {
                let found = self.identities.identity(path);
                let same = found.filter(|found| found.container_id == known.container_id);
                known.container = same.map_or(known.container.take(), |same| same.container);
            }
            _ => {}
        }
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
                // Its count is forgotten with its path.
                if let Ok(dir) = &opened.dir {
                    self.identities
                        .learn(dir.id().0, &state.path, monotonic_ns());
                }
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

    /// The container that a cgroup is or lies in, or else the workload; itself where it belongs to none.
    fn container(&self, path: &str) -> Option<KillTarget> {
        let own = self.identities.container(path);
        KillTarget::open(&self.layout, own.as_deref().unwrap_or(path)).ok()
    }

    fn path_of(&self, id: u64) -> Option<String> {
        self.identities.path(id).map(str::to_owned)
    }

    fn id_of(&self, path: &str) -> Result<u64, Missing> {
        Ok(group::first(&self.open(path))?.id().0)
    }

    /// A path as it was read of a task, if it is that of the task's cgroup.
    fn confirmed(&self, read: Field<String>, id: u64) -> Field<String> {
        let Field::Value(path) = &read else {
            return read;
        };
        match self.id_of(path) {
            Ok(found) if found == id => read,
            // A process that has exited is told as in the root, and its number may be somebody else's by now.
            Ok(_) => Field::Missing(Missing::ProcessGone),
            Err(reason) => Field::Missing(reason),
        }
    }

    fn cgroup_of(&self, actor: &Actor) -> Field<String> {
        if let Some(known) = actor.cgroup.and_then(|id| self.path_of(id)) {
            return Field::Value(known);
        }
        let pid = i32::try_from(actor.pid).unwrap_or(0);
        let found = victim::membership(&self.root, &self.layout, pid);
        match actor.cgroup {
            Some(id) => self.confirmed(found, id),
            None => found,
        }
    }

    /// What reclaim had cost the tasks of a cgroup, in nanoseconds.
    pub(super) fn reclaimed(&self, id: Option<u64>) -> Field<u64> {
        let Some(meters) = self.loaded.meters() else {
            return Field::Missing(Missing::ProgramNotLoaded);
        };
        let Some(id) = id else {
            return Field::Missing(Missing::ProcessGone);
        };
        match meters.cgroup(id) {
            Ok(meter) => Field::Value(meter.map_or(0, |meter| meter.direct_ns + meter.memcg_ns)),
            Err(_) => Field::Missing(Missing::Lost),
        }
    }
}

fn from_kernel(cgroup: &str) -> Limit {
    Limit {
        cgroup: cgroup.to_owned(),
        method: LimitMethod::OomControl,
        confidence: Confidence::Exact,
    }
}

/// Why no limit is told. Where the victim's own cgroup was gone, or is not known, it may have been the one.
fn undecided(choice: &Choice, opened: &[Opened], unknown: Missing) -> Missing {
    if opened.is_empty() {
        return unknown;
    }
    group::first(opened).map_or_else(|reason| reason, |_| choice.undecided)
}

fn own_ooms(opened: &Opened) -> Option<u64> {
    opened.dir.as_ref().ok()?.own_ooms().ok().flatten()
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

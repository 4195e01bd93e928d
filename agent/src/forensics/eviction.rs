//! An eviction of ours as it is seen from outside: who is killed, in which cgroups, on what node.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use brink_host::cgroup::Controller;
use brink_host::cgroup::walk::groups_below;
use brink_host::clock::since_boot_ns;
use brink_host::probe::forensics::Process;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::{
    CgroupState, ForkRoot, Identity, Incident, NodeState, ProcessLine, Victim,
};

use super::choice::told;
use super::collector::{Crowd, Over};
use super::gather::victim::Told;
use super::gather::{field, group, top, victim};
use super::scene::Scene;
use super::{MOST_VICTIMS, root};

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
    fork_root: Field<ForkRoot>,
    node: NodeState,
    known: Option<Identity>,
}

/// Orders of ours that are followed at a time.
pub(super) const MOST_OPEN: usize = 32;

/// An order of ours whose end was not told.
#[derive(Debug)]
pub(super) struct Eviction {
    pub(super) uid: Arc<str>,
    pub(super) since: Instant,
    /// Whether its incident has the table of the node.
    pub(super) has_table: bool,
    /// Its end, which is told when it has.
    pub(super) over: Option<Box<Over>>,
}

impl Scene {
    /// Looks at a workload that was just ordered to go; nothing where its cgroups are not known. `ours` is whom we have
    /// signalled lately, as the kernel had them then; `crowd` its processes, where it goes for those.
    pub(super) fn eviction(
        &mut self,
        uid: &str,
        crowd: Option<Crowd>,
        ours: &VecDeque<Process>,
    ) -> Option<Seen> {
        let groups = self.identities.groups_of(uid);
        let opened = self.open(groups.first()?);
        let memory_stat = group::first(&opened).map_or_else(Field::Missing, |dir| {
            field(dir.memory_statistics(), group::absent(dir))
        });
        let listed = self.processes_of(&groups);
        // Who has exited since is in no list any more.
        let gone = ours.iter().filter(|process| self.is_of(process, uid));
        let gone = gone.map(|process| process.tgid.cast_signed());
        let gone = gone.filter(|pid| listed.iter().all(|(other, _)| other != pid));
        let gone: Vec<i32> = gone.collect();
        let killed = self.identities.killed_of(uid);
        let goes = listed.iter().filter(|(pid, path)| {
            let mut within = group::ancestry(path);
            within.any(|path| killed.contains(&&*path)) && !self.identities.is_protected(*pid)
        });
        let goes = goes.map(|(pid, path)| (*pid, Some(&**path)));
        let goes: Vec<_> = goes.chain(gone.iter().map(|pid| (*pid, None))).collect();
        let named = goes.iter().take(MOST_VICTIMS);
        let victims = named.map(|(pid, path)| self.process(*pid, *path, ours));
        let victims: Vec<Victim> = victims.collect();
        let pids: Vec<i32> = listed.iter().map(|(pid, _)| *pid).chain(gone).collect();
        // Most of them have been signalled: who has given its memory back has its place as the kernel had it at the signal.
        let lines = top::with_victims(top::of_group(&self.root, &pids), &victims);
        let fork_root = crowd.map(|crowd| self.fork_root(uid, crowd, &victims));
        let own = group::first(&opened).ok().map(|dir| dir.id().0);
        let cost = self.reclaimed(own);
        Some(Seen {
            fork_root: fork_root.unwrap_or(Field::Missing(Missing::NotApplicable)),
            more: u32::try_from(goes.len() - victims.len()).unwrap_or(u32::MAX),
            victims,
            cgroups: Field::Value(opened.iter().map(group::state).collect()),
            memory_stat,
            top_of_cgroup: if lines.is_empty() {
                Field::Missing(Missing::ProcessGone)
            } else {
                Field::Value(lines)
            },
            node: self.node.read(cost),
            known: self.identities.identity(groups.first()?),
        })
    }

    /// The processes of cgroups and of all below them, each with the path of its own.
    fn processes_of(&self, groups: &[String]) -> Vec<(i32, Arc<str>)> {
        let Some(hierarchy) = self.layout.hierarchy(Controller::Memory) else {
            return Vec::new();
        };
        let below = groups.iter().flat_map(|path| {
            let below = groups_below(hierarchy, path, MOST_GROUPS);
            // Of a workload with more cgroups than that, its own.
            below.unwrap_or_else(|_| vec![path.clone()])
        });
        let listed = below.filter_map(|path| {
            let pids = group::open_one(hierarchy, &path)?.processes().ok()?;
            let path: Arc<str> = path.into();
            Some(pids.into_iter().map(move |pid| (pid, Arc::clone(&path))))
        });
        listed.flatten().collect()
    }

    /// The process that most of a workload's processes come from. `victims` are those that were read.
    fn fork_root(&self, uid: &str, crowd: Crowd, victims: &[Victim]) -> Field<ForkRoot> {
        let Some(reader) = &self.births else {
            return Field::Missing(Missing::ProgramNotLoaded);
        };
        let Ok(births) = reader.read() else {
            return Field::Missing(Missing::Lost);
        };
        let is_victims = |cgroup| self.is_in(Some(cgroup), uid);
        root::find(&births, is_victims, crowd).map_or_else(Field::Missing, |found| {
            let argv = arguments(self.reader().command_lines, &found.copies, victims);
            Field::Value(ForkRoot { argv, ..found.root })
        })
    }

    /// Whether a process was in a cgroup of that workload.
    fn is_of(&self, process: &Process, uid: &str) -> bool {
        self.is_in(process.cgroup, uid)
    }

    fn is_in(&self, cgroup: Option<u64>, uid: &str) -> bool {
        let path = cgroup.and_then(|id| self.identities.path(id));
        let workload = path.and_then(|path| self.identities.workload(path));
        workload.is_some_and(|workload| *workload.uid == *uid)
    }

    /// One of a workload's processes. `listed` is the cgroup that it was found in.
    fn process(&self, pid: i32, listed: Option<&str>, ours: &VecDeque<Process>) -> Victim {
        let mut signalled = ours.iter();
        let signalled = signalled.find(|process| process.tgid == pid.unsigned_abs());
        let figures = signalled.map_or_else(Told::default, told);
        let figures = Told {
            pid: pid.unsigned_abs(),
            ..figures
        };
        let cgroup = signalled.and_then(|process| process.cgroup);
        let mut victim = victim::read(self.reader(), &figures, since_boot_ns());
        // It may have exited since, and be told as in the root.
        let known = cgroup.and_then(|id| self.identities.path(id)).or(listed);
        if let Some(path) = known {
            victim.cgroup = Field::Value(path.to_owned());
        }
        victim
    }
}

impl Seen {
    /// Where its processes came from.
    pub(super) const fn fork_root(&self) -> &Field<ForkRoot> {
        &self.fork_root
    }

    /// Adds it to the incident, where that does not know better.
    pub(super) fn fill(&mut self, incident: &mut Incident) {
        if incident.victims.is_empty() && !self.victims.is_empty() {
            incident.victims = std::mem::take(&mut self.victims);
            incident.more_victims = self.more;
        }
        take(&mut incident.cgroups, &mut self.cgroups);
        take(&mut incident.memory_stat, &mut self.memory_stat);
        take(&mut incident.top_of_cgroup, &mut self.top_of_cgroup);
        take(&mut incident.fork_root, &mut self.fork_root);
        if let (Field::Value(identity), Some(known)) = (&mut incident.workload, &self.known) {
            identity.completed_by(known);
        }
        if let Field::Value(node) = &mut incident.node {
            take(&mut node.available, &mut self.node.available);
            take(&mut node.headroom, &mut self.node.headroom);
            take(&mut node.capacity, &mut self.node.capacity);
            take(&mut node.usable_swap, &mut self.node.usable_swap);
            take(&mut node.reclaim_ns, &mut self.node.reclaim_ns);
            take(&mut node.meminfo, &mut self.node.meminfo);
            take(&mut node.vmstat, &mut self.node.vmstat);
            take(&mut node.zones, &mut self.node.zones);
            take(&mut node.pressure, &mut self.node.pressure);
        }
    }
}

/// The arguments of whoever began, as the first of his copies had them that was read, if they may be told.
fn arguments(command_lines: bool, copies: &HashSet<u32>, victims: &[Victim]) -> Field<Vec<String>> {
    if !command_lines {
        return Field::Missing(Missing::Redacted);
    }
    let copies = victims.iter().filter(|victim| copies.contains(&victim.pid));
    let known = copies.filter_map(|victim| victim.argv.value().cloned());
    Field::or(known.into_iter().next(), Missing::ProcessGone)
}

fn take<T>(field: &mut Field<T>, seen: &mut Field<T>) {
    if matches!(field, Field::Missing(Missing::Pending)) {
        std::mem::swap(field, seen);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use brink_host::cgroup::Layout;

    use super::*;

    #[test]
    fn the_arguments_of_a_root_are_those_of_a_copy_unless_they_are_kept_out() {
        let layout = Layout::detect(Path::new("/")).unwrap();
        let reader = victim::Reader {
            root: Path::new("/"),
            layout: &layout,
            command_lines: true,
        };
        let pid = std::process::id();
        let figures = Told {
            pid,
            ..Told::default()
        };
        let own = victim::read(reader, &figures, since_boot_ns());
        assert!(own.argv.value().is_some(), "{own:?}");
        let (victims, copies) = ([own], HashSet::from([pid]));
        let check = |command_lines, copies: &HashSet<u32>, expected: &Field<Vec<String>>| {
            assert_eq!(&arguments(command_lines, copies, &victims), expected);
        };
        check(true, &copies, &victims[0].argv);
        check(false, &copies, &Field::Missing(Missing::Redacted));
        let nobody = HashSet::new();
        check(true, &nobody, &Field::Missing(Missing::ProcessGone));
        check(false, &nobody, &Field::Missing(Missing::Redacted));
    }
}

//! From the kernel's type description to the offsets the programs are loaded with.

use brink_abi::layout::{ABSENT, Formats, Layout};
use brink_abi::{MAX_ZONES, VERSION};

use super::btf::{Btf, Kind, Member, TypeId};
use super::format::Format;

/// What a group of programs needs to know of the kernel's structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// the memory cgroup of a task
    TaskCgroup,
    /// which process a task belongs to and whether it lives
    Process,
    /// hierarchy and level of a cgroup
    Cgroup,
    /// from a descriptor to a cgroup's usage, with its checks
    Slot,
    /// the node's counters
    Node,
    /// figures of a process that is killed
    Killed,
    /// what `mark_victim` passes
    Victim,
    /// what the OOM killer decided
    Decision,
    /// what no program stands or falls with
    Detail,
}

/// The offsets found, and what was not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// [`ABSENT`] where a member is missing
    pub layout: Layout,
    /// every miss, with what it takes away
    pub missing: Vec<(Need, String)>,
}

/// Where one offset goes.
type Place = fn(&mut Layout) -> &mut u32;

/// One member: who needs it, the structure, the path in it, where the offset goes.
struct Wanted(Need, &'static str, &'static str, Place);

const WANTED: &[Wanted] = &[
    Wanted(Need::TaskCgroup, "task_struct", "cgroups", |l| {
        &mut l.task_cgroups
    }),
    Wanted(Need::Process, "task_struct", "pid", |l| &mut l.task_pid),
    Wanted(Need::Process, "task_struct", "tgid", |l| &mut l.task_tgid),
    Wanted(Need::Process, "task_struct", "signal", |l| {
        &mut l.task_signal
    }),
    Wanted(Need::Process, "task_struct", "exit_code", |l| {
        &mut l.task_exit_code
    }),
    Wanted(Need::Process, "task_struct", "start_boottime", |l| {
        &mut l.task_start_time
    }),
    Wanted(Need::Killed, "task_struct", "comm", |l| &mut l.task_comm),
    Wanted(Need::Killed, "task_struct", "mm", |l| &mut l.task_mm),
    Wanted(Need::Killed, "task_struct", "group_leader", |l| {
        &mut l.task_leader
    }),
    Wanted(Need::Detail, "task_struct", "real_cred", |l| {
        &mut l.task_cred
    }),
    Wanted(Need::Detail, "task_struct", "stack", |l| &mut l.task_stack),
    Wanted(Need::Detail, "cred", "uid", |l| &mut l.cred_uid),
    Wanted(Need::Detail, "signal_struct", "oom_score_adj", |l| {
        &mut l.signal_score
    }),
    Wanted(Need::Killed, "signal_struct", "group_exit_code", |l| {
        &mut l.signal_exit_code
    }),
    Wanted(Need::Detail, "mm_struct", "pgtables_bytes", |l| {
        &mut l.mm_page_tables
    }),
    Wanted(Need::Detail, "mm_struct", "total_vm", |l| &mut l.mm_total),
    Wanted(Need::Detail, "mm_struct", "hiwater_rss", |l| &mut l.mm_peak),
    Wanted(Need::Decision, "oom_control", "memcg", |l| &mut l.oom_memcg),
    Wanted(Need::Decision, "oom_control", "gfp_mask", |l| {
        &mut l.oom_gfp
    }),
    Wanted(Need::Decision, "oom_control", "order", |l| &mut l.oom_order),
    Wanted(Need::Decision, "oom_control", "chosen", |l| {
        &mut l.oom_chosen
    }),
    Wanted(Need::Detail, "oom_control", "totalpages", |l| {
        &mut l.oom_total
    }),
    Wanted(Need::Detail, "oom_control", "chosen_points", |l| {
        &mut l.oom_points
    }),
    Wanted(Need::Detail, "oom_control", "constraint", |l| {
        &mut l.oom_constraint
    }),
    Wanted(Need::Killed, "kernel_siginfo", "si_code", |l| {
        &mut l.siginfo_code
    }),
    Wanted(Need::Detail, "css_set", "dfl_cgrp", |l| {
        &mut l.css_set_unified
    }),
    Wanted(Need::Detail, "mem_cgroup", "memory.max", |l| {
        &mut l.memcg_max
    }),
    Wanted(Need::Process, "signal_struct", "live", |l| {
        &mut l.signal_live
    }),
    Wanted(Need::Slot, "task_struct", "files", |l| &mut l.task_files),
    Wanted(Need::Slot, "files_struct", "fdt", |l| &mut l.files_fdt),
    Wanted(Need::Slot, "fdtable", "fd", |l| &mut l.fdtable_fd),
    Wanted(Need::Slot, "fdtable", "max_fds", |l| &mut l.fdtable_max),
    Wanted(Need::Slot, "file", "f_inode", |l| &mut l.file_inode),
    Wanted(Need::Slot, "inode", "i_private", |l| &mut l.inode_private),
    Wanted(Need::Slot, "kernfs_node", "priv", |l| &mut l.kernfs_priv),
    Wanted(Need::TaskCgroup, "kernfs_node", "id", |l| &mut l.kernfs_id),
    Wanted(Need::TaskCgroup, "cgroup", "kn", |l| &mut l.cgroup_kn),
    Wanted(Need::Cgroup, "cgroup", "level", |l| &mut l.cgroup_level),
    Wanted(Need::Cgroup, "cgroup", "root", |l| &mut l.cgroup_root),
    Wanted(Need::Cgroup, "cgroup_root", "hierarchy_id", |l| {
        &mut l.root_hierarchy
    }),
    Wanted(Need::Node, "cgroup_root", "cgrp", |l| &mut l.root_cgroup),
    Wanted(Need::TaskCgroup, "cgroup_subsys_state", "cgroup", |l| {
        &mut l.css_cgroup
    }),
    Wanted(Need::Slot, "cgroup_subsys_state", "serial_nr", |l| {
        &mut l.css_serial
    }),
    Wanted(Need::Slot, "cgroup_subsys_state", "flags", |l| {
        &mut l.css_flags
    }),
    Wanted(Need::Detail, "pids_cgroup", "css", |l| &mut l.pids_css),
    Wanted(Need::Detail, "pids_cgroup", "counter", |l| {
        &mut l.pids_counter
    }),
    Wanted(Need::Slot, "mem_cgroup", "css", |l| &mut l.memcg_css),
    Wanted(Need::Slot, "mem_cgroup", "memory.usage", |l| {
        &mut l.memcg_usage
    }),
    Wanted(Need::Node, "mem_cgroup", "nodeinfo", |l| {
        &mut l.memcg_nodeinfo
    }),
    Wanted(Need::Node, "mem_cgroup_per_node", "lruvec.pgdat", |l| {
        &mut l.per_node_pgdat
    }),
    Wanted(Need::Node, "pglist_data", "node_id", |l| &mut l.pgdat_id),
    Wanted(Need::Node, "pglist_data", "node_zones", |l| {
        &mut l.pgdat_zones
    }),
    Wanted(Need::Node, "pglist_data", "vm_stat", |l| {
        &mut l.pgdat_vm_stat
    }),
    Wanted(Need::Node, "zone", "_watermark", |l| &mut l.zone_min),
    Wanted(Need::Node, "zone", "lowmem_reserve", |l| {
        &mut l.zone_reserve
    }),
    Wanted(Need::Node, "zone", "managed_pages", |l| &mut l.zone_managed),
    Wanted(Need::Node, "zone", "present_pages", |l| &mut l.zone_present),
    Wanted(Need::Node, "zone", "vm_stat", |l| &mut l.zone_free),
];

/// The node's counters, by enumerator: who needs it is always [`Need::Node`].
const COUNTERS: &[(&str, Place)] = &[
    ("NR_ANON_MAPPED", |l| &mut l.stat_anon),
    ("NR_FILE_PAGES", |l| &mut l.stat_file),
    ("NR_INACTIVE_FILE", |l| &mut l.stat_inactive_file),
    ("NR_ACTIVE_FILE", |l| &mut l.stat_active_file),
    ("NR_FILE_DIRTY", |l| &mut l.stat_dirty),
    ("NR_WRITEBACK", |l| &mut l.stat_writeback),
    ("NR_SLAB_RECLAIMABLE_B", |l| &mut l.stat_slab),
    ("NR_KERNEL_MISC_RECLAIMABLE", |l| &mut l.stat_misc),
];

/// Bytes of a kernel long; the programs run on 64-bit kernels only.
const LONG: u32 = 8;

/// Finds every offset the programs use.
pub fn resolve(btf: &Btf<'_>) -> Resolved {
    let mut layout = Layout::UNKNOWN;
    layout.version = VERSION;
    let mut resolver = Resolver {
        btf,
        found: Resolved {
            layout,
            missing: Vec::new(),
        },
    };
    resolver.members();
    resolver.subsystem();
    resolver.states();
    resolver.counters();
    resolver.zones();
    resolver.arguments();
    resolver.resident();
    resolver.victim();
    resolver.found
}

struct Resolver<'a> {
    btf: &'a Btf<'a>,
    found: Resolved,
}

impl Resolver<'_> {
    fn miss(&mut self, need: Need, what: impl Into<String>) {
        self.found.missing.push((need, what.into()));
    }

    /// All offsets of one structure come from one candidate: names repeat, and a mixed layout reads garbage.
    fn members(&mut self) {
        let mut names: Vec<&str> = WANTED.iter().map(|wanted| wanted.1).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let wanted: Vec<&Wanted> = WANTED.iter().filter(|w| w.1 == name).collect();
            let candidate = candidate(self.btf, name, &wanted);
            for Wanted(need, structure, path, place) in wanted {
                match candidate.and_then(|id| self.btf.member(id, path)) {
                    Some(member) => *place(&mut self.found.layout) = member.offset,
                    None => self.miss(*need, format!("{structure}.{path}")),
                }
            }
        }
    }

    fn member(&self, structure: &str, path: &str) -> Option<Member> {
        self.btf
            .ids(Kind::Struct, structure)
            .find_map(|id| self.btf.member(id, path))
    }

    /// `subsys[memory_cgrp_id]` of a set of cgroups and of a cgroup, and `subsys[pids_cgrp_id]` of a cgroup.
    fn subsystem(&mut self) {
        let at = |structure, id| {
            let index = self.btf.enumerator("cgroup_subsys_id", id)?;
            let start = self.member(structure, "subsys")?.offset;
            start.checked_add(LONG.checked_mul(u32::try_from(index).ok()?)?)
        };
        let memory = |structure| at(structure, "memory_cgrp_id");
        let (set, cgroup) = (memory("css_set"), memory("cgroup"));
        let pids = at("cgroup", "pids_cgrp_id");
        match (set, cgroup) {
            (Some(set), Some(cgroup)) => {
                self.found.layout.css_set_memory = set;
                self.found.layout.cgroup_memory = cgroup;
            }
            _ => self.miss(Need::TaskCgroup, "subsys[memory_cgrp_id]"),
        }
        match pids {
            Some(pids) => self.found.layout.cgroup_pids = pids,
            None => self.miss(Need::Detail, "subsys[pids_cgrp_id]"),
        }
    }

    /// The flags that say whether a controller is online, and how much of its state the checks read.
    fn states(&mut self) {
        let flag = |name| {
            self.btf
                .enumerator("", name)
                .and_then(|value| u32::try_from(value).ok())
        };
        let (online, dying) = (flag("CSS_ONLINE"), flag("CSS_DYING"));
        let layout = &mut self.found.layout;
        layout.css_dying = dying.unwrap_or(0);
        let end = [layout.css_cgroup, layout.css_flags, layout.css_serial]
            .into_iter()
            .max();
        layout.css_bytes = end
            .filter(|at| *at != ABSENT)
            .map_or(ABSENT, |at| at + LONG);
        match online {
            Some(mask) => layout.css_online = mask,
            None => self.miss(Need::Slot, "CSS_ONLINE"),
        }
    }

    fn counters(&mut self) {
        let mut end = 0;
        for (name, place) in COUNTERS {
            let index = self.btf.enumerator("node_stat_item", name);
            let at = index.and_then(|index| u32::try_from(index).ok()?.checked_mul(LONG));
            match at.and_then(|at| Some((at, at.checked_add(LONG)?))) {
                Some((at, behind)) => {
                    *place(&mut self.found.layout) = at;
                    end = end.max(behind);
                }
                None => self.miss(Need::Node, *name),
            }
        }
        self.found.layout.stat_bytes = end;
    }

    fn zones(&mut self) {
        let size = self
            .btf
            .ids(Kind::Struct, "zone")
            .find_map(|id| self.btf.size(id));
        let count = self
            .member("pglist_data", "node_zones")
            .and_then(|zones| self.btf.array_length(zones.type_id))
            .filter(|count| *count as usize <= MAX_ZONES);
        let free = self.btf.enumerator("zone_stat_item", "NR_FREE_PAGES");
        let minimum = self.btf.enumerator("zone_watermarks", "WMARK_MIN");
        match (size, count) {
            (Some(size), Some(count)) => {
                self.found.layout.zone_size = size;
                self.found.layout.zone_count = count;
            }
            _ => self.miss(Need::Node, "pglist_data.node_zones[]"),
        }
        for (index, place, name) in [
            (free, (|l| &mut l.zone_free) as Place, "NR_FREE_PAGES"),
            (minimum, |l| &mut l.zone_min, "WMARK_MIN"),
        ] {
            let start = *place(&mut self.found.layout);
            let at = index
                .and_then(|index| u32::try_from(index).ok())
                .filter(|_| start != ABSENT)
                .and_then(|index| start.checked_add(index.checked_mul(LONG)?));
            match at {
                Some(at) => *place(&mut self.found.layout) = at,
                None => self.miss(Need::Node, name),
            }
        }
    }

    /// Positions of tracepoint arguments that moved between kernels; the first argument of the traced function is the
    /// attached data, which programs do not see.
    fn arguments(&mut self) {
        let at = |tracepoint: &str, name: &str| {
            let position = self
                .btf
                .argument(&format!("__traceiter_{tracepoint}"), name)?;
            u32::try_from(position.checked_sub(1)?).ok()
        };
        let direct = at("mm_vmscan_direct_reclaim_end", "nr_reclaimed");
        let memcg = at("mm_vmscan_memcg_reclaim_end", "nr_reclaimed");
        let layout = &mut self.found.layout;
        layout.arg_nr_reclaimed = direct.filter(|_| direct == memcg).unwrap_or(ABSENT);
        layout.arg_group_dead = at("sched_process_exit", "group_dead").unwrap_or(ABSENT);
    }
}

impl Resolver<'_> {
    /// The resident pages of a process: an array of atomic counters before 6.2, of counters with a part on each
    /// processor since.
    fn resident(&mut self) {
        let plain = self
            .member("mm_struct", "rss_stat.count")
            .map(|m| (m.offset, LONG));
        let parted = || {
            let array = self.member("mm_struct", "rss_stat")?;
            self.btf.array_length(array.type_id)?;
            let mut counters = self.btf.ids(Kind::Struct, "percpu_counter");
            let counter = counters.next()?;
            let count = self.btf.member(counter, "count")?;
            Some((
                array.offset.checked_add(count.offset)?,
                self.btf.size(counter)?,
            ))
        };
        let Some((start, stride)) = plain.or_else(parted) else {
            return self.miss(Need::Detail, "mm_struct.rss_stat");
        };
        let places: [(&str, Place); 4] = [
            ("MM_ANONPAGES", |l| &mut l.mm_anon),
            ("MM_FILEPAGES", |l| &mut l.mm_file),
            ("MM_SHMEMPAGES", |l| &mut l.mm_shmem),
            ("MM_SWAPENTS", |l| &mut l.mm_swap),
        ];
        for (name, place) in places {
            let index = self.btf.enumerator("", name);
            let at = index.and_then(|index| u32::try_from(index).ok()?.checked_mul(stride));
            match at.and_then(|at| at.checked_add(start)) {
                Some(at) => *place(&mut self.found.layout) = at,
                None => self.miss(Need::Detail, name),
            }
        }
    }

    /// `mark_victim` passed a number first, and later, within stable series too, the task.
    fn victim(&mut self) {
        const FUNCTION: &str = "__traceiter_mark_victim";
        let first = |name| self.btf.argument(FUNCTION, name) == Some(1);
        if first("task") {
            self.found.layout.victim_is_task = 1;
        } else if first("pid") {
            self.found.layout.victim_is_task = 0;
        } else {
            self.miss(Need::Victim, "first argument of mark_victim");
        }
    }
}

/// The structure of that name that has most of the wanted members; `None` when two have as many and disagree.
fn candidate(btf: &Btf<'_>, name: &str, wanted: &[&Wanted]) -> Option<TypeId> {
    let offsets = |id| -> Vec<Option<u32>> {
        wanted
            .iter()
            .map(|w| btf.member(id, w.2).map(|member| member.offset))
            .collect()
    };
    let known = |offsets: &[Option<u32>]| offsets.iter().flatten().count();
    let mut best: Option<(TypeId, Vec<Option<u32>>)> = None;
    let mut torn = false;
    for id in btf.ids(Kind::Struct, name) {
        let found = offsets(id);
        let (most, more) = (
            best.as_ref().map_or(0, |(_, held)| known(held)),
            known(&found),
        );
        if more > most {
            (best, torn) = (Some((id, found)), false);
        } else if more == most && best.as_ref().is_some_and(|(_, held)| *held != found) {
            torn = true;
        }
    }
    best.filter(|_| !torn).map(|(id, _)| id)
}

/// Where the OOM tracepoints of the running kernel keep their fields.
pub fn formats(victim: Option<&Format>, retry: Option<&Format>) -> Formats {
    let at = |format: Option<&Format>, name: &str, size: u32| {
        let field = format.and_then(|format| format.field(name));
        field
            .filter(|field| field.size == size)
            .map_or(ABSENT, |field| field.offset)
    };
    let comm = victim
        .and_then(|format| format.field("comm"))
        .filter(|field| field.data_loc);
    Formats {
        victim_pid: at(victim, "pid", 4),
        victim_comm: comm.map_or(ABSENT, |field| field.offset),
        victim_total_vm: at(victim, "total_vm", LONG),
        victim_anon_rss: at(victim, "anon_rss", LONG),
        victim_file_rss: at(victim, "file_rss", LONG),
        victim_shmem_rss: at(victim, "shmem_rss", LONG),
        victim_uid: at(victim, "uid", 4),
        victim_pgtables: at(victim, "pgtables", LONG),
        victim_oom_score_adj: at(victim, "oom_score_adj", 2),
        retry_node: at(retry, "node", 4),
        retry_zone: at(retry, "zone_idx", 4),
        retry_order: at(retry, "order", 4),
        retry_reclaimable: at(retry, "reclaimable", LONG),
        retry_available: at(retry, "available", LONG),
        retry_min_wmark: at(retry, "min_wmark", LONG),
        retry_loops: at(retry, "no_progress_loops", 4),
        retry_check: at(retry, "wmark_check", 1),
    }
}

//! Where the running kernel keeps what the programs read: resolved from its BTF and its tracepoint formats at load.

use crate::plain::shared;

/// The running kernel has no such member or field; the code that would read it is dead for the verifier.
pub const ABSENT: u32 = u32::MAX;

shared! {
    /// Byte offsets inside kernel structures, and values of kernel enumerators. [`ABSENT`] marks what is missing.
    pub struct Layout {
        /// [`crate::VERSION`]
        pub version: u32,
        /// log2 of the page size
        pub page_shift: u32,
        /// hierarchy id of the memory controller: `cgroup_root.hierarchy_id`, 0 on cgroup v2
        pub memory_hierarchy: u32,

        pub task_pid: u32,
        pub task_tgid: u32,
        pub task_signal: u32,
        pub task_files: u32,
        pub task_cgroups: u32,
        pub task_exit_code: u32,
        pub task_start_time: u32,
        pub task_comm: u32,
        pub task_mm: u32,
        pub task_leader: u32,
        pub task_cred: u32,
        pub task_stack: u32,
        pub cred_uid: u32,
        pub signal_score: u32,
        pub signal_exit_code: u32,
        /// `signal_struct.live`: threads that have not passed `do_exit`
        pub signal_live: u32,

        pub files_fdt: u32,
        pub fdtable_fd: u32,
        pub fdtable_max: u32,
        pub file_inode: u32,
        pub inode_private: u32,
        pub kernfs_id: u32,
        pub kernfs_priv: u32,

        /// counters of `mm_struct.rss_stat`, in pages: longs
        pub mm_anon: u32,
        pub mm_file: u32,
        pub mm_shmem: u32,
        pub mm_swap: u32,
        /// bytes
        pub mm_page_tables: u32,
        /// pages
        pub mm_total: u32,
        pub mm_peak: u32,

        pub oom_memcg: u32,
        pub oom_gfp: u32,
        pub oom_order: u32,
        pub oom_total: u32,
        pub oom_chosen: u32,
        pub oom_points: u32,
        pub oom_constraint: u32,
        pub siginfo_code: u32,

        /// `css_set.dfl_cgrp`
        pub css_set_unified: u32,
        /// `css_set.subsys[memory_cgrp_id]`
        pub css_set_memory: u32,
        /// `cgroup.subsys[memory_cgrp_id]`
        pub cgroup_memory: u32,
        /// `cgroup.subsys[pids_cgrp_id]`
        pub cgroup_pids: u32,
        pub cgroup_kn: u32,
        pub cgroup_level: u32,
        pub cgroup_root: u32,
        pub root_hierarchy: u32,
        pub root_cgroup: u32,
        pub css_cgroup: u32,
        pub css_serial: u32,
        pub css_flags: u32,
        /// bytes of `cgroup_subsys_state` that hold the three members above
        pub css_bytes: u32,
        /// mask of `CSS_ONLINE`
        pub css_online: u32,
        /// mask of `CSS_DYING`; 0 where the kernel has none
        pub css_dying: u32,

        /// `pids_cgroup.css`
        pub pids_css: u32,
        /// `pids_cgroup.counter`: tasks in the cgroup and below it
        pub pids_counter: u32,

        /// `mem_cgroup.css`
        pub memcg_css: u32,
        /// `mem_cgroup.memory.usage`, in pages
        pub memcg_usage: u32,
        /// `mem_cgroup.memory.max`, in pages
        pub memcg_max: u32,
        pub memcg_nodeinfo: u32,
        /// `mem_cgroup_per_node.lruvec.pgdat`
        pub per_node_pgdat: u32,

        pub pgdat_id: u32,
        pub pgdat_zones: u32,
        pub pgdat_vm_stat: u32,
        /// bytes of `pglist_data.vm_stat` that hold every counter below
        pub stat_bytes: u32,
        /// byte offsets inside `pglist_data.vm_stat`
        pub stat_anon: u32,
        pub stat_file: u32,
        pub stat_inactive_file: u32,
        pub stat_active_file: u32,
        pub stat_dirty: u32,
        pub stat_writeback: u32,
        pub stat_slab: u32,
        pub stat_misc: u32,

        pub zone_size: u32,
        /// zones a node has, `MAX_NR_ZONES`
        pub zone_count: u32,
        /// `zone._watermark[WMARK_MIN]`
        pub zone_min: u32,
        /// `zone.lowmem_reserve`, `zone_count` longs
        pub zone_reserve: u32,
        pub zone_managed: u32,
        pub zone_present: u32,
        /// `zone.vm_stat[NR_FREE_PAGES]`
        pub zone_free: u32,

        /// index of `nr_reclaimed` among the arguments of the reclaim-end tracepoints
        pub arg_nr_reclaimed: u32,
        /// index of `group_dead` among the arguments of `sched_process_exit`
        pub arg_group_dead: u32,
        /// 1 when `mark_victim` passes the task, 0 when it passes a number
        pub victim_is_task: u32,
    }
}

shared! {
    /// Byte offsets of tracepoint fields, read from each `format` file. [`ABSENT`] marks what is missing.
    pub struct Formats {
        pub victim_pid: u32,
        /// a `__data_loc`: 16 bits of offset, 16 bits of length
        pub victim_comm: u32,
        pub victim_total_vm: u32,
        pub victim_anon_rss: u32,
        pub victim_file_rss: u32,
        pub victim_shmem_rss: u32,
        pub victim_uid: u32,
        pub victim_pgtables: u32,
        pub victim_oom_score_adj: u32,
        pub retry_node: u32,
        pub retry_zone: u32,
        pub retry_order: u32,
        pub retry_reclaimable: u32,
        pub retry_available: u32,
        pub retry_min_wmark: u32,
        pub retry_loops: u32,
        pub retry_check: u32,
    }
}

impl Layout {
    /// Nothing known: every offset absent.
    pub const UNKNOWN: Self = {
        let words = [ABSENT; size_of::<Self>() / 4];
        // SAFETY: the structure is exactly this many `u32` fields (no padding, asserted where it is declared).
        unsafe { core::mem::transmute::<[u32; size_of::<Self>() / 4], Self>(words) }
    };
}

impl Formats {
    /// Nothing known: every field absent.
    pub const UNKNOWN: Self = {
        let words = [ABSENT; size_of::<Self>() / 4];
        // SAFETY: the structure is exactly this many `u32` fields (no padding, asserted where it is declared).
        unsafe { core::mem::transmute::<[u32; size_of::<Self>() / 4], Self>(words) }
    };
}

//! The maps, and the kernel-only state behind them.

use aya_ebpf::macros::{btf_map, map};
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use brink_abi::births::{BirthPage, PAGES as PAGES_OF_BIRTHS};
use brink_abi::command::Mailbox;
use brink_abi::flight::{FlightPage, PAGES};
use brink_abi::forensics::KillRecord;
use brink_abi::meter::{CgroupMeter, Loss, Process, ProcessMeter, ROWS, SamplerMeter};
use brink_abi::sample::{Published, UsageTable, Watch};
use brink_abi::{COMM, MAX_NAMES, MAX_NODES, MAX_SLOTS, MAX_WATCHES, Plain};

use crate::engine::{Engine, Node, Slot};
use crate::forensics::{Deciding, Killed, Signalled, Stacked};
use crate::reclaim::{Begun, Ended};
use crate::timer::TimerMap;

#[btf_map]
pub static TIMERS: TimerMap = TimerMap::new();

/// Crossings and other signals: small, and every record wakes the reader.
#[map]
pub static SIGNALS: RingBuf = RingBuf::with_byte_size(64 << 10, 0);

/// Evidence: large, so that a burst of it cannot displace a signal.
#[map]
pub static EVIDENCE: RingBuf = RingBuf::with_byte_size(256 << 10, 0);

#[map]
pub static ENGINE: Array<Engine> = Array::with_max_entries(1, 0);

/// The node's NUMA nodes; those armed come first.
#[map]
pub static NODES: Array<Node> = Array::with_max_entries(MAX_NODES as u32, 0);

#[map]
pub static WATCHES: Array<Watch> = Array::with_max_entries(MAX_WATCHES as u32, 0);

#[map]
pub static MAILBOX: Array<Mailbox> = Array::with_max_entries(1, 0);

#[map]
pub static LATEST: Array<Published> = Array::with_max_entries(1, 0);

#[map]
pub static SLOTS: Array<Slot> = Array::with_max_entries(MAX_SLOTS as u32, 0);

#[map]
pub static USAGE: Array<UsageTable> = Array::with_max_entries(1, 0);

/// Slot of an armed cgroup, by cgroup id: how its removal finds it.
#[map]
pub static SLOT_OF: HashMap<u64, u32> = HashMap::with_max_entries(2 * MAX_SLOTS as u32, 0);

#[map]
pub static LOSS: PerCpuArray<Loss> = PerCpuArray::with_max_entries(ROWS as u32, 0);

#[map]
pub static SAMPLER: Array<SamplerMeter> = Array::with_max_entries(1, 0);

/// The flight recorder's points of the node; one page alone when it is off.
#[map]
pub static FLIGHT: Array<FlightPage> = Array::with_max_entries(PAGES, 0);

/// The cgroup whose tasks are compared with the limit on threads, by its pids controller; empty for the machine's.
#[map]
pub static NODE_TASKS: Array<Slot> = Array::with_max_entries(1, 0);

#[map]
pub static PROCESS: Array<ProcessMeter> = Array::with_max_entries(1, 0);

/// Every process, by thread-group id.
#[map]
pub static PROCESSES: HashMap<u32, Process> = HashMap::with_max_entries(8192, 0);

/// Every memory cgroup that had a process or a reclaim, by cgroup id.
#[map]
pub static CGROUPS: HashMap<u64, CgroupMeter> = HashMap::with_max_entries(2048, 0);

/// Watched processes (thread-group id) and cgroups (id with [`CGROUP_KEY`] set).
#[map]
pub static VICTIMS: HashMap<u64, u64> = HashMap::with_max_entries(256, 0);

/// Names of programs whose start is told whoever starts them, NUL to the end.
#[map]
pub static NAMES: HashMap<[u8; COMM], u32> = HashMap::with_max_entries(MAX_NAMES as u32, 0);

/// Reclaims under way, by thread id.
#[map]
pub static RECLAIMS: HashMap<u32, Begun> = HashMap::with_max_entries(1024, 0);

/// The last reclaim of each task that was in one lately, by thread id.
#[map]
pub static RECLAIMED: LruHashMap<u32, Ended> = LruHashMap::with_max_entries(1024, 0);

/// Kills: apart from the others, so that nothing but kills can displace one.
#[map]
pub static FORENSICS: RingBuf = RingBuf::with_byte_size(256 << 10, 0);

/// Who was told as killed and has not exited yet, by thread-group id.
#[map]
pub static KILLED: LruHashMap<u32, Killed> = LruHashMap::with_max_entries(1024, 0);

/// Their address spaces, by the address of the `mm_struct`.
#[map]
pub static SPACES: LruHashMap<u64, Killed> = LruHashMap::with_max_entries(1024, 0);

/// Who forked whom; one page alone when nobody asks for it.
#[map]
pub static BIRTHS: Array<BirthPage> = Array::with_max_entries(PAGES_OF_BIRTHS, 0);

/// The last SIGKILL of the kernel's own that was sent from each processor.
#[map]
pub static SIGNALLED: PerCpuArray<Signalled> = PerCpuArray::with_max_entries(1, 0);

/// The SIGKILL that is told from each processor: described once, whichever record it goes into.
#[map]
pub static SENT: PerCpuArray<KillRecord> = PerCpuArray::with_max_entries(1, 0);

/// Whose stacks were taken last on each processor.
#[map]
pub static STACKED: PerCpuArray<Stacked> = PerCpuArray::with_max_entries(1, 0);

/// What the OOM killer decides now: it decides one thing at a time.
#[map]
pub static DECISION: Array<Deciding> = Array::with_max_entries(1, 0);

/// Tells a cgroup's key in [`VICTIMS`] from a process's.
pub const CGROUP_KEY: u64 = 1 << 63;

/// The meters of one memory cgroup, made on first use; `None` when the map is full.
#[inline(always)]
pub fn cgroup_meter(id: u64) -> Option<*mut CgroupMeter> {
    if let Some(found) = CGROUPS.get_ptr_mut(id) {
        return Some(found);
    }
    let _ = CGROUPS.insert(id, CgroupMeter::ZERO, 1 /* BPF_NOEXIST */);
    CGROUPS.get_ptr_mut(id)
}

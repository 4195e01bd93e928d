//! Everything that touches this machine; every reader takes its root as an argument.
//!
//! | module | what it knows |
//! |---|---|
//! | [`cgroup`] | which layout the machine has; usage, limits, statistics, processes of a group; whose group it is |
//! | [`meminfo`], [`vmstat`], [`zoneinfo`], [`swap`], [`psi`], [`loadavg`], [`pid_limits`] | the node's own counters |
//! | [`disk`] | what room filesystems have, and what of it a folder uses |
//! | [`process`] | who runs here, who must never be killed, which other killers are active |
//! | [`kill`] | SIGKILL to a whole group at once, and its memory back early |
//! | [`realtime`] | `SCHED_FIFO` and why it was refused, locked memory, `oom_score_adj` |
//! | [`probe`] | the programs in the kernel: loaded, armed, heard |
//! | [`symbols`] | the names of the kernel's functions on a stack |
//! | [`ledger`], [`ledger_map`] | the mapped file a decision is written to before it is carried out |
//! | [`lock`], [`clock`], [`capabilities`], [`open_files`] | one enforcer a node, the clocks of the record, what we may do |
//! | [`hog`] | memory load made on purpose, always bounded, for the demonstration, benches and live tests |
//!
//! Two kinds of readers: those named `…Reader` are opened in advance and read with one `pread` into a stack buffer, so
//! that the guard thread may use them between event and kill; all others are for the housekeeping pass and allocate.

pub mod capabilities;
pub mod cgroup;
pub mod clock;
pub mod cpu_lists;
pub mod disk;
pub mod error;
pub mod hog;
pub mod hot_file;
pub mod kill;
pub mod ledger;
pub mod ledger_map;
pub mod loadavg;
pub mod lock;
pub mod meminfo;
pub mod open_files;
pub mod pid_limits;
pub mod probe;
pub mod process;
pub mod psi;
pub mod realtime;
mod scan;
pub mod swap;
pub mod symbols;
pub mod vmstat;
pub mod zoneinfo;

pub use error::{HostError, HotError};

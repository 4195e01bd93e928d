//! What user space asks of the sampler: the node, slots, watches, pace. Nothing here allocates.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use brink_abi::command::{self, Command, Knobs, Mailbox, Reply, Terms};
use brink_abi::sample::{SOURCE_SLOT_HEADROOM, Watch};
use brink_abi::{MAX_SLOTS, Plain};

use super::call::{done, program, run};
use super::error::{ProbeError, Refusal};
use super::handle::Probe;
use super::pod::Pod;

/// The program that carries out commands.
const NAME: &str = "command";
/// Tries of a command before the sampler counts as busy; a tick holds the engine for microseconds.
const TRIES: usize = 200;
/// Free memory beyond the zones' own under this many bytes is movement between two readings.
const DEFERRED_MIN: i64 = 64 << 20;

/// What arming the node found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmedNode {
    /// NUMA nodes and populated zones
    pub nodes: u64,
    /// of all nodes
    pub zones: u64,
    /// bytes free in the zones
    pub free: u64,
    /// bytes free that no zone manages yet
    pub deferred: u64,
}

impl Probe {
    /// Finds the node's counters and takes its capacity, in bytes; call again at each housekeeping pass. `free` reads
    /// `MemFree` in bytes, and is asked before and after: on kernels that initialise memory late it exceeds what the
    /// zones own, and the smaller excess counts as free until the zones have taken it over.
    ///
    /// # Errors
    /// [`ProbeError::TooManyNodes`]; [`ProbeError::Refused`] when the counters are not where they should be;
    /// [`ProbeError::Io`] when `free` fails.
    pub fn arm_node(
        &mut self,
        capacity: u64,
        mut free: impl FnMut() -> io::Result<u64>,
    ) -> Result<ArmedNode, ProbeError> {
        let mut given = Command {
            op: command::ARM_NODE,
            count: self.nodes.len() as u64,
            capacity: bytes(capacity),
            ..Command::ZERO
        };
        let Some(room) = given.nodes.get_mut(..self.nodes.len()) else {
            return Err(ProbeError::TooManyNodes(self.nodes.len()));
        };
        room.copy_from_slice(&self.nodes);
        let mut ask = || {
            free().map_err(|error| ProbeError::Io {
                what: "MemFree",
                error,
            })
        };
        let before = ask()?;
        let reply = self.command("arm node", &given)?;
        let excess = bytes(before.min(ask()?)) - reply.free;
        let deferred = if excess > DEFERRED_MIN { excess } else { 0 };
        if deferred != 0 || self.is_deferred {
            let given = Command {
                op: command::SET_DEFERRED,
                free: deferred,
                managed: reply.managed,
                ..Command::ZERO
            };
            self.command("set deferred", &given)?;
            self.is_deferred = deferred != 0;
        }
        Ok(ArmedNode {
            nodes: reply.nodes,
            zones: reply.zones,
            free: reply.free.unsigned_abs(),
            deferred: deferred.unsigned_abs(),
        })
    }

    /// Replaces the list of NUMA nodes with memory, after one was added; the next [`Probe::arm_node`] takes it.
    pub fn set_nodes(&mut self, nodes: Vec<u32>) {
        self.nodes = nodes;
    }

    /// Binds a slot to the cgroup whose directory is open as `cgroup`. `generation` comes back with each usage, so that
    /// a number of the slot's former cgroup cannot be taken for this one's.
    ///
    /// # Errors
    /// [`ProbeError::Refused`]: not a cgroup, no memory controller, being removed, the root, or no such slot.
    pub fn arm_slot(
        &mut self,
        slot: u32,
        generation: u32,
        cgroup: BorrowedFd<'_>,
        terms: Terms,
    ) -> Result<Reply, ProbeError> {
        let fd = cgroup.as_raw_fd();
        let op = command::ARM_SLOT;
        self.command(
            "arm slot",
            &Command {
                op,
                slot,
                generation,
                fd,
                terms,
                ..Command::ZERO
            },
        )
    }

    /// Frees a slot. Freeing a free one is no error.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] for a slot out of range.
    pub fn disarm_slot(&mut self, slot: u32) -> Result<(), ProbeError> {
        let op = command::DISARM_SLOT;
        self.command(
            "disarm slot",
            &Command {
                op,
                slot,
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// Replaces what user space knows of a slot's cgroup.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] for a slot out of range.
    pub fn set_slot_terms(&mut self, slot: u32, terms: Terms) -> Result<(), ProbeError> {
        let op = command::SET_TERMS;
        self.command(
            "set terms",
            &Command {
                op,
                slot,
                terms,
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// Replaces all watches. The next tick tells every one that is below its limit, or unknown, as a crossing.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] for too many watches, an unknown source, or a slot out of range.
    pub fn set_watches(&mut self, watches: &[Watch]) -> Result<(), ProbeError> {
        let mut given = Command {
            op: command::SET_WATCHES,
            count: watches.len() as u64,
            ..Command::ZERO
        };
        let fits = |watch: &Watch| {
            watch.source <= SOURCE_SLOT_HEADROOM && (watch.slot as usize) < MAX_SLOTS
        };
        let what = "set watches";
        if !watches.iter().all(fits) {
            return Err(ProbeError::Refused {
                what,
                why: Refusal::Invalid,
            });
        }
        let Some(room) = given.watches.get_mut(..watches.len()) else {
            return Err(ProbeError::Refused {
                what,
                why: Refusal::TooMany,
            });
        };
        room.copy_from_slice(watches);
        self.command(what, &given).map(drop)
    }

    /// Changes the sampler's pace.
    ///
    /// # Errors
    /// [`ProbeError::Program`] when the command program cannot run.
    pub fn set_knobs(&mut self, knobs: Knobs) -> Result<(), ProbeError> {
        self.command(
            "set knobs",
            &Command {
                op: command::SET_KNOBS,
                knobs,
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// Starts the timer; starting it again is no error.
    ///
    /// # Errors
    /// [`ProbeError::Refused`] when the kernel refuses the timer.
    pub fn start(&mut self) -> Result<(), ProbeError> {
        self.command(
            "start",
            &Command {
                op: command::START,
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// Reads the usage of every armed slot now.
    ///
    /// # Errors
    /// [`ProbeError::Program`] when the command program cannot run.
    pub fn sweep(&mut self) -> Result<(), ProbeError> {
        self.command(
            "sweep",
            &Command {
                op: command::SWEEP,
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// Takes one tick now, in the caller's context: the sample that follows is of this moment.
    ///
    /// # Errors
    /// [`ProbeError::Program`] when the command program cannot run.
    pub fn tick(&mut self) -> Result<(), ProbeError> {
        self.command(
            "tick",
            &Command {
                op: command::TICK,
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// Puts the command into the mailbox, runs the program, and takes its reply.
    pub(super) fn command(
        &mut self,
        what: &'static str,
        given: &Command,
    ) -> Result<Reply, ProbeError> {
        let map = |error| ProbeError::Map {
            name: "MAILBOX",
            error,
        };
        if !self.coverage.has(NAME) {
            return Err(ProbeError::NotLoaded(NAME));
        }
        let mail = Mailbox {
            command: *given,
            reply: Reply::ZERO,
        };
        self.mailbox.set(0, Pod(mail), 0).map_err(map)?;
        done(what, self.run_command()?)?;
        self.mailbox
            .get(&0, 0)
            .map(|Pod(mail)| mail.reply)
            .map_err(map)
    }

    /// Runs the command program, again while a tick holds the engine.
    fn run_command(&mut self) -> Result<u32, ProbeError> {
        let filter = program(&mut self.object, NAME)?;
        for _ in 0..TRIES {
            let result = run(filter, NAME)?;
            if result != command::BUSY {
                return Ok(result);
            }
            std::hint::spin_loop();
        }
        Ok(command::BUSY)
    }
}

/// Bytes as the programs count them. No machine has more than an `i64` holds.
fn bytes(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

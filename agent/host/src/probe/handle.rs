//! The loaded probe: what the guard holds. Commands, signals, samples; nothing here allocates once it is loaded.

use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, RingBuf};
use aya::programs::{Iter, SocketFilter, TestRun as _, TestRunOptions};
use brink_abi::command::{self, Command, Knobs, Mailbox, Reply, Terms};
use brink_abi::meter::ProcessMeter;
use brink_abi::sample::{Published, Sample, Usage, UsageTable, Watch};
use brink_abi::{MAX_NODES, MAX_SLOTS, MAX_WATCHES, Plain};

use super::coverage::{Coverage, Settings, decide};
use super::decode::{DecodeError, Signal, signal};
use super::error::{ProbeError, Refusal};
use super::evidence::EvidenceReader;
use super::facts::Facts;
use super::load::{load, take};
use super::meters::Meters;
use super::pod::Pod;

/// Tries of a command before the sampler counts as busy; a tick holds the engine for microseconds.
const TRIES: usize = 200;
/// Tries of a copy that a tick may be rewriting.
const COPIES: usize = 16;
/// Tells a cgroup's key in the victims' map from a process's.
const CGROUP_KEY: u64 = 1 << 63;
/// A packet for the test run; the program never looks at it, the kernel wants an Ethernet header's worth.
const PACKET: [u8; 32] = [0; 32];

/// The programs in the kernel, and the guard's ends of their maps. Dropping it unloads everything.
pub struct Probe {
    object: Ebpf,
    coverage: Coverage,
    nodes: Vec<u32>,
    signals: RingBuf<MapData>,
    evidence: Option<EvidenceReader>,
    meters: Option<Meters>,
    mailbox: Array<MapData, Pod<Mailbox>>,
    latest: Array<MapData, Pod<Published>>,
    usage: Array<MapData, Pod<UsageTable>>,
    process: Array<MapData, Pod<ProcessMeter>>,
    victims: HashMap<MapData, u64, u64>,
    watched: u64,
    undecoded: u64,
}

/// What is watched until it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// a process, by thread-group id
    Process(u32),
    /// a cgroup, by the inode number of its directory
    Cgroup(u64),
}

impl Victim {
    fn key(self) -> u64 {
        match self {
            Self::Process(tgid) => u64::from(tgid),
            Self::Cgroup(id) => id | CGROUP_KEY,
        }
    }
}

impl Probe {
    /// Loads what the facts and settings allow. The sampler stands still until it is armed and started.
    ///
    /// # Errors
    /// [`ProbeError`] when the object or its maps cannot be loaded at all. A program that is refused is no error: its
    /// absence and the reason are in [`Probe::coverage`].
    pub fn load(facts: &Facts, settings: &Settings) -> Result<Self, ProbeError> {
        let mut coverage = decide(facts, &settings.wishes);
        let mut object = load(facts, settings, &mut coverage)?;
        let mut probe = Self {
            meters: Some(Meters::take(&mut object)?),
            signals: take(&mut object, "SIGNALS")?,
            evidence: Some(EvidenceReader::new(take(&mut object, "EVIDENCE")?)),
            mailbox: take(&mut object, "MAILBOX")?,
            latest: take(&mut object, "LATEST")?,
            usage: take(&mut object, "USAGE")?,
            process: take(&mut object, "PROCESS")?,
            victims: take(&mut object, "VICTIMS")?,
            nodes: settings.nodes.clone(),
            object,
            coverage,
            watched: 0,
            undecoded: 0,
        };
        if probe.coverage.has("command") {
            probe.set_thread_limit(None)?;
            probe.set_knobs(settings.wishes.knobs)?;
        }
        Ok(probe)
    }

    /// What runs, and why the rest does not.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The reader of evidence, for another thread; once.
    pub fn take_evidence(&mut self) -> Option<EvidenceReader> {
        self.evidence.take()
    }

    /// The counters, for another thread; once.
    pub fn take_meters(&mut self) -> Option<Meters> {
        self.meters.take()
    }

    /// Readable when a signal waits.
    pub fn signal_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Hands over every signal that waits, at most `bound` of them, and returns how many were taken from the ring.
    pub fn drain_signals(&mut self, bound: usize, mut each: impl FnMut(&Signal)) -> usize {
        for taken in 0..bound {
            let Some(item) = self.signals.next() else {
                return taken;
            };
            match signal(&item) {
                Ok(found) => each(&found),
                Err(DecodeError { .. }) => self.undecoded += 1,
            }
        }
        bound
    }

    /// Records of the small ring that could not be understood: above zero, object and agent do not fit.
    pub fn undecoded(&self) -> u64 {
        self.undecoded
    }

    /// Finds the node's counters. `capacity` and `free` (`MemFree`) in bytes, read just before. Free memory the zones
    /// do not own up to yet is counted as free until they do; call again at each housekeeping pass.
    ///
    /// # Errors
    /// [`ProbeError::TooManyNodes`], or [`ProbeError::Refused`] when the counters are not where they should be.
    pub fn arm_node(&mut self, capacity: u64, free: u64) -> Result<Reply, ProbeError> {
        if self.nodes.len() > MAX_NODES {
            return Err(ProbeError::TooManyNodes(self.nodes.len()));
        }
        let mut given = Command {
            op: command::ARM_NODE,
            count: self.nodes.len() as u64,
            capacity: i64::try_from(capacity).unwrap_or(i64::MAX),
            free: i64::try_from(free).unwrap_or(i64::MAX),
            ..Command::ZERO
        };
        given.nodes[..self.nodes.len()].copy_from_slice(&self.nodes);
        self.command("arm node", &given)
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
        let Some(room) = given.watches.get_mut(..watches.len()) else {
            return Err(ProbeError::Refused {
                what: "set watches",
                why: Refusal::TooMany,
            });
        };
        debug_assert!(room.len() <= MAX_WATCHES);
        room.copy_from_slice(watches);
        self.command("set watches", &given).map(drop)
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

    /// Sets the number of threads above which a signal comes, `None` for no limit.
    ///
    /// # Errors
    /// [`ProbeError::Program`] when the command program cannot run.
    pub fn set_thread_limit(&mut self, limit: Option<u32>) -> Result<(), ProbeError> {
        let limit = limit.map_or(-1, i64::from);
        let op = command::SET_THREAD_LIMIT;
        self.command(
            "set thread limit",
            &Command {
                op,
                limit,
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// Brings the count of threads to what `total` says (the second number of `/proc/loadavg`'s fourth field). `total`
    /// is asked again when threads came or went around the reading, a few times at most. Returns the correction.
    ///
    /// # Errors
    /// [`ProbeError`] when `total` fails, or the map or the program cannot be used.
    pub fn calibrate_threads(
        &mut self,
        mut total: impl FnMut() -> std::io::Result<u64>,
    ) -> Result<i64, ProbeError> {
        let mut delta = 0;
        for _ in 0..8 {
            let before = self.processes()?.threads;
            let real = total().map_err(|error| ProbeError::Io {
                what: "thread count",
                error,
            })?;
            delta = i64::try_from(real).unwrap_or(i64::MAX) - before;
            if self.processes()?.threads == before {
                break;
            }
        }
        let op = command::ADD_THREADS;
        self.command(
            "calibrate threads",
            &Command {
                op,
                delta,
                ..Command::ZERO
            },
        )?;
        Ok(delta)
    }

    /// Threads and processes of the system.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when the map cannot be read.
    pub fn processes(&self) -> Result<ProcessMeter, ProbeError> {
        let found = self.process.get(&0, 0);
        found
            .map(|Pod(meter)| meter)
            .map_err(|error| ProbeError::Map {
                name: "PROCESS",
                error,
            })
    }

    /// Enters every living process into the table and moves those whose memory cgroup changed unseen: at start, and
    /// at each housekeeping pass. Costs about two microseconds a process.
    ///
    /// # Errors
    /// [`ProbeError`] when the iterator is absent or cannot run.
    pub fn sync_processes(&mut self) -> Result<(), ProbeError> {
        const NAME: &str = "sync_processes";
        let program = |error| ProbeError::Program { name: NAME, error };
        let io = |error| ProbeError::Io { what: NAME, error };
        let loaded = self
            .object
            .program_mut(NAME)
            .ok_or(ProbeError::NotLoaded(NAME))?;
        let iterator: &mut Iter = loaded.try_into().map_err(program)?;
        let link = iterator.attach().map_err(program)?;
        let link = iterator.take_link(link).map_err(program)?;
        let mut file = link
            .into_file()
            .map_err(|error| io(std::io::Error::other(error.to_string())))?;
        let mut nothing = [0; 64];
        while file.read(&mut nothing).map_err(io)? > 0 {}
        Ok(())
    }

    /// Asks for a signal when the victim is gone: exits of its processes, and for a cgroup its last one too.
    ///
    /// # Errors
    /// [`ProbeError::Map`] when 256 victims are watched already.
    pub fn watch_victim(&mut self, victim: Victim) -> Result<(), ProbeError> {
        let map = |error| ProbeError::Map {
            name: "VICTIMS",
            error,
        };
        if self.victims.get(&victim.key(), 0).is_err() {
            self.victims.insert(victim.key(), 1, 0).map_err(map)?;
            self.watched += 1;
        }
        self.count_victims()
    }

    /// Asks no longer. A victim that was not watched is no error.
    ///
    /// # Errors
    /// [`ProbeError::Program`] when the command program cannot run.
    pub fn unwatch_victim(&mut self, victim: Victim) -> Result<(), ProbeError> {
        if self.victims.remove(&victim.key()).is_ok() {
            self.watched = self.watched.saturating_sub(1);
        }
        self.count_victims()
    }

    /// Tells the hooks whether looking for victims is worth it.
    fn count_victims(&mut self) -> Result<(), ProbeError> {
        let (op, count) = (command::SET_VICTIMS, self.watched);
        self.command(
            "victims",
            &Command {
                op,
                count,
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// The latest sample; `None` when none was taken or ticks kept rewriting it.
    pub fn sample(&self) -> Option<Sample> {
        let Pod(published) = copy(&self.latest, |Pod(p)| (p.finished, p.started))?;
        Some(published.record.sample)
    }

    /// Copies the usage of every slot, in the order of slots, and returns when the table was last read as a whole
    /// (monotonic nanoseconds, 0 for never). `None` when ticks kept rewriting it.
    pub fn usages(&self, into: &mut [Usage; MAX_SLOTS]) -> Option<u64> {
        let Pod(table) = copy(&self.usage, |Pod(table)| (table.finished, table.started))?;
        into.copy_from_slice(&table.entries);
        Some(table.swept_ns)
    }

    /// Fills the mailbox and runs the command program, again while a tick holds the engine.
    fn command(&mut self, what: &'static str, given: &Command) -> Result<Reply, ProbeError> {
        const NAME: &str = "command";
        let map = |error| ProbeError::Map {
            name: "MAILBOX",
            error,
        };
        if !self.coverage.has(NAME) {
            return Err(ProbeError::NotLoaded(NAME));
        }
        let program = |error| ProbeError::Program { name: NAME, error };
        let mail = Mailbox {
            command: *given,
            reply: Reply::ZERO,
        };
        self.mailbox.set(0, Pod(mail), 0).map_err(map)?;
        let loaded = self
            .object
            .program_mut(NAME)
            .ok_or(ProbeError::NotLoaded(NAME))?;
        let filter: &mut SocketFilter = loaded.try_into().map_err(program)?;
        let mut result = command::BUSY;
        for _ in 0..TRIES {
            let options = TestRunOptions {
                data_in: Some(&PACKET),
                ..TestRunOptions::default()
            };
            result = filter.test_run(options).map_err(program)?.return_value;
            if result != command::BUSY {
                break;
            }
            std::hint::spin_loop();
        }
        match Refusal::from_result(result) {
            None => self
                .mailbox
                .get(&0, 0)
                .map(|Pod(mail)| mail.reply)
                .map_err(map),
            Some(why) => Err(ProbeError::Refused { what, why }),
        }
    }
}

/// A copy of a value whose guards agree: the writer sets the second before it writes and the first after.
fn copy<T: Plain>(
    map: &Array<MapData, Pod<T>>,
    guards: impl Fn(&Pod<T>) -> (u64, u64),
) -> Option<Pod<T>> {
    (0..COPIES).find_map(|_| {
        let found = map.get(&0, 0).ok()?;
        let (finished, started) = guards(&found);
        (finished == started && started != 0).then_some(found)
    })
}

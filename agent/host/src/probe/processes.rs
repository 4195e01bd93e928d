//! Threads and processes of the system, and the victims whose end is waited for.

use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::programs::Iter;
use brink_abi::Plain;
use brink_abi::command::{self, Command};
use brink_abi::meter::ProcessMeter;

use super::call::{failed, program};
use super::error::ProbeError;
use super::handle::Probe;
use super::pod::Pod;
use crate::clock::monotonic_ns;

/// Tells a cgroup's key in the victims' map from a process's.
const CGROUP_KEY: u64 = 1 << 63;

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

/// Longer than a task that was reaped is still counted, however busy the processors are.
const STAYS_NS: u64 = 1_000_000_000;

/// By how much a count is too high, and since when.
#[derive(Debug, Default)]
pub(super) struct Excess(Option<(i64, u64)>);

impl Excess {
    /// What a count is to be changed by that the truth differs from by `delta`.
    fn correction(&mut self, delta: i64, now: u64) -> i64 {
        if delta >= 0 {
            self.0 = None;
            return delta;
        }
        let (least, since) = self
            .0
            .map_or((delta, now), |(least, since)| (least.max(delta), since));
        if now.saturating_sub(since) < STAYS_NS {
            self.0 = Some((least, since));
            return 0;
        }
        self.0 = Some((delta - least, now)).filter(|(rest, _)| *rest < 0);
        least
    }
}

impl Probe {
    /// Sets the number of threads above which a signal comes; `None` or zero for no limit.
    ///
    /// # Errors
    /// [`ProbeError::Program`] when the command program cannot run.
    pub fn set_thread_limit(&mut self, limit: Option<u32>) -> Result<(), ProbeError> {
        let limit = limit.map_or(0, i64::from);
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

    /// Compares the limit on threads with the tasks of the cgroup whose directory is open as `group`, by the counter of its pids
    /// controller, which counts all below it and the dead that nobody has reaped; without one with the machine's threads.
    ///
    /// # Errors
    /// [`ProbeError::Refused`]: not a cgroup, no pids controller, being removed, the root, or a kernel whose counter is not
    /// found; then the machine's threads are compared.
    pub fn count_tasks_of(&mut self, group: Option<BorrowedFd<'_>>) -> Result<(), ProbeError> {
        let op = command::COUNT_TASKS;
        self.command(
            "count tasks",
            &Command {
                op,
                fd: group.map_or(-1, |group| group.as_raw_fd()),
                ..Command::ZERO
            },
        )
        .map(drop)
    }

    /// Brings the count of threads to what `total` says (the second number of `/proc/loadavg`'s fourth field). `total`
    /// is asked again when threads came or went around the reading, a few times at most. Returns the correction.
    ///
    /// The kernel leaves a task out of its total some time before it frees it, which is when we do: a count that is too
    /// high may only be that. It is lowered once it has been too high for a second of calls, by the smallest excess.
    ///
    /// # Errors
    /// [`ProbeError`] when `total` fails, or the map or the program cannot be used.
    pub fn calibrate_threads(
        &mut self,
        mut total: impl FnMut() -> io::Result<u64>,
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
        let delta = self.threads_excess.correction(delta, monotonic_ns());
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
        let io_error = |error| ProbeError::Io { what: NAME, error };
        let iterator: &mut Iter = program(&mut self.object, NAME)?;
        let link = iterator.attach().map_err(failed(NAME))?;
        let link = iterator.take_link(link).map_err(failed(NAME))?;
        let mut file = link
            .into_file()
            .map_err(|error| io_error(io::Error::other(error.to_string())))?;
        let mut nothing = [0; 64];
        while file.read(&mut nothing).map_err(io_error)? > 0 {}
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_too_high_is_lowered_when_it_stays_so() {
        let mut excess = Excess::default();
        let mut correction = |seconds: u64, delta| excess.correction(delta, seconds * STAYS_NS / 2);
        assert_eq!(correction(0, 50), 50, "too low: raised at once");
        assert_eq!(correction(1, -9), 0, "perhaps only not freed yet");
        assert_eq!(correction(2, -4), 0, "not for long enough");
        assert_eq!(correction(3, -7), -4, "the smallest excess");
        assert_eq!(correction(4, -3), 0, "what is left of it is young");
        assert_eq!(correction(5, -3), -3);
        assert_eq!(correction(6, -5), 0);
        assert_eq!(correction(7, 1), 1);
        assert_eq!(correction(8, -5), 0, "the one before was too low");
    }
}

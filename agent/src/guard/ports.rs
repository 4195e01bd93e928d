//! The queues between the guard and everything that can wait: bounded, lock-free, counted when full.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brink_core::base::Moment;
use brink_core::node::input::{Control, Recalled, Reconfiguration};
use brink_core::node::limits::Exceeded;
use brink_core::node::order::Phase;
use brink_host::ledger::{Ledger, SlotId};
use brink_host::probe::abi::record::VictimRecord;
use crossbeam_queue::ArrayQueue;

use super::again::{Again, Newcomer};
use super::disks::{DiskBoard, ReclaimAnswer, ReclaimAsked};
use super::kernel::Kernel;
use super::page::Page;
use super::roster::{Group, Roster};
use super::rung::Standing;
use super::step::Step;
use crate::bell::Bell;
use crate::ledger::entry::Crossed;

/// What the enforcer before us left.
pub struct Legacy {
    /// The ledger, ours to write from now on.
    pub ledger: Ledger,
    /// The number of the last order in it.
    pub last: u64,
    /// Its kills, oldest first.
    pub kills: Vec<Recalled>,
    /// Pods that it has evicted lately.
    pub evicted: Vec<Evicted>,
    /// The last order, if that was not over.
    pub interrupted: Option<Interrupted>,
}

/// A pod that an agent before us has evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its uid.
    pub uid: String,
    /// The order's number.
    pub order: u64,
    /// When it was killed; when the order was given, if it ended before that.
    pub at: Moment,
}

/// An order that was not over when its agent ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupted {
    /// Where it stands in the ledger.
    pub slot: SlotId,
    /// Uid of the victim.
    pub uid: String,
    /// Its number.
    pub order: u64,
    /// What it is for.
    pub crossed: Crossed,
    /// When it was given.
    pub opened: Moment,
    /// When the victim had been asked to end.
    pub asked: Option<Moment>,
    /// How far it had come.
    pub phase: Phase,
    /// Whether the signals of that phase are known to have been sent.
    pub is_sent: bool,
    /// What the victim held when it was chosen, if that was known: bytes or processes.
    pub charged: Option<u64>,
}

/// What the guard is told.
pub enum Command {
    /// A new roster.
    Roster(Box<Roster>),
    /// Whether orders are carried out.
    Control(Control),
    /// The same, asked for by somebody who waits: [`Report::Heard`] brings the ticket back. Tickets rise.
    Request(Control, u64),
    /// Another configuration.
    Reconfigure(Box<Reconfiguration>),
    /// This agent becomes the enforcer.
    TakeOver(Box<Legacy>),
    /// The sampler, loaded.
    Sampler(Box<Kernel>),
    /// Why there will be none.
    NoSampler(String),
    /// A container was made in an evicted pod.
    Newcomer(Box<Newcomer>),
    /// A workload uses more of local storage than it may.
    Exceeded {
        /// Generation of the table that the index is of; with another one it is told again.
        generation: u64,
        /// Index in that.
        workload: usize,
        /// The limit, and what was measured.
        limit: Exceeded,
    },
    /// The reclaim on the node that was asked for at that moment has run, or could not, and what came of it.
    Reclaimed(Moment, ReclaimAnswer),
    /// Take a full sample now and report it.
    Inquire,
    /// End.
    Stop,
}

/// What the guard tells.
#[derive(Debug)]
pub enum Report {
    /// An input the engine took in, and its answers.
    Step(Box<Step>),
    /// A request was heard, and what came of it is told.
    Heard(u64),
    /// A decision that has just been carried out, or told.
    Decided(Box<Page>),
    /// A decision with everything that became of it.
    Completed(Box<Page>),
    /// The kernel's own killer chose somebody.
    OomKill(VictimRecord),
    /// What a kubelet had started again in an evicted pod was killed.
    Again(Again),
    /// A container that is looked at no more: the guard frees no memory.
    Left(Box<Newcomer>),
    /// A roster was replaced, and waits in [`Ports::retired`].
    Retired,
    /// A configuration that was taken over: the guard frees no memory.
    Reconfigured(Box<Reconfiguration>),
    /// The guard's rung changed, or is told for the first time.
    Rung(Box<Standing>),
    /// Another cgroup is measured as that of all pods, or none any more.
    Pods(Option<String>),
    /// The guard has ended.
    Stopped,
}

/// Queue, bell and count of what found no room.
pub struct Port<T> {
    queue: ArrayQueue<T>,
    bell: Bell,
    lost: AtomicU64,
}

/// Every queue between the guard and the runtime.
pub struct Ports {
    /// To the guard.
    pub commands: Port<Command>,
    /// From the guard.
    pub reports: Port<Report>,
    /// From the guard to whoever watches evicted pods: their cgroups; none to end it.
    pub evicted: Port<Option<Arc<Group>>>,
    /// From the guard to whoever asks the container runtime to give back what it can; none to end it.
    pub reclaims: Port<Option<ReclaimAsked>>,
    /// Whether anybody takes these.
    pub reclaims_served: AtomicBool,
    /// Rosters that were replaced: the guard frees no memory.
    pub retired: ArrayQueue<Box<Roster>>,
    /// What is known of filesystems.
    pub disks: DiskBoard,
    /// Empty steps for the guard to fill.
    pub steps: ArrayQueue<Box<Step>>,
    /// Empty pages for the guard to fill.
    pub pages: ArrayQueue<Box<Page>>,
    /// Steps that could not be told for want of an empty one.
    pub steps_lost: AtomicU64,
    /// Pages likewise; the ledger still has them.
    pub pages_lost: AtomicU64,
    /// When the guard has asked last for what workloads use of disks to be measured anew, in nanoseconds; zero before the first time.
    round_asked: AtomicI64,
    /// When the guard began its latest housekeeping pass, in nanoseconds; zero before the first.
    passed: AtomicI64,
    /// Whether the guard has looked at the node, and acted on what it saw.
    has_looked: AtomicBool,
}

impl<T> Port<T> {
    /// An empty queue with room for `capacity`, and a silent bell.
    ///
    /// # Errors
    /// When the kernel has no event descriptor for us.
    pub fn new(capacity: usize) -> io::Result<Self> {
        Ok(Self {
            queue: ArrayQueue::new(capacity),
            bell: Bell::new()?,
            lost: AtomicU64::new(0),
        })
    }

    /// Puts one in and rings; gives it back when the queue is full, and counts it.
    ///
    /// # Errors
    /// The value itself.
    pub fn send(&self, value: T) -> Result<(), T> {
        let sent = self.queue.push(value);
        match sent {
            Ok(()) => self.ring(),
            Err(_) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
        }
        sent
    }

    /// Sends what ends a thread, and waits for room as long as that runs: one that has died takes nothing any more.
    pub fn send_last(&self, value: T, thread: Option<&JoinHandle<()>>) {
        let mut last = value;
        while let Err(refused) = self.send(last) {
            if thread.is_none_or(JoinHandle::is_finished) {
                return;
            }
            last = refused;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Rings without anything to take.
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Whether the next one would find no room.
    pub fn is_full(&self) -> bool {
        self.queue.is_full()
    }

    /// The next one, if there is one.
    pub fn take(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Silences the bell; to be called before the queue is emptied.
    pub fn hush(&self) {
        self.bell.hush();
    }

    /// What found no room so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl<T> AsFd for Port<T> {
    /// Readable while the bell rings.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Ports {
    /// Commands that may wait.
    const COMMANDS: usize = 64;
    /// Reports that may wait: two seconds of an open order at a millisecond each.
    const REPORTS: usize = 2048;
    /// Evicted pods that nobody has begun to watch yet.
    const EVICTED: usize = 64;
    /// Reclaims that may be asked for; the engine asks for one at a time.
    const RECLAIMS: usize = 4;
    /// Decisions that may be on their way.
    const PAGES: usize = 32;

    /// Queues with `steps` empty steps, each with room for `workloads`.
    ///
    /// # Errors
    /// When the kernel has no event descriptor for us.
    pub fn new(steps: usize, workloads: usize) -> io::Result<Self> {
        let ports = Self {
            commands: Port::new(Self::COMMANDS)?,
            reports: Port::new(Self::REPORTS)?,
            evicted: Port::new(Self::EVICTED)?,
            reclaims: Port::new(Self::RECLAIMS)?,
            reclaims_served: AtomicBool::new(false),
            retired: ArrayQueue::new(Self::COMMANDS),
            disks: DiskBoard::default(),
            steps: ArrayQueue::new(steps.max(4)),
            pages: ArrayQueue::new(Self::PAGES),
            steps_lost: AtomicU64::new(0),
            pages_lost: AtomicU64::new(0),
            round_asked: AtomicI64::new(0),
            passed: AtomicI64::new(0),
            has_looked: AtomicBool::new(false),
        };
        while ports
            .steps
            .push(Box::new(Step::with_room(workloads)))
            .is_ok()
        {}
        while ports.pages.push(Box::default()).is_ok() {}
        Ok(ports)
    }

    /// Puts a roster away that was replaced, and has it freed. There is room for as many as can be on their way to the guard at a time.
    pub fn retire(&self, old: Box<Roster>) {
        let _has_room = self.retired.push(old);
        let _told_or_counted = self.reports.send(Report::Retired);
    }

    /// Frees those: where they are told of, and before each that is sent to the guard, so that there is room for what it replaces.
    pub fn free_retired(&self) {
        while self.retired.pop().is_some() {}
    }

    /// Has the guard look at what is known of filesystems.
    pub fn ring_for_disks(&self) {
        self.disks.ring();
        self.commands.ring();
    }

    /// Asks for a round of measuring that begins no sooner than now.
    pub fn ask_for_round(&self, at: Moment) {
        self.round_asked.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// When that was asked for last; none before the first time.
    pub fn round_asked(&self) -> Option<Moment> {
        let nanos = self.round_asked.load(Ordering::Relaxed);
        (nanos > 0).then(|| Moment::from_nanos(nanos))
    }

    /// Tells that the guard begins a housekeeping pass.
    pub fn pass(&self, at: Moment) {
        self.passed.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// When it began the latest one; none before the first.
    pub fn passed(&self) -> Option<Moment> {
        let nanos = self.passed.load(Ordering::Relaxed);
        (nanos > 0).then(|| Moment::from_nanos(nanos))
    }

    /// Tells that the guard has looked at the node, and acted on what it saw.
    pub fn look(&self) {
        self.has_looked.store(true, Ordering::Release);
    }

    /// Waits until the guard has looked at the node for the first time: whatever else a start takes comes after that. A guard
    /// that takes too long is waited for no longer.
    pub fn wait_for_first_look(&self) {
        const AT_MOST: Duration = Duration::from_millis(500);
        const STEP: Duration = Duration::from_micros(500);
        let began = Instant::now();
        while !self.has_looked.load(Ordering::Acquire) && began.elapsed() < AT_MOST {
            std::thread::sleep(STEP);
        }
    }

    /// Gives a step back to be filled again.
    pub fn recycle_step(&self, step: Box<Step>) {
        let _one_too_many = self.steps.push(step);
    }

    /// Gives a page back to be filled again.
    pub fn recycle_page(&self, page: Box<Page>) {
        let _one_too_many = self.pages.push(page);
    }
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_counts_and_gives_back() {
        let port = Port::new(2).unwrap();
        assert!(port.send(1).is_ok() && port.send(2).is_ok());
        assert_eq!(port.send(3), Err(3));
        assert_eq!(port.lost(), 1);
        port.hush();
        assert_eq!(
            (port.take(), port.take(), port.take()),
            (Some(1), Some(2), None)
        );
    }

    #[test]
    fn nobody_waits_for_room_in_the_queue_of_a_thread_that_has_died() {
        let port = Port::new(1).unwrap();
        assert!(port.send(1).is_ok() && port.is_full());
        let died = std::thread::spawn(|| ());
        while !died.is_finished() {
            std::thread::yield_now();
        }
        port.send_last(2, Some(&died));
        port.send_last(2, None);
        assert_eq!((port.take(), port.take()), (Some(1), None));
        port.send_last(2, Some(&died));
        assert_eq!(port.take(), Some(2));
    }
}

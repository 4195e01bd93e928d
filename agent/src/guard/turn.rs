//! One turn of the guard: wait for a signal, a command or a deadline, then apply what came.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use brink_core::base::{Moment, Span};
use brink_core::node::input::{Control, Input, Recalled};
use brink_core::node::observe::Observations;
use brink_host::clock::thread_cpu;
use brink_host::probe::Growth;
use brink_host::realtime::{Scheduling, prefault_buffer, prefault_stack, raise_thread};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use super::disks::ReclaimAnswer;
use super::kernel::Kernel;
use super::ports::{Command, Legacy, Report};
use super::{Guard, Left, Realtime, now};

/// While somebody may have to go the node is looked at again at least this often, whatever was pushed.
const PRESSED: Span = Span::from_millis(10);
/// The same while a threshold is met that nobody goes for.
const TOLD: Span = Span::from_millis(100);
/// The same where the kernel's programs do not tell of everything that a threshold waits for.
const UNTOLD: Span = Span::from_secs(1);
/// The pace at which slots of a new roster are armed.
pub(super) const ARMING: Span = Span::from_millis(1);
/// Without a sampler the node is read at most this often, and at least that.
const FASTEST_POLL: Span = Span::from_millis(1);
const SLOWEST_POLL: Span = Span::from_millis(50);

/// When the guard woke last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awake {
    pub(super) at: Moment,
    /// What it had spent on a processor by then.
    cpu: Duration,
}

impl Awake {
    /// Now; asked by the guard's own thread.
    pub(super) fn now() -> Self {
        Self {
            at: now(),
            cpu: thread_cpu(),
        }
    }

    /// Of the time since then, what the guard did not run: `at` and `cpu` are as of one moment.
    pub(super) fn waited_ns(self, at: Moment, cpu: Duration) -> Option<u64> {
        let whole = u64::try_from(at.since(self.at).as_nanos()).ok()?;
        let spent = u64::try_from(cpu.checked_sub(self.cpu)?.as_nanos()).ok()?;
        Some(whole.saturating_sub(spent))
    }
}

/// When what is due next.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) housekeeping_every: Span,
    pub(super) housekeeping: Moment,
    /// The next look at a node that nobody pushes signals of.
    pub(super) poll: Option<Moment>,
    /// The next look at an open order.
    pub(super) follow: Option<Moment>,
    /// The next evaluation by time alone.
    pub(super) evaluate: Option<Moment>,
    /// The next refresh of what the sampler cannot read of the node's own cgroups.
    pub(super) terms: Option<Moment>,
    /// The next rehearsal of the decision.
    pub(super) rehearse: Option<Moment>,
    /// The next look at what is made in evicted pods.
    pub(super) again: Option<Moment>,
    /// When more slots of a new roster are armed.
    pub(super) arm: Option<Moment>,
    /// When a reclaim that was asked for is waited for no longer.
    pub(super) reclaim: Option<Moment>,
    /// When the count of threads is made good, between passes.
    pub(super) count: Option<Moment>,
    /// When the counts of processes are looked after, between passes.
    pub(super) recount: Option<Moment>,
}

impl Times {
    pub(super) fn new(housekeeping_every: Span) -> Self {
        Self {
            housekeeping_every,
            housekeeping: Moment::START,
            poll: None,
            follow: None,
            evaluate: None,
            terms: None,
            rehearse: None,
            again: None,
            arm: None,
            reclaim: None,
            count: None,
            recount: None,
        }
    }

    fn next(&self) -> Moment {
        let others = [
            self.count,
            self.recount,
            self.reclaim,
            self.arm,
            self.again,
            self.poll,
            self.follow,
            self.evaluate,
            self.terms,
            self.rehearse,
        ];
        others
            .into_iter()
            .flatten()
            .fold(self.housekeeping, Moment::min)
    }
}

/// The pace of a poll that leaves `slack` bytes to the nearest threshold: as many looks as the sampler's ticks have to fit in
/// before the fastest growth has used them up, unless that calls for more than one a millisecond.
pub(super) fn pace(slack: Option<i64>, growth: Growth) -> Span {
    let Some(slack) = slack else {
        return SLOWEST_POLL;
    };
    let left = u64::try_from(slack).unwrap_or(0);
    let nanos = left / growth.slack_per_ns();
    Span::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX)).clamp(FASTEST_POLL, SLOWEST_POLL)
}

/// A fork takes at least so long on a busy machine, in nanoseconds: 20,000 a second.
const FORK_NANOS: i64 = 50_000;

impl Guard {
    /// Runs until told to stop.
    pub(super) fn run(mut self, realtime: Realtime, left: Left) {
        self.awake = Awake::now();
        self.take_standing(realtime);
        prefault_stack::<262_144>();
        self.waiter = self.make_waiter().ok();
        if self.waiter.is_none() {
            // Without an event descriptor there is nothing to wait on; the runtime sees the end and says so.
            let _full = self.ports.reports.send(Report::Stopped);
            return;
        }
        let table = Arc::clone(&self.roster.table);
        self.feed(now(), &Input::Workloads(table));
        self.make_room();
        for input in &left.first {
            self.feed(now(), input);
        }
        self.recall_evicted(left.evicted);
        self.take_up(left.interrupted);
        self.adopt_slots();
        self.housekeep(now());
        // Once with everything a decision reads, so that no page of it is met for the first time then.
        self.look_closely(now());
        self.ports.look();
        loop {
            let due = self.times.next();
            self.wait();
            self.awake = Awake::now();
            self.note_lateness(due);
            self.hear(self.awake.at);
            if self.take_commands() {
                break;
            }
            self.keep_time(now());
        }
        let _full = self.ports.reports.send(Report::Stopped);
    }

    /// Room for the roster's workloads, all of it touched.
    pub(super) fn make_room(&mut self) {
        let workloads = self.roster.table.len();
        self.usage.clear();
        self.usage.reserve(workloads);
        prefault_buffer(&mut self.usage, &None);
        self.order.clear();
        self.order.reserve(workloads);
        prefault_buffer(&mut self.order, &0);
    }

    fn take_standing(&mut self, realtime: Realtime) {
        let Some(priority) = realtime.priority else {
            let nice = match rustix::process::setpriority_process(None, -20) {
                Ok(()) => "nice -20".to_owned(),
                Err(errno) => format!("nice 0 (nice -20 refused: {errno})"),
            };
            let why = "real time is switched off in the configuration".to_owned();
            self.scheduling = (nice, Some(why));
            return;
        };
        let standing = raise_thread(&self.root, &self.layout, priority, realtime.may_move);
        self.is_realtime = matches!(standing.scheduling, Scheduling::Fifo(_));
        let refused = standing.refused.filter(|_| !self.is_realtime);
        let mut words: Vec<String> = refused.iter().map(ToString::to_string).collect();
        words.extend(standing.troubles);
        let refused = (!words.is_empty()).then(|| words.join("; "));
        self.scheduling = (standing.scheduling.to_string(), refused);
    }

    fn make_waiter(&self) -> Result<OwnedFd, Errno> {
        let waiter = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let readable = epoll::EventFlags::IN;
        let data = epoll::EventData::new_u64;
        epoll::add(&waiter, self.ports.commands.as_fd(), data(0), readable)?;
        Ok(waiter)
    }

    /// Takes a sampler that has been loaded meanwhile, and stands on the top rung if it can be armed.
    fn take_kernel(&mut self, kernel: Kernel) {
        let Some(waiter) = &self.waiter else {
            return;
        };
        let (data, readable) = (epoll::EventData::new_u64(1), epoll::EventFlags::IN);
        if let Err(errno) = epoll::add(waiter, kernel.probe_ref().signal_fd(), data, readable) {
            self.without_kernel = vec![format!("its ring cannot be waited on: {errno}")];
            return;
        }
        self.without_kernel.clear();
        self.kernel = Some(kernel);
        self.heard_met = None;
        self.adopt_slots();
        self.housekeep(now());
        self.look_closely(now());
    }

    fn wait(&self) {
        let Some(waiter) = &self.waiter else {
            return;
        };
        let left = self.times.next().since(now()).as_nanos().max(0);
        let timeout = Timespec {
            tv_sec: left / 1_000_000_000,
            tv_nsec: left % 1_000_000_000,
        };
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 4];
        // An interrupted wait is an early one.
        let _interrupted = epoll::wait(waiter, &mut events[..], Some(&timeout));
    }

    /// Applies what the runtime asks; true to stop.
    fn take_commands(&mut self) -> bool {
        self.ports.commands.hush();
        let mut controlled = self.ports.disks.take_ring();
        while let Some(command) = self.ports.commands.take() {
            match command {
                Command::Roster(roster) => self.replace_roster(roster),
                Command::Control(control) => {
                    self.feed(now(), &Input::Control(control));
                    controlled = true;
                }
                Command::Request(control, ticket) => {
                    self.feed(now(), &Input::Control(control));
                    let _told_or_counted = self.ports.reports.send(Report::Heard(ticket));
                    controlled = true;
                }
                Command::Reconfigure(new) => self.reconfigure(new),
                Command::TakeOver(legacy) => {
                    self.take_over(*legacy);
                    controlled = true;
                }
                Command::Sampler(kernel) => self.take_kernel(*kernel),
                Command::NoSampler(why) => {
                    self.without_kernel = vec![why];
                    self.housekeep(now());
                }
                Command::Newcomer(newcomer) => self.take_newcomer(newcomer),
                Command::Exceeded {
                    generation,
                    workload,
                    limit,
                } => self.take_exceeded(generation, workload, limit),
                Command::Reclaimed(asked, answer) => {
                    controlled |= self.hear_of_reclaim(asked, answer, now());
                }
                Command::Inquire => self.look_closely(now()),
                Command::Stop => return true,
            }
        }
        if controlled {
            self.look(now());
        }
        false
    }

    /// Goes on where the enforcer before us stopped: its limits on kills are ours, and so is its open order.
    fn take_over(&mut self, legacy: Legacy) {
        self.ledger = Some(legacy.ledger);
        for recalled in std::iter::once(Recalled::LastOrder(legacy.last)).chain(legacy.kills) {
            self.feed(now(), &Input::Recall(recalled));
        }
        // Our own dry run ends now; the enforcer's order of the same number is the one that is remembered.
        let page = self
            .current
            .as_mut()
            .and_then(|current| current.page.take());
        if let Some(page) = page {
            self.ports.recycle_page(page);
        }
        // Only who enforces can have an order that is carried out.
        self.feed(now(), &Input::Control(Control::Standby(false)));
        self.recall_evicted(legacy.evicted);
        self.take_up(legacy.interrupted);
    }

    /// Does what is due by time alone.
    fn keep_time(&mut self, now: Moment) {
        let due = |at: Option<Moment>| at.is_some_and(|at| at <= now);
        if due(self.times.again) {
            self.look_at_newcomers(now);
        }
        if self.times.housekeeping <= now {
            self.housekeep(now);
            return;
        }
        if std::mem::take(&mut self.reclaim_asked) || due(self.times.reclaim) {
            self.end_reclaim(ReclaimAnswer::Ended, now);
        }
        if due(self.times.arm) {
            self.arm_more(now);
        }
        if due(self.times.count) {
            self.count_ends(now);
        }
        if due(self.times.recount) {
            self.recount(now);
        }
        if due(self.times.terms) {
            self.refresh_terms(now);
        }
        if due(self.times.follow) {
            self.follow(now);
        } else if due(self.times.poll) || due(self.times.evaluate) {
            self.look(now);
        } else if due(self.times.rehearse) {
            self.rehearse(now);
        }
    }

    /// Sets the next look after an evaluation: by what the engine waits for, by pressure, by what nobody tells of, by pace.
    pub(super) fn plan_next(&mut self, now: Moment, pressed: bool, slack: Option<i64>) {
        let again = if pressed { PRESSED } else { TOLD };
        // Of filesystems others tell.
        let is_seen_here = self.met_before.difference(self.disks_met());
        let pressed = (pressed || !is_seen_here.is_empty()).then(|| now + again);
        let kernel = self.kernel.as_ref();
        let policy = self.engine.policy();
        let is_told = kernel.is_none_or(|kernel| kernel.tells_of_all(now, policy));
        let untold = (!is_told).then(|| now + UNTOLD);
        let wishes = [self.engine.next_wake(now), pressed, untold];
        self.times.evaluate = wishes.into_iter().flatten().min();
        let has_pods = kernel.is_none_or(|kernel| kernel.tells_of_pods(policy));
        let is_pushed = self.sampler_serves() && has_pods;
        self.times.poll = (!is_pushed).then(|| now + pace(slack, self.growth));
    }

    /// Looks again soon while nobody has to go yet and the programs count more threads than their limit, or do not count them all: they
    /// tell of the limit once, early when some are reaped and not yet freed, and know nothing of those that will be reaped. They
    /// count one group, or the machine: where others have come to leave less since that was chosen, nobody tells of it either.
    pub(super) fn close_in_on_ids(&mut self, now: Moment, seen: &Observations) {
        let Some(left) = self.engine.ids_left(now, seen) else {
            return;
        };
        let kernel = self.kernel.as_ref();
        let is_told = kernel.is_some_and(|kernel| kernel.tells_of_ids(now));
        if self.is_over_threads || !is_told || self.files.ids().is_counted_elsewhere() {
            let soon = now + ids_pace(left);
            self.times.evaluate = Some(self.times.evaluate.map_or(soon, |at| at.min(soon)));
        }
    }
}

/// The pace of looks with so many process ids left to a threshold.
fn ids_pace(left: i64) -> Span {
    Span::from_nanos(left.max(0).saturating_mul(FORK_NANOS)).clamp(FASTEST_POLL, SLOWEST_POLL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewer_ids_are_left_the_sooner_the_next_look() {
        for (left, expected) in [
            (0, FASTEST_POLL),
            (-5, FASTEST_POLL),
            (100, Span::from_millis(5)),
            (i64::MAX, SLOWEST_POLL),
        ] {
            assert_eq!(ids_pace(left), expected, "{left}");
        }
    }

    #[test]
    fn what_is_not_spent_on_a_processor_was_waited() {
        let at = |millis| Moment::START + Span::from_millis(millis);
        let ms = Duration::from_millis;
        let awake = Awake {
            at: at(10),
            cpu: ms(3),
        };
        assert_eq!(awake.waited_ns(at(15), ms(4)), Some(4_000_000));
        // The clocks are read one after the other.
        assert_eq!(awake.waited_ns(at(15), ms(9)), Some(0));
        assert_eq!(awake.waited_ns(at(9), ms(4)), None);
        assert_eq!(awake.waited_ns(at(15), ms(2)), None);
    }
}

//! What the kernel's programs say: kept in order while the ring is emptied, then applied one by one.

use brink_core::base::Moment;
use brink_core::node::input::Input;
use brink_host::probe::Signal;
use brink_host::probe::abi::record::{CROSSING, HEARTBEAT, Head, UNKNOWN, VictimRecord};
use brink_host::probe::abi::sample::SampleRecord;

use super::Guard;
use super::ports::Report;
use crate::ledger::entry::Stages;

/// Signals taken from the ring in one turn.
pub(super) const BOUND: usize = 64;
/// Emptyings of the ring in one turn; commands wait meanwhile.
const BATCHES: u32 = 8;

/// A signal, without what the guard does not look at.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "kept in a buffer made once: boxing would allocate"
)]
pub(super) enum Item {
    Sample(SampleRecord),
    Victim(VictimRecord),
    Retry,
    /// A process of a watched cgroup ended, perhaps the last one, or the cgroup is empty.
    Ended {
        is_last: bool,
    },
    Threads {
        threads: i64,
        is_over: bool,
    },
}

impl Item {
    const fn of(signal: &Signal) -> Self {
        match signal {
            Signal::Crossing(record) | Signal::Band(record) | Signal::Heartbeat(record) => {
                Self::Sample(*record)
            }
            Signal::Victim(record) => Self::Victim(*record),
            Signal::Retry(_) => Self::Retry,
            Signal::Exit(record) => Self::Ended {
                is_last: matches!(record.left, 0 | UNKNOWN),
            },
            Signal::Empty(_) => Self::Ended { is_last: true },
            Signal::Threads(record) => Self::Threads {
                threads: record.threads,
                is_over: record.over != 0,
            },
        }
    }
}

impl Guard {
    /// Empties the ring and applies what was in it.
    pub(super) fn hear(&mut self, woke: Moment) {
        let mut heard = std::mem::take(&mut self.heard);
        let mut batches = 0;
        loop {
            heard.clear();
            let Some(kernel) = &mut self.kernel else {
                break;
            };
            // Never more than there is room for: the buffer was made for so many.
            let taken = kernel
                .probe()
                .drain_signals(BOUND, |signal| heard.push(Item::of(signal)));
            self.hear_of_breaks(&heard, woke);
            // What the kernel has killed already counts for a crossing that was told before it.
            for item in &heard {
                if let Item::Victim(record) = item {
                    self.kernel_killed(record, woke);
                }
            }
            for item in &heard {
                self.apply(item, woke);
            }
            // Whoever is not the last is seen at the next look: one at each end of thousands would list all the others each time.
            let is_over = |item: &Item| matches!(item, Item::Ended { is_last: true });
            if heard.iter().any(is_over) {
                self.follow(super::now());
            }
            batches += 1;
            if taken < BOUND || batches == BATCHES {
                break;
            }
        }
        self.heard = heard;
        if batches > 1 {
            // The ring may have been full: what found no room in it is seen by looking.
            self.look(super::now());
        }
    }

    fn apply(&mut self, item: &Item, woke: Moment) {
        match item {
            Item::Sample(record) => self.take_sample(record, woke),
            // The killer was faster, or reclaim gives up: whatever the last sample said, this is the moment to look.
            Item::Victim(_) | Item::Retry => self.look(super::now()),
            // Once for all of them: a service of thousands ends in as many signals.
            Item::Ended { .. } => {}
            Item::Threads { threads, is_over } => {
                self.threads = Some(*threads);
                self.is_over_threads = *is_over;
                self.arm_threads();
                self.look_because(
                    super::now(),
                    Stages {
                        woke: Some(woke),
                        ..Stages::default()
                    },
                );
            }
        }
    }

    fn take_sample(&mut self, record: &SampleRecord, woke: Moment) {
        if self.distrusted {
            return;
        }
        self.hurry_terms(record.sample.period_ns, woke);
        let mut stages = stages(&record.head, woke);
        if record.head.kind == CROSSING {
            stages.above = at(record.sample.before_ns);
        }
        if record.head.kind == HEARTBEAT {
            self.take_sign(&record.sample, stages);
        } else {
            self.assess_kernel(&record.sample, stages);
        }
    }

    /// The kernel's own killer was faster: what its victim holds is on its way back.
    fn kernel_killed(&mut self, record: &VictimRecord, woke: Moment) {
        let _told_or_counted = self.ports.reports.send(Report::OomKill(*record));
        // Older kernels tell who, and not how much.
        if record.cgroup == UNKNOWN || record.extended == 0 {
            return;
        }
        if let Some(workload) = self.roster.workload_of(record.cgroup) {
            let pages = record.anon_rss.saturating_add(record.shmem_rss);
            let charged = pages.saturating_mul(1024);
            self.expect_parked(woke);
            self.feed(woke, &Input::Dying { workload, charged });
        }
    }
}

fn at(nanos: u64) -> Option<Moment> {
    i64::try_from(nanos).ok().map(Moment::from_nanos)
}

fn stages(head: &Head, woke: Moment) -> Stages {
    Stages {
        sampled: at(head.at_ns),
        submitted: at(head.submit_ns),
        woke: Some(woke),
        ..Stages::default()
    }
}

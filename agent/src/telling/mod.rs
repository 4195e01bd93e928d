//! What the agent tells the event stream of itself: events from the guard's reports, the workloads and the losses.
//!
//! The clerk and the watcher call in here, each on its own thread; the guard never does. Nothing waits: the hub numbers an
//! event, keeps it in memory and lets those who listen fetch it.

mod changes;
mod evictions;
mod losses;
mod oom_scores;
mod orphans;
pub mod reclaim;
mod recording;
mod start;
#[cfg(test)]
mod tests;
mod ways;
mod workloads;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use brink_core::base::Moment;
use brink_host::clock::{ClockPair, monotonic_ns};
use brink_stream::hub::{Hub, LatePast};
use brink_stream::journal::JournalStatus;
use brink_stream::model::data::{AgentStarted, Configuration};
use brink_stream::model::event::{Draft, Subject, Time};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Incident;
use brink_stream::model::kind::Kind;
use brink_stream::outlet::OutletStatus;
use serde::Serialize;
use tracing::error;

pub use changes::Heard;
pub use losses::RingLosses;
pub use workloads::qos_word;

use crate::config::Events;
use crate::record::wire::wall_clock;
use crate::recorder::Recorder;
use evictions::OpenOrders;
use ways::{Opener, Ways};
use workloads::Known;

/// Where events are told. Cheap to clone; tells nobody anything where events are switched off.
#[derive(Clone, Default)]
pub struct Telling(Option<Arc<Inner>>);

/// What all clones share.
struct Inner {
    hub: Hub,
    /// First characters of every incident's id: those of the boot's.
    boot: String,
    /// What wall-clock time a monotonic one is, as of the start.
    clocks: ClockPair,
    orders: Mutex<OpenOrders>,
    workloads: Mutex<Known>,
    /// What was told last of it; none before the first.
    configuration: Mutex<Option<Configuration>>,
    ways: Arc<Ways>,
    /// Who records the minute before, or why nobody does; nothing before that is known.
    recorder: OnceLock<Result<Weak<Recorder>, Missing>>,
}

/// Characters of the boot id in an incident's.
const BOOT_DIGITS: usize = 8;

impl Telling {
    /// Tells nobody.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Tells a hub; `clocks` are a pair of this run's.
    pub fn new(hub: Hub, clocks: ClockPair) -> Self {
        let boot = hub.identity().boot_id.chars();
        Self(Some(Arc::new(Inner {
            boot: boot.take(BOOT_DIGITS).collect(),
            hub,
            clocks,
            orders: Mutex::default(),
            workloads: Mutex::default(),
            configuration: Mutex::default(),
            ways: Arc::default(),
            recorder: OnceLock::new(),
        })))
    }

    /// The hub, for whoever lets others listen; none where events are switched off.
    pub fn hub(&self) -> Option<&Hub> {
        self.0.as_ref().map(|inner| &inner.hub)
    }

    /// Lets events out by the ways that the configuration names, from the run's first event on. They are opened by another
    /// thread, once `ready` returns there.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn open_ways(
        &self,
        config: &Events,
        ready: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let Some(inner) = self.inner() else {
            return Ok(());
        };
        let opener = Opener {
            config: config.clone(),
            hub: inner.hub.clone(),
            clocks: inner.clocks,
            heir: self.clone(),
        };
        if config.journal.enabled {
            self.await_inheritance();
        }
        inner.ways.start(opener, ready)
    }

    /// Another agent has gone: tries at once to open a journal that was its own.
    pub fn hurry_journal(&self) {
        if let Some(inner) = self.inner() {
            inner.ways.hurry();
        }
    }

    /// Ends them, when what was told is written; blocks for seconds at most, also where a disk or pipe of theirs does not answer.
    pub fn end_ways(&self) {
        if let Some(inner) = self.inner() {
            // Whoever looks for them may hang on a disk.
            self.inherit(Vec::new());
            inner.hub.close();
            inner.ways.end();
        }
    }

    /// What is older than the hub's memory, as soon as it is open; none where no events are told.
    pub fn past(&self) -> Option<Arc<LatePast>> {
        Some(self.inner()?.ways.past())
    }

    /// How the journal stands; none where there is to be none.
    pub fn journal(&self) -> Option<JournalStatus> {
        self.inner()?.ways.journal()
    }

    /// How the other ways out stand, by their names.
    pub fn outlets(&self) -> Vec<(&'static str, OutletStatus)> {
        self.inner()
            .map_or_else(Vec::new, |inner| inner.ways.outlets())
    }

    /// Tells an event; its number, where somebody is told.
    pub fn tell(&self, draft: Draft) -> Option<u64> {
        self.inner().map(|inner| inner.hub.tell(draft))
    }

    /// The first event of a run. `after` is the highest number that the run before it may have given.
    pub fn started(&self, mode: &str, at: Moment, after: Option<u64>) {
        let data = AgentStarted {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            mode: mode.to_owned(),
            after,
        };
        self.say(Kind::AgentStarted, at, None, &data);
    }

    /// Tells an incident that opens, by the event that opens it: its id comes from that event's number. The incident with its
    /// id and the minute before it, where somebody was told.
    pub fn open(&self, of: Kind, incident: Incident) -> Option<Incident> {
        self.open_of_group(of, incident, None)
    }

    /// The same of one whose first victim was in the memory cgroup with that id, where it is known.
    pub fn open_of_group(
        &self,
        of: Kind,
        mut incident: Incident,
        group: Option<u64>,
    ) -> Option<Incident> {
        let inner = self.inner()?;
        if incident.is_final {
            self.record(&mut incident, group);
            inner.configure(&mut incident);
        }
        inner.hub.tell_with(|number| {
            incident.id = format!("{}-{number}", inner.boot);
            drafted(of, inner.time_of(of, &incident), &incident)
        })?;
        // These go out when it closes: they would make what opens large and late.
        self.record(&mut incident, group);
        inner.configure(&mut incident);
        Some(incident)
    }

    /// Tells an incident once more.
    pub fn close(&self, of: Kind, incident: &Incident) {
        if let Some(inner) = self.inner()
            && let Some(draft) = drafted(of, inner.time_of(of, incident), incident)
        {
            inner.hub.tell(draft);
        }
    }

    /// A moment on both clocks; on the monotonic one alone where events are switched off.
    pub fn time(&self, at: Moment) -> Time {
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(0);
        let wall = self
            .inner()
            .map(|inner| inner.clocks.current().realtime_of(nanos));
        Time {
            wall: wall.map_or_else(String::new, wall_clock),
            monotonic_ns: at.as_nanos(),
        }
    }

    fn inner(&self) -> Option<&Inner> {
        self.0.as_deref()
    }

    fn say(&self, of: Kind, at: Moment, subject: Option<Subject>, data: &impl Serialize) {
        if let Some(inner) = self.inner()
            && let Some(draft) = draft(of, self.time(at), subject, data)
        {
            inner.hub.tell(draft);
        }
    }
}

impl Inner {
    /// When an event about an incident happened: what opens it, as it began, and what closes it, now.
    fn time_of(&self, of: Kind, incident: &Incident) -> Time {
        if of.closes_incident() {
            time_now(self.clocks)
        } else {
            incident.at.clone()
        }
    }

    fn orders(&self) -> MutexGuard<'_, OpenOrders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn configuration(&self) -> MutexGuard<'_, Option<Configuration>> {
        self.configuration
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what is in force to an incident that has not got it yet.
    fn configure(&self, incident: &mut Incident) {
        if incident.configuration.value().is_none() {
            let told = self.configuration().clone();
            incident.configuration = Field::or(told, Missing::BeforeStart);
        }
    }

    fn workloads(&self) -> MutexGuard<'_, Known> {
        self.workloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// This moment.
pub fn time_now(clocks: ClockPair) -> Time {
    let now = monotonic_ns();
    let wall_us = clocks.current().realtime_of(now) / 1000;
    Time::new(wall_us, i64::try_from(now).unwrap_or(i64::MAX))
}

fn drafted(of: Kind, at: Time, incident: &Incident) -> Option<Draft> {
    let subject = evictions::subject(incident);
    draft(of, at, Some(subject), incident)
}

fn draft(of: Kind, at: Time, subject: Option<Subject>, data: &impl Serialize) -> Option<Draft> {
    Draft::new(of, at, subject, data)
        .inspect_err(|error| error!(kind = of.word(), %error, "an event cannot be written"))
        .ok()
}

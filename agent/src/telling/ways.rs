//! Where events go besides the sockets: the journal, from the run's first event on, and the other ways out.

use std::sync::Arc;

use brink_host::clock::{self, ClockPair};
use brink_stream::hub::{Hub, Past};
use brink_stream::journal::{Journal, JournalStatus, Recovery, Surroundings};
use brink_stream::model::data::Loss;
use brink_stream::model::event::{Draft, Time};
use brink_stream::model::kind::Kind;
use brink_stream::outlet::file::RotatedFile;
use brink_stream::outlet::journald::{Journald, SOCKET};
use brink_stream::outlet::stdout::Lines;
use brink_stream::outlet::{Lost, Outlet, OutletStatus, Running};
use tracing::{info, warn};

use crate::config::{EventJournal, Events, Outlets};

/// What runs besides the hub; dropped, it ends when everything told is written, or cannot be soon.
#[derive(Debug, Default)]
pub(super) struct Ways {
    journal: Option<Journal>,
    outlets: Vec<Running>,
}

impl Ways {
    /// Starts what the configuration names. What cannot be had is told in the log: no event is worth a guard that does not run.
    pub(super) fn start(config: &Events, hub: &Hub, clocks: ClockPair) -> Self {
        let journal = open_journal(&config.journal, hub, clocks);
        if let Some(journal) = &journal {
            hub.attach(journal.sink());
        }
        let mut ways = Self {
            journal,
            outlets: Vec::new(),
        };
        for (name, outlet) in outlets(&config.outlets, hub) {
            let started = outlet.and_then(|outlet| {
                let hub = hub.clone();
                let reader = hub.reader(None);
                let on_loss = Box::new(move |lost: Lost| tell_loss(&hub, clocks, lost));
                Running::start(outlet, reader, |_| true, on_loss)
            });
            match started {
                Ok(running) => ways.outlets.push(running),
                Err(error) => {
                    warn!(name, %error, "events do not go there (see events in the configuration)");
                }
            }
        }
        ways
    }

    /// What is older than the hub's memory.
    pub(super) fn past(&self) -> Option<Arc<dyn Past>> {
        let past: Arc<dyn Past> = self.journal.as_ref()?.past();
        Some(past)
    }

    /// How the journal stands; none where there is none.
    pub(super) fn journal(&self) -> Option<JournalStatus> {
        self.journal.as_ref().map(Journal::status)
    }

    /// How the other ways out stand, by their names.
    pub(super) fn outlets(&self) -> Vec<(&'static str, OutletStatus)> {
        let outlets = self.outlets.iter();
        outlets
            .map(|running| (running.name(), running.status()))
            .collect()
    }
}

fn open_journal(config: &EventJournal, hub: &Hub, clocks: ClockPair) -> Option<Journal> {
    if !config.enabled {
        return None;
    }
    let told = hub.clone();
    let around = Surroundings {
        boot_id: &hub.identity().boot_id,
        clock: wall_us,
        on_loss: Box::new(move |count, total| {
            let lost = Lost {
                place: "journal",
                count,
                total,
                numbers: None,
            };
            tell_loss(&told, clocks, lost);
        }),
    };
    match Journal::open(&config.path, config.limits, around) {
        Ok((journal, recovery)) => {
            report(&recovery);
            Some(journal)
        }
        Err(error) => {
            warn!(%error, "events are not kept over a restart (events.journal)");
            None
        }
    }
}

/// Says what was found, where it is not what a run leaves that ends in order.
fn report(recovery: &Recovery) {
    for (old, new) in &recovery.put_aside {
        warn!(
            old,
            new, "this is no part of the event journal, and has been put aside"
        );
    }
    if recovery.unreadable > 0 {
        let bytes = recovery.unreadable;
        warn!(
            bytes,
            "a part of the event journal cannot be read; the events around it can"
        );
    }
    if recovery.torn > 0 {
        let bytes = recovery.torn;
        info!(
            bytes,
            "the event journal ends within an event: a crash came before it was safe"
        );
    }
}

type Made = (&'static str, std::io::Result<Box<dyn Outlet>>);

fn outlets(config: &Outlets, hub: &Hub) -> Vec<Made> {
    let mut made: Vec<Made> = Vec::new();
    if let Some(file) = &config.file {
        let opened = RotatedFile::open(&file.path, file.rotation, file.format);
        made.push(("events.file", opened.map(|file| Box::new(file) as _)));
    }
    if let Some(format) = config.stdout {
        let lines = Lines::new(std::io::stdout(), format);
        made.push(("events.stdout", Ok(Box::new(lines))));
    }
    if config.journald {
        let journald = Journald::new(std::path::Path::new(SOCKET));
        made.push(("events.journald", journald.map(|to| Box::new(to) as _)));
    }
    made.extend(otlp(config, hub));
    made
}

#[cfg(feature = "otlp")]
fn otlp(config: &Outlets, hub: &Hub) -> Option<Made> {
    use brink_stream::outlet::otlp::{Endpoint, Otlp};
    // It was checked as it was read.
    let endpoint = Endpoint::parse(config.otlp.as_deref()?)?;
    let version = env!("CARGO_PKG_VERSION");
    let otlp = Otlp::new(endpoint, hub.identity().clone(), version);
    Some(("events.otlp", Ok(Box::new(otlp))))
}

#[cfg(not(feature = "otlp"))]
const fn otlp(_config: &Outlets, _hub: &Hub) -> Option<Made> {
    None
}

fn tell_loss(hub: &Hub, clocks: ClockPair, missed: Lost) {
    let now = clock::monotonic_ns();
    let at = Time::new(
        clocks.current().realtime_of(now) / 1000,
        i64::try_from(now).unwrap_or(i64::MAX),
    );
    let (first, until) = missed.numbers.unzip();
    let told = Loss {
        place: missed.place.to_owned(),
        count: missed.count,
        total: missed.total,
        uncounted: false,
        first,
        last: until,
    };
    match Draft::new(Kind::Loss, at, None, &told) {
        Ok(draft) => {
            hub.tell(draft);
        }
        Err(error) => warn!(%error, "a loss of events cannot be told"),
    }
}

fn wall_us() -> i64 {
    ClockPair::now().realtime_ns / 1000
}

//! Where events go besides the sockets: the journal, from the run's first event on, and the other ways out.
//!
//! They are opened by a thread of their own: a slow disk, or one that is full, must keep nobody from being protected. What is
//! told meanwhile stays in the hub's memory; what leaves that before the journal is open is counted as lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brink_host::clock::ClockPair;
use brink_stream::hub::{Hub, LatePast, Line, Past, Redacted};
use brink_stream::journal::past::warn_of_damage;
use brink_stream::journal::{
    Journal, JournalError, JournalState, JournalStatus, Recovery, Surroundings,
};
use brink_stream::model::data::Loss;
use brink_stream::model::event::{Draft, Event};
use brink_stream::model::kind::Kind;
use brink_stream::outlet::file::RotatedFile;
use brink_stream::outlet::journald::{Journald, SOCKET};
use brink_stream::outlet::stdout::Lines;
use brink_stream::outlet::{Lost, Outlet, OutletStatus, Running};
use tracing::{info, warn};

use super::{Telling, orphans, time_now};
use crate::config::{EventJournal, Events, Outlets};
use crate::story;
use crate::terminal::plain;

/// A journal that cannot be opened, or is another agent's, is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// Opening it may hang on a disk that does not answer: at the end it is waited for so long.
const LEAVE: Duration = Duration::from_secs(2);
/// The opener parses nothing large; the memory of a whole ordinary stack would be locked.
const STACK: usize = 256 << 10;

/// What runs besides the hub.
#[derive(Default)]
pub(super) struct Ways {
    open: Mutex<Open>,
    past: Arc<LatePast>,
    is_ending: AtomicBool,
}

/// What has been opened so far.
#[derive(Default)]
struct Open {
    /// Whether there is to be a journal.
    is_journalled: bool,
    journal: Option<Journal>,
    /// Why it is not open.
    why: String,
    outlets: Vec<Running>,
    /// Other ways out that do not run yet, and why.
    unopened: Vec<(&'static str, String)>,
    opener: Option<JoinHandle<()>>,
}

/// What the opener works with.
pub(super) struct Opener {
    pub(super) config: Events,
    pub(super) hub: Hub,
    pub(super) clocks: ClockPair,
    /// Whom the orders are for that earlier runs have left open.
    pub(super) heir: Telling,
}

impl Ways {
    /// Starts a thread that opens what the configuration names, once `ready` returns.
    pub(super) fn start(
        self: &Arc<Self>,
        opener: Opener,
        ready: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        let mut open = self.lock();
        open.is_journalled = opener.config.journal.enabled;
        "it is being opened".clone_into(&mut open.why);
        if !open.is_journalled {
            self.past.settle();
        }
        let ways = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("brink-ways".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                ready();
                ways.open(&opener);
            })?;
        open.opener = Some(thread);
        Ok(())
    }

    /// Tries until everything is open, or the agent ends: another agent may go, a full disk be emptied, a thread be had. What
    /// cannot be had is told in the log: no event is worth a guard that does not run.
    fn open(&self, opener: &Opener) {
        let mut said = None;
        loop {
            let has_outlets = self.open_outlets(opener);
            let is_ending = self.is_ending.load(Ordering::Acquire);
            if is_ending || (self.open_journal(opener, &mut said) && has_outlets) {
                return;
            }
            std::thread::park_timeout(AGAIN);
        }
    }

    /// Starts those that do not run yet; whether all do now.
    fn open_outlets(&self, opener: &Opener) -> bool {
        let mut unopened = Vec::new();
        for (name, outlet) in outlets(&opener.config.outlets, &opener.hub) {
            if self.lock().outlets.iter().any(|open| open.name() == name) {
                continue;
            }
            let (told, clocks) = (opener.hub.clone(), opener.clocks);
            let on_loss = Box::new(move |lost: Lost| tell_loss(&told, clocks, lost));
            // From the run's first event on.
            let reader = opener.hub.reader(Some(0));
            let started =
                outlet.and_then(|outlet| Running::start(outlet, reader, |_| true, on_loss));
            match started {
                Ok(running) => self.lock().outlets.push(running),
                Err(error) => unopened.push((name, error.to_string())),
            }
        }
        let is_done = unopened.is_empty();
        let before = std::mem::replace(&mut self.lock().unopened, unopened.clone());
        for (name, error) in unopened.iter().filter(|way| !before.contains(way)) {
            warn!(
                name,
                error,
                "events do not go there until this is over (see events in the configuration)"
            );
        }
        is_done
    }

    /// Opens the journal if that has not been done yet; whether nothing is left to do. `said` is why it could not be had before.
    fn open_journal(&self, opener: &Opener, said: &mut Option<String>) -> bool {
        if !opener.config.journal.enabled || self.lock().journal.is_some() {
            return true;
        }
        let error = match open_journal(&opener.config.journal, &opener.hub, opener.clocks) {
            Ok((journal, recovery)) => {
                report(&recovery);
                // Before anything is written: the journal forgets it then, and this has to be in it by that time.
                tell_unwritten(opener, recovery.unwritten);
                journal.attach(&opener.hub);
                let past = past_of(&journal, opener.config.command_lines);
                self.past.open(Arc::clone(&past));
                self.lock().journal = Some(journal);
                close_orphans(&*past, opener);
                if said.is_some() {
                    info!("the event journal is written from now on");
                }
                return true;
            }
            Err(error) => error.to_string(),
        };
        self.past.settle();
        opener.heir.inherit(Vec::new());
        if said.as_ref() != Some(&error) {
            warn!(
                error,
                "events are not kept over a restart until this is over (events.journal)"
            );
            self.lock().why.clone_from(&error);
            *said = Some(error);
        }
        false
    }

    /// Tries at once to open a journal that is not open.
    pub(super) fn hurry(&self) {
        let open = self.lock();
        let is_wanted = open.is_journalled && open.journal.is_none();
        let opener = open.opener.as_ref().filter(|opener| !opener.is_finished());
        if let Some(opener) = opener.filter(|_| is_wanted) {
            self.past.unsettle();
            opener.thread().unpark();
        }
    }

    /// Ends what runs when everything told is written, or cannot be soon.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        let opener = self.lock().opener.take();
        if let Some(opener) = opener {
            opener.thread().unpark();
            let until = Instant::now() + LEAVE;
            while !opener.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !opener.is_finished() {
                warn!("the event journal's disk does not answer; it is left as it is");
            }
        }
        let mut all = std::mem::take(&mut *self.lock());
        // First the ways out: what they tell as lost at their end is for the journal.
        all.outlets.clear();
        drop(all);
    }

    /// What is older than the hub's memory; it may be opened later.
    pub(super) fn past(&self) -> Arc<LatePast> {
        Arc::clone(&self.past)
    }

    /// How the journal stands; none where there is to be none.
    pub(super) fn journal(&self) -> Option<JournalStatus> {
        let open = self.lock();
        if !open.is_journalled {
            return None;
        }
        let unopened = || JournalStatus {
            state: JournalState::Unopened(open.why.clone()),
            ..JournalStatus::default()
        };
        Some(open.journal.as_ref().map_or_else(unopened, Journal::status))
    }

    /// How the other ways out stand, by their names.
    pub(super) fn outlets(&self) -> Vec<(&'static str, OutletStatus)> {
        let open = self.lock();
        let running = open.outlets.iter();
        let running = running.map(|running| (running.name(), running.status()));
        let unopened = open.unopened.iter().map(|(name, why)| {
            let status = OutletStatus {
                failed: Some(why.clone()),
                ..OutletStatus::default()
            };
            (*name, status)
        });
        running.chain(unopened).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_journal(
    config: &EventJournal,
    hub: &Hub,
    clocks: ClockPair,
) -> Result<(Journal, Recovery), JournalError> {
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
    Journal::open(&config.path, config.limits, around)
}

/// Tells of what an earlier run could not write. At least so many: it may have been killed before it counted the last of them.
fn tell_unwritten(opener: &Opener, count: u64) {
    if count > 0 {
        let loss = Loss {
            place: "journal".to_owned(),
            count,
            total: count,
            uncounted: true,
            first: None,
            last: None,
        };
        tell(&opener.hub, opener.clocks, &loss);
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
    for damage in &recovery.damaged {
        warn_of_damage(&damage.file, damage.bytes.unwrap_or(0));
    }
}

/// What journald shows of an event: its kind, and what `brink events` says.
fn message(line: &Line) -> String {
    let event: Result<Event, _> = serde_json::from_slice(&line.text);
    let said = event.map(|event| plain(&story::sentence_of_whom(&event)));
    said.map_or_else(
        |_| line.of.word().to_owned(),
        |said| format!("{}: {said}", line.of.word()),
    )
}

type Made = (&'static str, std::io::Result<Box<dyn Outlet>>);

fn outlets(config: &Outlets, hub: &Hub) -> Vec<Made> {
    let mut made: Vec<Made> = Vec::new();
    if let Some(file) = &config.file {
        let file = RotatedFile::new(&file.path, file.rotation, file.format);
        made.push(("file", Ok(Box::new(file))));
    }
    if let Some(format) = config.stdout {
        let lines = Lines::new(std::io::stdout(), format);
        made.push(("stdout", Ok(Box::new(lines))));
    }
    if config.journald {
        let journald = Journald::new(std::path::Path::new(SOCKET), message);
        made.push(("journald", journald.map(|to| Box::new(to) as _)));
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
    Some(("otlp", Ok(Box::new(otlp))))
}

#[cfg(not(feature = "otlp"))]
const fn otlp(_config: &Outlets, _hub: &Hub) -> Option<Made> {
    None
}

/// What is read of the journal by whoever asks. Where this run tells no arguments of processes, nobody is shown those that others have
/// told: they go with the files that have them.
fn past_of(journal: &Journal, tells_arguments: bool) -> Arc<dyn Past> {
    let past: Arc<dyn Past> = journal.past();
    if tells_arguments {
        past
    } else {
        Arc::new(Redacted::new(past))
    }
}

/// Closes incidents that a run before this one has left open, but for orders that go on.
fn close_orphans(past: &dyn Past, opener: &Opener) {
    let now = || time_now(opener.clocks);
    // Again, where the journal could not be opened at first: what ends meanwhile waits.
    opener.heir.await_inheritance();
    let goes_on = |order| opener.heir.goes_on(order);
    let closed = orphans::close(past, &opener.hub, now, goes_on);
    opener.heir.inherit(closed.unwrap_or_else(|error| {
        warn!(%error, "incidents that an earlier run left open stay so");
        Vec::new()
    }));
}

fn tell_loss(hub: &Hub, clocks: ClockPair, missed: Lost) {
    let (first, until) = missed.numbers.unzip();
    let told = Loss {
        place: missed.place.to_owned(),
        count: missed.count,
        total: missed.total,
        uncounted: false,
        first,
        last: until,
    };
    tell(hub, clocks, &told);
}

fn tell(hub: &Hub, clocks: ClockPair, told: &Loss) {
    match Draft::new(Kind::Loss, time_now(clocks), None, told) {
        Ok(draft) => {
            hub.tell(draft);
        }
        Err(error) => warn!(%error, "a loss of events cannot be told"),
    }
}

fn wall_us() -> i64 {
    ClockPair::now().realtime_ns / 1000
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use brink_stream::hub::{Identity, Limits, Look};
    use brink_stream::journal::past::JournalPast;
    use brink_stream::model::event::Event;
    use brink_stream::outlet::Failure;

    use super::*;

    fn hub_of(boot_id: &str) -> Hub {
        let identity = Identity {
            node: "node".to_owned(),
            boot_id: boot_id.to_owned(),
        };
        Hub::new(identity, 0, Limits::default())
    }

    fn journal_at(path: &Path) -> EventJournal {
        EventJournal {
            enabled: true,
            path: path.to_path_buf(),
            limits: brink_stream::journal::Limits::default(),
        }
    }

    /// The lines of a past, by both ways through it.
    fn shown(past: &dyn Past) -> Vec<String> {
        struct All(Vec<Arc<Line>>);
        impl Look for All {
            fn see(&mut self, line: &Arc<Line>) {
                self.0.push(Arc::clone(line));
            }

            fn goes_on(&mut self) -> bool {
                true
            }
        }
        let mut all = All(past.after(None, 100).unwrap().lines);
        past.back(&mut all).unwrap();
        let texts = all.0.iter().map(|line| line.text.to_vec());
        texts.map(|text| String::from_utf8(text).unwrap()).collect()
    }

    /// What is in the arguments of the committed sample, and nowhere else.
    const ARGUMENT: &str = "shop.jar";

    #[test]
    fn arguments_that_an_earlier_run_told_are_shown_to_nobody_where_this_one_tells_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let clocks = ClockPair::now();
        let sample = include_str!("../../../tests/events/v1alpha1/oom-kill.json");
        let event: Event = serde_json::from_str(sample).unwrap();
        {
            let hub = hub_of("3f2a9d0c-5b1e-4c7a-9d55-0a1b2c3d4e5f");
            let (journal, _) = open_journal(&journal_at(&path), &hub, clocks).unwrap();
            journal.attach(&hub);
            hub.tell(Draft::new(event.of, event.at, event.subject, &event.data).unwrap());
        }
        for (boot, tells_arguments) in [("b007", true), ("b008", false)] {
            let opener = Opener {
                config: Events {
                    enabled: true,
                    socket: folder.path().join("events.sock"),
                    listen: None,
                    page: false,
                    command_lines: tells_arguments,
                    journal: journal_at(&path),
                    outlets: Outlets {
                        file: None,
                        stdout: None,
                        journald: false,
                        otlp: None,
                    },
                },
                hub: hub_of(boot),
                clocks,
                heir: Telling::off(),
            };
            let ways = Ways::default();
            assert!(ways.open_journal(&opener, &mut None));
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            let past = runtime.block_on(ways.past.get(Duration::ZERO)).unwrap();
            let lines = shown(&*past);
            let mut told = lines.iter().filter(|line| line.contains("\"oom-kill\""));
            assert_eq!(told.clone().count(), 2, "once by each way: {lines:?}");
            assert!(told.all(|line| line.contains(ARGUMENT) == tells_arguments));
            let is_shown = lines.iter().any(|line| line.contains(ARGUMENT));
            assert_eq!(is_shown, tells_arguments, "{lines:?}");
            ways.end();
            // Whoever may read the files finds it there.
            let alone = JournalPast::open(&path).unwrap();
            assert!(shown(&alone).iter().any(|line| line.contains(ARGUMENT)));
        }
    }

    /// Hands out nothing, and loses all of it.
    struct Refusing;

    impl Outlet for Refusing {
        fn name(&self) -> &'static str {
            "otlp"
        }

        fn put(&mut self, lines: &[Arc<Line>]) -> Result<(), Failure> {
            Err(Failure {
                done: lines.len(),
                lost: lines.len() as u64,
                why: "refused".to_owned(),
                again: Duration::ZERO,
            })
        }
    }

    #[test]
    fn what_a_way_out_tells_as_lost_at_its_end_is_in_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let clocks = ClockPair::now();
        let hub = hub_of("3f2a9d0c-5b1e-4c7a-9d55-0a1b2c3d4e5f");
        let (journal, _) = open_journal(&journal_at(&path), &hub, clocks).unwrap();
        journal.attach(&hub);
        let telling = hub.clone();
        let on_loss = Box::new(move |lost: Lost| tell_loss(&telling, clocks, lost));
        let running =
            Running::start(Box::new(Refusing), hub.reader(None), |_| true, on_loss).unwrap();
        // The first loss is told at once and refused as well; the next one waits to be told.
        for lost in [2, 3] {
            let data = serde_json::json!({});
            hub.tell(Draft::new(Kind::ThresholdCrossed, time_now(clocks), None, &data).unwrap());
            while running.status().lost < lost {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let ways = Ways::default();
        {
            let mut open = ways.lock();
            (open.journal, open.outlets) = (Some(journal), vec![running]);
        }
        hub.close();
        ways.end();
        let page = JournalPast::open(&path).unwrap().after(None, 100).unwrap();
        let losses = page.lines.iter().filter(|line| line.of == Kind::Loss);
        let losses = losses.map(|line| serde_json::from_slice::<Event>(&line.text).unwrap());
        let totals = losses.map(|event| {
            let loss: Loss = serde_json::from_str(event.data.get()).unwrap();
            loss.total
        });
        assert_eq!(totals.collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn journald_is_told_what_people_are_told() {
        let check = |sample: &str, expected: &str| {
            let line = Line::parse(sample.as_bytes()).unwrap();
            assert_eq!(message(&line), expected);
        };
        let killed = include_str!("../../../tests/events/v1alpha1/kill-observed.json");
        check(
            killed,
            "kill-observed: kubelet (pid 990) killed shop/web-5d9c7, container app (java, pid 4711) with SIGKILL",
        );
        check(
            &killed.replace("kubelet", "\\u001b[2J\\nkubelet"),
            "kill-observed: \\u{1b}[2J kubelet (pid 990) killed shop/web-5d9c7, container app (java, pid 4711) with SIGKILL",
        );
    }
}

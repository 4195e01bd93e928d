//! The recorder's rounds: which files are read when, and what becomes of the readings.
//!
//! A beat comes every 100 ms. In each, the cgroups near their limit are read, and a tenth of the others, so that every one
//! is read once a second. Every tenth beat it is chosen anew who is near. Only where a second's work takes so much of a
//! processor that others would miss it, beats come more seldom; the book says how seldom, and so does whoever asks the agent.

use std::collections::HashSet;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brink_host::HotError;
use brink_host::cgroup::Hierarchy;
use brink_host::cgroup::walk::groups_below;
use brink_host::clock;
use brink_host::probe::survey::{Places, Survey};
use brink_host::probe::{Meters, Row};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::Source;
use super::approach::{Approach, Forecast};
use super::book::{Book, GROUPS, Into, Periods};
use super::choose::{Candidate, choose, nearness};
use super::group::{GroupReader, Pulse};
use super::node::NodeSource;
use super::point::{Counts, Reading, Stamp};
use super::turns::{BEATS, Turns};

/// From one beat to the next when nothing is too dear, in milliseconds.
pub const BEAT_MS: u32 = 100;
/// The most that beats may be stretched.
const LONGEST_STRETCH: u32 = 10;
/// What beats may cost of a processor before they are stretched, in parts of a hundred thousand; and what they would have to cost at
/// the next shorter stretch to come back to that. Where nothing happens the whole agent is to stay below 200, which is measured, and
/// is no reason to record less when something does: this is for machines on which a look at a file takes many times as long.
const DEAR: u64 = 1_000;
const CHEAP: u64 = 750;
/// The tree is looked through so often at least, in beats: where the kernel's programs tell of every cgroup that comes or goes, and
/// where they do not.
const SEARCH_TOLD: u64 = 600;
const SEARCH: u64 = 100;
/// All limits are read so often, in beats.
const LIMITS: u64 = 100;
/// A search may take one part of so many of a processor.
const SEARCH_SHARE: u64 = 200;
/// Groups that are looked through; what lies beyond is not recorded.
const MOST_LISTED: usize = 1 << 14;
/// A cgroup that is gone is remembered for so long, in milliseconds.
const KEPT_MS: u32 = 60_000;

/// A limit that will soon be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The cgroup whose limit it is.
    pub cgroup: Arc<str>,
    /// What it uses, in bytes.
    pub usage: u64,
    /// Its limit, in bytes.
    pub limit: u64,
    /// When it is reached.
    pub forecast: Forecast,
}

/// What the thread has in hand.
pub struct Watch {
    hierarchy: Hierarchy,
    /// The group below which all are recorded.
    scope: String,
    node: NodeSource,
    /// What tells the usage of many at once; the place of a cgroup there is that of its group here.
    survey: Option<Survey>,
    groups: Box<[Option<Group>]>,
    turns: Turns,
    fresh: Vec<(usize, Reading, Into)>,
    candidates: Vec<Candidate>,
    beat: u64,
    stretch: u32,
    spent_ns: u64,
    /// What searches took of that: they have a share of their own.
    searched_ns: u64,
    /// The pulse of the beat before.
    pulse: Option<u64>,
    /// Whether the kernel's sampler recorded the node when that was asked last.
    is_recorded: bool,
    /// When the tree is looked through next, in beats, and when limits are read.
    search_at: u64,
    limits_at: u64,
    changes: Option<u64>,
    /// Whether the kernel's programs tell of every cgroup that comes or goes.
    is_told: bool,
    /// A cgroup could not be opened in the last search.
    reopens: bool,
}

struct Group {
    path: Arc<str>,
    /// Its files; none once it is gone: held open, they would keep what the kernel has of it.
    reader: Option<GroupReader>,
    limit: Option<u64>,
    approach: Approach,
    latest: Reading,
    lane: Option<usize>,
    gone: Option<Stamp>,
    /// Its usage came from the kernel's program the last time.
    is_surveyed: bool,
}

impl Watch {
    /// Nothing found yet.
    pub fn new(hierarchy: Hierarchy, scope: String, node: NodeSource) -> Self {
        let mut groups = Vec::new();
        groups.resize_with(GROUPS, || None);
        Self {
            hierarchy,
            scope,
            node,
            survey: None,
            groups: groups.into(),
            turns: Turns::default(),
            fresh: Vec::with_capacity(GROUPS),
            candidates: Vec::with_capacity(GROUPS),
            beat: 0,
            stretch: 1,
            spent_ns: 0,
            searched_ns: 0,
            pulse: None,
            is_recorded: false,
            search_at: 0,
            limits_at: 0,
            changes: None,
            is_told: false,
            reopens: false,
        }
    }

    /// Until the next beat, in milliseconds.
    pub const fn rest_ms(&self) -> u32 {
        BEAT_MS * self.stretch
    }

    /// Whether the next beat begins a round, which looks at what the one before it took.
    pub const fn begins_round(&self) -> bool {
        self.beat.is_multiple_of(BEATS as u64)
    }

    /// What beats took of a processor, in nanoseconds.
    pub const fn spent(&mut self, nanos: u64) {
        self.spent_ns = self.spent_ns.saturating_add(nanos);
    }

    /// One beat; `now_ns` is `CLOCK_MONOTONIC`.
    pub fn beat(&mut self, now_ns: u64, source: &Source, mut warn: impl FnMut(Warning)) {
        let at = Stamp::of(now_ns);
        let meters = source.meters();
        if self.begins_round() {
            let spent = std::mem::take(&mut self.spent_ns);
            let beats = spent.saturating_sub(std::mem::take(&mut self.searched_ns));
            self.stretch = stretched(self.stretch, beats);
        }
        if self.beat >= self.search_at || self.has_changed(meters.as_deref()) {
            self.search(at, now_ns, &source.book);
        }
        if self.beat >= self.limits_at {
            self.limits_at = self.beat + LIMITS;
            self.read_limits(&source.book);
        }
        if self.begins_round() {
            self.settle(at, &source.book);
            self.turns.are_stale = true;
            self.is_recorded = source.is_kernel_recording(now_ns);
            self.is_told = source.tells_cgroups();
            if let Some(survey) = source.survey().take() {
                self.take_over(survey);
            }
        }
        self.read(at, meters.as_deref(), &mut warn);
        let mut book = lock(&source.book);
        self.node.read(at, self.is_recorded, &mut book);
        for (slot, reading, into) in self.fresh.drain(..) {
            book.note(slot, at, &reading, into);
        }
        drop(book);
        self.beat += 1;
    }

    /// Reads whoever's turn it is.
    fn read(&mut self, at: Stamp, meters: Option<&Meters>, warn: &mut impl FnMut(Warning)) {
        let turn = usize::try_from(self.beat % BEATS as u64).unwrap_or(0);
        let pulse = self.feel(meters);
        if self.turns.are_stale {
            self.give_turns();
        }
        let surveyed = self.look(turn);
        for &(slot, into) in self.turns.of(turn) {
            let Some(Some(group)) = self.groups.get_mut(slot) else {
                continue;
            };
            // Closed once it is gone.
            let Some(reader) = &mut group.reader else {
                continue;
            };
            let survey = self.survey.as_ref();
            let usage = survey.and_then(|survey| survey.usage(surveyed?, slot));
            group.is_surveyed = usage.is_some();
            let is_calm = is_calm(group.latest.usage, group.limit);
            match reader.read(at, (usage, is_calm), pulse, |id| counts(meters?, id)) {
                Ok(reading) => {
                    group.latest = reading;
                    self.fresh.push((slot, reading, into));
                    if let Some(warning) = group.look_ahead(at) {
                        warn(warning);
                    }
                }
                Err(HotError::Io(Errno::NODEV | Errno::NOENT)) => {
                    group.leave(at);
                    unseat(&mut self.survey, slot);
                    // Another may have taken its name.
                    self.search_at = self.search_at.min(self.beat + BEATS as u64);
                }
                // Once more in the next round: what is missing is missing from the recording.
                Err(_) => {}
            }
        }
    }

    /// Gives everybody who is there his turns.
    fn give_turns(&mut self) {
        let groups = self.groups.iter().enumerate();
        let here = groups.filter_map(|(slot, group)| {
            let group = group.as_ref().filter(|group| group.gone.is_none())?;
            Some((slot, group.lane.is_some()))
        });
        self.turns.give(here);
    }

    /// Whose turn it is, by what the kernel's program found of them now; none where it does not run.
    fn look(&mut self, turn: usize) -> Option<Places> {
        let survey = self.survey.as_mut()?;
        let mut wanted = Places::default();
        for (slot, _) in self.turns.of(turn) {
            wanted.add(*slot);
        }
        match survey.look(wanted) {
            Ok(()) => Some(wanted),
            Err(error) => {
                warn!(%error, "what cgroups use is read from their files from now on");
                self.survey = None;
                None
            }
        }
    }

    /// Cgroups whose usage the kernel's program tells, as of their last turn.
    fn surveyed(&self) -> usize {
        let groups = self.groups.iter().flatten();
        groups.filter(|group| group.is_surveyed).count()
    }

    /// Whoever is recorded gets his place in the survey.
    fn take_over(&mut self, survey: Survey) {
        self.survey = Some(survey);
        for (slot, group) in self.groups.iter().enumerate() {
            if let Some(reader) = group.as_ref().and_then(|group| group.reader.as_ref()) {
                seat(&mut self.survey, slot, reader);
            }
        }
    }

    /// Whether the kernel's programs have counted anything since the beat before.
    fn feel(&mut self, meters: Option<&Meters>) -> Option<Pulse> {
        let now = meters.and_then(|meters| meters.pulse().ok());
        let before = std::mem::replace(&mut self.pulse, now);
        now.zip(before).map(|(now, before)| Pulse { now, before })
    }

    /// Tells the periods, chooses who is near, and forgets who is long gone.
    fn settle(&mut self, at: Stamp, book: &Mutex<Book>) {
        let surveyed = self.surveyed();
        let mut book = lock(book);
        book.surveyed = surveyed;
        book.periods = Periods {
            node_ms: self.rest_ms(),
            near_ms: self.rest_ms(),
            others_ms: self.rest_ms() * u32::try_from(BEATS).unwrap_or(1),
        };
        self.forget(at, &mut book);
        self.candidates.clear();
        for (slot, group) in self.groups.iter().enumerate() {
            let Some(group) = group else { continue };
            let nearness = nearness(group.latest.held, group.approach.growth(), group.limit);
            if let Some(entry) = book.entry_mut(slot) {
                entry.nearness = nearness;
            }
            // Who is gone keeps his lane while nobody nearer wants it.
            self.candidates.push(Candidate {
                slot,
                nearness: if group.gone.is_some() { 0 } else { nearness },
                lane: group.lane,
            });
        }
        choose(&mut self.candidates);
        for Candidate { slot, lane, .. } in self.candidates.iter().rev().copied() {
            book.move_near(slot, lane);
            if let Some(Some(group)) = self.groups.get_mut(slot) {
                group.lane = lane;
                if let Some(reader) = &mut group.reader {
                    reader.tell_pressure(lane.is_some());
                }
            }
        }
    }

    fn forget(&mut self, at: Stamp, book: &mut Book) {
        for (slot, place) in self.groups.iter_mut().enumerate() {
            let gone = place.as_ref().and_then(|group| group.gone);
            if gone.is_some_and(|gone| gone.before(at).is_none_or(|age| age > KEPT_MS)) {
                *place = None;
                book.forget(slot);
            } else if let (Some(gone), Some(entry)) = (gone, book.entry_mut(slot)) {
                entry.gone = Some(gone);
            }
        }
    }

    /// Whether a cgroup was made or removed since the last look, as far as the kernel's programs tell. Asked once a second.
    fn has_changed(&mut self, meters: Option<&Meters>) -> bool {
        if !self.begins_round() {
            return false;
        }
        let seen = meters.and_then(|meters| meters.loss(Row::CgroupEvidence).ok());
        let Some(seen) = seen.map(|loss| loss.seen) else {
            return false;
        };
        self.changes.replace(seen) != Some(seen)
    }

    /// Looks through the tree for cgroups that are new or gone.
    fn search(&mut self, at: Stamp, now_ns: u64, book: &Mutex<Book>) {
        let began = clock::thread_cpu();
        let paths = groups_below(&self.hierarchy, &self.scope, MOST_LISTED).unwrap_or_default();
        if !paths.is_empty() {
            let listed: HashSet<&str> = paths.iter().map(String::as_str).collect();
            for (slot, group) in self.groups.iter_mut().enumerate() {
                if let Some(group) = group
                    && group.gone.is_none()
                    && !listed.contains(&*group.path)
                {
                    group.leave(at);
                    self.turns.are_stale = true;
                    unseat(&mut self.survey, slot);
                }
            }
        }
        // The first is the node itself.
        for path in paths.iter().skip(1) {
            let mut known = self.groups.iter().flatten();
            if !known.any(|group| group.gone.is_none() && &*group.path == path.as_str()) {
                self.admit(at, path, book);
            }
        }
        let spent = clock::thread_cpu().saturating_sub(began);
        self.searched_ns += u64::try_from(spent.as_nanos()).unwrap_or(0);
        let took = clock::monotonic_ns().saturating_sub(now_ns);
        let penance = took * SEARCH_SHARE / (u64::from(BEAT_MS) * 1_000_000);
        let least = if self.is_told { SEARCH_TOLD } else { SEARCH };
        self.search_at = self.beat + least.max(penance);
    }

    /// Reads every limit again.
    fn read_limits(&mut self, book: &Mutex<Book>) {
        let survey = self.survey.as_mut();
        // Where the kernel's are not found, each has its file.
        let known = survey.and_then(|survey| survey.limits().ok());
        for (slot, group) in self.groups.iter_mut().enumerate() {
            if let Some(group) = group
                && let Some(reader) = &group.reader
            {
                let told = known.as_ref().and_then(|limits| limits.of(slot));
                group.limit = told.unwrap_or_else(|| reader.limit());
            }
        }
        let mut book = lock(book);
        for (slot, group) in self.groups.iter().enumerate() {
            if let (Some(group), Some(entry)) = (group, book.entry_mut(slot)) {
                entry.limit = group.limit;
            }
        }
    }

    /// Opens a cgroup and gives it a slot: a free one, or that of one that is gone. Without either it is not recorded.
    fn admit(&mut self, at: Stamp, path: &str, book: &Mutex<Book>) {
        let free = self.groups.iter().position(Option::is_none);
        let Some(slot) = free.or_else(|| self.longest_gone(at)) else {
            return;
        };
        // One that cannot be opened has gone again, or has no memory controller.
        let Ok(reader) = GroupReader::open(&self.hierarchy, path) else {
            // Which it may be given later, and nobody tells of that.
            self.reopens = true;
            return;
        };
        let path: Arc<str> = path.into();
        let limit = reader.limit();
        seat(&mut self.survey, slot, &reader);
        self.turns.are_stale = true;
        lock(book).admit(slot, Arc::clone(&path), limit);
        if let Some(place) = self.groups.get_mut(slot) {
            *place = Some(Group {
                path,
                reader: Some(reader),
                limit,
                approach: Approach::default(),
                latest: Reading::default(),
                lane: None,
                gone: None,
                is_surveyed: false,
            });
        }
    }

    fn longest_gone(&self, at: Stamp) -> Option<usize> {
        let groups = self.groups.iter().enumerate();
        let gone =
            groups.filter_map(|(slot, group)| Some((group.as_ref()?.gone?.before(at)?, slot)));
        gone.max().map(|(_, slot)| slot)
    }
}

/// Whether so much of a limit is no cause to look closely: less than three quarters.
fn is_calm(usage: u64, limit: Option<u64>) -> bool {
    limit.is_none_or(|limit| usage < limit - limit / 4)
}

/// Gives a cgroup its place in the survey. Where it gets none, its file tells, and whether it is gone.
fn seat(survey: &mut Option<Survey>, slot: usize, reader: &GroupReader) {
    if let Some(survey) = survey
        && let Err(error) = survey.seat(slot, reader.dir().as_fd())
    {
        debug!(%error, group = reader.dir().group(), "its usage is read from its file");
    }
}

/// Gives the place of one that is gone back. One that stays there is not looked at.
fn unseat(survey: &mut Option<Survey>, slot: usize) {
    if let Some(survey) = survey {
        let _is_not_looked_at = survey.leave(slot);
    }
}

impl Group {
    /// It is gone: what is known of it stays for a while, and its files are closed.
    fn leave(&mut self, at: Stamp) {
        self.gone = Some(at);
        self.reader = None;
        self.is_surveyed = false;
    }

    /// A warning, if the limit is near. The limit is read again first: it may just have been raised.
    fn look_ahead(&mut self, at: Stamp) -> Option<Warning> {
        let forecast = self.approach.note(at, self.latest.held, self.limit)?;
        let limit = self.reader.as_ref()?.limit()?;
        if self.limit.replace(limit) != Some(limit) {
            self.approach = Approach::default();
            return None;
        }
        Some(Warning {
            cgroup: Arc::clone(&self.path),
            usage: self.latest.usage,
            limit,
            forecast,
        })
    }
}

/// The stretch of the next round, from that of the last one and what its beats took of a processor, in nanoseconds.
fn stretched(stretch: u32, spent_ns: u64) -> u32 {
    let round_ns = |stretch: u32| u64::from(BEAT_MS * stretch) * BEATS as u64 * 1_000_000;
    let parts = |stretch| spent_ns.saturating_mul(100_000) / round_ns(stretch);
    let shorter = (stretch - 1).max(1);
    if parts(stretch) >= DEAR {
        (stretch * 2).min(LONGEST_STRETCH)
    } else if parts(shorter) < CHEAP {
        shorter
    } else {
        stretch
    }
}

fn counts(meters: &Meters, id: u64) -> Option<Counts> {
    let meter = meters.cgroup(id).ok()?.unwrap_or_default();
    Some(Counts {
        reclaims: meter.direct.saturating_add(meter.memcg),
        forks: meter.forks,
    })
}

/// The book, for a moment. Whoever died with it locked left points behind that mean what they say.
pub fn lock(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;

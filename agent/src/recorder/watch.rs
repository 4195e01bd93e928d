//! The recorder's rounds: which files are read when, and what becomes of the readings.
//!
//! A round comes once a second, and in it every cgroup is read; those near their limit are recorded every 100 ms. Where the kernel
//! follows them, a beat between two rounds comes only when one of them has moved, and what the others used is taken from the kernel's
//! traces afterwards; where it does not, a beat comes every 100 ms. Only where a second's work takes so much of a processor that
//! others would miss it, both come more seldom; the book says how seldom, and so does whoever asks the agent.

mod search;

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brink_host::HotError;
use brink_host::cgroup::Hierarchy;
use brink_host::probe::survey::{Places, Survey};
use brink_host::probe::{ProbeError, Row};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::Source;
use super::book::{Book, GROUPS, Into, NEAR, Periods, lock};
use super::choose::{Candidate, choose, nearness};
use super::follow::Following;
use super::group::{GroupReader, Pulse};
use super::kernel::Counters;
use super::node::NodeSource;
use super::pace::{BEAT_MS, BEATS, stretched};
use super::point::Stamp;
use super::tracked::{Group, Warning, is_calm};

/// All limits are read so often, in rounds.
const LIMITS: u64 = 10;
/// A cgroup that is gone is remembered for so long, in milliseconds.
const KEPT_MS: u32 = 60_000;

/// What the thread has in hand.
pub struct Watch {
    hierarchy: Hierarchy,
    /// The group below which all are recorded.
    scope: String,
    node: NodeSource,
    /// What tells the usage of many at once; the place of a cgroup there is that of its group here.
    survey: Option<Survey>,
    /// Those near their limit, where the survey follows them by itself.
    following: Option<Following>,
    groups: Box<[Option<Group>]>,
    /// The slots of those near their limit.
    near: Vec<usize>,
    candidates: Vec<Candidate>,
    /// Rounds that have begun.
    round: u64,
    /// When the next one is due (`CLOCK_MONOTONIC`), and how many times as long as it should be one is.
    round_at_ns: u64,
    stretch: u32,
    spent_ns: u64,
    /// What searches took of that: they have a share of their own.
    searched_ns: u64,
    /// The pulse of the beat before.
    pulse: Option<u64>,
    state: State,
    /// When the tree is looked through next, in rounds, and when limits are read.
    search_at: u64,
    limits_at: u64,
    changes: Option<u64>,
    /// In the last search a cgroup could not be opened, or one without a slot was seen for the first time and had no limit.
    reopens: bool,
    /// When the limits of cgroups without a slot were read, in rounds, by the hashes of their paths.
    looked: HashMap<u64, u64>,
    /// What kept cgroups from being listed in the last search.
    trouble: Option<String>,
}

/// How it stood when that was asked last.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The kernel's sampler records the node.
    is_recorded: bool,
    /// The kernel's programs tell of every cgroup that comes or goes.
    is_told: bool,
    /// Tasks of the node waited for memory.
    is_stalled: bool,
}

/// One beat's look at whoever is due.
struct Look<'a> {
    at: Stamp,
    is_round: bool,
    pulse: Option<Pulse>,
    counters: Option<&'a Counters>,
    book: &'a Mutex<Book>,
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
            following: None,
            groups: groups.into(),
            near: Vec::with_capacity(NEAR),
            candidates: Vec::with_capacity(GROUPS),
            round: 0,
            round_at_ns: 0,
            stretch: 1,
            spent_ns: 0,
            searched_ns: 0,
            pulse: None,
            state: State::default(),
            search_at: 0,
            limits_at: 0,
            changes: None,
            reopens: false,
            looked: HashMap::new(),
            trouble: None,
        }
    }

    /// From one point of those near their limit to the next, in milliseconds.
    const fn beat_ms(&self) -> u32 {
        BEAT_MS * self.stretch
    }

    /// Whether no beat comes before the next round unless somebody moves. How long the node waits, and what it holds where the kernel
    /// does not record that, only files tell.
    const fn sleeps(&self) -> bool {
        self.following.is_some() && self.state.is_recorded && !self.state.is_stalled
    }

    /// How long it is until the next beat, unless somebody moves before; `now_ns` is `CLOCK_MONOTONIC`, and that of the last beat
    /// `since_ns`.
    pub fn rest(&self, since_ns: u64, now_ns: u64) -> Duration {
        let beat_at_ns = since_ns + u64::from(self.beat_ms()) * 1_000_000;
        let due = if self.sleeps() {
            self.round_at_ns
        } else {
            beat_at_ns.min(self.round_at_ns)
        };
        Duration::from_nanos(due.saturating_sub(now_ns))
    }

    /// Readable when somebody near his limit has moved; none where a beat has to look for that.
    pub fn moved(&self) -> Option<Arc<OwnedFd>> {
        let _follows = self.following.as_ref()?;
        self.survey.as_ref()?.moved()
    }

    /// Whether a beat now begins a round, which looks at what the one before it took.
    pub const fn begins_round(&self, now_ns: u64) -> bool {
        now_ns >= self.round_at_ns
    }

    /// What beats took of a processor, in nanoseconds.
    pub const fn spent(&mut self, nanos: u64) {
        self.spent_ns = self.spent_ns.saturating_add(nanos);
    }

    /// One beat; `now_ns` is `CLOCK_MONOTONIC`.
    pub fn beat(&mut self, now_ns: u64, source: &Source, mut warn: impl FnMut(Warning)) {
        let at = Stamp::of(now_ns);
        let counters = source.counters();
        let is_round = self.begins_round(now_ns);
        if is_round {
            self.begin(now_ns, source, counters.as_ref());
        }
        self.read(at, is_round, source, (counters.as_ref(), &mut warn));
        self.state.is_stalled = self.node.read(at, self.state.is_recorded, &source.book);
        if is_round {
            self.settle(at, &source.book);
        }
    }

    /// Takes what the kernel's timer left of those near their limit, and reads those of them alone; no round begins.
    pub fn catch_up(&mut self, now_ns: u64, source: &Source, mut warn: impl FnMut(Warning)) {
        if self.following.is_some() {
            let counters = source.counters();
            let at = Stamp::of(now_ns);
            self.read(at, false, source, (counters.as_ref(), &mut warn));
        }
    }

    /// Begins a round.
    fn begin(&mut self, now_ns: u64, source: &Source, counters: Option<&Counters>) {
        let at = Stamp::of(now_ns);
        let spent = std::mem::take(&mut self.spent_ns);
        let beats = spent.saturating_sub(std::mem::take(&mut self.searched_ns));
        self.stretch = stretched(self.stretch, beats);
        self.round_at_ns = now_ns + u64::from(self.beat_ms() * BEATS) * 1_000_000;
        if self.round >= self.search_at || self.has_changed(counters) {
            self.search(at, now_ns, &source.book);
        }
        if self.round >= self.limits_at {
            self.limits_at = self.round + LIMITS;
            self.read_limits(&source.book);
        }
        self.state.is_recorded = source.is_kernel_recording(now_ns);
        self.state.is_told = source.tells_cgroups();
        if let Some(survey) = source.survey().take() {
            self.take_over(survey);
        }
        self.round += 1;
    }

    /// Reads those near their limit, and in a round everybody.
    fn read(
        &mut self,
        at: Stamp,
        is_round: bool,
        source: &Source,
        (counters, warn): (Option<&Counters>, &mut impl FnMut(Warning)),
    ) {
        let look = Look {
            at,
            is_round,
            pulse: self.feel(counters),
            counters,
            book: &source.book,
        };
        self.collect();
        let surveyed = self.survey_now(is_round);
        if is_round {
            (0..GROUPS).for_each(|slot| self.read_one(slot, surveyed, &look, warn));
            return;
        }
        for index in 0..self.near.len() {
            if let Some(slot) = self.near.get(index).copied() {
                self.read_one(slot, surveyed, &look, warn);
            }
        }
    }

    /// Reads the cgroup of a slot, if there is one.
    fn read_one(
        &mut self,
        slot: usize,
        surveyed: Option<Places>,
        look: &Look<'_>,
        warn: &mut impl FnMut(Warning),
    ) {
        let Some(Some(group)) = self.groups.get_mut(slot) else {
            return;
        };
        let lane = self.following.as_ref().zip(group.lane);
        let traces = lane.map(|(following, lane)| following.of(lane, slot));
        let is_followed = traces.is_some();
        let trace = traces.and_then(|traces| group.trace(slot, traces, look.book));
        if is_followed && trace.is_none() && !look.is_round {
            return;
        }
        let left = trace.and_then(|(at, usage)| Some((at, usage?)));
        let survey = self.survey.as_ref();
        let looked = || Some((look.at, survey?.usage(surveyed?, slot)?));
        let found = left.or_else(looked);
        // Closed once it is gone.
        let Some(reader) = &mut group.reader else {
            return;
        };
        group.is_surveyed = found.is_some();
        let (at, usage) = found.map_or((look.at, None), |(at, usage)| (at, Some(usage)));
        let is_calm = is_calm(group.latest.usage, group.limit);
        let count = |id| look.counters?.of(id);
        match reader.read(at, (usage, is_calm), look.pulse, count) {
            Ok(reading) => {
                let into = Into {
                    near: group.lane.is_some(),
                    all: look.is_round,
                };
                group.note(slot, (at, reading), into, look.book, warn);
            }
            Err(HotError::Io(Errno::NODEV | Errno::NOENT)) => {
                group.leave(at);
                unseat(&mut self.survey, slot);
                // Another may have taken its name.
                self.search_at = self.search_at.min(self.round);
            }
            // Once more in the next round: what is missing is missing from the recording.
            Err(_) => {}
        }
    }

    /// Takes what the kernel's timer left of those near their limit.
    fn collect(&mut self) {
        if let (Some(following), Some(survey)) = (&mut self.following, &mut self.survey)
            && let Err(error) = following.collect(survey)
        {
            self.stop_following(&error);
        }
    }

    fn stop_following(&mut self, error: &ProbeError) {
        warn!(%error, "cgroups near their limit are looked at every 100 ms from now on");
        self.following = None;
    }

    /// What the kernel's program finds of those to be read now, but for those that are followed; none where it does not run.
    fn survey_now(&mut self, is_round: bool) -> Option<Places> {
        let survey = self.survey.as_mut()?;
        let mut wanted = Places::default();
        if is_round {
            (0..GROUPS).for_each(|slot| wanted.add(slot));
        } else if self.following.is_some() {
            return None;
        } else {
            self.near.iter().for_each(|slot| wanted.add(*slot));
        }
        match survey.look(wanted) {
            Ok(()) => Some(wanted),
            Err(error) => {
                warn!(%error, "what cgroups use is read from their files from now on");
                self.survey = None;
                self.following = None;
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
        self.following = survey.moved().map(|_| Following::default());
        self.survey = Some(survey);
        for (slot, group) in self.groups.iter().enumerate() {
            if let Some(reader) = group.as_ref().and_then(|group| group.reader.as_ref()) {
                seat(&mut self.survey, slot, reader);
            }
        }
    }

    /// Whether the kernel's programs have counted anything since the beat before.
    fn feel(&mut self, counters: Option<&Counters>) -> Option<Pulse> {
        let now = counters.and_then(|counters| counters.meters.pulse().ok());
        let before = std::mem::replace(&mut self.pulse, now);
        now.zip(before).map(|(now, before)| Pulse { now, before })
    }

    /// Tells the periods, chooses who is near, and forgets who is long gone.
    fn settle(&mut self, at: Stamp, book: &Mutex<Book>) {
        let surveyed = self.surveyed();
        let mut book = lock(book);
        book.surveyed = surveyed;
        let survey = self.survey.as_ref().filter(|_| self.following.is_some());
        book.followed = survey.and_then(Survey::followed);
        book.periods = Periods {
            node_ms: self.beat_ms(),
            near_ms: self.beat_ms(),
            others_ms: self.beat_ms() * BEATS,
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
        self.near.clear();
        for Candidate { slot, lane, .. } in self.candidates.iter().rev().copied() {
            book.move_near(slot, lane);
            if let Some(Some(group)) = self.groups.get_mut(slot) {
                group.lane = lane;
                if let Some(reader) = &mut group.reader {
                    reader.tell_pressure(lane.is_some());
                    self.near.extend(lane.map(|_| slot));
                }
            }
        }
        drop(book);
        if let Err(error) = self.follow() {
            self.stop_following(&error);
        }
    }

    /// Has the kernel follow those near their limit.
    fn follow(&mut self) -> Result<(), ProbeError> {
        let period = Duration::from_millis(self.beat_ms().into());
        let (Some(following), Some(survey)) = (&mut self.following, &mut self.survey) else {
            return Ok(());
        };
        let mut holders = [None; NEAR];
        for slot in &self.near {
            if let Some(Some(group)) = self.groups.get(*slot)
                && let Some(place) = group.lane.and_then(|lane| holders.get_mut(lane))
            {
                let is_close = !is_calm(group.latest.usage, group.limit);
                *place = Some((*slot, is_close));
            }
        }
        for (lane, holder) in holders.into_iter().enumerate() {
            following.assign(survey, lane, holder)?;
        }
        following.keep_pace(survey, period)
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

    /// Whether a cgroup was made or removed since the last look, as far as the kernel's programs tell.
    fn has_changed(&mut self, counters: Option<&Counters>) -> bool {
        let seen = counters.and_then(|counters| counters.meters.loss(Row::CgroupEvidence).ok());
        let Some(seen) = seen.map(|loss| loss.seen) else {
            return false;
        };
        self.changes.replace(seen) != Some(seen)
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

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;

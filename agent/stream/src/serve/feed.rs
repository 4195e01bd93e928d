//! What one reader of events gets: first what is kept of the past, then what is told, in order and without a seam.
//!
//! The past is read page by page until the hub's memory goes on from there. What is journalled is then neither lost nor
//! repeated; what is not, and has left the memory, is not part of the past. A live reader that the memory does not wait for gets
//! what is journalled from the journal too, and what lies between as losses that it alone is told: each number once.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::query::{Format, Query, Since};
use super::{Bounds, Reply, Service};
use crate::hub::{Line, Next, Past, PastError, Position, Reader};
use crate::model::data::Loss;

/// About so many bytes are sent at a time.
const PIECE: usize = 16 << 10;
/// Events that are looked at a time.
const LOOK: usize = 256;
/// After a piece the next one waits this long for company, if more is told already: a stream of small events would cost a system
/// call each.
const COMPANY: Duration = Duration::from_millis(1);

/// How it goes on after what was filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// More is there.
    More,
    /// Nothing more is there now.
    Wait,
    /// Nothing more is to come.
    End,
}

/// One reader's way through the events.
pub(super) struct Feed {
    service: Arc<Service>,
    /// What is older than the hub's memory, as it was when this began.
    past: Option<Arc<dyn Past>>,
    query: Query,
    phase: Phase,
    /// What comes before the memory goes on, in a live reader that was too slow for it.
    gap: Option<Gap>,
    /// The first wanted moment, until it was found.
    from_us: Option<i64>,
    /// The last number that had been given as this began.
    known: u64,
    /// Events that may still be sent.
    left: u64,
    /// Numbers that this reader has missed.
    missed: u64,
    /// What it has missed before it begins.
    owed: Option<Missed>,
    /// Whether it was told that the last part of the past had holes.
    was_cut: bool,
    sent: Option<Instant>,
}

enum Phase {
    /// After this place in the past, or with the oldest.
    Past(Option<Position>),
    Live(Reader),
}

/// Numbers that had left the memory when the reader came for them.
#[derive(Clone, Copy)]
struct Gap {
    /// The last number before them, or of them that the reader has had.
    after: u64,
    /// The last of them.
    until: u64,
}

/// A loss that is told to one reader.
#[derive(Clone, Copy)]
struct Missed {
    range: Option<(u64, u64)>,
    count: u64,
    uncounted: bool,
}

impl Feed {
    /// Finds the place to begin.
    pub(super) async fn begin(service: Arc<Service>, query: Query) -> Result<Self, Reply> {
        if query.format == Format::CloudEvents && service.envelope.is_none() {
            let next = "ask for format=json";
            return Err(Reply::refusal(400, "this agent knows no CloudEvents", next));
        }
        // From now on it takes none.
        let past = match query.since {
            Since::Now => None,
            _ => service.past().await,
        };
        let mut feed = Self {
            past,
            known: service.hub.numbering().last,
            phase: Phase::Live(service.hub.reader(None)),
            gap: None,
            from_us: None,
            left: query.limit.unwrap_or(u64::MAX),
            missed: 0,
            owed: None,
            was_cut: false,
            sent: None,
            service,
            query,
        };
        match feed.query.since.clone() {
            Since::Now => {}
            Since::Oldest => feed.start(None),
            Since::Number(seq) => feed.start_after(seq)?,
            Since::Place(boot, seq) if *boot == *feed.boot() => feed.start_after(seq)?,
            Since::Place(boot, seq) => {
                feed.owed = feed.past.is_none().then_some(Missed::UNCOUNTED);
                let boot = boot.into();
                feed.start(Some(Position { boot, seq }));
            }
            Since::Age(age) => feed.start_at(age).await?,
        }
        Ok(feed)
    }

    fn boot(&self) -> &str {
        &self.service.hub.identity().boot_id
    }

    fn start(&mut self, position: Option<Position>) {
        if self.past.is_some() {
            self.phase = Phase::Past(position);
        } else if position.is_some() {
            // Of another boot: this run has told everything since.
            self.phase = Phase::Live(self.service.hub.reader(Some(0)));
        } else {
            self.start_with_oldest();
        }
    }

    /// Begins with the oldest event in memory, where nothing else is kept: what has left that before is none of what was asked for.
    fn start_with_oldest(&mut self) -> Option<Arc<Line>> {
        let oldest = self.service.hub.oldest_line();
        let after = oldest.as_ref().map_or(0, |oldest| oldest.seq - 1);
        self.phase = Phase::Live(self.service.hub.reader(Some(after)));
        oldest
    }

    fn start_after(&mut self, seq: u64) -> Result<(), Reply> {
        let last = self.known;
        if seq > last {
            let problem = format!("no event has the number {seq} yet; the last one is {last}");
            let next = "ask with since=now, or with a number that you have seen in this boot";
            return Err(Reply::refusal(400, &problem, next));
        }
        let base = self.service.hub.base();
        if seq < base && self.past.is_none() {
            self.owed = Some(Missed {
                range: Some((seq + 1, base)),
                ..Missed::UNCOUNTED
            });
        }
        let oldest = self.service.hub.oldest().unwrap_or(last + 1);
        if seq + 1 >= oldest || self.past.is_none() {
            self.phase = Phase::Live(self.service.hub.reader(Some(seq)));
        } else {
            let boot = self.boot().into();
            self.start(Some(Position { boot, seq }));
        }
        Ok(())
    }

    async fn start_at(&mut self, age: Duration) -> Result<(), Reply> {
        let now = (self.service.clock)().wall_us().unwrap_or(0);
        let from = now.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
        self.from_us = Some(from);
        let Some(past) = self.past.clone() else {
            let oldest = self.start_with_oldest();
            // How much of what has left the memory was told since then nobody knows any more.
            let base = self.service.hub.base();
            let is_cut = oldest.is_some_and(|line| line.seq > base + 1 && line.wall_us > from);
            self.owed = is_cut.then_some(Missed::UNCOUNTED);
            return Ok(());
        };
        let found = self.service.off_the_runtime(move || past.before(from));
        let position = found.await.map_err(|error| unreadable(&error))?;
        self.start(position);
        Ok(())
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.service.bounds
    }

    pub(super) const fn is_sse(&self) -> bool {
        self.query.is_sse
    }

    pub(super) const fn content_type(&self) -> &'static str {
        if self.query.is_sse {
            "text/event-stream"
        } else {
            "application/x-ndjson"
        }
    }

    /// Takes note that what was filled in is on its way.
    pub(super) fn has_sent(&mut self) {
        self.sent = Some(Instant::now());
    }

    /// Until there is something new. The future may be dropped.
    pub(super) async fn changed(&mut self) {
        let Phase::Live(reader) = &mut self.phase else {
            return;
        };
        reader.changed().await;
        if let Some(sent) = self.sent {
            sleep_until(sent + COMPANY).await;
        }
    }

    /// Appends what comes next, about a piece of it.
    pub(super) async fn fill(&mut self, into: &mut Vec<u8>) -> Filled {
        if let Some(missed) = self.owed.take() {
            self.push_loss(missed, into);
        }
        if let Some(gap) = self.gap.take() {
            return self.fill_gap(gap, into).await;
        }
        match &mut self.phase {
            Phase::Past(position) => {
                let position = position.clone();
                self.fill_from_past(position, into).await
            }
            Phase::Live(_) => self.fill_live(into),
        }
    }

    fn fill_live(&mut self, into: &mut Vec<u8>) -> Filled {
        let Phase::Live(reader) = &mut self.phase else {
            return Filled::More;
        };
        let mut some = Vec::new();
        let is_closed = reader.is_closed();
        let taken = reader.take((LOOK, PIECE), &mut some);
        for next in some {
            let is_over = match next {
                Next::Line(line) if !self.query.follow && line.seq > self.known => true,
                Next::Line(line) => self.push(&line, into),
                Next::Lost { first, .. } if !self.query.follow && first > self.known => true,
                Next::Lost { first, last, .. } => {
                    let wanted = if self.query.follow { last } else { self.known };
                    self.gap = Some(Gap {
                        after: first - 1,
                        until: last.min(wanted),
                    });
                    false
                }
            };
            if is_over {
                return Filled::End;
            }
        }
        match taken {
            0 if is_closed || !self.query.follow => Filled::End,
            0 => Filled::Wait,
            _ => Filled::More,
        }
    }

    /// Appends what has left the memory: of that the journal has what is journalled, and the rest is lost.
    async fn fill_gap(&mut self, gap: Gap, into: &mut Vec<u8>) -> Filled {
        let Gap { mut after, until } = gap;
        let lines = self.journalled(after).await;
        let is_within = |line: &&Arc<Line>| *line.boot == *self.boot() && line.seq <= until;
        let kept = lines.iter().take_while(is_within).count();
        for line in &lines[..kept] {
            if line.seq <= after {
                continue;
            }
            self.push_missed(after + 1, line.seq - 1, into);
            after = line.seq;
            if self.push(line, into) {
                return Filled::End;
            }
        }
        if after > gap.after && kept == lines.len() {
            self.gap = Some(Gap { after, until });
        } else {
            self.push_missed(after + 1, until, into);
        }
        Filled::More
    }

    /// Some of what the journal has after a number of this boot; nothing if there is none, or it cannot be read.
    async fn journalled(&self, after: u64) -> Vec<Arc<Line>> {
        let Some(past) = self.service.past().await else {
            return Vec::new();
        };
        let position = Position {
            boot: self.boot().into(),
            seq: after,
        };
        match self.service.page(past, Some(position)).await {
            Ok(page) => page.lines,
            Err(error) => {
                warn!(%error, "the past cannot be read; a reader that is too slow has lost what it missed");
                Vec::new()
            }
        }
    }

    async fn fill_from_past(&mut self, position: Option<Position>, into: &mut Vec<u8>) -> Filled {
        let Some(past) = self.past.clone() else {
            self.start(None);
            return Filled::More;
        };
        // Before the past is asked: it has everything up to here, and what is told meanwhile is still in memory or a loss.
        let told = self.service.hub.numbering().last;
        let page = match self.service.page(past, position.clone()).await {
            Ok(page) => page,
            Err(error) => {
                warn!(%error, "the past cannot be read; a reader goes on without it");
                self.push_loss(Missed::UNCOUNTED, into);
                self.go_live(position.as_ref(), 0);
                return Filled::More;
            }
        };
        // What is missing behind all that is kept was told with the part before.
        if page.is_cut && !(self.was_cut && page.lines.is_empty()) {
            self.push_loss(Missed::UNCOUNTED, into);
        }
        self.was_cut = page.is_cut;
        let oldest = self.service.hub.oldest().unwrap_or(u64::MAX);
        let mut last = position;
        for line in &page.lines {
            // From there on the memory has every kind, and the past only some.
            if *line.boot == *self.boot() && line.seq >= oldest {
                self.go_live(last.as_ref(), line.seq - 1);
                return Filled::More;
            }
            if self.push(line, into) {
                return Filled::End;
            }
            last = Some(Position {
                boot: Arc::clone(&line.boot),
                seq: line.seq,
            });
        }
        if page.lines.is_empty() {
            self.go_live(last.as_ref(), told);
        } else {
            self.phase = Phase::Past(last);
        }
        Filled::More
    }

    /// Goes over to the hub's memory after a place in the past. Everything journalled up to `told` has been read: what is not
    /// in memory of that is no loss.
    fn go_live(&mut self, position: Option<&Position>, told: u64) {
        let hub = &self.service.hub;
        let here = position.filter(|position| *position.boot == *self.boot());
        let after = here.map_or(0, |position| position.seq).max(hub.base());
        let oldest = hub.oldest().unwrap_or(after + 1);
        let after = after.max(told.min(oldest.saturating_sub(1)));
        self.phase = Phase::Live(hub.reader(Some(after)));
    }

    /// Appends an event if it is wanted; says whether it was the last one.
    fn push(&mut self, line: &Line, into: &mut Vec<u8>) -> bool {
        if let Some(from) = self.from_us {
            let is_new = *line.boot == *self.boot() && line.seq > self.known;
            if line.wall_us < from && !is_new {
                return false;
            }
            self.from_us = None;
        }
        if self.query.takes(line) {
            self.write(line, true, into);
            self.left -= 1;
        }
        self.left == 0
    }

    /// Tells numbers as missed, from the first to the last, if there are any.
    fn push_missed(&mut self, first: u64, last: u64, into: &mut Vec<u8>) {
        if first <= last {
            let missed = Missed {
                range: Some((first, last)),
                count: last - first + 1,
                uncounted: false,
            };
            self.push_loss(missed, into);
        }
    }

    fn push_loss(&mut self, missed: Missed, into: &mut Vec<u8>) {
        self.missed = self.missed.saturating_add(missed.count);
        self.service.hub.count_missed(missed.count);
        let (first, last) = missed.range.unzip();
        let loss = Loss {
            place: Loss::READER.to_owned(),
            count: missed.count,
            total: self.missed,
            uncounted: missed.uncounted,
            first,
            last,
        };
        let at = (self.service.clock)();
        if let Ok(line) = self.service.hub.loss_line(at, last.unwrap_or(0), &loss) {
            self.write(&line, last.is_some(), into);
        }
    }

    /// `has_place` is false where the number is none to resume from.
    fn write(&self, line: &Line, has_place: bool, into: &mut Vec<u8>) {
        let text = match (self.query.format, self.service.envelope) {
            (Format::CloudEvents, Some(envelope)) => envelope(line).into(),
            _ => std::borrow::Cow::Borrowed(&*line.text),
        };
        if !self.query.is_sse {
            return into.extend_from_slice(&text);
        }
        if has_place {
            into.extend_from_slice(format!("id: {}:{}\n", line.boot, line.seq).as_bytes());
        }
        into.extend_from_slice(format!("event: {}\ndata: ", line.of.word()).as_bytes());
        into.extend_from_slice(&text);
        into.push(b'\n');
    }
}

impl Missed {
    /// Some, and nobody knows how many.
    const UNCOUNTED: Self = Self {
        range: None,
        count: 0,
        uncounted: true,
    };
}

fn unreadable(error: &PastError) -> Reply {
    let problem = format!("the journal cannot be read: {error}");
    Reply::refusal(500, &problem, "since=now reads what is told from now on")
}

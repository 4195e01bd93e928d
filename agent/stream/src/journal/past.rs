//! The journal as those see it who resume, or who read it without an agent.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::disk::Folder;
use super::queue::Queue;
use super::read::{After, Cursor, Most, Reader, Shown};
use super::store::name;
use super::{JournalError, read};
use crate::hub::{Line, Look, Page, Past, PastError, Position};

/// Bytes of one page's texts, or one event. Every reader that is slow may hold one.
const PAGE: usize = 256 << 10;
/// Readers whose place is remembered.
const PLACES: usize = 64;
/// Segments whose damage the log has, and which are remembered for it: as many as a journal can have.
const MOST_TOLD: usize = 512;

/// The run that writes the journal.
#[derive(Debug)]
pub(super) struct Run {
    /// Its boot.
    pub(super) boot: Arc<str>,
    /// What it has not written yet.
    pub(super) queue: Arc<Queue>,
    /// The first segment that it writes.
    pub(super) first: u64,
    /// Segments whose damage it has told in the log when it opened the journal.
    pub(super) told: BTreeSet<u64>,
}

/// A reader of the journal.
#[derive(Debug)]
pub struct JournalPast {
    files: Reader<Folder>,
    /// None without an agent.
    run: Option<Run>,
    /// Segments whose damage the log has.
    told: Mutex<BTreeSet<u64>>,
    /// Where readers left off, so that the next page is found at once.
    places: Mutex<VecDeque<(Position, Cursor)>>,
    /// Events that were no events of this version.
    unread: AtomicU64,
}

impl JournalPast {
    pub(super) fn of(files: Reader<Folder>, mut run: Option<Run>) -> Self {
        let told = run.as_mut().map(|run| std::mem::take(&mut run.told));
        Self {
            files,
            run,
            told: Mutex::new(told.unwrap_or_default()),
            places: Mutex::default(),
            unread: AtomicU64::new(0),
        }
    }

    /// The journal in a folder, whether or not an agent writes it. Nothing is locked or changed.
    ///
    /// # Errors
    /// When there is no such folder, nothing of a journal in it, or it may not be read.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let fail = |error| JournalError::open(path, error);
        let files = Reader::new(Folder::of(path).map_err(fail)?);
        if !files.is_journal().map_err(fail)? {
            let path = path.to_path_buf();
            return Err(JournalError::Nothing { path });
        }
        Ok(Self::of(files, None))
    }

    /// Events that were passed over since they were no events of this version.
    pub fn unread(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    /// What of its files cannot be read.
    ///
    /// # Errors
    /// When none of them can be.
    pub fn damage(&self) -> Result<Vec<read::Damage>, PastError> {
        self.files.damage().map_err(|error| unreadable(&error))
    }

    fn place(&self, position: &Position) -> Option<Cursor> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let known = places.iter().find(|(known, _)| known == position);
        known.map(|(_, cursor)| *cursor)
    }

    fn remember(&self, last: &Line, cursor: Cursor) {
        let position = Position {
            boot: Arc::clone(&last.boot),
            seq: last.seq,
        };
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|(known, _)| *known != position);
        places.push_front((position, cursor));
        places.truncate(PLACES);
    }

    /// Where to begin (none: behind everything), and whether something before it may be missing.
    fn begin(&self, position: Option<&Position>) -> io::Result<(Option<Cursor>, bool)> {
        let Some(position) = position else {
            return Ok((Some(Cursor::default()), false));
        };
        if let Some(cursor) = self.place(position)
            && self.files.has(cursor)?
        {
            return Ok((Some(cursor), false));
        }
        let found = self.files.after(&position.boot, position.seq)?;
        Ok(match found {
            After::Kept(cursor) => (Some(cursor), false),
            After::Cut(cursor) => (Some(cursor), true),
            // Of this boot nothing was journalled yet, or it is gone: all that is in the files was told before.
            After::UnknownBoot => match &self.run {
                Some(run) if run.boot == position.boot => (
                    None,
                    run.queue.status().written > 0 || self.files.ends_aside()?,
                ),
                _ => (Some(Cursor::default()), true),
            },
        })
    }

    fn read(&self, position: Option<&Position>, limit: usize) -> io::Result<Page> {
        // Before the files are looked at: what is written meanwhile is seen twice then, and not never.
        let waiting = self.run.as_ref().map(|run| run.queue.waiting());
        let (mut next, is_cut) = self.begin(position)?;
        let mut page = Page {
            lines: Vec::new(),
            is_cut,
        };
        // Of the lines alone: whatever is passed over between them, the reader gets what lies behind it.
        let mut bytes = 0;
        while let Some(cursor) = next
            && page.lines.len() < limit
            && bytes < PAGE
        {
            let most = Most {
                events: limit - page.lines.len(),
                bytes: PAGE - bytes,
            };
            let read = self.files.page(cursor, most)?;
            page.is_cut |= read.is_cut || read.unreadable > 0;
            for segment in &read.damaged {
                self.tell_damage(*segment);
            }
            next = (!read.events.is_empty()).then_some(read.cursor);
            for kept in read.events {
                self.push(&kept, position, &mut page);
            }
            bytes = page.lines.iter().map(|line| line.text.len()).sum();
            if let Some(last) = page.lines.last() {
                self.remember(last, read.cursor);
            }
        }
        let is_at_end = next.is_none();
        if let Some(waiting) = waiting
            && is_at_end
        {
            add_waiting(waiting, position, limit, &mut page);
        }
        Ok(page)
    }

    /// Adds an event, unless the reader has it: one that had waited when it was read may be written just as the place
    /// behind it is looked for.
    fn push(&self, kept: &read::Kept, position: Option<&Position>, page: &mut Page) {
        let Some(line) = self.parse(kept.seq, &kept.text) else {
            page.is_cut = true;
            return;
        };
        let is_had = |had: &Position| had.boot == line.boot && line.seq <= had.seq;
        if !position.is_some_and(is_had) {
            page.lines.push(line);
        }
    }

    fn parse(&self, seq: u64, text: &[u8]) -> Option<Arc<Line>> {
        match Line::parse(text) {
            Ok(line) => Some(Arc::new(line)),
            Err(error) => {
                let before = self.unread.fetch_add(1, Ordering::Relaxed);
                if before == 0 {
                    tracing::warn!(%error, seq, "the event journal has events that this version does not know; they are passed over");
                }
                None
            }
        }
    }

    fn show(&self, look: &mut dyn Look) -> io::Result<()> {
        // Before the files are looked at, as in `read`.
        if let Some(run) = &self.run {
            for line in &run.queue.waiting() {
                look.see(line);
            }
            if !look.goes_on() {
                return Ok(());
            }
        }
        // What this run writes comes next to what was there, whether or not it has written anything by now.
        let mut newer = self.run.as_ref().map(|run| run.first);
        for segment in self.files.segments()?.into_iter().rev() {
            // One between them has gone, or was put aside: that is a part of its own.
            if newer.is_some_and(|newer| segment.saturating_add(1) < newer) {
                look.misses();
                if !look.goes_on() {
                    return Ok(());
                }
            }
            newer = Some(segment);
            self.show_segment(segment, look)?;
            if !look.goes_on() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn show_segment(&self, segment: u64, look: &mut dyn Look) -> io::Result<()> {
        let mut is_damaged = false;
        self.files.show(segment, &mut |shown| match shown {
            Shown::Event(seq, text) => match self.parse(seq, text) {
                Some(line) => look.see(&line),
                None => look.misses(),
            },
            Shown::Tail if self.is_being_written(segment) => {}
            Shown::Unreadable | Shown::Tail => {
                is_damaged = true;
                look.misses();
            }
        })?;
        if is_damaged {
            self.tell_damage(segment);
        }
        Ok(())
    }

    /// Whether a segment may just have got the beginning of an event.
    fn is_being_written(&self, segment: u64) -> bool {
        self.run.as_ref().is_some_and(|run| segment >= run.first)
    }

    /// Has the log say what of a segment cannot be read: by the agent, and once in its run. Whoever reads without one is told by
    /// [`Self::damage`].
    fn tell_damage(&self, segment: u64) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if self.run.is_none() || told.contains(&segment) {
            return;
        }
        // All of it, though the reader has come by the first of it alone. What has gone meanwhile has nothing to be told of.
        let Ok(Some((between, behind))) = self.files.unread(segment) else {
            return;
        };
        let is_whole = self.is_being_written(segment);
        let bytes = between + if is_whole { 0 } else { behind };
        if bytes > 0 {
            told.insert(segment);
            if told.len() > MOST_TOLD {
                told.pop_first();
            }
            drop(told);
            warn_of_damage(&name(segment), bytes);
        }
    }
}

/// Says in the log that so many bytes of a file are no events.
pub fn warn_of_damage(file: &str, bytes: u64) {
    tracing::warn!(
        file,
        bytes,
        "a part of the event journal cannot be read: it is damaged, or a crash cut it off; the events around it can"
    );
}

fn unreadable(error: &io::Error) -> PastError {
    PastError(format!("the event journal cannot be read: {error}"))
}

/// Adds what was not in the files yet. Its boot is the newest.
fn add_waiting(
    waiting: Vec<Arc<Line>>,
    position: Option<&Position>,
    limit: usize,
    page: &mut Page,
) {
    for line in waiting {
        let last = page.lines.last().map(|last| (&last.boot, last.seq));
        let last = last.or(position.map(|position| (&position.boot, position.seq)));
        let is_new = last.is_none_or(|(boot, seq)| *boot != line.boot || seq < line.seq);
        if is_new && page.lines.len() < limit {
            page.lines.push(line);
        }
    }
}

impl Past for JournalPast {
    fn after(&self, position: Option<&Position>, limit: usize) -> Result<Page, PastError> {
        self.read(position, limit)
            .map_err(|error| unreadable(&error))
    }

    fn back(&self, look: &mut dyn Look) -> Result<(), PastError> {
        self.show(look).map_err(|error| unreadable(&error))
    }

    fn before(&self, wall_us: i64) -> Result<Option<Position>, PastError> {
        let found = self.files.since(wall_us);
        let found = found.map_err(|error| unreadable(&error))?;
        Ok(found.map(|(boot, seq)| Position { boot, seq }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{HEAD, LONGEST_TEXT, RECORD_HEAD};
    use super::super::store::Store;
    use super::super::{Journal, Limits, Surroundings};
    use super::*;

    const BOOT: &str = "3f2a0000-0000-4000-8000-000000000000";

    fn known(seq: u64) -> String {
        let sample = include_str!("../../../../tests/events/v1alpha1/pressure.json");
        let mut event: serde_json::Value = serde_json::from_str(sample).unwrap();
        event["seq"] = seq.into();
        event["bootId"] = BOOT.into();
        format!("{event}\n")
    }

    fn unknown(bytes: usize) -> String {
        format!("{{\"type\":\"{}\"}}\n", "x".repeat(bytes))
    }

    /// Begins a journal with these texts as its events, numbered from 1 on.
    fn write(path: &Path, texts: &[String]) {
        let folder = Folder::make(path).unwrap();
        let (mut store, _) = Store::open(folder, Limits::default(), BOOT, 1).unwrap();
        for (seq, text) in (1..).zip(texts) {
            assert!(store.push(seq, text.as_bytes(), 1));
        }
        store.write(1).unwrap();
    }

    fn numbers(past: &JournalPast, after: Option<u64>, limit: usize) -> (Vec<u64>, bool) {
        let position = after.map(|seq| Position {
            boot: BOOT.into(),
            seq,
        });
        let page = past.after(position.as_ref(), limit).unwrap();
        let numbers = page.lines.iter().map(|line| line.seq);
        (numbers.collect(), page.is_cut)
    }

    #[test]
    fn what_a_later_version_wrote_hides_nothing_behind_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("events");
        let texts = [
            unknown(PAGE + 1),
            unknown(LONGEST_TEXT / 2),
            unknown(PAGE),
            known(4),
            unknown(PAGE),
            known(6),
        ];
        write(&path, &texts);
        let past = JournalPast::open(&path).unwrap();
        assert_eq!(numbers(&past, None, 1), (vec![4], true));
        assert_eq!(numbers(&past, Some(4), 1), (vec![6], true));
        assert_eq!(numbers(&past, Some(6), 9), (vec![], false), "the end");
        assert_eq!(numbers(&past, None, 9), (vec![4, 6], true));
        assert!(past.unread() >= 4);
    }

    /// What is come by on the way back: the numbers of events, and none for what is missing, by the parts that have anything.
    #[derive(Default)]
    struct Way {
        parts: Vec<Vec<Option<u64>>>,
        part: Vec<Option<u64>>,
    }

    impl Look for Way {
        fn see(&mut self, line: &Arc<Line>) {
            self.part.push(Some(line.seq));
        }

        fn misses(&mut self) {
            self.part.push(None);
        }

        fn goes_on(&mut self) -> bool {
            let part = std::mem::take(&mut self.part);
            self.parts.extend((!part.is_empty()).then_some(part));
            true
        }
    }

    fn back(past: &JournalPast) -> Vec<Vec<Option<u64>>> {
        let mut way = Way::default();
        past.back(&mut way).unwrap();
        way.parts
    }

    /// Begins a journal with so many segments of two events each.
    fn write_segments(path: &Path, count: u64) {
        let folder = Folder::make(path).unwrap();
        let (mut store, _) = Store::open(folder, Limits::default(), BOOT, 0).unwrap();
        for segment in 1..=count {
            // The one before it is over by its age.
            let now = i64::try_from(segment).unwrap() * 12 * 3_600_000_000;
            for seq in [2 * segment - 1, 2 * segment] {
                assert!(store.push(seq, known(seq).as_bytes(), now));
            }
            store.write(now).unwrap();
        }
    }

    #[test]
    fn what_is_damaged_or_gone_is_known_on_the_way_back_and_told_in_the_log_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("events");
        write_segments(&path, 5);
        let change = |segment: u64, change: fn(&mut Vec<u8>)| {
            let file = path.join(name(segment));
            let mut bytes = std::fs::read(&file).unwrap();
            change(&mut bytes);
            std::fs::write(&file, bytes).unwrap();
        };
        std::fs::remove_file(path.join(name(2))).unwrap();
        change(4, |bytes| bytes[HEAD + RECORD_HEAD + 20] ^= 4);
        change(5, |bytes| bytes.truncate(bytes.len() - 3));
        let expected = [
            vec![Some(9), None],
            vec![None, Some(8)],
            vec![Some(5), Some(6)],
            vec![None],
            vec![Some(1), Some(2)],
        ];
        let alone = JournalPast::open(&path).unwrap();
        assert_eq!(back(&alone), expected);
        assert!(alone.told.lock().unwrap().is_empty(), "that is the agent's");
        let around = Surroundings {
            boot_id: BOOT,
            clock: || 1,
            on_loss: Box::new(|_, _| ()),
        };
        let (journal, recovery) = Journal::open(&path, Limits::default(), around).unwrap();
        // No more was read to open it.
        let damaged = recovery.damaged.iter().map(|damage| &damage.file);
        assert_eq!(damaged.collect::<Vec<_>>(), [&name(5)]);
        let past = journal.past();
        let told = || std::mem::take(&mut *past.told.lock().unwrap());
        assert_eq!(told(), BTreeSet::from([5]));
        assert_eq!(numbers(&past, None, 9), (vec![1, 2, 5, 6, 8, 9], true));
        assert_eq!(told(), BTreeSet::from([4, 5]));
        assert_eq!(back(&past), expected);
        assert_eq!(told(), BTreeSet::from([4, 5]));
        // The newest of what was there, before this run has written anything or after.
        std::fs::remove_file(path.join(name(5))).unwrap();
        assert_eq!(back(&past)[..2], [vec![None], vec![None, Some(8)]]);
    }

    #[test]
    fn who_comes_while_all_of_its_boot_is_put_aside_is_told_of_a_cut() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("events");
        write(&path, &[known(1), known(2)]);
        let file = path.join(name(1));
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[3] ^= 4;
        std::fs::write(&file, &bytes).unwrap();
        let around = Surroundings {
            boot_id: BOOT,
            clock: || 1,
            on_loss: Box::new(|_, _| ()),
        };
        let (journal, recovery) = Journal::open(&path, Limits::default(), around).unwrap();
        assert_eq!(recovery.put_aside.len(), 1);
        // Of this run nothing is written yet.
        let past = journal.past();
        assert_eq!(numbers(&past, Some(1), 9), (vec![], true));
        assert_eq!(numbers(&past, None, 9), (vec![], true));
    }
}

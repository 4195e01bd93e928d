//! Reading the journal while it is written, or without the agent: nothing is locked, and nothing changed.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile, front};
use super::record::{HEAD, Head, What};
use super::scan::Scan;
use super::store::{aside_number, name, number};

/// Where a reader stands: behind an event, or in front of the oldest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    segment: u64,
    offset: u64,
}

/// Where the events after a number begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// There, and none between was removed; what was put aside is told with the page.
    Kept(Cursor),
    /// There; some before were removed, and perhaps some after the number.
    Cut(Cursor),
    /// Nothing of that boot is kept.
    UnknownBoot,
}

/// An event of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The boot that its number belongs to.
    pub boot_id: Arc<str>,
    /// Its number.
    pub seq: u64,
    /// When it was written: microseconds since 1970.
    pub written: i64,
    /// One line of JSON.
    pub text: Box<[u8]>,
}

/// Events in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Oldest first. None: the reader has reached the end, as it is now.
    pub events: Vec<Kept>,
    /// Where to go on.
    pub cursor: Cursor,
    /// Bytes between them that could not be read.
    pub unreadable: u64,
    /// Whether a segment that was to be read has gone, is no longer one, or was put aside.
    pub is_cut: bool,
    /// The segments that were read and have bytes that are no events.
    pub damaged: Vec<u64>,
}

/// What a segment shows, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// An event: its number, and its line of JSON.
    Event(u64, &'a [u8]),
    /// Something that cannot be read: damage, what a later version wrote, or all of a file that is no segment.
    Unreadable,
    /// Bytes behind the last event that are no whole one: damage, what a crash cut off, or one that is just being written.
    Tail,
}

/// How much one page may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Events.
    pub events: usize,
    /// Bytes of their texts; one event is always taken.
    pub bytes: usize,
}

/// A file that cannot be read, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Its name.
    pub file: String,
    /// Bytes that are no events; none where it is no segment at all, or has gone meanwhile.
    pub bytes: Option<u64>,
}

/// The files of a folder, by their numbers.
struct Files {
    /// The oldest first.
    segments: Vec<u64>,
    /// What was put aside, in any order.
    aside: Vec<u64>,
}

impl Files {
    /// Whether one is missing in front of a segment, behind the one before it. Only the oldest are ever removed by us; of what lies
    /// before those only the neighbour may be no older than what is kept, where it was put aside.
    fn has_hole(&self, before: Option<u64>, segment: u64) -> bool {
        match before {
            Some(before) => segment > before + 1,
            None => self.aside.iter().any(|number| number + 1 == segment),
        }
    }

    /// Whether the newest of all was put aside.
    fn ends_aside(&self) -> bool {
        self.is_aside_after(self.segments.last().copied().unwrap_or(0))
    }

    fn is_aside_after(&self, before: u64) -> bool {
        self.aside.iter().any(|number| before < *number)
    }
}

/// A page that is being filled.
struct Filling {
    page: Page,
    most: Most,
    /// Of the events that were looked at.
    bytes: usize,
    /// Whether something is missing before the next event: it is told with that one, which may find no room here.
    is_cut: bool,
}

impl Filling {
    /// Takes what comes next in a segment; `true` when there is no room for the rest.
    fn take<F: DiskFile>(
        &mut self,
        segment: u64,
        (head, mut scan): (Head, Scan<F>),
    ) -> io::Result<bool> {
        let boot_id: Arc<str> = head.boot_id.into();
        // The same of what lies before an event and cannot be read.
        let mut unreadable = 0;
        while let Some(record) = scan.next()? {
            if record.what != What::Line {
                continue;
            }
            let text = scan.text(&record);
            self.bytes += text.len();
            let is_full =
                self.page.events.len() >= self.most.events || self.bytes > self.most.bytes;
            if is_full && !self.page.events.is_empty() {
                self.page.unreadable += unreadable;
                if scan.unreadable > 0 {
                    self.page.damaged.push(segment);
                }
                return Ok(true);
            }
            unreadable = scan.unreadable;
            self.page.is_cut |= std::mem::take(&mut self.is_cut);
            self.page.events.push(Kept {
                boot_id: Arc::clone(&boot_id),
                seq: record.seq,
                written: record.written,
                text: text.into(),
            });
            self.page.cursor = Cursor {
                segment,
                offset: scan.good,
            };
        }
        self.page.unreadable += scan.unreadable;
        if scan.unreadable > 0 || scan.tail() > 0 {
            self.page.damaged.push(segment);
        }
        Ok(false)
    }
}

/// A reader of the files in a folder.
#[derive(Debug)]
pub struct Reader<D> {
    disk: D,
}

impl<D: Disk> Reader<D> {
    /// A reader of that folder.
    pub const fn new(disk: D) -> Self {
        Self { disk }
    }

    /// Whether there is any segment. The newest is opened, so that whoever may not read it is told before anything else.
    ///
    /// # Errors
    /// The system's.
    pub fn is_journal(&self) -> io::Result<bool> {
        let segments = self.segments()?;
        if let Some(newest) = segments.last() {
            self.open(*newest)?;
        }
        Ok(!segments.is_empty())
    }

    /// Where the events after number `seq` of a boot begin.
    ///
    /// # Errors
    /// The system's.
    pub fn after(&self, boot_id: &str, seq: u64) -> io::Result<After> {
        let segments = self.segments()?;
        let mut first_of_boot = None;
        for (at, segment) in segments.iter().enumerate().rev() {
            let Some((head, mut scan)) = self.open(*segment)? else {
                continue;
            };
            if head.boot_id != boot_id {
                continue;
            }
            let mut found = None;
            while let Some(record) = scan.next()? {
                if record.what == What::Line && record.seq > seq {
                    break;
                }
                found = Some(scan.good);
            }
            if let Some(offset) = found {
                let segment = *segment;
                return Ok(After::Kept(Cursor { segment, offset }));
            }
            first_of_boot = Some((at, *segment));
        }
        let Some((at, segment)) = first_of_boot else {
            return Ok(After::UnknownBoot);
        };
        let before = at.checked_sub(1).and_then(|at| segments.get(at).copied());
        // The boot's first segment is there still: nobody has removed one before it.
        let is_whole = before.map_or(segment == 1, |before| before + 1 == segment);
        let offset = HEAD as u64;
        Ok(if is_whole {
            After::Kept(Cursor { segment, offset })
        } else {
            After::Cut(Cursor { segment, offset })
        })
    }

    /// The last event that was written before `time`, in microseconds since 1970: its boot and number. None: there is none.
    ///
    /// # Errors
    /// The system's.
    pub fn since(&self, time: i64) -> io::Result<Option<(Arc<str>, u64)>> {
        for segment in self.segments()?.into_iter().rev() {
            let Some((head, mut scan)) = self.open(segment)? else {
                continue;
            };
            let mut last = None;
            while let Some(record) = scan.next()? {
                if record.what == What::Line && record.written >= time {
                    break;
                }
                last = Some(record.seq);
            }
            if let Some(seq) = last {
                return Ok(Some((head.boot_id.into(), seq)));
            }
        }
        Ok(None)
    }

    /// Whether the segment that a cursor stands in is still there.
    ///
    /// # Errors
    /// The system's.
    pub fn has(&self, cursor: Cursor) -> io::Result<bool> {
        Ok(cursor.segment == 0 || self.open(cursor.segment)?.is_some())
    }

    /// The events from there on.
    ///
    /// # Errors
    /// The system's.
    pub fn page(&self, from: Cursor, most: Most) -> io::Result<Page> {
        let files = self.files()?;
        let mut filling = Filling {
            page: Page {
                cursor: from,
                is_cut: !self.has(from)?,
                ..Page::default()
            },
            most,
            bytes: 0,
            is_cut: false,
        };
        let mut last = (from.segment > 0).then_some(from.segment);
        let wanted = files.segments.iter().copied();
        for segment in wanted.filter(|segment| *segment >= from.segment) {
            filling.is_cut |= files.has_hole(last, segment);
            last = Some(segment);
            let Some((head, mut scan)) = self.open(segment)? else {
                filling.is_cut |= self.is_lost(segment)?;
                continue;
            };
            if segment == from.segment && from.offset > 0 {
                scan = Scan::new(self.disk.open(&name(segment))?, from.offset);
            }
            if filling.take(segment, (head, scan))? {
                return Ok(filling.page);
            }
        }
        let mut page = filling.page;
        page.is_cut |= filling.is_cut || files.is_aside_after(last.unwrap_or(0));
        Ok(page)
    }

    /// Whether a file that is newer than every segment was put aside.
    ///
    /// # Errors
    /// The system's.
    pub fn ends_aside(&self) -> io::Result<bool> {
        Ok(self.files()?.ends_aside())
    }

    /// Whether the newest segment is of a boot, or may be for it cannot be read.
    ///
    /// # Errors
    /// The system's.
    pub fn may_end_in(&self, boot_id: &str) -> io::Result<bool> {
        let files = self.files()?;
        if files.ends_aside() {
            return Ok(true);
        }
        for segment in files.segments.into_iter().rev() {
            match self.open(segment)? {
                Some((head, _)) => return Ok(head.boot_id == boot_id),
                None if self.is_lost(segment)? => return Ok(true),
                None => {}
            }
        }
        Ok(false)
    }

    /// What one segment has, oldest first, each shown to `see`.
    ///
    /// # Errors
    /// The system's.
    pub fn show(&self, segment: u64, see: &mut dyn FnMut(Shown<'_>)) -> io::Result<()> {
        let Some((_, mut scan)) = self.open(segment)? else {
            if self.is_lost(segment)? {
                see(Shown::Unreadable);
            }
            return Ok(());
        };
        let mut passed = 0;
        while let Some(record) = scan.next()? {
            if scan.unreadable > passed {
                passed = scan.unreadable;
                see(Shown::Unreadable);
            }
            see(match record.what {
                What::Line => Shown::Event(record.seq, scan.text(&record)),
                What::Unknown => Shown::Unreadable,
            });
        }
        if scan.unreadable > passed {
            see(Shown::Unreadable);
        }
        if scan.tail() > 0 {
            see(Shown::Tail);
        }
        Ok(())
    }

    /// Bytes of one segment that are no events, between some and behind the last; none where it has gone, or is no segment.
    ///
    /// # Errors
    /// The system's.
    pub fn unread(&self, segment: u64) -> io::Result<Option<(u64, u64)>> {
        let Some((_, mut scan)) = self.open(segment)? else {
            return Ok(None);
        };
        while scan.next()?.is_some() {}
        Ok(Some((scan.unreadable, scan.tail())))
    }

    /// What cannot be read: files that are no segments, and how many bytes within others.
    ///
    /// # Errors
    /// The system's.
    pub fn damage(&self) -> io::Result<Vec<Damage>> {
        let mut found = Vec::new();
        for segment in self.segments()? {
            let unread = self.unread(segment)?;
            let bytes = unread.map(|(between, behind)| between + behind);
            if bytes != Some(0) {
                let file = name(segment);
                found.push(Damage { file, bytes });
            }
        }
        Ok(found)
    }

    /// The segments there are, the oldest first.
    ///
    /// # Errors
    /// The system's.
    pub fn segments(&self) -> io::Result<Vec<u64>> {
        Ok(self.files()?.segments)
    }

    fn files(&self) -> io::Result<Files> {
        let names = self.disk.list()?;
        let mut segments: Vec<u64> = names.iter().filter_map(|name| number(name)).collect();
        segments.sort_unstable();
        let aside = names.iter().filter_map(|name| aside_number(name)).collect();
        Ok(Files { segments, aside })
    }

    /// A segment from its first record on; none where it has gone since, or is no segment.
    fn open(&self, segment: u64) -> io::Result<Option<(Head, Scan<D::File>)>> {
        let file = match self.disk.open(&name(segment)) {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let bytes = front::<HEAD>(&file)?;
        let head = bytes.and_then(|bytes| Head::decode(&bytes));
        Ok(head.map(|head| (head, Scan::new(file, HEAD as u64))))
    }

    /// Whether events may have been in what can no longer be opened as a segment. One that is being begun has none yet.
    fn is_lost(&self, segment: u64) -> io::Result<bool> {
        match self.disk.open(&name(segment)) {
            Ok(file) => Ok(file.length()? > HEAD as u64),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

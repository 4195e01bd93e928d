//! The records of fanotify as they are read from its queue: in which folder something changed, or that something was lost.

/// `struct fanotify_event_metadata` before the records on what it is about, bytes.
const HEAD: usize = 24;
const VERSION: u8 = 3;
/// The head of a record and the id of its filesystem, bytes; the handle follows.
const BEFORE_HANDLE: usize = 12;
/// The length and the type of a handle, bytes; what it consists of follows.
const BEFORE_BYTES: usize = 8;
/// The longest handle there is, bytes, without its head.
pub(crate) const LONGEST_HANDLE: usize = 128;

/// A folder as its filesystem calls it: `struct file_handle`, of the length it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FolderHandle<'a>(&'a [u8]);

impl<'a> FolderHandle<'a> {
    /// Takes the handle at the beginning of some bytes.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let whole = BEFORE_BYTES + Some(length).filter(|length| *length <= LONGEST_HANDLE)?;
        bytes.get(..whole).map(Self)
    }

    /// The whole of it, head included.
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// Events were lost, or are told in a way that we do not understand: anything may have changed.
    Lost,
    /// Something in a folder was written, made, removed or moved.
    Changed {
        folder: FolderHandle<'a>,
        /// A folder of it came or went by another name, with all below it.
        moved_folder: bool,
    },
}

/// The events of one reading.
#[derive(Debug, Clone)]
pub(super) struct Events<'a>(&'a [u8]);

impl<'a> Events<'a> {
    pub(super) fn of(read: &'a [u8]) -> Self {
        Self(read)
    }

    fn split(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(u32_at(self.0, 0)?).ok()?;
        let (event, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        (length >= HEAD).then_some(event)
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let Some(event) = self.split() else {
            // Without its length nobody knows where the next one begins.
            self.0 = &[];
            return Some(Event::Lost);
        };
        Some(understand(event).unwrap_or(Event::Lost))
    }
}

fn understand(event: &[u8]) -> Option<Event<'_>> {
    const MOVED: u64 = libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
    // A queue that asks for folders alone is told the folder of a file that was written to as if it were a file. If it is one,
    // because the kernel does not know its folder, it cannot be opened as a folder.
    const FOLDERS: [u8; 2] = [
        libc::FAN_EVENT_INFO_TYPE_DFID,
        libc::FAN_EVENT_INFO_TYPE_FID,
    ];
    let mask = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
    if *event.get(4)? != VERSION || mask & libc::FAN_Q_OVERFLOW != 0 {
        return None;
    }
    let mut records = event.get(usize::from(u16_at(event, 6)?).max(HEAD)..)?;
    loop {
        let length = usize::from(u16_at(records, 2)?);
        let (record, rest) = records.split_at_checked(length.max(BEFORE_HANDLE))?;
        let kind = *record.first()?;
        if FOLDERS.contains(&kind) {
            return Some(Event::Changed {
                folder: FolderHandle::parse(&record[BEFORE_HANDLE..])?,
                moved_folder: mask & libc::FAN_ONDIR != 0 && mask & MOVED != 0,
            });
        }
        records = rest;
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u8, handle: &[u8]) -> Vec<u8> {
        let length = (BEFORE_HANDLE + BEFORE_BYTES + handle.len()).next_multiple_of(4);
        let mut record = vec![kind, 0];
        record.extend(u16::try_from(length).expect("short").to_ne_bytes());
        record.extend([9; 8]);
        record.extend(u32::try_from(handle.len()).expect("short").to_ne_bytes());
        record.extend(1_i32.to_ne_bytes());
        record.extend(handle);
        record.resize(length, 0);
        record
    }

    fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let length = u32::try_from(HEAD + records.len()).expect("short");
        let mut event = length.to_ne_bytes().to_vec();
        event.extend([VERSION, 0]);
        event.extend(24_u16.to_ne_bytes());
        event.extend(mask.to_ne_bytes());
        event.extend((-1_i32).to_ne_bytes());
        event.extend(1_i32.to_ne_bytes());
        event.extend(records);
        event
    }

    /// What was read, in words.
    fn told(read: &[u8]) -> Vec<String> {
        let word = |event| match event {
            Event::Lost => "lost".to_owned(),
            Event::Changed {
                folder,
                moved_folder,
            } => format!("{:?} {moved_folder}", &folder.as_bytes()[BEFORE_BYTES..]),
        };
        Events::of(read).map(word).collect()
    }

    #[test]
    fn each_event_tells_its_folder() {
        let folder = libc::FAN_EVENT_INFO_TYPE_DFID;
        let moved = libc::FAN_MOVED_FROM | libc::FAN_ONDIR;
        let read = [
            event(libc::FAN_MODIFY, &[record(folder, &[1, 2, 3])]),
            event(moved, &[record(folder, &[4])]),
            event(libc::FAN_MOVED_TO, &[record(folder, &[5])]),
            event(libc::FAN_CREATE | libc::FAN_ONDIR, &[record(folder, &[6])]),
        ];
        assert_eq!(
            told(&read.concat()),
            ["[1, 2, 3] false", "[4] true", "[5] false", "[6] false"]
        );
        let as_a_file = record(libc::FAN_EVENT_INFO_TYPE_FID, &[7]);
        assert_eq!(told(&event(libc::FAN_MODIFY, &[as_a_file])), ["[7] false"]);
    }

    #[test]
    fn what_is_lost_or_not_understood_is_lost() {
        let folder = libc::FAN_EVENT_INFO_TYPE_DFID;
        let good = event(libc::FAN_MODIFY, &[record(folder, &[1])]);
        assert_eq!(told(&event(libc::FAN_Q_OVERFLOW, &[])), ["lost"]);
        assert_eq!(told(&event(libc::FAN_MODIFY, &[])), ["lost"]);
        let other = [
            record(libc::FAN_EVENT_INFO_TYPE_PIDFD, &[]),
            record(folder, &[2]),
        ];
        assert_eq!(told(&event(libc::FAN_MODIFY, &other)), ["[2] false"]);
        let mut newer = good.clone();
        newer[4] = VERSION + 1;
        assert_eq!(told(&[newer, good.clone()].concat()), ["lost", "[1] false"]);
        let cut = &good[..good.len() - 1];
        assert_eq!(told(&[&good, cut].concat()), ["[1] false", "lost"]);
        let mut long = good.clone();
        long[HEAD + BEFORE_HANDLE] = 129;
        assert_eq!(told(&long), ["lost"]);
    }

    #[test]
    fn an_event_that_is_shorter_than_its_head_ends_the_reading() {
        let mut short = event(libc::FAN_MODIFY, &[]);
        short[0] = 0;
        assert_eq!(told(&short), ["lost"]);
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_ends(read in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(Events::of(&read).count() <= read.len() / HEAD + 1);
        }

        #[test]
        fn a_damaged_event_never_panics(at in 0..60_usize, byte: u8) {
            let folder = libc::FAN_EVENT_INFO_TYPE_DFID;
            let mut read = event(libc::FAN_MODIFY, &[record(folder, &[1, 2, 3, 4, 5, 6, 7, 8])]);
            if let Some(place) = read.get_mut(at) {
                *place = byte;
            }
            prop_assert!(Events::of(&read).count() <= read.len() / HEAD + 1);
        }
    }
}

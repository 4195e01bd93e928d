//! A disk in memory that can be full or hang, and whose power can fail: what was not synced stays, goes, or stays in part.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::disk::{Disk, DiskFile};

/// What was done and is not safe yet.
#[derive(Clone, Debug)]
enum Act {
    Name(String, Option<u64>),
    Write(u64, usize, Vec<u8>),
    Cut(u64, usize),
}

#[derive(Clone, Debug, Default)]
struct Image {
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    fn apply(&mut self, act: &Act) {
        match act {
            Act::Name(name, Some(file)) => {
                self.names.insert(name.clone(), *file);
                self.files.entry(*file).or_default();
            }
            Act::Name(name, None) => {
                self.names.remove(name);
            }
            Act::Write(file, offset, bytes) => {
                let content = self.files.entry(*file).or_default();
                let end = offset + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*offset..end].copy_from_slice(bytes);
            }
            Act::Cut(file, length) => self.files.entry(*file).or_default().truncate(*length),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// As programs see it.
    now: Image,
    /// What is safe.
    safe: Image,
    /// What is between, in order.
    between: Vec<Act>,
    next_file: u64,
    /// Bytes of all files; none: no bound.
    capacity: Option<usize>,
    /// Acts that may be done before the power fails.
    acts_left: Option<usize>,
    sync_fails: bool,
    /// What is written is taken, and nothing is made safe for as long as that is so.
    is_hung: bool,
    /// What is read of it is an error from there on, by the name of the file.
    unreadable: Option<(String, u64)>,
    syncs: usize,
}

/// The disk. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Simulated(Arc<Mutex<State>>);

/// A file of it.
#[derive(Debug)]
pub(super) struct SimulatedFile {
    disk: Simulated,
    file: u64,
}

/// What becomes of each act between, when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    Goes,
    /// A write's first half.
    Torn,
    /// A write made the file longer, and its bytes never came.
    Zeros,
}

pub(super) const FATES: [Fate; 4] = [Fate::Stays, Fate::Goes, Fate::Torn, Fate::Zeros];

impl Simulated {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The power fails before so many acts more were done: every one after them is an error.
    pub(super) fn fail_after(&self, acts: usize) {
        self.lock().acts_left = Some(acts);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.lock().acts_left == Some(0)
    }

    pub(super) fn set_capacity(&self, bytes: Option<usize>) {
        self.lock().capacity = bytes;
    }

    /// A sector of a file goes bad.
    pub(super) fn set_unreadable(&self, name: &str, from: u64) {
        self.lock().unreadable = Some((name.to_owned(), from));
    }

    pub(super) fn set_sync_fails(&self, fails: bool) {
        self.lock().sync_fails = fails;
    }

    pub(super) fn set_hung(&self, is_hung: bool) {
        self.lock().is_hung = is_hung;
    }

    /// How many fates each act has that is not safe now: a name is there or not, a write may also be torn.
    pub(super) fn between(&self) -> Vec<usize> {
        let state = self.lock();
        let fates = state.between.iter().map(|act| match act {
            Act::Write(..) => FATES.len(),
            Act::Name(..) | Act::Cut(..) => 2,
        });
        fates.collect()
    }

    /// The disk as it is found after a power cut.
    pub(super) fn after_cut(&self, fate: impl Fn(usize) -> Fate) -> Self {
        let state = self.lock();
        let mut image = state.safe.clone();
        for (at, act) in state.between.iter().enumerate() {
            match (fate(at), act) {
                (Fate::Stays, act) => image.apply(act),
                (Fate::Goes, _) | (_, Act::Name(..) | Act::Cut(..)) => {}
                (Fate::Torn, Act::Write(file, offset, bytes)) => {
                    let half = bytes[..bytes.len() / 2].to_vec();
                    image.apply(&Act::Write(*file, *offset, half));
                }
                (Fate::Zeros, Act::Write(file, offset, bytes)) => {
                    image.apply(&Act::Write(*file, *offset, vec![0; bytes.len()]));
                }
            }
        }
        Self(Arc::new(Mutex::new(State {
            now: image.clone(),
            safe: image,
            next_file: state.next_file,
            ..State::default()
        })))
    }

    /// Changes the bytes of a file, safely.
    pub(super) fn edit(&self, name: &str, change: impl Fn(&mut Vec<u8>)) {
        let mut state = self.lock();
        let file = state.now.names[name];
        change(state.now.files.get_mut(&file).unwrap());
        state.safe = state.now.clone();
        state.between.clear();
    }

    /// How often a file was made safe.
    pub(super) fn syncs(&self) -> usize {
        self.lock().syncs
    }

    pub(super) fn used(&self) -> usize {
        let state = self.lock();
        let sizes = state.now.names.values().map(|file| &state.now.files[file]);
        sizes.map(Vec::len).sum()
    }

    fn act(&self, act: Act) -> io::Result<()> {
        let mut state = self.lock();
        match &mut state.acts_left {
            Some(0) => return Err(io::Error::other("the power has failed")),
            Some(left) => *left -= 1,
            None => {}
        }
        state.now.apply(&act);
        state.between.push(act);
        Ok(())
    }

    fn settle(&self, is_settled: impl Fn(&Act) -> bool) -> io::Result<()> {
        while self.lock().is_hung {
            thread::sleep(Duration::from_millis(1));
        }
        let mut state = self.lock();
        if state.acts_left == Some(0) {
            return Err(io::Error::other("the power has failed"));
        }
        if state.sync_fails {
            return Err(io::Error::other("the disk is broken"));
        }
        let between = std::mem::take(&mut state.between);
        for act in between {
            if is_settled(&act) {
                state.safe.apply(&act);
            } else {
                state.between.push(act);
            }
        }
        Ok(())
    }
}

impl Disk for Simulated {
    type File = SimulatedFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().now.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<SimulatedFile> {
        let file = self.lock().now.names.get(name).copied();
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        let disk = self.clone();
        Ok(SimulatedFile { disk, file })
    }

    fn open_for_writing(&self, name: &str) -> io::Result<SimulatedFile> {
        self.open(name)
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        let file = {
            let mut state = self.lock();
            if state.now.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.next_file += 1;
            state.next_file
        };
        self.act(Act::Name(name.to_owned(), Some(file)))?;
        self.open(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.open(name)?;
        self.act(Act::Name(name.to_owned(), None))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.open(from)?.file;
        self.act(Act::Name(to.to_owned(), Some(file)))?;
        self.act(Act::Name(from.to_owned(), None))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.settle(|act| matches!(act, Act::Name(..)))
    }

    fn has(&self, name: &str, file: &SimulatedFile) -> bool {
        self.lock().now.names.get(name) == Some(&file.file)
    }

    fn is_there(&self) -> bool {
        true
    }

    fn renew(&mut self) -> io::Result<bool> {
        Ok(false)
    }
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.lock().now.files[&self.file].len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.lock();
        let bad = state.unreadable.as_ref();
        let bad = bad.filter(|(name, _)| state.now.names.get(name) == Some(&self.file));
        let readable = bad.map_or(u64::MAX, |(_, from)| from.saturating_sub(offset));
        if readable == 0 {
            return Err(io::Error::from_raw_os_error(Errno::IO.raw_os_error()));
        }
        let content = &state.now.files[&self.file];
        let rest = content.get(usize::try_from(offset).unwrap()..);
        let rest = rest.unwrap_or_default();
        let length = rest.len().min(bytes.len());
        let length = length.min(usize::try_from(readable).unwrap_or(usize::MAX));
        bytes[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        let capacity = self.disk.lock().capacity.unwrap_or(usize::MAX);
        let room = capacity.saturating_sub(self.disk.used());
        let behind = usize::try_from(self.length()?)
            .unwrap()
            .saturating_sub(offset);
        // What is written over takes no room.
        let length = bytes.len().min(behind.saturating_add(room));
        self.disk
            .act(Act::Write(self.file, offset, bytes[..length].to_vec()))?;
        if length < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).unwrap();
        self.disk.act(Act::Cut(self.file, length))
    }

    fn sync(&self) -> io::Result<()> {
        let file = self.file;
        self.disk.lock().syncs += 1;
        let is_its = |act: &Act| match act {
            Act::Name(..) => false,
            Act::Write(of, ..) | Act::Cut(of, _) => *of == file,
        };
        self.disk.settle(is_its)
    }
}

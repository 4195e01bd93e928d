//! The outbox on disk: a file for each entry, so that what was not told outlives the agent and the machine.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;

use super::entry::{Entry, Key, VERSION};

/// Entries that may wait; one more is refused and counted.
pub const ENTRIES: usize = 256;
/// The largest file that is read, in bytes: a message of some hundred containers.
const LARGEST: u64 = 64 << 10;
/// How a file ends.
const ENDING: &str = "json";
/// How one that is being written ends.
const UNFINISHED: &str = "new";

/// The folder.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    /// How many there are. Held while files come and go: who lists them meets no half of one, and counts each once.
    waiting: Mutex<usize>,
    refused: AtomicU64,
}

/// Why an entry does not come into the outbox.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// There are too many already.
    #[error("{ENTRIES} entries wait for the API server already")]
    Full,
    /// The entry is larger than any that is read again.
    #[error("an entry of {0} bytes is too large")]
    TooLarge(usize),
    /// It cannot be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The version alone: another form may have other fields.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl Files {
    /// The outbox in a folder, which is made if it is not there.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self {
            folder: folder.to_path_buf(),
            waiting: Mutex::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// What it holds, oldest first; and what is wrong with some of it, which is left where it is and told of. For whoever is to
    /// tell it from now on: what another was just writing is taken away.
    ///
    /// # Errors
    /// When the folder cannot be listed.
    pub fn list(&self) -> io::Result<(Vec<Entry>, Vec<String>)> {
        let (mut found, mut troubles) = (Vec::new(), Vec::new());
        let mut waiting = self.lock();
        for file in fs::read_dir(&self.folder)? {
            let path = file?.path();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some(ENDING) => match read(&path) {
                    Ok(entry) => found.push(entry),
                    Err(why) => troubles.push(format!("{}: {why}", path.display())),
                },
                // Half of one whose writer has ended.
                Some(UNFINISHED) => drop(fs::remove_file(&path)),
                _ => {}
            }
        }
        found.sort_by(|a, b| (&a.event.first, &a.key).cmp(&(&b.event.first, &b.key)));
        // What is not understood takes its place too: nobody removes it.
        *waiting = found.len() + troubles.len();
        Ok((found, troubles))
    }

    /// Puts an entry in: it outlives the agent from now on, and a fall of the machine after [`Self::sync`]. One that is there
    /// already stays as far as it has come.
    ///
    /// # Errors
    /// When there are too many, or it cannot be written; it is counted as refused then.
    pub fn put(&self, entry: &Entry) -> Result<(), PutError> {
        let mut waiting = self.lock();
        if self.path(&entry.key).exists() {
            return Ok(());
        }
        let put = if *waiting < ENTRIES {
            self.write(entry)
        } else {
            Err(PutError::Full)
        };
        match &put {
            Ok(()) => *waiting += 1,
            Err(_) => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
        }
        put
    }

    /// Writes what has become of an entry in the place of what was known of it. One that found no room finds none now.
    ///
    /// # Errors
    /// When it cannot be written; what was known before is still there then.
    pub fn update(&self, entry: &Entry) -> Result<(), PutError> {
        let _while_it_is_there = self.lock();
        if self.path(&entry.key).exists() {
            self.write(entry)
        } else {
            Ok(())
        }
    }

    /// Takes an entry out. One that is not there is no error: there was no room for it.
    ///
    /// # Errors
    /// When it cannot be removed, and would be told again.
    pub fn remove(&self, key: &Key) -> io::Result<()> {
        let mut waiting = self.lock();
        match fs::remove_file(self.path(key)) {
            Ok(()) => {
                *waiting = waiting.saturating_sub(1);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes an entry outlive a fall of the machine; blocks on the disk.
    ///
    /// # Errors
    /// When the disk has it not. One that was taken out meanwhile is no error.
    pub fn sync(&self, key: &Key) -> io::Result<()> {
        match File::open(self.path(key)) {
            Ok(file) => file.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        File::open(&self.folder)?.sync_all()
    }

    /// How many entries wait.
    pub fn waiting(&self) -> usize {
        *self.lock()
    }

    /// How many were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A number is whole whoever died holding it.
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(format!("{}.{ENDING}", key.text()))
    }

    fn write(&self, entry: &Entry) -> Result<(), PutError> {
        let path = self.path(&entry.key);
        let io = |source| PutError::Io {
            path: path.clone(),
            source,
        };
        let text = serde_json::to_vec(entry).map_err(|error| io(error.into()))?;
        if text.len() as u64 > LARGEST {
            return Err(PutError::TooLarge(text.len()));
        }
        let aside = path.with_extension(UNFINISHED);
        let written = fs::write(&aside, &text).and_then(|()| fs::rename(&aside, &path));
        written.map_err(|source| {
            // On a full disk half of it would take room that others need.
            let _was_never_there = fs::remove_file(&aside);
            io(source)
        })
    }
}

fn read(path: &Path) -> Result<Entry, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > LARGEST {
        return Err(format!("{size} bytes are too many"));
    }
    let text = fs::read(path).map_err(|error| error.to_string())?;
    let known: Version = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if known.version != VERSION {
        return Err(format!("version {} is not understood", known.version));
    }
    let entry: Entry = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    // By its key it is written and removed.
    if path.file_stem().and_then(|stem| stem.to_str()) != Some(&entry.key.text()) {
        return Err("it is not named after its key".to_owned());
    }
    if !entry.pod.is_named() {
        return Err("no pod can have that name".to_owned());
    }
    if !entry.has_its_status() {
        return Err("it says something of a status that it has not".to_owned());
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::entry::tests::entry;
    use super::super::entry::{End, Part};
    use super::*;

    #[test]
    fn what_was_put_in_is_found_again_as_far_as_it_had_come() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path()).unwrap();
        assert!(files.list().unwrap().0.is_empty());
        let (mut first, second) = (entry(1), entry(2));
        files.put(&second).unwrap();
        files.put(&first).unwrap();
        files.sync(&first.key).unwrap();
        first.status_part = Part::Ended(End::Refused("no".to_owned()));
        files.update(&first).unwrap();
        let files = Files::open(folder.path()).unwrap();
        let (found, troubles) = files.list().unwrap();
        assert_eq!((found, troubles), (vec![first.clone(), second], vec![]));
        assert_eq!(files.waiting(), 2);
        files.remove(&first.key).unwrap();
        files.remove(&first.key).unwrap();
        files.sync(&first.key).unwrap();
        assert_eq!(files.waiting(), 1);
        assert_eq!(files.list().unwrap().0.len(), 1);
    }

    #[test]
    fn one_more_than_may_wait_is_refused_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path()).unwrap();
        for order in 0..ENTRIES as u64 {
            files.put(&entry(order)).unwrap();
        }
        assert!(matches!(files.put(&entry(9999)), Err(PutError::Full)));
        assert_eq!((files.waiting(), files.refused()), (ENTRIES, 1));
        files.remove(&entry(3).key).unwrap();
        files.put(&entry(9999)).unwrap();
        let mut large = entry(5);
        files.remove(&large.key).unwrap();
        large.event.message = "x".repeat(70_000);
        assert!(matches!(files.put(&large), Err(PutError::TooLarge(_))));
        // What was refused has taken nobody's place.
        files.put(&entry(5)).unwrap();
    }

    #[test]
    fn what_found_no_room_takes_none_later_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path()).unwrap();
        let (mut told, absent) = (entry(1), entry(2));
        files.update(&absent).unwrap();
        files.remove(&absent.key).unwrap();
        assert_eq!((files.waiting(), files.list().unwrap().0.len()), (0, 0));
        files.put(&told).unwrap();
        told.status_part = Part::Done;
        files.update(&told).unwrap();
        files.put(&entry(1)).unwrap();
        assert_eq!(files.waiting(), 1);
        assert_eq!(files.list().unwrap().0, [told]);
    }

    #[test]
    fn what_is_damaged_is_told_and_leaves_the_others_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path()).unwrap();
        files.put(&entry(1)).unwrap();
        fs::write(folder.path().join("half.json"), "{\"version\":1,").unwrap();
        fs::write(folder.path().join("later.json"), "{\"version\":2}").unwrap();
        let (mut elsewhere, mut empty) = (entry(3), entry(4));
        elsewhere.pod.name.push_str("?x");
        empty.status = None;
        files.put(&elsewhere).unwrap();
        files.put(&empty).unwrap();
        let renamed = folder.path().join("renamed.json");
        fs::write(renamed, serde_json::to_vec(&entry(2)).unwrap()).unwrap();
        fs::write(folder.path().join("x.new"), "{").unwrap();
        let (found, mut troubles) = files.list().unwrap();
        troubles.sort();
        assert_eq!((found.len(), troubles.len()), (1, 5), "{troubles:?}");
        for (trouble, why) in troubles.iter().zip([
            "no pod can have",
            "a status that it has not",
            "EOF",
            "version 2",
            "named after",
        ]) {
            assert!(trouble.contains(why), "{troubles:?}");
        }
        assert!(!folder.path().join("x.new").exists());
        assert_eq!(files.waiting(), 6);
    }

    proptest! {
        /// What an agent before us left may be damaged anywhere.
        #[test]
        fn any_file_is_read_or_told_of(at in 0_usize..900, byte: u8, cut in 0_usize..900) {
            let folder = tempfile::tempdir().unwrap();
            let files = Files::open(folder.path()).unwrap();
            let whole = entry(1);
            let mut text = serde_json::to_vec(&whole).unwrap();
            if let Some(place) = text.get_mut(at) {
                *place = byte;
            }
            text.truncate(text.len().saturating_sub(cut.saturating_sub(800)));
            fs::write(files.path(&whole.key), &text).unwrap();
            let (found, troubles) = files.list().unwrap();
            prop_assert_eq!(found.len() + troubles.len(), 1);
            for entry in found {
                prop_assert!(entry.event_name().len() <= 253);
                files.remove(&entry.key).unwrap();
                prop_assert_eq!(files.waiting(), 0);
            }
        }
    }
}

//! What the agent took in, and when, by its own journal: read from a moment on, since it grows by megabytes.
use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// A place in the journal.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    offset: u64,
}

impl Journal {
    /// The end of the journal as it is now.
    pub(super) fn at_end(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let offset = file.seek(SeekFrom::End(0))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            offset,
        })
    }

    /// When the first step after this place was taken that `wanted` holds for, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) fn first(&self, wanted: impl Fn(&Value) -> bool) -> io::Result<Option<u64>> {
        let text = self.text()?;
        // A line that is being written is no JSON yet.
        let mut steps = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(steps.find_map(|step| wanted(&step).then(|| step["at"].as_u64())?))
    }

    /// What was written since, the new file's after the old one's if it was put aside meanwhile.
    fn text(&self) -> io::Result<String> {
        let mut bytes = Vec::new();
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.offset))?;
        file.read_to_end(&mut bytes)?;
        let mut current = File::open(&self.path)?;
        if current.metadata()?.ino() != self.file.metadata()?.ino() {
            bytes.push(b'\n');
            current.read_to_end(&mut bytes)?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Whether a step crossed a threshold.
pub(super) fn crosses(step: &Value) -> bool {
    let actions = step["actions"].as_array();
    actions.is_some_and(|actions| actions.iter().any(|action| action.get("crossed").is_some()))
}

/// Whether a step took in that somebody else killed a process of a workload.
pub(super) fn is_dying(step: &Value) -> bool {
    step["kind"].get("dying").is_some()
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    #[test]
    fn steps_are_found_from_a_place_on_and_in_the_next_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let dying = |at| format!("{{\"at\":{at},\"kind\":{{\"dying\":{{}}}},\"actions\":[]}}\n");
        fs::write(&path, dying(1)).unwrap();
        let place = Journal::at_end(&path).unwrap();
        assert_eq!(place.first(is_dying).unwrap(), None);
        let mut file = File::options().append(true).open(&path).unwrap();
        write!(
            file,
            "{{\"at\":2,\"kind\":\"sample\",\"actions\":[{{\"crossed\":{{}}}}]}}\n{{\"at\":3,"
        )
        .unwrap();
        assert_eq!(place.first(crosses).unwrap(), Some(2));
        assert_eq!(place.first(is_dying).unwrap(), None);
        fs::rename(&path, folder.path().join("journal.1")).unwrap();
        fs::write(&path, dying(4)).unwrap();
        assert_eq!(place.first(is_dying).unwrap(), Some(4));
    }
}

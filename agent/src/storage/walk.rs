//! One walk of what a workload has on disks: its folders one after the other, its file of host names, and its writable layers.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use brink_core::node::workload::FsUsage;
use brink_host::disk::{DiskError, Gaps, Stopped, Usage, UsageMeter};

use super::ground::Ground;
use super::layers::Kept;
use super::measured::{Found, of_file};
use super::owned::{Owned, Piece};

/// What a walk goes by.
pub(super) struct Walk<'a> {
    /// Measures folders.
    pub(super) meter: &'a mut UsageMeter,
    /// Where the node's filesystems lie.
    pub(super) ground: &'a Ground,
    /// What is known of writable layers.
    pub(super) layers: &'a Kept,
    /// Ends it in the middle.
    pub(super) stop: &'a AtomicBool,
    /// Hears which folder is asked, and of none once that has answered.
    pub(super) asking: &'a dyn Fn(Option<&Path>),
}

/// Why not all is known of a folder.
#[derive(Debug)]
pub(super) enum Flaw {
    /// It is not there: a pod's folders come when it starts, and go with it.
    NotThere,
    /// It could not be measured at all.
    Unknown(DiskError),
    /// Something in it could not be looked at; it uses at least what was found.
    Partial(Gaps),
}

impl Walk<'_> {
    /// What a workload has. Of each folder that is not wholly known `goes_on` hears, and says whether the others are still wanted: there
    /// is nothing where they are not, nor where the walk was stopped.
    pub(super) fn of<'o>(
        mut self,
        owned: &'o Owned,
        mut goes_on: impl FnMut(&'o Piece, Flaw) -> bool,
    ) -> Option<Found> {
        let hosts_file = owned.hosts_file.as_deref();
        let mut found = Found {
            hosts_file: hosts_file.map_or_else(FsUsage::default, of_file),
            ..Found::default()
        };
        self.layers.put_into(&mut found, owned);
        for piece in &owned.pieces {
            let flaw = match self.measure(piece) {
                Ok(usage) if usage.gaps.stopped == Some(Stopped::Cancelled) => return None,
                Ok(usage) => {
                    let used = FsUsage {
                        bytes: Some(usage.bytes),
                        inodes: Some(usage.inodes),
                    };
                    found.parts.insert(piece.part.clone(), used);
                    if self.ground.is_elsewhere(&piece.folder.path) {
                        found.elsewhere.insert(piece.part.clone());
                    }
                    if !usage.gaps.is_partial() {
                        continue;
                    }
                    Flaw::Partial(usage.gaps)
                }
                Err(DiskError::Missing { .. }) if hosts_file.is_some() => Flaw::NotThere,
                Err(error) => Flaw::Unknown(error),
            };
            found.is_partial |= !matches!(flaw, Flaw::NotThere);
            if !goes_on(piece, flaw) {
                return None;
            }
        }
        Some(found)
    }

    fn measure(&mut self, piece: &Piece) -> Result<Usage, DiskError> {
        (self.asking)(Some(piece.folder.path.as_path()));
        let measured = self.meter.measure(&piece.folder, Instant::now(), self.stop);
        (self.asking)(None);
        measured
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use brink_host::disk::{Folder, Pace, UsageSettings};

    use super::super::layers::Told;
    use super::super::owned::Part;
    use super::*;

    /// A workload with these folders, the pod of a kubelet or not.
    fn owned(folders: &[&Path], is_pod: bool) -> Owned {
        let piece = |path: &&Path| Piece {
            part: Part::Volume(path.display().to_string()),
            folder: Folder {
                path: path.to_path_buf(),
                quota: false,
                written_directly: true,
            },
        };
        Owned {
            pieces: folders.iter().map(piece).collect(),
            hosts_file: is_pod.then(|| PathBuf::from("/nowhere/etc-hosts")),
            containers: vec![("app".to_owned(), "its".to_owned())],
            ..Owned::default()
        }
    }

    /// What was found, by a walk that goes on or not, and the flaws it told of.
    fn walked(owned: &Owned, is_patient: bool, is_stopped: bool) -> (Option<Found>, Vec<String>) {
        let mut meter = UsageMeter::new(UsageSettings {
            feed: false,
            pace_without_feed: Pace::UNBOUNDED,
            ..UsageSettings::default()
        });
        let used = |bytes| FsUsage {
            bytes: Some(bytes),
            inodes: None,
        };
        let layers = [("its", 1), ("another's", 2)];
        let layers = layers.map(|(id, bytes)| (id.to_owned(), used(bytes)));
        let told = Told {
            layers: layers.into(),
            ..Told::default()
        };
        let mut kept = Kept::default();
        kept.hear((Ok(told), Instant::now()));
        let asked = RefCell::new(Vec::new());
        let asking = |path: Option<&Path>| asked.borrow_mut().push(path.is_some());
        let walk = Walk {
            meter: &mut meter,
            ground: &Ground::default(),
            layers: &kept,
            stop: &AtomicBool::new(is_stopped),
            asking: &asking,
        };
        let mut flaws = Vec::new();
        let found = walk.of(owned, |piece, flaw| {
            let path = piece.folder.path.display();
            flaws.push(match flaw {
                Flaw::NotThere => format!("{path}: not there"),
                Flaw::Unknown(error) => error.to_string(),
                Flaw::Partial(_) => format!("{path}: in part"),
            });
            is_patient
        });
        let asked = asked.into_inner();
        assert!(asked.chunks(2).all(|two| two == [true, false]), "{asked:?}");
        (found, flaws)
    }

    #[test]
    fn a_folder_that_is_not_there_is_a_flaw_of_whoever_named_it_and_none_of_a_pods_figures() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        let missing = folder.path().join("missing");
        let folders = [missing.as_path(), folder.path()];
        for (is_pod, told) in [
            (true, "missing: not there"),
            (false, "missing is not there"),
        ] {
            let owned = owned(&folders, is_pod);
            let (found, flaws) = walked(&owned, true, false);
            assert!(flaws.len() == 1 && flaws[0].ends_with(told), "{flaws:?}");
            let found = found.unwrap();
            assert_eq!((found.parts.len(), found.is_partial), (1, !is_pod));
            assert_eq!(found.parts[&owned.pieces[1].part].inodes, Some(2));
            let layers: Vec<&String> = found.layers.keys().collect();
            assert_eq!(layers, ["its"]);
            assert!(walked(&owned, false, false).0.is_none());
        }
    }

    #[test]
    fn of_a_walk_that_was_stopped_there_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        // More than a walk goes through before it looks whether it is to end.
        for number in 0..2_000 {
            std::fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        let owned = owned(&[folder.path()], true);
        assert!(walked(&owned, true, false).0.is_some());
        let (found, flaws) = walked(&owned, true, true);
        assert!(found.is_none() && flaws.is_empty(), "{flaws:?}");
    }
}

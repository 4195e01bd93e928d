//! Soft graces that have begun, kept under /run so that they go on where they were after a short restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brink_core::base::{Moment, Span};
use brink_core::node::input::Recalled;
use brink_core::node::policy::Policy;
use brink_core::node::threshold::Threshold;
use brink_host::clock::BootId;
use brink_stream::hub::numbers::checksum;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::kept;
use super::state::State;

/// While a soft threshold is met the file is written so often in the time after which it would be worth nothing.
const KEPT_A_TIME: i64 = 10;
/// How the file begins. One of another version is not read; the first one had neither this nor a checksum.
const HEAD: &[u8] = br#"{"version":2,"kept":"#;

/// The file.
#[derive(Clone, Debug)]
pub struct Graces {
    path: PathBuf,
    boot: String,
    /// An agent that was away for longer does not know what happened meanwhile: its graces begin anew.
    longest_absence: Span,
    /// When something that is met was last kept.
    kept: Option<Moment>,
}

/// What the file says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Monotonic times of another boot mean nothing.
    boot: String,
    met: Vec<Met>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Met {
    threshold: Threshold,
    since: Moment,
    /// When it was last seen to be met.
    seen: Moment,
}

impl Met {
    /// Whether its times are in the order in which they were taken.
    fn can_be(&self, now: Moment) -> bool {
        (Moment::START..=self.seen).contains(&self.since) && self.seen <= now
    }
}

/// The whole file for what it is to say, which is JSON: the version before that, and its checksum behind it.
pub fn seal(says: &[u8]) -> Vec<u8> {
    let end = format!(r#","sum":"{:016x}"}}"#, checksum(says));
    [HEAD, says, end.as_bytes()].concat()
}

/// What a file says that nothing has damaged.
fn unseal(file: &[u8]) -> Result<&[u8], &'static str> {
    let rest = file.strip_prefix(HEAD).ok_or("it is of another version")?;
    let length = file.len().saturating_sub(seal(&[]).len());
    let says = rest.get(..length).unwrap_or_default();
    if seal(says) == file {
        Ok(says)
    } else {
        Err("its checksum does not fit")
    }
}

impl Graces {
    /// The file in a folder.
    pub fn new(folder: &Path, boot: BootId, longest_absence: Span) -> Self {
        Self {
            path: folder.join("graces.json"),
            boot: boot.to_string(),
            longest_absence,
            kept: None,
        }
    }

    /// What is to be kept of how things stand at `seen`, a moment the node was looked at: all of it when a soft threshold was
    /// crossed or cleared, and now and then while one is met; none in between.
    pub(super) fn due(&mut self, state: &State, seen: Moment, is_changed: bool) -> Option<Kept> {
        let every = Span::from_nanos(self.longest_absence.as_nanos() / KEPT_A_TIME);
        let is_old = self.kept.is_none_or(|kept| seen.since(kept) >= every);
        let is_due = is_changed || (is_old && has_grace(state));
        if !is_due {
            return None;
        }
        self.kept = Some(seen);
        let met = state.met.iter().filter_map(|index| {
            let threshold = *state.policy.thresholds().get(index)?;
            Some(Met {
                threshold,
                since: state.met_since[index]?,
                seen,
            })
        });
        Some(Kept {
            boot: self.boot.clone(),
            met: met.collect(),
        })
    }

    /// Keeps it.
    pub(super) fn write(&self, kept: &Kept) {
        let says = serde_json::to_vec(kept).map_err(io::Error::from);
        let written = says.and_then(|says| kept::write_bytes(&self.path, &seal(&says)));
        if let Err(error) = written {
            // The one before would bring back a grace that may be over by then.
            let _was_never_there = fs::remove_file(&self.path);
            warn!(%error, path = %self.path.display(), "graces cannot be kept; a restart would begin them anew");
        }
    }

    /// The graces that were kept in this boot not too long ago, for thresholds that this policy has too. Those of a file that is damaged,
    /// or with times that cannot be, begin anew.
    pub fn recall(&self, policy: &Policy, now: Moment) -> Vec<Recalled> {
        let thresholds = policy.thresholds();
        let recalled = |met: Met| {
            if !met.can_be(now) {
                warn!(path = %self.path.display(), "a grace of the last run has times that cannot be; it begins anew");
                return None;
            }
            if now.since(met.seen) > self.longest_absence {
                return None;
            }
            let mut places = thresholds.iter();
            let threshold = places.position(|now| now.is_same_as(&met.threshold))?;
            Some(Recalled::Met {
                threshold,
                since: met.since,
            })
        };
        let kept = self.read().map_or_else(Vec::new, |kept| kept.met);
        kept.into_iter().filter_map(recalled).collect()
    }

    fn read(&self) -> Option<Kept> {
        match self.says() {
            Ok(found) => found.filter(|found| found.boot == self.boot),
            Err(error) => {
                warn!(%error, path = %self.path.display(), "the graces of the last run cannot be read; they begin anew");
                None
            }
        }
    }

    fn says(&self) -> io::Result<Option<Kept>> {
        let Some(file) = kept::read_bytes(&self.path, kept::LARGEST)? else {
            return Ok(None);
        };
        let says = unseal(&file).map_err(io::Error::other)?;
        Ok(Some(serde_json::from_slice(says)?))
    }
}

/// Whether a soft threshold is met.
fn has_grace(state: &State) -> bool {
    state.met.iter().any(|index| state.is_soft(index))
}

#[cfg(test)]
mod tests {
    use brink_core::base::Quantity;
    use brink_core::node::engine::MemoryPolicy;
    use brink_core::node::observe::Layout;
    use brink_core::node::policy::{Policy, Settings};
    use brink_core::node::safety::Mode;
    use brink_core::node::signal::Signal;
    use brink_core::node::threshold::Value;

    use super::*;

    fn policy() -> Policy {
        let threshold = |mib: i64, grace| Threshold {
            signal: Signal::MemoryAvailable,
            grace: Span::from_secs(grace),
            value: Value::Quantity(Quantity::from_bytes(mib << 20)),
            min_reclaim: None,
        };
        let thresholds = [threshold(100, 0), threshold(200, 60)].to_vec();
        Policy::new(thresholds, Layout::Single, Settings::default())
    }

    const ABSENCE: Span = Span::from_secs(10);

    fn graces(folder: &tempfile::TempDir, boot: u8) -> Graces {
        Graces::new(folder.path(), BootId([boot; 16]), ABSENCE)
    }

    /// A soft threshold that has been met since second 7, and its index.
    fn met() -> (State, usize) {
        let mut state = State::new(policy(), MemoryPolicy::Kubelet, Mode::Enforcing);
        let thresholds = state.policy.thresholds();
        let soft = thresholds.iter().position(|t| !t.is_hard()).unwrap();
        state.met.insert(soft);
        state.met_since[soft] = Some(Moment::from_secs(7));
        (state, soft)
    }

    #[test]
    fn a_grace_goes_on_in_the_same_boot_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut graces = graces(&folder, 1);
        let (state, soft) = met();
        let now = Moment::from_secs(8);
        graces.write(&graces.clone().due(&state, now, true).unwrap());
        let met = Recalled::Met {
            threshold: soft,
            since: Moment::from_secs(7),
        };
        assert_eq!(graces.recall(&policy(), now), [met]);
        assert_eq!(self::graces(&folder, 2).recall(&policy(), now), []);
        fs::write(folder.path().join("graces.json"), "{").unwrap();
        assert_eq!(graces.recall(&policy(), now), []);
        let nothing = State::new(policy(), MemoryPolicy::Kubelet, Mode::Enforcing);
        graces.write(&graces.clone().due(&nothing, now, true).unwrap());
        assert_eq!(graces.recall(&policy(), now), []);
        assert!(graces.due(&nothing, Moment::from_secs(60), false).is_none());
    }

    #[test]
    fn what_cannot_be_kept_leaves_nothing_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let mut graces = graces(&folder, 1);
        let (state, _) = met();
        let now = Moment::from_secs(8);
        let kept = graces.due(&state, now, true).unwrap();
        graces.write(&kept);
        assert_eq!(graces.recall(&policy(), now).len(), 1);
        // Nothing can be written in the place of a folder.
        fs::create_dir(folder.path().join("graces.new")).unwrap();
        graces.write(&kept);
        assert_eq!(graces.recall(&policy(), now), []);
    }

    #[test]
    fn whatever_is_damaged_in_the_file_nothing_of_it_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut graces = graces(&folder, 1);
        let (state, _) = met();
        let now = Moment::from_secs(8);
        let kept = graces.due(&state, now, true).unwrap();
        graces.write(&kept);
        let path = folder.path().join("graces.json");
        let whole = fs::read(&path).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(json["version"], 2);
        let recalled = |file: &[u8]| {
            fs::write(&path, file).unwrap();
            graces.recall(&policy(), now)
        };
        assert_eq!(recalled(&whole).len(), 1);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(recalled(&damaged), [], "byte {at}");
            assert_eq!(recalled(&whole[..at]), [], "up to byte {at}");
        }
        assert_eq!(recalled(&[&whole[..], b"\n"].concat()), []);
        let of_the_first_version = serde_json::to_vec(&kept).unwrap();
        assert_eq!(recalled(&of_the_first_version), []);
    }

    #[test]
    fn a_grace_whose_times_cannot_be_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let graces = graces(&folder, 1);
        let (_, soft) = met();
        let threshold = policy().thresholds()[soft];
        for (since, seen, expected) in [
            (7, 15, 1),
            (0, 15, 1),
            (15, 15, 1),
            (7, 20, 1),
            (16, 15, 0),
            (7, 21, 0),
            (-1, 15, 0),
            (i64::MIN, 15, 0),
            (i64::MAX, 15, 0),
            (i64::MIN, i64::MIN, 0),
            (i64::MAX, i64::MAX, 0),
        ] {
            let [since, seen] = [since, seen].map(Moment::from_secs);
            let met = Met {
                threshold,
                since,
                seen,
            };
            graces.write(&Kept {
                boot: graces.boot.clone(),
                met: vec![met],
            });
            let recalled = graces.recall(&policy(), Moment::from_secs(20));
            assert_eq!(recalled.len(), expected, "{since:?} {seen:?}");
        }
    }

    #[test]
    fn a_grace_begins_anew_after_too_long_an_absence() {
        let folder = tempfile::tempdir().unwrap();
        let mut graces = graces(&folder, 1);
        let (state, _) = met();
        let kept = graces.due(&state, Moment::from_secs(20), false);
        graces.write(&kept.unwrap());
        let recalled = |second| graces.recall(&policy(), Moment::from_secs(second)).len();
        assert_eq!((recalled(20), recalled(30), recalled(31)), (1, 1, 0));
    }

    #[test]
    fn what_stays_met_is_kept_now_and_then() {
        let folder = tempfile::tempdir().unwrap();
        let mut graces = graces(&folder, 1);
        let (state, _) = met();
        let mut is_due = |millis, is_changed| {
            let at = Moment::START + Span::from_millis(millis);
            graces.due(&state, at, is_changed).is_some()
        };
        assert!(is_due(8000, false));
        assert!(!is_due(8999, false));
        assert!(is_due(9000, false));
        assert!(is_due(9001, true));
        assert!(!is_due(10_000, false));
        assert!(is_due(10_001, false));
    }
}

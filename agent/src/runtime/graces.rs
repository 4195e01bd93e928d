//! Soft graces that have begun, kept under /run so that they go on where they were after a restart.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brink_core::base::Moment;
use brink_core::node::input::Recalled;
use brink_core::node::policy::Policy;
use brink_core::node::threshold::Threshold;
use brink_host::clock::BootId;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::state::State;

/// The file.
#[derive(Clone, Debug)]
pub struct Graces {
    path: PathBuf,
    boot: String,
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
}

impl Graces {
    /// The file in a folder.
    pub fn new(folder: &Path, boot: BootId) -> Self {
        Self {
            path: folder.join("graces.json"),
            boot: boot.to_string(),
        }
    }

    /// What is met now.
    pub(super) fn of(&self, state: &State) -> Kept {
        let met = state.met.iter().filter_map(|index| {
            let threshold = *state.policy.thresholds().get(index)?;
            Some(Met {
                threshold,
                since: state.met_since[index]?,
            })
        });
        Kept {
            boot: self.boot.clone(),
            met: met.collect(),
        }
    }

    /// Keeps it.
    pub(super) fn write(&self, kept: &Kept) {
        let aside = self.path.with_extension("new");
        let written = serde_json::to_vec(kept)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&aside, text))
            .and_then(|()| fs::rename(&aside, &self.path));
        if let Err(error) = written {
            warn!(%error, path = %self.path.display(), "graces cannot be kept; a restart would begin them anew");
        }
    }

    /// The graces that were kept in this boot, for thresholds that this policy has too.
    pub fn recall(&self, policy: &Policy) -> Vec<Recalled> {
        let thresholds = policy.thresholds();
        let recalled = |met: Met| {
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
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!(%error, path = %self.path.display(), "the graces of the last run cannot be read");
                return None;
            }
        };
        match serde_json::from_slice::<Kept>(&text) {
            Ok(kept) => Some(kept).filter(|kept| kept.boot == self.boot),
            Err(error) => {
                warn!(%error, path = %self.path.display(), "the graces of the last run are not understood");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use brink_core::base::{Quantity, Span};
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

    #[test]
    fn a_grace_goes_on_in_the_same_boot_only() {
        let folder = tempfile::tempdir().unwrap();
        let graces = Graces::new(folder.path(), BootId([1; 16]));
        let mut state = State::new(policy(), MemoryPolicy::Kubelet, Mode::Enforcing);
        let soft = state
            .policy
            .thresholds()
            .iter()
            .position(|t| !t.is_hard())
            .unwrap();
        state.met.insert(soft);
        state.met_since[soft] = Some(Moment::from_secs(7));
        graces.write(&graces.of(&state));
        let since = Moment::from_secs(7);
        let met = Recalled::Met {
            threshold: soft,
            since,
        };
        assert_eq!(graces.recall(&policy()), [met]);
        assert_eq!(
            Graces::new(folder.path(), BootId([2; 16])).recall(&policy()),
            []
        );
        fs::write(folder.path().join("graces.json"), "{").unwrap();
        assert_eq!(graces.recall(&policy()), []);
    }
}

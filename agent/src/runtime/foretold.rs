//! What the kubelet would have done, kept beside the ledger.
//!
//! The ledger's own records are complete before anybody has worked that out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use brink_host::clock::BootId;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::kept;
use crate::record::DecisionRecord;
use crate::record::kubelet::KubeletView;

/// The file.
#[derive(Clone, Debug)]
pub struct Foretold {
    path: PathBuf,
    boot: String,
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Views {
    /// Orders are numbered anew in each boot.
    boot: String,
    /// By the order's number.
    views: BTreeMap<u64, KubeletView>,
}

impl Foretold {
    /// The file in a folder.
    pub fn new(folder: &Path, boot: BootId) -> Self {
        Self {
            path: folder.join("foretold.json"),
            boot: boot.to_string(),
        }
    }

    /// All of it as these decisions have it.
    pub(super) fn views<'a>(&self, decisions: impl Iterator<Item = &'a DecisionRecord>) -> Views {
        let views = decisions.filter_map(|record| Some((record.order, record.kubelet.clone()?)));
        Views {
            boot: self.boot.clone(),
            views: views.collect(),
        }
    }

    /// Keeps it.
    pub(super) fn write(&self, views: &Views) {
        if let Err(error) = kept::write(&self.path, views) {
            warn!(%error, path = %self.path.display(), "what the kubelet would have done cannot be kept; a restart would forget it");
        }
    }

    /// What was kept in this boot, by the order's number.
    pub fn recall(&self) -> BTreeMap<u64, KubeletView> {
        match kept::read::<Views>(&self.path) {
            Ok(found) => found
                .filter(|found| found.boot == self.boot)
                .map_or_else(BTreeMap::new, |found| found.views),
            Err(error) => {
                warn!(%error, path = %self.path.display(), "what the kubelet would have done in the last run cannot be read");
                BTreeMap::new()
            }
        }
    }
}

//! A pod that runs, and where.

use std::path::PathBuf;

use crate::manifest::GO;
use crate::support::{Pod, write_inside};
use crate::{group_of, wait_running};

/// One of a single container.
pub(crate) struct RunningPod<'a> {
    pub(crate) pod: Pod<'a>,
    pub(crate) uid: String,
    /// Of its container.
    pub(crate) group: PathBuf,
}

impl<'a> RunningPod<'a> {
    /// Waits until it runs.
    pub(crate) fn new(pod: Pod<'a>) -> Self {
        let found = wait_running(&pod);
        Self {
            uid: found["metadata"]["uid"].as_str().unwrap().to_owned(),
            group: group_of(&found),
            pod,
        }
    }

    /// Tells it to take what it waits to take.
    pub(crate) fn begin(&self) {
        write_inside(&self.group, GO, "go");
    }
}

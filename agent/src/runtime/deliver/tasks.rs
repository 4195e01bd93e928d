//! The tasks that carry on what the speaker is told: to the API server, and from the node's annotation back.

use std::path::PathBuf;
use std::sync::Arc;

use brink_kube::client::Access;
use brink_kube::outbox::Entry;
use brink_kube::pause::{self, Pause};
use brink_kube::write::deliver::Postman;
use brink_kube::write::door::Door;
use brink_kube::write::herald::{Herald, Wanted};
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tracing::{error, info};

use super::beside;
use super::speaker::Speaker;
use crate::config::AgentConfig;
use crate::runtime::cluster::InVain;
use crate::runtime::stop_button::{StopButton, Written};

/// The tasks that carry on what it is told.
pub struct Tasks {
    pub(super) speaker: Arc<Speaker>,
    pub(super) access: Access,
    pub(super) node: String,
    pub(super) seed: u64,
    pub(super) taints: bool,
    pub(super) file: PathBuf,
    pub(super) button: StopButton,
    pub(super) new: Receiver<Entry>,
    pub(super) changes: watch::Receiver<u64>,
    pub(super) config: watch::Receiver<Option<Arc<AgentConfig>>>,
    pub(super) asked_in_vain: Option<watch::Receiver<Option<InVain>>>,
    pub(super) wanted: watch::Receiver<Wanted>,
}

impl Tasks {
    /// Carries on what is told until [`Speaker::close`] has been called, and the node no longer says what it said for us.
    pub async fn run(self) {
        let speaker = Arc::clone(&self.speaker);
        let known = (self.config, self.asked_in_vain);
        let beside = beside::follow(known, move |conflict| speaker.stand_beside(conflict));
        let postman = Postman {
            door: Door::new(self.access.clone()),
            node: self.node.clone(),
            seed: self.seed,
            files: self.speaker.files(),
            new: self.new,
            pods: self.changes,
            ours: self.speaker.ours(),
            around: self.speaker,
        };
        let pause = pause::Follow {
            access: self.access.clone(),
            node: self.node.clone(),
            seed: self.seed,
        };
        let button = self.button;
        let herald = Herald {
            door: Door::new(self.access),
            node: self.node,
            seed: self.seed,
            taints: self.taints,
            wanted: self.wanted,
            file: self.file,
        };
        tokio::select! {
            () = postman.run() => {}
            () = herald.run() => {}
            () = pause.run(|pause| keep_pause(&button, pause)) => {}
            () = beside => {}
        }
    }
}

/// Keeps how the node's annotation stands where the watcher looks, and where a start without an API finds it.
fn keep_pause(button: &StopButton, pause: Pause) {
    let (is_same, kept) = match (pause, button.look()) {
        (Pause::No, Written::Nothing) | (Pause::Forever, Written::Forever) => (true, Ok(())),
        (Pause::Until(until), Written::Until(known)) if until == known => (true, Ok(())),
        (Pause::No, _) => (false, button.lift()),
        (Pause::Forever, _) => (false, button.press_until(None)),
        (Pause::Until(until), _) => (false, button.press_until(Some(until))),
    };
    match kept {
        Err(error) => {
            error!(%error, path = %button.path().display(), "the node's annotation {} cannot be followed", pause::ANNOTATION);
        }
        Ok(()) if !is_same => info!(?pause, "the node's annotation {}", pause::ANNOTATION),
        Ok(()) => {}
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_nodes_annotation_becomes_a_button_and_is_lifted_again() {
        let folder = tempfile::tempdir().unwrap();
        let button = StopButton::of_node(folder.path());
        let until = Timestamp::from_second(4_000_000_000).unwrap();
        for (pause, expected) in [
            (Pause::Forever, Written::Forever),
            (Pause::Until(until), Written::Until(until)),
            (Pause::No, Written::Nothing),
            (Pause::No, Written::Nothing),
        ] {
            keep_pause(&button, pause);
            assert_eq!(button.look(), expected);
        }
    }
}

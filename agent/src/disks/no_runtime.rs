//! The container runtime where the agent was built without it: there is none.

use std::path::PathBuf;
use std::time::Duration;

use super::RuntimeState;
use super::answer::{End, Folders, Order, Outcome};
use crate::config::RuntimeConfig;

/// Asks nobody.
pub struct ContainerRuntime {
    state: RuntimeState,
}

/// Ends what is being asked.
#[derive(Clone, Debug, Default)]
pub struct Stopper(());

impl Stopper {
    /// Nothing is.
    pub fn stop(&self) {}
}

impl ContainerRuntime {
    /// Nobody.
    pub fn new(_root: PathBuf, _config: RuntimeConfig, _stopper: Stopper) -> Self {
        Self {
            state: RuntimeState::default(),
        }
    }

    /// How it stands.
    pub const fn state(&self) -> &RuntimeState {
        &self.state
    }

    /// Nothing is known.
    pub fn folders(&mut self) -> Option<Folders> {
        None
    }

    /// Nothing is there to note.
    pub fn observe(&mut self) {}

    /// There is nobody to ask.
    pub fn reclaim(
        &mut self,
        _order: &Order<'_>,
        _within: Duration,
        _enough: &mut dyn FnMut(Option<u64>) -> bool,
    ) -> Outcome {
        Outcome {
            end: End::Lost("absent"),
            why: Some("this agent was built without container runtimes".to_owned()),
            ..Outcome::default()
        }
    }
}

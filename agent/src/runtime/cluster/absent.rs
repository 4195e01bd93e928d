//! What stands for a cluster in a build that knows none.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::{Answered, Answers, Obstacle, Unsaid, Voice};
use crate::backend::source::PodSource;
use crate::bell::Bell;
use crate::config::AgentConfig;
use crate::control::protocol::KubernetesView;
use crate::disks::answer::AsksApi;
use crate::guard::ports::{Evicted, Ports};
use crate::runtime::deliver::Deliver;

/// There is none.
#[derive(Debug)]
pub enum Cluster {}

impl Cluster {
    /// None: the configuration is refused that asks for one.
    ///
    /// # Errors
    /// Never.
    pub fn begin(
        _config: &AgentConfig,
        _bell: &Arc<Bell>,
    ) -> anyhow::Result<Option<(Self, Box<dyn PodSource>)>> {
        Ok(None)
    }

    /// Tells nobody.
    ///
    /// # Errors
    /// Never.
    pub fn speak(&mut self, _config: &AgentConfig, _of: Voice) -> anyhow::Result<Deliver> {
        match *self {}
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// Never.
    pub fn start(&self, _ports: Arc<Ports>) -> anyhow::Result<JoinHandle<()>> {
        match *self {}
    }

    /// Tells nothing.
    pub fn take_up(&self, _evicted: &[Evicted]) {
        match *self {}
    }

    /// Nobody's pods.
    pub fn pods_are(&self) -> Arc<AsksApi> {
        match *self {}
    }

    /// What nobody says.
    pub fn answers(&self) -> Option<Answers> {
        match *self {}
    }

    /// What nobody says.
    pub fn knows_kubelet(&self) -> Option<bool> {
        match *self {}
    }

    /// Asks nobody.
    pub fn ask_again(&self) {
        match *self {}
    }

    /// How it stands.
    pub fn view(&self) -> KubernetesView {
        match *self {}
    }

    /// Ends the thread.
    pub fn stop(&self) {
        match *self {}
    }
}

/// Asks nobody.
///
/// # Errors
/// Always.
pub fn try_out(_config: &AgentConfig) -> Result<Answered, String> {
    Err("this build knows no Kubernetes".to_owned())
}

/// Asks nobody.
///
/// # Errors
/// Always.
pub fn ask_kubelet(_config: &AgentConfig) -> Result<String, Unsaid> {
    Err(Unsaid {
        why: "this build knows no Kubernetes".to_owned(),
        obstacle: Obstacle::NoWay,
    })
}

//! Configurations on their way to the guard: what was written, on a node whose filesystems are laid out as they are.

use std::sync::{Arc, Mutex, PoisonError};

use brink_core::node::input::Reconfiguration;

use super::Disks;
use super::plan::{Laid, laid_out};
use crate::guard::ports::{Command, Ports};
use crate::runtime::state::Shared;

/// Configurations that may be on their way to the guard.
const PENDING: usize = 4;

/// Hands configurations over.
pub struct Handover {
    shared: Arc<Shared>,
    ports: Arc<Ports>,
    disks: Arc<Disks>,
    written: Mutex<Written>,
}

/// What is written, and where.
struct Written {
    configuration: Reconfiguration,
    laid: Laid,
}

impl Handover {
    /// With what the guard was started with.
    pub fn new(shared: Arc<Shared>, disks: Arc<Disks>, configuration: Reconfiguration) -> Self {
        let ports = Arc::clone(&disks.ports);
        let laid = Laid {
            layout: configuration.policy.layout(),
            layers_apart: false,
        };
        Self {
            shared,
            ports,
            disks,
            written: Mutex::new(Written {
                configuration,
                laid,
            }),
        }
    }

    /// Sends a configuration to the guard, and leaves a copy to whoever is told when the guard takes it; false if there is no
    /// room, and the one before stays.
    pub fn hand_over(&self, configuration: Reconfiguration) -> bool {
        let mut written = self.lock();
        let is_sent = self.send(&configuration, written.laid);
        if is_sent {
            written.configuration = configuration;
        }
        is_sent
    }

    /// The filesystems are laid out otherwise; false if the guard could not be told.
    pub fn set_layout(&self, laid: Laid) -> bool {
        let mut written = self.lock();
        let is_known = written.laid == laid;
        let is_told = is_known || self.send(&written.configuration, laid);
        if is_told {
            written.laid = laid;
        }
        is_told
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, written: &Reconfiguration, laid: Laid) -> bool {
        let new = Reconfiguration {
            policy: laid_out(&written.policy, laid),
            live: written.live,
        };
        // Locked until both are done: the copies are in the order of the commands, and never later than the guard's answer.
        let mut state = self.shared.lock();
        if state.pending.len() >= PENDING {
            return false;
        }
        state.pending.push_back(new.clone());
        self.disks.set_thresholds(new.policy.thresholds());
        let command = Command::Reconfigure(Box::new(new));
        let is_sent = self.ports.commands.send(command).is_ok();
        if !is_sent {
            state.pending.pop_back();
        }
        is_sent
    }
}

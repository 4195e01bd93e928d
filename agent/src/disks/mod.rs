//! Filesystems: who measures them, what they are for, and what the node gives back of them before anybody goes.
//!
//! A disk may take as long as it likes to answer, so nobody who has other work asks one: each filesystem has a thread of its own
//! ([`measure`]) that puts what it sees on the guard's board and rings, at a [`pace`] that follows from what is left. What is
//! measured follows from [`plan`], and another thread ([`caretaker`]) makes it so, asks the container [`runtime`], and carries out
//! the reclaim that the guard asks for ([`reclaims`]). Without a threshold on a filesystem there is none of it.

pub mod answer;
pub mod caretaker;
pub mod discover;
pub mod handover;
pub mod measure;
pub mod pace;
pub mod plan;
mod reclaims;
#[cfg(feature = "cri")]
mod removal;
#[cfg_attr(not(feature = "cri"), path = "no_runtime.rs")]
pub mod runtime;
pub mod view;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brink_core::base::Span;
use brink_core::node::threshold::Threshold;

use crate::guard::disks::Role;
use crate::guard::ports::Ports;
use measure::Spot;
use plan::Laid;

/// Whether a policy has a threshold on any filesystem.
pub fn concerns(thresholds: &[Threshold]) -> bool {
    let mut thresholds = thresholds.iter();
    thresholds.any(|threshold| Role::of(threshold.signal).is_some())
}

/// What everybody here knows.
#[derive(Debug)]
pub struct Disks {
    /// To and from the guard.
    pub ports: Arc<Ports>,
    known: Mutex<Known>,
}

/// What is known of filesystems and of the runtime.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The thresholds in force.
    pub thresholds: Arc<[Threshold]>,
    /// For how long an image stays at least, where a kubelet has said so.
    pub image_min_age: Option<Span>,
    /// What is measured, and for which roles; a role without an entry is measured nowhere.
    pub measured: Vec<(Role, Arc<Spot>)>,
    /// How the filesystems are laid out.
    pub laid: Laid,
    /// How the runtime stands.
    pub runtime: RuntimeState,
    /// Whether filesystems are left to a kubelet, as the guard was told; none while nobody knows, and orders are held then too.
    pub left_to_kubelet: Option<bool>,
    /// What was reclaimed.
    pub reclaims: Reclaims,
}

/// How the container runtime stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeState {
    /// Where it listens; none where none was found.
    pub endpoint: Option<PathBuf>,
    /// What it calls itself, with its version, once it has answered.
    pub name: Option<String>,
    /// Whether a kubelet owns it; unknown until it has answered.
    pub is_kubelets: Option<bool>,
    /// Why it cannot be asked.
    pub trouble: Option<String>,
    /// The same by its name.
    pub fault: Option<&'static str>,
}

impl RuntimeState {
    /// There is none any more.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// What was reclaimed since the start of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaims {
    /// Reclaims that were asked for.
    pub asked: u64,
    /// Those after which no threshold was met.
    pub sufficient: u64,
    /// Dead containers that were removed.
    pub containers: u64,
    /// Unused images that were removed.
    pub images: u64,
    /// Bytes that the filesystems had more afterwards.
    pub bytes: u64,
}

impl Disks {
    /// Nothing known yet.
    pub fn new(ports: Arc<Ports>, thresholds: &[Threshold]) -> Self {
        let known = Known {
            thresholds: thresholds.into(),
            ..Known::default()
        };
        Self {
            ports,
            known: Mutex::new(known),
        }
    }

    /// What is known, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thresholds in force.
    pub fn thresholds(&self) -> Arc<[Threshold]> {
        Arc::clone(&self.lock().thresholds)
    }

    /// Takes other thresholds over; who measures goes by them from the next look on.
    pub fn set_thresholds(&self, thresholds: &[Threshold]) {
        let spots = {
            let mut known = self.lock();
            known.thresholds = thresholds.into();
            known.spots()
        };
        for spot in spots {
            spot.look_now();
        }
    }
}

impl Known {
    /// Every filesystem that is measured, once.
    pub fn spots(&self) -> Vec<Arc<Spot>> {
        let mut spots: Vec<Arc<Spot>> = Vec::new();
        for (_, spot) in &self.measured {
            if !spots.iter().any(|known| Arc::ptr_eq(known, spot)) {
                spots.push(Arc::clone(spot));
            }
        }
        spots
    }
}

//! A decision and the figures it was taken on, in a structure of fixed size that is filled without allocation.

use super::input::Confirmation;
use super::limits::Exceeded;
use super::observe::{Observation, Observations};
use super::rank::{Excess, Place};
use super::safety::Mode;
use super::threshold::Threshold;
use super::workload::{Preference, PreferenceBy};
use crate::base::{Moment, Quantity, Reason};

/// Places of the ranking that a decision keeps.
pub const PLACES: usize = 16;

/// Who was chosen, for what, and on which figures.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// The order's number.
    pub order: u64,
    /// When it was taken.
    pub at: Moment,
    /// Why an order was due: a hard or a soft threshold.
    pub reason: Reason,
    /// Whether it was carried out, and if not, why.
    pub mode: Mode,
    /// Index of the threshold in the policy.
    pub threshold: usize,
    /// The threshold itself.
    pub crossed: Threshold,
    /// Its amount at the observed capacity.
    pub quantity: Quantity,
    /// The observation that crossed it.
    pub observation: Observation,
    /// All observations of the moment.
    pub observations: Observations,
    /// The limit of local storage that the victim exceeds, if it goes for that and for no threshold. Then the threshold
    /// stands for the limit: its amount, and what is left of it, which is below zero.
    pub limit: Option<Exceeded>,
    /// What confirmed that memory is short, in bytes.
    pub confirmation: Confirmation,
    /// Credit for the dying that was taken into account, in bytes.
    pub credit: u64,
    /// Generation of the table that indexes refer to.
    pub generation: u64,
    /// The victim.
    pub victim: Ranked,
    /// How many candidates were ranked.
    pub candidates: u32,
    /// The first places of the ranking, refusers included.
    pub ranking: Places,
}

/// One place in the ranking and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ranked {
    /// Index of the workload in the table.
    pub workload: u32,
    /// What decided its place.
    pub standing: Standing,
    /// Why it cannot be evicted, if so.
    pub refusal: Option<Reason>,
}

/// What decides a workload's place, in the order in which it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Standing {
    /// Brink's own wish.
    pub preference: Preference,
    /// Whose word that is.
    pub preference_by: PreferenceBy,
    /// Whether it uses more than it requested.
    pub excess: Excess,
    /// Priority, zero if unset.
    pub priority: i32,
    /// What it uses of the ranked resource, if known: bytes, inodes or processes.
    pub usage: Option<i64>,
    /// The request that is taken off that: for inodes, as the kubelet does, the one for bytes of storage; zero for process ids.
    pub request: i64,
}

impl From<Place> for Standing {
    fn from(place: Place) -> Self {
        Self {
            preference: place.preference,
            preference_by: place.preference_by,
            excess: place.excess,
            priority: place.priority,
            usage: place.used.map(Quantity::value),
            request: place.subtracted.value(),
        }
    }
}

/// The first places of a ranking.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    places: [Ranked; PLACES],
    len: usize,
}

impl Default for Places {
    fn default() -> Self {
        let nobody = Ranked {
            workload: 0,
            standing: Standing {
                preference: Preference::Normal,
                preference_by: PreferenceBy::Node,
                excess: Excess::Unknown,
                priority: 0,
                usage: None,
                request: 0,
            },
            refusal: None,
        };
        Self {
            places: [nobody; PLACES],
            len: 0,
        }
    }
}

impl Places {
    /// Adds a place while there is room.
    pub fn push(&mut self, place: Ranked) {
        if let Some(slot) = self.places.get_mut(self.len) {
            *slot = place;
            self.len += 1;
        }
    }

    /// The places kept, first to go in front.
    pub fn as_slice(&self) -> &[Ranked] {
        &self.places[..self.len]
    }
}

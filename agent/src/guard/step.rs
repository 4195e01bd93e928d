//! One step of the engine as it is told to the runtime: the input, its figures, and the answers.

use brink_core::base::Moment;
use brink_core::node::action::{Action, Actions};
use brink_core::node::input::{Confirmation, Control, Delivery, Input, Recalled};
use brink_core::node::limits::Exceeded;
use brink_core::node::observe::Observations;
use brink_core::node::workload::PodUsage;
use brink_host::realtime::prefault_buffer;
use serde::{Deserialize, Serialize};

use super::figures::NodeFigures;

/// Which input it was; a sample's figures and a table's generation are in the step itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Nothing but time.
    #[default]
    Tick,
    /// A new table.
    Workloads,
    /// Fresh figures.
    Sample,
    /// A workload's last process is gone.
    Gone {
        /// Index in the table.
        workload: usize,
        /// Bytes of files in memory that stay until volumes are unmounted.
        #[serde(default)]
        kept: u64,
        /// Bytes that nobody saw come back before its cgroups were removed.
        #[serde(default)]
        unseen: u64,
    },
    /// Somebody else killed.
    Dying {
        /// Index in the table.
        workload: usize,
        /// Bytes the dead process held.
        charged: u64,
    },
    /// What became of a kill.
    Outcome {
        /// The order's number.
        order: u64,
        /// How it went.
        delivered: Delivery,
    },
    /// Reclaim on the node has run.
    Reclaimed,
    /// Its time ran out while it brought something.
    ReclaimedInPart,
    /// It was only asked what would be brought.
    WouldReclaim {
        /// Bytes.
        bytes: u64,
    },
    /// A workload uses more of local storage than it may.
    Exceeded {
        /// Index in the table.
        workload: usize,
        /// The limit, and what was measured.
        limit: Exceeded,
        /// Its working set in bytes, if known.
        memory: Option<u64>,
    },
    /// Somebody changed whether orders are carried out.
    Control(Control),
    /// Another configuration.
    Reconfigure,
    /// Something from before a restart, or from a time in which nobody looked.
    Recall(Recalled),
}

/// An input and its answers; reused, so that the guard allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// When.
    pub at: Moment,
    /// What.
    pub kind: Kind,
    /// Generation of the table that indexes refer to.
    pub generation: u64,
    /// The node's own numbers, for a sample.
    pub figures: NodeFigures,
    /// All observations, for a sample.
    pub observations: Observations,
    /// What confirms a shortage, for a sample.
    pub confirmation: Confirmation,
    /// Usage of the workloads, for a sample that was worth it.
    pub usage: Vec<Option<PodUsage>>,
    /// What the engine answered.
    pub actions: Vec<Action>,
}

impl Step {
    /// An empty step with room for so many workloads.
    pub fn with_room(workloads: usize) -> Self {
        let mut usage = Vec::with_capacity(workloads);
        prefault_buffer(&mut usage, &Some(PodUsage::default()));
        let mut actions = Vec::with_capacity(Actions::CAPACITY);
        prefault_buffer(&mut actions, &Action::Cleared { threshold: 0 });
        Self {
            usage,
            actions,
            ..Self::default()
        }
    }

    /// Fills it without allocating, as long as there is room for the usage; false if there was none
    /// and the usage is left out.
    pub fn fill(&mut self, now: Moment, input: &Input<'_>, actions: &[Action]) -> bool {
        self.at = now;
        self.kind = Kind::of(input);
        self.usage.clear();
        self.actions.clear();
        let room = self.actions.capacity().min(actions.len());
        self.actions.extend_from_slice(&actions[..room]);
        let Input::Sample(sample) = input else {
            return true;
        };
        self.observations = sample.observations;
        self.confirmation = sample.confirmation;
        let fits = sample.usage.len() <= self.usage.capacity();
        if fits {
            self.usage.extend_from_slice(sample.usage);
        }
        fits
    }
}

impl Kind {
    fn of(input: &Input<'_>) -> Self {
        match *input {
            Input::Workloads(_) => Self::Workloads,
            Input::Sample(_) => Self::Sample,
            Input::Gone {
                workload,
                kept,
                unseen,
            } => Self::Gone {
                workload,
                kept,
                unseen,
            },
            Input::Dying { workload, charged } => Self::Dying { workload, charged },
            Input::Outcome { order, delivered } => Self::Outcome { order, delivered },
            Input::Reclaimed => Self::Reclaimed,
            Input::ReclaimedInPart => Self::ReclaimedInPart,
            Input::WouldReclaim { bytes } => Self::WouldReclaim { bytes },
            Input::Exceeded {
                workload,
                limit,
                memory,
            } => Self::Exceeded {
                workload,
                limit,
                memory,
            },
            Input::Control(control) => Self::Control(control),
            Input::Reconfigure(_) => Self::Reconfigure,
            Input::Recall(recalled) => Self::Recall(recalled),
            Input::Tick => Self::Tick,
        }
    }
}

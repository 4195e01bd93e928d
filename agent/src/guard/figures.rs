//! The node's own numbers at one moment, whoever read them, and what the engine is told of them.

use brink_core::base::Moment;
use brink_core::node::input::Confirmation;
use brink_core::node::observe::{Observation, Observations};
use brink_core::node::signal::Signal;
use brink_host::probe::calibrate::Numbers;

/// The node at one moment; what nobody could read is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFigures {
    /// When the numbers were true.
    pub at: Moment,
    /// `memory.available`.
    pub memory: Option<Observation>,
    /// What could still be allocated, swap not counted, in bytes.
    pub headroom: Option<i64>,
    /// The same with what zones lacked of their reserves when they were read last, which other zones' free pages do not
    /// fill; none where there are no zones, and of the sampler, which looks at each zone for itself.
    pub headroom_by_zone: Option<i64>,
    /// `allocatableMemory.available`.
    pub pods: Option<Observation>,
    /// The same headroom for the cgroup all pods live in.
    pub pods_headroom: Option<i64>,
    /// `pid.available`.
    pub pids: Option<Observation>,
}

/// What goes with every reading of the node, whoever took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slow {
    /// Swap that the node could still use, in bytes, as of the last reading of the node.
    pub swap: u64,
    /// The same for the cgroup all pods live in.
    pub pods_swap: u64,
    /// Headroom below this is the kernel's own, in bytes.
    pub reserve: u64,
}

impl NodeFigures {
    /// The observations of all signals that are fed here.
    pub fn observations(&self, slow: Slow) -> Observations {
        let mut all = Observations::default();
        all[Signal::MemoryAvailable] = self.memory;
        all[Signal::AllocatableMemoryAvailable] = self.pods;
        all[Signal::PidAvailable] = self.pids;
        all[Signal::MemoryHeadroom] =
            self.headroom
                .zip(self.memory)
                .map(|(headroom, memory)| Observation {
                    available: headroom.saturating_add(saturated(slow.swap)),
                    capacity: memory.capacity,
                    at: Some(self.at),
                });
        all
    }

    /// The numbers that sampler and files must agree on.
    pub fn numbers(&self) -> Numbers {
        Numbers {
            available: self.memory.map(|seen| seen.available),
            headroom: self.headroom,
        }
    }

    /// The same with headroom by zones where it is known: the sampler's lies between the two.
    pub fn numbers_by_zone(&self) -> Numbers {
        Numbers {
            headroom: self.headroom_by_zone.or(self.headroom),
            ..self.numbers()
        }
    }

    /// What confirms that memory is short. Who has been reaped is the caller's.
    pub fn confirmation(&self, slow: Slow) -> Confirmation {
        Confirmation {
            node: self.headroom,
            pods: self.pods_headroom,
            swap: slow.swap,
            pods_swap: slow.pods_swap,
            reserve: slow.reserve,
            unreaped: None,
        }
    }
}

/// Bytes as the engine counts them.
pub fn saturated(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

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

    /// A sample with what it says of groups taken from a later reading of the files. The sampler has a group's usage as
    /// it is, but its page cache as it was when user space told it last: a stream that filled the group with cache since
    /// looks like a leak, and a guard that woke late cannot tell the two apart by how far they lie from the files.
    #[must_use]
    pub fn with_groups_of(self, files: &Self, node_is_group: bool) -> Self {
        if node_is_group {
            return *files;
        }
        Self {
            pods: files.pods,
            pods_headroom: files.pods_headroom,
            ..self
        }
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
            parked: None,
        }
    }
}

/// Bytes as the engine counts them.
pub fn saturated(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(available: i64) -> NodeFigures {
        let seen = Some(Observation {
            available,
            capacity: 1000,
            at: None,
        });
        NodeFigures {
            at: Moment::from_nanos(available),
            memory: seen,
            headroom: Some(available),
            pods: seen,
            pods_headroom: Some(available),
            ..NodeFigures::default()
        }
    }

    #[test]
    fn of_groups_the_files_speak_and_of_the_machine_the_sampler() {
        let (sampled, read) = (figures(10), figures(500));
        assert_eq!(sampled.with_groups_of(&read, true), read);
        let machine = sampled.with_groups_of(&read, false);
        assert_eq!(
            (machine.memory, machine.headroom),
            (sampled.memory, Some(10))
        );
        assert_eq!(
            (machine.pods, machine.pods_headroom),
            (read.pods, Some(500))
        );
    }
}

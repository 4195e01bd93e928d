//! The table of a node's workloads, with everything that ranking needs worked out in advance.

use alloc::vec::Vec;

use super::super::requests;
use super::{Preference, PreferenceBy, QosClass, Workload};
use crate::base::Quantity;

/// An unchanging snapshot of the node's workloads; ranking and orders speak of them by index.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(into = "wire::Written", from = "wire::Written")
)]
pub struct WorkloadTable {
    workloads: Vec<Workload>,
    rows: Vec<Row>,
    generation: u64,
}

/// What ranking needs of one workload, worked out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Memory request of the whole pod, overhead included.
    pub memory_request: Quantity,
    /// Ephemeral-storage request of the whole pod, overhead included.
    pub storage_request: Quantity,
    /// Ephemeral-storage limit of the whole pod, if any of its containers has one.
    pub storage_limit: Option<Quantity>,
    /// Priority, zero if unset.
    pub priority: i32,
    /// Place among all workloads by uid, then namespace and name: the last word between equals.
    pub uid_order: u32,
    /// Whether it is ranked at all.
    pub is_candidate: bool,
    /// Whether the kubelet refuses to evict it.
    pub is_critical: bool,
    /// Brink's own place in the order.
    pub preference: Preference,
    /// Whose word that is.
    pub preference_by: PreferenceBy,
    /// Quality of service class.
    pub qos: QosClass,
}

impl WorkloadTable {
    /// A snapshot; `generation` tells it from earlier and later ones.
    pub fn new(workloads: Vec<Workload>, generation: u64) -> Self {
        let mut rows: Vec<Row> = workloads.iter().map(Row::of).collect();
        let mut by_uid: Vec<usize> = (0..workloads.len()).collect();
        by_uid.sort_by_key(|&index| {
            let Workload {
                uid,
                namespace,
                name,
                ..
            } = &workloads[index];
            (uid, namespace, name)
        });
        for (order, index) in (0u32..).zip(by_uid) {
            rows[index].uid_order = order;
        }
        Self {
            workloads,
            rows,
            generation,
        }
    }

    /// The workloads, in the order they were given.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// What was worked out for each of them.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The number of this snapshot.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// How many workloads there are.
    pub const fn len(&self) -> usize {
        self.workloads.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.workloads.is_empty()
    }

    /// The index of the workload of that namespace and name.
    pub fn find(&self, namespace: &str, name: &str) -> Option<usize> {
        self.workloads
            .iter()
            .position(|w| w.namespace == namespace && w.name == name)
    }
}

impl Row {
    fn of(workload: &Workload) -> Self {
        Self {
            memory_request: requests::memory_request(workload),
            storage_request: requests::storage_request(workload),
            storage_limit: requests::storage_limit(workload),
            priority: workload.priority.unwrap_or(0),
            uid_order: 0,
            is_candidate: workload.is_candidate(),
            is_critical: workload.is_critical(),
            preference: workload.preference,
            preference_by: workload.preference_by,
            qos: requests::qos_class(workload),
        }
    }
}

#[cfg(feature = "serde")]
mod wire {
    //! A table in a journal: the workloads, without what follows from them.

    use alloc::vec::Vec;

    use super::{Workload, WorkloadTable};

    #[derive(serde::Serialize, serde::Deserialize)]
    pub(super) struct Written {
        generation: u64,
        workloads: Vec<Workload>,
    }

    impl From<WorkloadTable> for Written {
        fn from(table: WorkloadTable) -> Self {
            Self {
                generation: table.generation,
                workloads: table.workloads,
            }
        }
    }

    impl From<Written> for WorkloadTable {
        fn from(written: Written) -> Self {
            Self::new(written.workloads, written.generation)
        }
    }
}

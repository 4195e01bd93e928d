//! `resources` of containers and pods: requests and limits of what eviction looks at.

use brink_core::base::Quantity;
use brink_core::node::workload::{ResourceList, Resources};

use super::Reading;
use crate::config::document::{Keys, Node, Reader, Value};

/// A quantity, which no API server has admitted where it is negative: a scenario has to say what could be.
pub(super) fn read_amount<'a>(
    reader: &mut Reader<'a>,
    node: &'a Node,
    reading: Reading,
) -> Option<Quantity> {
    match reading {
        Reading::AsWritten => reader.amount(node),
        Reading::AsAdmitted => reader.quantity(node),
    }
}

/// Reads `requests` and `limits`.
pub(super) fn read_resources<'a>(
    reader: &mut Reader<'a>,
    node: &'a Node,
    reading: Reading,
) -> Resources {
    let fields = reader.fields(node, &[], Keys::Open);
    let mut list = |key| match fields.get(key) {
        Some(node) => read_list(reader, node, reading),
        None => ResourceList::default(),
    };
    Resources {
        requests: list("requests"),
        limits: list("limits"),
    }
}

/// Reads a list of quantities by the name of the resource. Null is an amount of zero, as the API has it.
pub(super) fn read_list<'a>(
    reader: &mut Reader<'a>,
    node: &'a Node,
    reading: Reading,
) -> ResourceList {
    let mut list = ResourceList::default();
    for entry in reader.entries(node, Keys::Open) {
        let amount = match entry.node.value {
            Value::Null => Some(Quantity::ZERO),
            _ => read_amount(reader, &entry.node, reading),
        };
        match entry.key.as_str() {
            "cpu" => list.cpu = amount,
            "memory" => list.memory = amount,
            "ephemeral-storage" => list.ephemeral_storage = amount,
            name => list.hugepages |= name.starts_with("hugepages-"),
        }
    }
    list
}

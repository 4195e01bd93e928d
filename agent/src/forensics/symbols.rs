//! Kernel stacks as names: what was looked up once is known at once, and what is new is looked up in one pass for all.

use std::collections::HashSet;
use std::path::Path;

use brink_host::symbols::KernelSymbols;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Incident;

/// Addresses that are known at most, before all are forgotten.
const MOST: usize = 2048;

/// The names of addresses in the kernel's text.
#[derive(Debug)]
pub(super) struct Symbols {
    names: KernelSymbols,
    known: HashSet<u64>,
    /// Names cannot be had at all: the file cannot be read, or hides its addresses.
    hidden: bool,
}

impl Symbols {
    /// Reads nothing yet.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            names: KernelSymbols::new(&root.join("proc/kallsyms")),
            known: HashSet::new(),
            hidden: false,
        }
    }

    /// A stack by names, if all of them are known; by addresses where names cannot be had.
    pub(super) fn known(&mut self, addresses: &[u64]) -> Option<Vec<String>> {
        if !self.hidden {
            if !addresses.iter().all(|address| self.known.contains(address)) {
                return None;
            }
            if let Ok(stack) = self.names.stack(addresses) {
                return Some(stack);
            }
        }
        let plain = addresses.iter().map(|address| format!("{address:#x}"));
        Some(plain.collect())
    }

    /// Looks up those that are not known.
    pub(super) fn learn(&mut self, addresses: &[u64]) {
        if self.known.len() > MOST {
            self.known.clear();
        }
        self.hidden = self.hidden || self.names.find(addresses).is_err();
        self.known.extend(addresses);
    }
}

/// Puts the names of its kernel stack into an incident.
pub(super) fn put(incident: &mut Incident, names: Vec<String>) {
    if let Field::Value(trigger) = &mut incident.trigger {
        trigger.kernel_stack = Field::Value(names);
    }
}

/// Whether they are still to come.
pub(super) fn are_pending(incident: &Incident) -> bool {
    let trigger = incident.trigger.value();
    trigger.is_some_and(|trigger| trigger.kernel_stack == Field::Missing(Missing::Pending))
}

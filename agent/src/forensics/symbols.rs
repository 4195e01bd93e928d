//! Kernel stacks as names: what was looked up once is known at once, and what is new is looked up in one pass for all.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;

use brink_host::symbols::{KernelSymbols, SymbolError};
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::Incident;

/// Addresses that are known at most, before all are forgotten.
const MOST: usize = 2048;

/// The names of addresses in the kernel's text.
#[derive(Debug)]
pub(super) struct Symbols {
    names: KernelSymbols,
    known: HashSet<u64>,
    /// The kernel keeps its addresses from us, and will.
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

    /// A stack by names; nothing as long as one of them is still to be looked up.
    pub(super) fn known(&mut self, addresses: &[u64]) -> Option<Field<Vec<String>>> {
        if self.hidden {
            return Some(Field::Missing(Missing::NotPermitted));
        }
        if !addresses.iter().all(|address| self.known.contains(address)) {
            return None;
        }
        let stack = self.names.stack(addresses);
        Some(stack.map_or_else(|error| Field::Missing(self.absent(&error)), Field::Value))
    }

    /// Looks up those that are not known. `Err` says why a stack with one of them has no names.
    pub(super) fn learn(&mut self, addresses: &[u64]) -> Result<(), Missing> {
        if self.known.len() > MOST {
            self.known.clear();
        }
        self.names
            .find(addresses)
            .map_err(|error| self.absent(&error))?;
        self.known.extend(addresses);
        Ok(())
    }

    /// Why there are no names. What cannot be read now may be readable later.
    fn absent(&mut self, error: &SymbolError) -> Missing {
        self.hidden = match error {
            SymbolError::Hidden { .. } => true,
            SymbolError::File { error, .. } => error.kind() == ErrorKind::PermissionDenied,
        };
        if self.hidden {
            Missing::NotPermitted
        } else {
            Missing::Lost
        }
    }
}

/// Puts its kernel stack into an incident.
pub(super) fn put(incident: &mut Incident, stack: Field<Vec<String>>) {
    if let Field::Value(trigger) = &mut incident.trigger {
        trigger.kernel_stack = stack;
    }
}

/// Whether they are still to come.
pub(super) fn are_pending(incident: &Incident) -> bool {
    let trigger = incident.trigger.value();
    trigger.is_some_and(|trigger| trigger.kernel_stack == Field::Missing(Missing::Pending))
}

//! What is worked out of decisions after the kill, kept beside the ledger.
//!
//! That is what the kubelet would have done, and where the processes came from that took all process ids. The ledger's own records are
//! complete before anybody knows it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brink_host::clock::BootId;
use brink_stream::model::field::{Field, Missing};
use brink_stream::model::incident::ForkRoot;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::kept;
use super::state::Shared;
use crate::record::DecisionRecord;
use crate::record::kubelet::KubeletView;

/// The file.
#[derive(Clone, Debug)]
pub struct Foretold {
    path: PathBuf,
    boot: String,
    /// Whether the right to enforce is ours, and the ledger with it: whoever stands by has orders of the same numbers.
    enforces: Arc<AtomicBool>,
    /// Whether arguments of processes may be told.
    command_lines: bool,
    /// Held while it is written: more than one thread finds out what is in it.
    writing: Arc<Mutex<()>>,
}

/// What it says, by the orders' numbers.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Orders are numbered anew in each boot.
    boot: String,
    /// What the kubelet would have done.
    views: BTreeMap<u64, KubeletView>,
    /// Where processes came from.
    #[serde(default)]
    roots: BTreeMap<u64, Root>,
}

/// Where the processes of a victim came from.
#[derive(Debug, Serialize, Deserialize)]
pub struct Root {
    /// Of the victim.
    pub uid: String,
    /// The process that they descend from, or why nobody knows.
    pub root: Field<ForkRoot>,
}

/// What was kept in this boot, by the orders' numbers.
#[derive(Debug, Default)]
pub struct Found {
    /// What the kubelet would have done.
    pub views: BTreeMap<u64, KubeletView>,
    /// Where processes came from.
    pub roots: BTreeMap<u64, Root>,
}

impl Foretold {
    /// The file in a folder, for whoever only reads it and tells no arguments.
    pub fn new(folder: &Path, boot: BootId) -> Self {
        Self {
            path: folder.join("foretold.json"),
            boot: boot.to_string(),
            enforces: Arc::default(),
            command_lines: false,
            writing: Arc::default(),
        }
    }

    /// The same for an agent, which writes it as long as the right to enforce is its own.
    pub(crate) fn of_agent(self, enforces: &Arc<AtomicBool>, command_lines: bool) -> Self {
        Self {
            enforces: Arc::clone(enforces),
            command_lines,
            ..self
        }
    }

    /// Keeps what is known of the remembered decisions.
    pub(crate) fn keep(&self, shared: &Shared) {
        if !self.enforces.load(Ordering::Acquire) {
            return;
        }
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known(shared.lock().decisions.iter());
        if let Err(error) = kept::write_private(&self.path, &known) {
            warn!(%error, path = %self.path.display(), "what was worked out of decisions cannot be kept; a restart would forget it");
        }
    }

    fn known<'a>(&self, decisions: impl Iterator<Item = &'a DecisionRecord> + Clone) -> Kept {
        let views = decisions
            .clone()
            .filter_map(|record| Some((record.order, record.kubelet.clone()?)));
        let roots = decisions.filter_map(|record| {
            let root = Root {
                uid: record.victim.uid.clone(),
                root: record.fork_root.clone()?,
            };
            Some((record.order, root))
        });
        Kept {
            boot: self.boot.clone(),
            views: views.collect(),
            roots: roots.collect(),
        }
    }

    /// What was kept in this boot.
    pub fn recall(&self) -> Found {
        let read = match kept::read::<Kept>(&self.path) {
            Ok(read) => read.filter(|read| read.boot == self.boot),
            Err(error) => {
                warn!(%error, path = %self.path.display(), "what was worked out of decisions in the last run cannot be read");
                None
            }
        };
        let Some(Kept {
            views, mut roots, ..
        }) = read
        else {
            return Found::default();
        };
        if !self.command_lines {
            roots.values_mut().for_each(Root::redact);
        }
        Found { views, roots }
    }
}

impl Root {
    /// What an earlier run was permitted to tell this one may not be.
    fn redact(&mut self) {
        if let Field::Value(root) = &mut self.root {
            root.argv = Field::Missing(Missing::Redacted);
        }
    }
}

impl Found {
    /// Adds to a decision of the ledger what was kept of it.
    pub(super) fn add_to(&mut self, decision: &mut DecisionRecord) {
        decision.kubelet = self.views.remove(&decision.order);
        let root = self.roots.remove(&decision.order);
        // A ledger that was put aside had orders of these numbers too.
        let own = root.filter(|root| root.uid == decision.victim.uid);
        decision.fork_root = own.map(|root| root.root);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use brink_core::node::engine::MemoryPolicy;
    use brink_core::node::safety::Mode;
    use brink_stream::model::incident::Incident;

    use super::*;
    use crate::config::of_text;
    use crate::runtime::state::State;

    /// The record of an order for process ids, with all that was found out of it.
    fn order() -> DecisionRecord {
        let sample = include_str!("../../../tests/events/v1alpha1/eviction-completed.json");
        let sample: serde_json::Value = serde_json::from_str(sample).unwrap();
        let record = sample["data"]["decision"]["value"].clone();
        let full = include_str!("../../tests/page/incident-full.json");
        let full: Incident = serde_json::from_str(full).unwrap();
        DecisionRecord {
            kubelet: Some(KubeletView {
                phases: Vec::new(),
                kernel_oom_first: 7,
                same_victim: 3,
            }),
            fork_root: Some(full.fork_root),
            ..serde_json::from_value(record).unwrap()
        }
    }

    fn shared(record: DecisionRecord) -> Shared {
        let config = of_text("mode: observe");
        let mut state = State::new(config.policy, MemoryPolicy::Kubelet, Mode::Enforcing);
        state.add_decision(record);
        Shared::new(state)
    }

    /// What the next agent knows of an order as the ledger has it, in this boot.
    fn recalled(file: &Foretold, order: &DecisionRecord) -> DecisionRecord {
        let mut known = DecisionRecord {
            kubelet: None,
            fork_root: None,
            ..order.clone()
        };
        file.recall().add_to(&mut known);
        known
    }

    #[test]
    fn what_was_found_out_is_known_after_a_restart_in_the_same_boot() {
        let folder = tempfile::tempdir().unwrap();
        let file = |boot: u8| Foretold::new(folder.path(), BootId([boot; 16]));
        let enforces = Arc::new(AtomicBool::new(false));
        let (own, order) = (file(1).of_agent(&enforces, true), order());
        own.keep(&shared(order.clone()));
        assert_eq!(recalled(&own, &order).kubelet, None, "it stood by");
        enforces.store(true, Ordering::Release);
        own.keep(&shared(order.clone()));
        assert_eq!(recalled(&own, &order), order);
        let of_another_boot = recalled(&file(2), &order);
        let nothing = (of_another_boot.kubelet, of_another_boot.fork_root);
        assert_eq!(nothing, (None, None));
        let mut of_somebody_else = order.clone();
        of_somebody_else.victim.uid = "somebody else".to_owned();
        assert_eq!(recalled(&own, &of_somebody_else).fork_root, None);
    }

    #[test]
    fn arguments_that_an_earlier_run_could_tell_are_left_out_where_they_may_not_be() {
        let folder = tempfile::tempdir().unwrap();
        let file = || Foretold::new(folder.path(), BootId([1; 16]));
        let enforces = Arc::new(AtomicBool::new(true));
        let order = order();
        let told = file().of_agent(&enforces, true);
        told.keep(&shared(order.clone()));
        let argv = |file: &Foretold| {
            let root = recalled(file, &order).fork_root.unwrap();
            root.value().unwrap().argv.clone()
        };
        assert!(argv(&told).value().is_some());
        let kept_out = file().of_agent(&enforces, false);
        assert_eq!(argv(&kept_out), Field::Missing(Missing::Redacted));
    }

    #[test]
    fn arguments_of_processes_are_for_nobody_else_to_read() {
        let folder = tempfile::tempdir().unwrap();
        // By an agent that was killed as it wrote.
        std::fs::write(folder.path().join("foretold.new"), "{").unwrap();
        let enforces = Arc::new(AtomicBool::new(true));
        let file = Foretold::new(folder.path(), BootId([1; 16])).of_agent(&enforces, true);
        let order = order();
        file.keep(&shared(order.clone()));
        let found = std::fs::metadata(folder.path().join("foretold.json")).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        assert_eq!(recalled(&file, &order), order);
    }

    #[test]
    fn what_an_older_agent_has_kept_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = Foretold::new(folder.path(), BootId([1; 16]));
        let view = r#"{"phases": [], "kernelOomFirst": 7, "sameVictim": 3}"#;
        let boot = "01010101-0101-0101-0101-010101010101";
        let text = format!(r#"{{"boot": "{boot}", "views": {{"17": {view}}}}}"#);
        std::fs::write(folder.path().join("foretold.json"), text).unwrap();
        let found = file.recall();
        assert_eq!(found.views[&17].kernel_oom_first, 7);
        assert!(found.roots.is_empty());
    }
}

//! Where an agent's incidents are told: to the event stream, and to the remembered decisions what these could not know when they were taken.

use std::sync::Arc;

use brink_stream::model::field::Field;
use brink_stream::model::incident::{ForkRoot, Incident};
use brink_stream::model::kind::Kind;

use super::{Outlet, Over};
use crate::guard::now;
use crate::runtime::foretold::Foretold;
use crate::runtime::state::Shared;
use crate::telling::Telling;

/// The event stream, and the decisions of this boot.
pub struct Records {
    telling: Telling,
    shared: Arc<Shared>,
    /// What of them the next agent is to know.
    foretold: Foretold,
}

impl Records {
    /// Those of a running agent.
    pub fn new(telling: &Telling, shared: &Arc<Shared>, foretold: &Foretold) -> Self {
        Self {
            telling: telling.clone(),
            shared: Arc::clone(shared),
            foretold: foretold.clone(),
        }
    }
}

impl Outlet for Records {
    fn open(&self, of: Kind, incident: Incident, group: Option<u64>) -> Option<Incident> {
        self.telling.open_of_group(of, incident, group)
    }

    fn close(&self, of: Kind, incident: &Incident) {
        self.telling.close(of, incident);
    }

    fn amend(&self, uid: &str, fill: &mut dyn FnMut(&mut Incident)) -> bool {
        let is_meant = |incident: &Incident| {
            let workload = incident.workload.value();
            workload.is_some_and(|workload| workload.uid == uid)
        };
        self.telling.amend(is_meant, fill)
    }

    fn fork_root(&self, order: u64, uid: &str, root: &Field<ForkRoot>) {
        let is_meant = self.shared.lock().add_fork_root(order, uid, root.clone());
        // At once, as what is told of the decision before: whoever has seen it may end us now.
        if is_meant {
            self.foretold.keep(&self.shared);
        }
    }

    fn completed(&self, over: &Over) {
        let mut record = over.record.clone();
        let state = self.shared.lock();
        let known = state.decision(record.order);
        let known = known.filter(|known| known.victim.uid == record.victim.uid);
        record.fork_root = known.and_then(|known| known.fork_root.clone());
        drop(state);
        self.telling.completed(&record, over.qos);
    }

    fn lost(&self, count: u64, total: u64) {
        self.telling.lost_kills(now(), count, total);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use brink_core::node::engine::MemoryPolicy;
    use brink_core::node::safety::Mode;
    use brink_host::clock::{BootId, ClockPair};
    use brink_stream::hub::{Hub, Identity, Limits, Next};
    use brink_stream::model::event::Event;
    use brink_stream::model::field::Missing;

    use super::*;
    use crate::config::of_text;
    use crate::record::{DecisionRecord, page};
    use crate::runtime::state::State;
    use crate::terminal::Style;

    /// The record of an order, with its end or without.
    fn order(is_over: bool) -> DecisionRecord {
        let sample = include_str!("../../../tests/events/v1alpha1/eviction-completed.json");
        let sample: serde_json::Value = serde_json::from_str(sample).unwrap();
        let record = sample["data"]["decision"]["value"].clone();
        let mut record: DecisionRecord = serde_json::from_value(record).unwrap();
        record.end = record.end.filter(|_| is_over);
        record
    }

    fn root() -> ForkRoot {
        let full = include_str!("../../tests/page/incident-full.json");
        let full: Incident = serde_json::from_str(full).unwrap();
        full.fork_root.value().unwrap().clone()
    }

    #[test]
    fn a_decision_says_where_processes_came_from_once_it_is_known_and_after_its_end() {
        let config = of_text("mode: observe");
        let state = State::new(config.policy, MemoryPolicy::Kubelet, Mode::Enforcing);
        let shared = Arc::new(Shared::new(state));
        let folder = tempfile::tempdir().unwrap();
        let foretold = Foretold::new(folder.path(), BootId([1; 16]));
        let foretold = foretold.of_agent(&Arc::new(AtomicBool::new(true)), true);
        let records = Records::new(&Telling::off(), &shared, &foretold);
        let said = || {
            let state = shared.lock();
            state.decisions.back().unwrap().fork_root.clone()
        };
        let given = order(false);
        let (number, uid) = (given.order, given.victim.uid.clone());
        shared.lock().add_decision(given);
        let found = Field::Value(root());
        records.fork_root(number + 1, &uid, &found);
        records.fork_root(number, "somebody else", &found);
        assert_eq!(said(), None);
        assert!(foretold.recall().roots.is_empty());
        records.fork_root(number, &uid, &found);
        assert_eq!(said(), Some(found.clone()));
        assert_eq!(foretold.recall().roots[&number].root, found);
        shared.lock().add_decision(order(true));
        assert_eq!(said(), Some(found.clone()));
        // Its end is told with it, though whoever tells of the end does not know.
        let identity = Identity {
            node: "here".to_owned(),
            boot_id: "3f2a".to_owned(),
        };
        let hub = Hub::new(identity, 0, Limits::default());
        let mut reader = hub.reader(None);
        let telling = Telling::new(hub, ClockPair::now());
        let records = Records::new(&telling, &shared, &foretold);
        let mut record = order(true);
        "pid.available".clone_into(&mut record.threshold.signal);
        records.completed(&Over { record, qos: None });
        let Some(Next::Line(line)) = reader.next() else {
            panic!("it is told");
        };
        let event: Event = serde_json::from_slice(&line.text).unwrap();
        let incident: Incident = serde_json::from_str(event.data.get()).unwrap();
        assert_eq!(incident.fork_root, found);
    }

    #[test]
    fn the_page_of_a_decision_names_the_root_or_says_why_nobody_can() {
        let told = |root: Option<Field<ForkRoot>>| {
            let record = DecisionRecord {
                fork_root: root,
                ..order(true)
            };
            let written = serde_json::to_string(&record).unwrap();
            let read: DecisionRecord = serde_json::from_str(&written).unwrap();
            assert_eq!(read.fork_root, record.fork_root);
            page(&record, Style::default())
        };
        let heading = "\nWhere its processes came from\n";
        let known = told(Some(Field::Value(root())));
        for part in [
            heading,
            "  process    bomb, pid 4177, started 7384.001250 s after boot\n",
            "  forked by  java, pid 4121, started 7000.000000 s after boot\n",
            "  share      1990 of the 2048 that were forked last descend from it\n",
        ] {
            assert!(known.contains(part), "{part}\n{known}");
        }
        let unknown = told(Some(Field::Missing(Missing::BeforeStart)));
        let why = format!("{heading}  process    not known: from before the agent's start\n");
        assert!(unknown.contains(&why), "{unknown}");
        assert!(!told(None).contains(heading.trim()));
    }
}

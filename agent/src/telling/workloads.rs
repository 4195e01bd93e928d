//! Workloads that appear and go, as events: one roster compared with the one before.

use std::collections::BTreeMap;

use brink_core::base::Moment;
use brink_core::node::workload::{QosClass, Row, Workload};
use brink_stream::model::data;
use brink_stream::model::event::Subject;
use brink_stream::model::kind::Kind;

use super::Telling;
use crate::guard::roster::Roster;

/// Namespace, name and uid.
pub(super) type Key = (String, String, String);

/// The workloads of the last roster; none before the first.
pub(super) type Known = Option<BTreeMap<Key, data::Workload>>;

impl Telling {
    /// Tells who has appeared and who is gone since the last roster. Those of the first were there already.
    pub fn roster(&self, at: Moment, roster: &Roster) {
        let Some(inner) = self.inner() else {
            return;
        };
        let now = known(roster);
        let mut last = inner.workloads();
        if let Some(before) = &*last {
            let (ended, started) = (missing_in(&now, before), missing_in(before, &now));
            for (of, those) in [
                (Kind::WorkloadEnded, ended),
                (Kind::WorkloadStarted, started),
            ] {
                for (key, workload) in those {
                    self.say(of, at, Some(subject(key)), workload);
                }
            }
        }
        *last = Some(now);
    }
}

/// Entries of `those` that `others` has not got.
fn missing_in<'a>(
    others: &'a BTreeMap<Key, data::Workload>,
    those: &'a BTreeMap<Key, data::Workload>,
) -> impl Iterator<Item = (&'a Key, &'a data::Workload)> {
    those.iter().filter(|(key, _)| !others.contains_key(*key))
}

fn known(roster: &Roster) -> BTreeMap<Key, data::Workload> {
    let table = &roster.table;
    let pairs = table.workloads().iter().zip(table.rows());
    let known = pairs.enumerate().map(|(index, (workload, row))| {
        let groups = roster.of(index);
        let groups = groups.map(|(_, group)| group.target.dir().group().to_owned());
        (key(workload), told(row, groups.collect()))
    });
    known.collect()
}

fn key(workload: &Workload) -> Key {
    (
        workload.namespace.clone(),
        workload.name.clone(),
        workload.uid.clone(),
    )
}

fn told(row: &Row, cgroups: Vec<String>) -> data::Workload {
    data::Workload {
        qos: Some(qos_word(row.qos).to_owned()),
        priority: row.priority,
        cgroups,
    }
}

pub(super) fn subject((namespace, name, uid): &Key) -> Subject {
    Subject {
        namespace: namespace.clone(),
        name: name.clone(),
        uid: uid.clone(),
        incident: None,
    }
}

/// Kubernetes' word for a class.
pub const fn qos_word(qos: QosClass) -> &'static str {
    match qos {
        QosClass::BestEffort => "BestEffort",
        QosClass::Burstable => "Burstable",
        QosClass::Guaranteed => "Guaranteed",
    }
}

//! Pod manifests: files of a folder, what they come to, and how their pods rank.

use std::collections::HashSet;

use brink::pod::{LastGood, Manifest, read_folder};
use brink_core::node::observe::Layout;
use brink_core::node::rank::{Preferences, Ranking, explain, rank};
use brink_core::node::signal::Signal;
use brink_core::node::workload::WorkloadTable;

use crate::Taken;
use crate::bundle::Bundle;
use crate::scratch::Scratch;

thread_local! {
    static FOLDER: Scratch = Scratch::new();
}

/// Manifests by their names; the first is `a.yaml`.
pub(crate) fn pods(bytes: &[u8]) -> Taken {
    FOLDER.with(|folder| {
        folder.clear();
        let files = Bundle::split("a.yaml", bytes);
        for (name, bytes) in files.below("") {
            folder.write(&name.replace('/', "-"), bytes);
        }
        let Ok(found) = read_folder(folder.path()) else {
            return Taken::Refused;
        };
        for faults in &found.faults {
            assert!(!faults.list.is_empty() && !faults.to_string().is_empty());
        }
        check_names(&found.pods);
        let (again, _) = LastGood::default().read(Some(folder.path()));
        assert_eq!(again.len(), found.pods.len());
        let pods = found.pods.into_iter().map(|pod| pod.workload);
        let table = WorkloadTable::new(pods.collect(), 1);
        check_order(&table);
        Taken::from_accepted(!table.is_empty())
    })
}

fn check_names(pods: &[Manifest]) {
    let (mut names, mut uids) = (HashSet::new(), HashSet::new());
    for pod in pods {
        let workload = &pod.workload;
        assert!(!workload.name.is_empty() && !workload.uid.is_empty());
        assert!(names.insert((&workload.namespace, &workload.name)));
        assert!(uids.insert(&workload.uid));
    }
}

/// Everybody who can be ranked is, once.
fn check_order(table: &WorkloadTable) {
    let candidates = table.rows().iter().filter(|row| row.is_candidate).count();
    for signal in Signal::ALL {
        let ranking = Ranking {
            signal,
            layout: Layout::Single,
            preferences: Preferences::Respect,
        };
        let mut order = Vec::new();
        rank(ranking, table, &[], &mut order);
        assert_eq!(order.len(), candidates);
        if let [first, second, ..] = order[..] {
            assert!(!explain(ranking, table, &[], (first, second)).is_empty());
        }
        order.sort_unstable();
        order.dedup();
        assert_eq!(order.len(), candidates);
    }
}

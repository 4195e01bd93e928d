//! What a real kubelet and Brink have said of their evictions, beside each other: the fields of the Event and of the status.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::leak::Waiting;
use crate::support::{Cluster, holds_in_time};
use crate::told::events;
use crate::watch::Watch;

/// What the watch of [`Said`] is to tell of each change.
pub(super) const STATUSES: [&str; 2] = ["/metadata/name", "/status"];
/// The component that Brink's events name.
pub(super) const BRINK: &str = "brink";
/// The same of the kubelet's.
pub(super) const KUBELET: &str = "kubelet";
/// What each container of these pods asks for.
const REQUEST: &str = "8Mi";

/// Fields of an Event of the kubelet's that Brink's has not, and why.
const ONLY_IN_KUBELETS: [(&str, &str); 1] = [(
    "/involvedObject/resourceVersion",
    "the pod as the kubelet had it in hand: an event of Brink's may be told much later, and means the pod, not a version of it",
)];
/// Fields of a status that Brink has made `Failed` that the kubelet's has not, and why.
const ONLY_IN_BRINKS: [(&str, &str); 6] = [
    (
        "conditions",
        "DisruptionTarget is of later releases; of the others a kubelet of 1.20 drops its own",
    ),
    ("containerStatuses", DROPPED),
    ("hostIP", DROPPED),
    ("podIP", DROPPED),
    ("podIPs", DROPPED),
    ("qosClass", DROPPED),
];
const DROPPED: &str = "a kubelet of 1.20 writes a status of its own over all of it, and later ones keep it, as Brink's patch does";

/// What was said of one eviction.
pub(super) struct Said {
    event: Value,
    /// The first one that says so.
    status: Value,
}

impl Said {
    /// What a component has said of a pod, once it has.
    pub(super) fn by(
        component: &str,
        cluster: &Cluster,
        statuses: &Watch,
        waiting: &Waiting<'_>,
    ) -> Self {
        let Waiting { uid, pod, .. } = waiting;
        let find = || {
            let posted = events(cluster, uid, "Evicted").into_iter();
            let mut own = posted.filter(|event| event["source"]["component"] == component);
            Some(Self {
                event: own.next()?,
                status: first_evicted(&pod.name, &statuses.told())?,
            })
        };
        assert!(holds_in_time(|| find().is_some()), "{}", pod.described());
        find().unwrap()
    }

    /// The status, the event and the annotations are of one mind, and the message begins alike whoever writes it.
    fn check(&self) {
        let message = &self.event["message"];
        assert_eq!(self.status["message"], *message, "{:#}", self.status);
        let words = message.as_str().unwrap();
        let low = "The node was low on resource: memory. ";
        assert!(words.starts_with(low), "{words}");
        for (name, used) in self.named() {
            let part = format!("Container {name} was using {used}, ");
            assert!(words.contains(&part), "{words}: no {part}");
        }
    }

    /// The containers that the annotations name, and what each used.
    fn named(&self) -> Vec<(&str, &str)> {
        let [names, used] = ["offending_containers", "offending_containers_usage"].map(|key| {
            let text = self.event["metadata"]["annotations"][key].as_str();
            text.unwrap_or_default()
                .split(',')
                .filter(|one| !one.is_empty())
        });
        names.zip(used).collect()
    }

    /// Each kubelet of this age says it in these words, to the letter; Brink in those of later ones, which a test of its own has.
    fn check_kubelets_words(&self) {
        let each = |(name, used): (&str, &str)| {
            format!("Container {name} was using {used}, which exceeds its request of {REQUEST}. ")
        };
        let parts: Vec<String> = self.named().into_iter().map(each).collect();
        let expected = format!("The node was low on resource: memory. {}", parts.concat());
        assert_eq!(self.event["message"], expected, "{:#}", self.event);
    }
}

/// The first status of a pod that says that it was evicted, of lines that tell [`STATUSES`]. A kubelet of 1.20 takes that away again
/// where another has written it.
fn first_evicted(name: &str, lines: &[String]) -> Option<Value> {
    let pairs = lines.iter().filter_map(|line| line.split_once(' '));
    let own = pairs.filter(|(pod, _)| *pod == name);
    let mut statuses = own.filter_map(|(_, text)| serde_json::from_str::<Value>(text).ok());
    statuses.find(|status| status["phase"] == "Failed" && status["reason"] == "Evicted")
}

/// Where an object has a value, by the names that lead there. What the server notes of who wrote which field is no part of it.
fn fields(object: &Value, place: &str, found: &mut BTreeSet<String>) {
    if let Value::Object(map) = object {
        for (name, value) in map.iter().filter(|(name, _)| *name != "managedFields") {
            fields(value, &format!("{place}/{name}"), found);
        }
    } else {
        found.insert(place.to_owned());
    }
}

fn fields_of_event(said: &Said) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    fields(&said.event, "", &mut found);
    found
}

fn fields_of_status(said: &Said) -> BTreeSet<&str> {
    let map = said.status.as_object().unwrap();
    map.keys().map(String::as_str).collect()
}

/// Every event of Brink's has the fields of every one of the kubelet's, and every status too; what differs is what is known to.
pub(super) fn check(brinks: &[Said], kubelets: &[Said]) {
    brinks.iter().chain(kubelets).for_each(Said::check);
    kubelets.iter().for_each(Said::check_kubelets_words);
    let missing: BTreeSet<String> = ONLY_IN_KUBELETS.map(|(field, _)| field.to_owned()).into();
    let more: BTreeSet<&str> = ONLY_IN_BRINKS.map(|(field, _)| field).into();
    for kubelet in kubelets {
        for brink in brinks {
            let [theirs, ours] = [kubelet, brink].map(fields_of_event);
            assert_eq!(&theirs - &ours, missing, "{:#}", kubelet.event);
            assert_eq!(&ours - &theirs, BTreeSet::new(), "{:#}", brink.event);
            let [theirs, ours] = [kubelet, brink].map(fields_of_status);
            assert_eq!(&theirs - &ours, BTreeSet::new(), "{:#}", kubelet.status);
            let only = &ours - &theirs;
            assert!(only.is_subset(&more), "{only:?}: {:#}", brink.status);
        }
    }
    for (field, why) in ONLY_IN_KUBELETS.iter().chain(&ONLY_IN_BRINKS) {
        println!("known to differ: {field}: {why}");
    }
    println!(
        "{} of Brink's and {} of the kubelet's have the same fields but for these",
        brinks.len(),
        kubelets.len()
    );
}

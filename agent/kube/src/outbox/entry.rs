//! One thing that Kubernetes is to be told of a pod: what to write into its status, and the event about it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The form of an entry on disk; one of another form is not understood.
pub const VERSION: u32 = 1;

/// The longest name of an object, in bytes.
const LONGEST_NAME: usize = 253;
/// Hexadecimal digits that tell the events of one pod apart.
const DIGITS: usize = 16;

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// [`VERSION`].
    pub version: u32,
    /// What tells it apart from every other on this node.
    pub key: Key,
    /// The pod it is about.
    pub pod: PodRef,
    /// What its status becomes; none where only an event is owed.
    pub status: Option<Eviction>,
    /// How far that has come.
    pub status_part: Part,
    /// The event.
    pub event: EventWords,
    /// How far that has come.
    pub event_part: Part,
}

/// What tells an entry apart: the boot, and what happened in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// The boot's id: orders are numbered anew in another.
    pub boot: String,
    /// What happened.
    pub of: Cause,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// An order of the guard's, by its number.
    Order(u64),
    /// Kills of the kernel's, by the time of the first, `CLOCK_MONOTONIC` in nanoseconds.
    OomKill(u64),
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: another pod of the same name is not meant.
    pub uid: String,
}

/// The status of an evicted pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// Why, as the kubelet says it.
    pub message: String,
    /// Generation of the pod that was evicted; none if that is not known.
    pub generation: Option<i64>,
    /// When it was evicted, RFC 3339 to the second.
    pub at: String,
    /// Whether it went for a limit of its own: that is no disruption, and gets no condition.
    #[serde(default)]
    pub for_limit: bool,
}

/// The event about a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventWords {
    /// Whether it is a warning.
    pub warns: bool,
    /// Its reason, one word.
    pub reason: String,
    /// What it says.
    pub message: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// How often it happened.
    pub count: u32,
    /// When it happened first, RFC 3339 to the second.
    pub first: String,
    /// When it happened last.
    pub last: String,
}

/// How far one part of an entry has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// Not wanted.
    #[default]
    None,
    /// Still to be told.
    Owed,
    /// Told.
    Done,
    /// Never to be told, and why.
    Ended(End),
}

/// Why something is never told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// The pod, or its namespace, is not there any more.
    Gone,
    /// Another pod has the name.
    Replaced,
    /// The server will not have it.
    Refused(String),
    /// The server was away for too long.
    Expired,
}

impl Key {
    /// As text: the name of its file.
    pub fn text(&self) -> String {
        match self.of {
            Cause::Order(number) => format!("{}-{number}", self.boot),
            Cause::OomKill(at) => format!("{}-oom-{at}", self.boot),
        }
    }
}

impl PodRef {
    /// Whether its namespace and its name can be such: both become parts of a path.
    pub fn is_named(&self) -> bool {
        is_name(&self.namespace) && is_name(&self.name)
    }
}

/// Labels of lower-case letters, digits and hyphens, with dots between them.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(is_plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_label)
}

impl Entry {
    /// Name of the event: the same whenever it is told again, so that the server has it once.
    pub fn event_name(&self) -> String {
        let hash = Sha256::digest(self.key.text());
        let first = hash.first_chunk::<8>().copied().unwrap_or_default();
        let digits = u64::from_be_bytes(first);
        let room = LONGEST_NAME - 1 - DIGITS;
        // Names are ASCII; one that is cut must not end in what no name may end in.
        let name = self.pod.name.get(..room).unwrap_or(&self.pod.name);
        let name = name.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
        format!("{name}.{digits:016x}")
    }

    /// Whether nothing of it is owed any more.
    pub fn is_settled(&self) -> bool {
        self.status_part != Part::Owed && self.event_part != Part::Owed
    }

    /// Whether it has the status that it says something of, and no other.
    pub fn has_its_status(&self) -> bool {
        self.status.is_some() == (self.status_part != Part::None)
    }

    /// Whether its pod's status was written.
    pub fn is_status_written(&self) -> bool {
        self.status_part == Part::Done
    }
}

impl End {
    /// In words.
    pub fn words(&self) -> String {
        match self {
            Self::Gone => "the pod is not there any more".to_owned(),
            Self::Replaced => "another pod has its name".to_owned(),
            Self::Refused(why) => format!("the API server refuses it: {why}"),
            Self::Expired => "the API server could not be reached for too long".to_owned(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(order: u64) -> Entry {
        let at = "2026-11-22T10:00:00Z".to_owned();
        let message = "The node was low on resource: memory. ".to_owned();
        Entry {
            version: VERSION,
            key: Key {
                boot: "0f5c8b1e-2a3d-4c5e-8f70-112233445566".to_owned(),
                of: Cause::Order(order),
            },
            pod: PodRef {
                namespace: "shop".to_owned(),
                name: "web-5d".to_owned(),
                uid: format!("uid-{order}"),
            },
            status: Some(Eviction {
                message: message.clone(),
                generation: Some(3),
                at: at.clone(),
                for_limit: false,
            }),
            status_part: Part::Owed,
            event: EventWords {
                warns: true,
                reason: "Evicted".to_owned(),
                message,
                annotations: [("starved_resource".to_owned(), "memory".to_owned())].into(),
                count: 1,
                first: at.clone(),
                last: at,
            },
            event_part: Part::Owed,
        }
    }

    #[test]
    fn the_same_entry_has_the_same_event_and_another_has_another() {
        let name = entry(7).event_name();
        assert_eq!(name, entry(7).event_name());
        let (pod, digits) = name.split_once('.').unwrap();
        assert_eq!((pod, digits.len()), ("web-5d", 16));
        assert!(
            digits
                .bytes()
                .all(|digit| digit.is_ascii_hexdigit() && !digit.is_ascii_uppercase())
        );
        assert_ne!(name, entry(8).event_name());
        let mut other_boot = entry(7);
        other_boot.key.boot = "another".to_owned();
        assert_ne!(name, other_boot.event_name());
        let mut oom = entry(7);
        oom.key.of = Cause::OomKill(7);
        assert_ne!(name, oom.event_name());
    }

    #[test]
    fn the_longest_name_leaves_room_for_the_digits() {
        let mut long = entry(1);
        long.pod.name = "a".repeat(253);
        assert_eq!(long.event_name().len(), 253);
        // Cut behind a dot, which no name may end in.
        long.pod.name = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        let name = long.event_name();
        assert!(name.len() <= 253 && !name.contains(".."), "{name}");
    }

    #[test]
    fn a_name_that_would_lead_elsewhere_is_none() {
        let is_named = |namespace: &str, name: &str| {
            let mut pod = entry(1).pod;
            (pod.namespace, pod.name) = (namespace.to_owned(), name.to_owned());
            pod.is_named()
        };
        let longest = "a".repeat(LONGEST_NAME);
        for name in ["web", "web-5d", "1", "web.shop-2.x", &longest] {
            assert!(is_named("shop", name) && is_named(name, "web"), "{name}");
        }
        let too_long = "a".repeat(LONGEST_NAME + 1);
        for name in [
            "", ".", "..", "a/b", "a?b", "a#b", "a b", "A", "a..b", ".a", "-a", "a-.b", "\u{e4}",
            &too_long,
        ] {
            assert!(!is_named("shop", name) && !is_named(name, "web"), "{name}");
        }
    }

    #[test]
    fn an_entry_is_settled_when_nothing_is_owed() {
        let mut entry = entry(1);
        assert!(!entry.is_settled());
        entry.status_part = Part::Ended(End::Gone);
        assert!(!entry.is_settled());
        entry.event_part = Part::Done;
        assert!(entry.is_settled() && !entry.is_status_written());
    }
}

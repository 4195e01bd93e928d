//! The last known pods as a file, so that an agent that starts without an API knows them.

use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{MOST_PODS, Pod};

/// `apiVersion` of the file.
const API_VERSION: &str = "brink.dev/v1alpha1";
/// `kind` of the file.
const KIND: &str = "KnownPods";
/// The largest file that is read, in bytes: more than [`super::MOST_PODS`] of [`super::LARGEST_POD`] have.
pub const LARGEST: u64 = 80 << 20;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// When the list was up to date.
    pub as_of: Timestamp,
    /// The pods.
    pub pods: Vec<Pod>,
}

/// Why a file is not gone by.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// It is not what was written.
    #[error("not in order: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It is another version's.
    #[error("of another version: {api_version} {kind}")]
    Version {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// It is another node's.
    #[error("of another node: {node}")]
    Node {
        /// The node.
        node: String,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    api_version: &'a str,
    kind: &'a str,
    node: &'a str,
    as_of: Timestamp,
    pods: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
    kind: String,
    node: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    as_of: Timestamp,
    #[serde(deserialize_with = "no_more_than_are_known")]
    pods: Vec<Pod>,
}

/// A file of more pods is not one that was written here.
fn no_more_than_are_known<'de, D: Deserializer<'de>>(pods: D) -> Result<Vec<Pod>, D::Error> {
    struct Few;

    impl<'de> Visitor<'de> for Few {
        type Value = Vec<Pod>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST_PODS} pods")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<Pod>, A::Error> {
            let mut pods = Vec::new();
            while let Some(pod) = items.next_element()? {
                if pods.len() >= MOST_PODS {
                    return Err(A::Error::invalid_length(pods.len() + 1, &self));
                }
                pods.push(pod);
            }
            Ok(pods)
        }
    }

    pods.deserialize_seq(Few)
}

/// The text of the file. What has ended is left out: nothing of it is to be protected.
///
/// # Errors
/// When a pod's JSON is none, which only who made it can bring about.
pub fn write(node: &str, as_of: Timestamp, pods: &[Pod]) -> Result<Vec<u8>, serde_json::Error> {
    let living = pods.iter().filter(|pod| !pod.is_over);
    let pods: Result<Vec<&RawValue>, _> = living
        .map(|pod| serde_json::from_slice(&pod.json))
        .collect();
    serde_json::to_vec(&Written {
        api_version: API_VERSION,
        kind: KIND,
        node,
        as_of,
        pods: pods?,
    })
}

/// Reads the text of a file about this node.
///
/// # Errors
/// [`KeptError`].
pub fn read(text: &[u8], node: &str) -> Result<Kept, KeptError> {
    let head: Head = serde_json::from_slice(text)?;
    if head.api_version != API_VERSION || head.kind != KIND {
        let Head {
            api_version, kind, ..
        } = head;
        return Err(KeptError::Version { api_version, kind });
    }
    if head.node != node {
        return Err(KeptError::Node { node: head.node });
    }
    let Body { as_of, pods } = serde_json::from_slice(text)?;
    Ok(Kept { as_of, pods })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(name: &str, phase: &str) -> Pod {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","uid":"u-{name}","resourceVersion":"7"}},"status":{{"phase":"{phase}"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_is_kept_comes_back_without_what_has_ended() {
        let as_of = Timestamp::from_second(1_795_000_000).unwrap();
        let text = write("node", as_of, &[pod("a", "Running"), pod("b", "Failed")]).unwrap();
        let kept = read(&text, "node").unwrap();
        assert_eq!(kept.as_of, as_of);
        let names: Vec<_> = kept.pods.iter().map(|pod| &*pod.uid).collect();
        assert_eq!(names, ["u-a"]);
        assert_eq!(kept.pods[0].json, pod("a", "Running").json);
    }

    #[test]
    fn what_is_not_ours_is_not_gone_by() {
        let as_of = Timestamp::UNIX_EPOCH;
        let text = write("node", as_of, &[pod("a", "Running")]).unwrap();
        assert!(matches!(read(&text, "other"), Err(KeptError::Node { node }) if node == "node"));
        assert!(matches!(
            read(&text[..text.len() / 2], "node"),
            Err(KeptError::Malformed(_))
        ));
        let newer = String::from_utf8(text).unwrap().replace("v1alpha1", "v9");
        let error = read(newer.as_bytes(), "node").unwrap_err();
        assert_eq!(
            error.to_string(),
            "of another version: brink.dev/v9 KnownPods"
        );
    }

    #[test]
    fn more_pods_than_are_known_were_not_written_here() {
        let read_of = |count: usize| {
            let pods = vec![pod("a", "Running"); count];
            let text = write("node", Timestamp::UNIX_EPOCH, &pods).unwrap();
            read(&text, "node").map(|kept| kept.pods.len())
        };
        assert_eq!(read_of(MOST_PODS).unwrap(), MOST_PODS);
        let said = read_of(MOST_PODS + 1).unwrap_err().to_string();
        assert!(said.contains("a list of at most 2048 pods"), "{said}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[-{}\\[\\]:,\" a-z0-9]{0,200}", cut in 0_usize..400) {
            let _read_or_refused = read(text.as_bytes(), "node");
            let whole = write("node", Timestamp::UNIX_EPOCH, &[pod("a", "Running"), pod("b", "Pending")]).unwrap();
            let odd = [&whole[..cut.min(whole.len())], text.as_bytes(), &whole[cut.min(whole.len())..]].concat();
            if let Ok(kept) = read(&odd, "node") {
                let again = write("node", kept.as_of, &kept.pods).unwrap();
                let again = read(&again, "node").unwrap();
                prop_assert!(again.pods.len() <= kept.pods.len());
            }
        }
    }
}

//! The annotation by which a node's enforcement is stopped from afar.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use tracing::{info, warn};

use crate::client::Access;
use crate::retry::Backoff;
use crate::watch::{Change, Object, Query, Streaming, Watch, lasts};

/// The annotation, on the node.
pub const ANNOTATION: &str = "brink.dev/pause";

/// How the annotation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It is not there, or says `false`.
    No,
    /// Until it is taken away.
    Forever,
    /// Until then.
    Until(Timestamp),
}

impl Pause {
    /// What the annotation says: a time in RFC 3339 ends the pause, `false` is none, and anything else pauses until it is taken
    /// away. Whoever writes there wants enforcement to stop, however it is spelt.
    pub fn of(value: Option<&str>) -> Self {
        match value.map(str::trim) {
            None | Some("false") => Self::No,
            Some(text) => text.parse().map_or(Self::Forever, Self::Until),
        }
    }
}

/// A node, as far as it is looked at.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Node {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
    annotations: BTreeMap<String, String>,
}

impl Object for Node {
    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Node {
    /// How its annotation stands.
    pub fn pause(&self) -> Pause {
        Pause::of(
            self.metadata
                .annotations
                .get(ANNOTATION)
                .map(String::as_str),
        )
    }
}

/// What changes of the node make of the pause.
#[derive(Debug, Default)]
struct Reader {
    /// Whether the list that arrives has the node.
    is_listed: bool,
}

impl Reader {
    /// How the annotation stands after a change, where that tells.
    fn take(&mut self, change: &Change<Node>) -> Option<Pause> {
        match change {
            Change::Began => {
                self.is_listed = false;
                None
            }
            Change::Found(node) | Change::Applied(node) => {
                self.is_listed = true;
                Some(node.pause())
            }
            // Without a node there is no annotation.
            Change::Complete => (!self.is_listed).then_some(Pause::No),
            Change::Deleted(_) => Some(Pause::No),
            Change::Opened => None,
        }
    }
}

/// Whose annotation is followed.
#[derive(Clone, Debug)]
pub struct Follow {
    /// How the API server is reached.
    pub access: Access,
    /// The node.
    pub node: String,
    /// Anything that differs from run to run: no two wait alike.
    pub seed: u64,
}

impl Follow {
    /// Tells how the annotation stands whenever that may be another, for ever. While the server is away it stands as it did.
    pub async fn run(&self, mut tell: impl FnMut(Pause)) {
        let mut backoff = Backoff::new(&self.node, self.seed);
        let lasts = lasts(&mut backoff);
        let mut watch: Option<Watch<Node>> = None;
        let mut reader = Reader::default();
        let mut was_lost = false;
        loop {
            let (why, asked) = match self.access.connect().await {
                Err(error) => (error.to_string(), None),
                Ok(client) => {
                    let watch = match &mut watch {
                        Some(watch) => {
                            watch.reconnect(client);
                            watch
                        }
                        none => none.insert(Watch::new(client, self.query(lasts))),
                    };
                    let error = loop {
                        let change = match watch.next().await {
                            Ok(change) => change,
                            Err(error) => break error,
                        };
                        if matches!(change, Change::Complete | Change::Opened) {
                            backoff.succeeded();
                            if std::mem::take(&mut was_lost) {
                                info!(node = self.node, "the node's annotation is followed again");
                            }
                        }
                        if let Some(pause) = reader.take(&change) {
                            tell(pause);
                        }
                    };
                    if watch.is_to_be_renewed(&error) {
                        continue;
                    }
                    (error.to_string(), error.asked_wait())
                }
            };
            if !std::mem::replace(&mut was_lost, true) {
                warn!(
                    node = self.node,
                    why, "the node's annotation {ANNOTATION} is not followed; it stands as it did"
                );
            }
            tokio::time::sleep(backoff.failed(asked)).await;
        }
    }

    fn query(&self, lasts: Duration) -> Query {
        Query {
            path: "/api/v1/nodes",
            fields: format!("metadata.name={}", self.node),
            only_metadata: true,
            streaming: Streaming::Never,
            lasts,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(annotations: &serde_json::Value) -> Node {
        let object = json!({ "metadata": { "resourceVersion": "7", "annotations": annotations } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_node_without_annotations_or_without_itself_pauses_nothing() {
        let mut reader = Reader::default();
        assert_eq!(reader.take(&Change::Began), None);
        let paused = node(&json!({ ANNOTATION: "true", "other": "x" }));
        assert_eq!(
            reader.take(&Change::Found(paused.clone())),
            Some(Pause::Forever)
        );
        assert_eq!(reader.take(&Change::Complete), None);
        assert_eq!(reader.take(&Change::Opened), None);
        assert_eq!(
            reader.take(&Change::Applied(node(&json!({})))),
            Some(Pause::No)
        );
        assert_eq!(reader.take(&Change::Deleted(paused)), Some(Pause::No));
        assert_eq!(reader.take(&Change::Began), None);
        assert_eq!(reader.take(&Change::Complete), Some(Pause::No));
        let bare: Node = serde_json::from_value(json!({ "metadata": {} })).unwrap();
        assert_eq!(bare.pause(), Pause::No);
    }

    #[test]
    fn whoever_writes_there_wants_a_pause() {
        let then: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for (value, expected) in [
            (None, Pause::No),
            (Some("false"), Pause::No),
            (Some(""), Pause::Forever),
            (Some("true"), Pause::Forever),
            (Some("maintenance"), Pause::Forever),
            (Some(" 2026-01-01T00:00:00Z"), Pause::Until(then)),
        ] {
            assert_eq!(Pause::of(value), expected, "{value:?}");
        }
    }
}

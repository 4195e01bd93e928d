//! Which pod is the agent of which node.

use serde::Deserialize;

/// The labels of the agents' pods.
pub(super) const LABELS: &str = "app.kubernetes.io/name=brink,app.kubernetes.io/component=agent";

/// The agent of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agent {
    /// Name of the node.
    pub(super) node: String,
    /// Name of its pod.
    pub(super) pod: String,
    /// Names of further pods that run there, while the node is rolled over.
    pub(super) others: Vec<String>,
}

/// A list of pods, as far as it is looked at.
#[derive(Deserialize)]
struct List {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    creation_timestamp: String,
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Pod {
    fn is_ready(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.kind == "Ready" && condition.status == "True")
    }

    /// Of two on a node, which is rolled over, the one that is rather asked comes last: ready, staying, and newer.
    fn rank(&self) -> (bool, bool, &str) {
        let Metadata {
            creation_timestamp,
            deletion_timestamp,
            ..
        } = &self.metadata;
        (
            self.is_ready(),
            deletion_timestamp.is_none(),
            creation_timestamp,
        )
    }
}

/// The agents of a list of pods, by node, one each; with several on a node the others are named too.
///
/// # Errors
/// When it is no such list.
pub(super) fn read(list: &[u8]) -> serde_json::Result<Vec<Agent>> {
    let List { mut items } = serde_json::from_slice(list)?;
    items.retain(|pod| pod.status.phase == "Running" && !pod.spec.node_name.is_empty());
    items.sort_by(|a, b| (&a.spec.node_name, b.rank()).cmp(&(&b.spec.node_name, a.rank())));
    let mut agents: Vec<Agent> = Vec::new();
    for pod in items {
        let (node, name) = (pod.spec.node_name, pod.metadata.name);
        match agents.last_mut() {
            Some(agent) if agent.node == node => agent.others.push(name),
            _ => agents.push(Agent {
                node,
                pod: name,
                others: Vec::new(),
            }),
        }
    }
    Ok(agents)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, ready: bool, made: &str) -> serde_json::Value {
        json!({
            "metadata": { "name": name, "creationTimestamp": made },
            "spec": { "nodeName": node },
            "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
            },
        })
    }

    #[test]
    fn each_node_has_one_and_the_others_are_known() {
        let mut ended = pod("ended", "c", true, "2026-01-03T00:00:00Z");
        ended["status"]["phase"] = "Failed".into();
        let mut leaving = pod("leaving", "d", true, "2026-01-09T00:00:00Z");
        leaving["metadata"]["deletionTimestamp"] = "2026-01-09T00:00:01Z".into();
        let list = json!({ "items": [
            pod("waits", "b", false, "2026-01-02T00:00:00Z"),
            pod("acts", "b", true, "2026-01-01T00:00:00Z"),
            pod("old", "a", true, "2026-01-01T00:00:00Z"),
            pod("new", "a", true, "2026-01-02T00:00:00Z"),
            leaving,
            pod("stays", "d", true, "2026-01-01T00:00:00Z"),
            ended,
            { "metadata": { "name": "nowhere" }, "status": { "phase": "Pending" } },
        ] });
        let found = read(list.to_string().as_bytes()).unwrap();
        let expected = [
            ("a", "new", "old"),
            ("b", "acts", "waits"),
            ("d", "stays", "leaving"),
        ];
        let expected = expected.map(|(node, pod, other)| Agent {
            node: node.to_owned(),
            pod: pod.to_owned(),
            others: [other.to_owned()].into(),
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        assert!(read(b"{}").is_err() && read(b"").is_err());
        assert_eq!(read(br#"{"items":[]}"#).unwrap(), []);
    }
}

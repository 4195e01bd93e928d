//! What is seen of the agent at one moment: its status, its ranking, and the incidents that it lists.

use brink_stream::model::event::{Event, Time};
use brink_stream::model::incident::Cause;
use serde::Deserialize;

use crate::control::protocol::{Ranking, Refusal, Status};

/// One look: what `brink status` and `brink rank` show.
#[derive(Clone, Debug)]
pub struct Look {
    /// The signal that was asked for.
    pub signal: String,
    /// How the agent and the node are.
    pub status: Status,
    /// Who would go now, or why nobody can say.
    pub ranking: Result<Ranking, Refusal>,
}

/// What is listed of an incident.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncidentRow {
    /// Its id.
    pub id: String,
    /// What killed.
    pub cause: Cause,
    /// How often it was told.
    pub revision: u32,
    /// Nothing more is to come.
    pub is_final: bool,
    /// When it began.
    pub at: Time,
    /// The namespace of the workload.
    #[serde(default)]
    pub namespace: String,
    /// The workload; empty where it is not known.
    #[serde(default)]
    pub name: String,
    /// Who was killed.
    pub victims: Vec<VictimRow>,
    /// Victims that found no room in the record.
    pub more_victims: u32,
}

/// One process that was killed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct VictimRow {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

/// What `/v1/incidents` answers.
#[derive(Clone, Debug, Deserialize)]
pub struct IncidentRows {
    /// The newest first.
    pub items: Vec<IncidentRow>,
}

impl IncidentRow {
    /// What an event tells of an incident, if it does.
    pub fn of(event: &Event) -> Option<Self> {
        if !event.of.is_incident() {
            return None;
        }
        let mut row: Self = serde_json::from_str(event.data.get()).ok()?;
        if let Some(subject) = &event.subject {
            row.namespace.clone_from(&subject.namespace);
            row.name.clone_from(&subject.name);
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_and_the_list_tell_the_same() {
        let event = r#"{"apiVersion":"a","kind":"Event","type":"oom-kill","node":"n","bootId":"b","seq":1,"at":{"wall":"w","monotonicNs":1},"subject":{"namespace":"shop","name":"web","uid":"u"},"data":DATA}"#;
        let data = r#"{"id":"b-1","cause":"memcgOom","revision":1,"isFinal":false,"at":{"wall":"w","monotonicNs":1},"victims":[{"pid":7,"comm":"java"}],"moreVictims":2}"#;
        let told: Event = serde_json::from_str(&event.replace("DATA", data)).unwrap();
        let told = IncidentRow::of(&told).unwrap();
        let listed = data.replacen('{', r#"{"namespace":"shop","name":"web","#, 1);
        let listed = format!(r#"{{"items":[{listed}]}}"#);
        let listed: IncidentRows = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed.items, [told]);
        let other = event.replace("DATA", "{}").replace("oom-kill", "loss");
        assert_eq!(
            IncidentRow::of(&serde_json::from_str(&other).unwrap()),
            None
        );
    }
}

//! What an incident does not tell, folded into one line a reason.

use std::collections::BTreeMap;

use brink_stream::model::field::Missing;
use brink_stream::model::incident::Incident;
use serde_json::Value;

/// Fields by the reason for which they are missing; those that do not apply are left out.
pub fn missing(incident: &Incident) -> Vec<(Missing, Vec<String>)> {
    let mut found: BTreeMap<&'static str, (Missing, Vec<String>)> = BTreeMap::new();
    if let Ok(value) = serde_json::to_value(incident) {
        collect(&value, "", &mut |path, reason| {
            let (_, fields) = found
                .entry(reason.words())
                .or_insert_with(|| (reason, Vec::new()));
            if !fields.iter().any(|known| known == path) {
                fields.push(path.to_owned());
            }
        });
    }
    found.into_values().collect()
}

fn collect(value: &Value, path: &str, found: &mut impl FnMut(&str, Missing)) {
    match value {
        Value::Object(map) => {
            if let (1, Some(reason)) = (map.len(), map.get("missing")) {
                let reason = serde_json::from_value(reason.clone()).ok();
                if let Some(reason) = reason.filter(|reason| *reason != Missing::NotApplicable) {
                    found(path, reason);
                }
                return;
            }
            for (key, inner) in map {
                // A field that may be null has the reason beside it.
                if let Some(field) = key.strip_suffix("Missing")
                    && let Ok(reason) = serde_json::from_value::<Missing>(inner.clone())
                {
                    if reason != Missing::NotApplicable {
                        found(&format!("{path}.{field}"), reason);
                    }
                    continue;
                }
                // Our own decision has a page of its own, and no fields of this kind.
                match (key.as_str(), path) {
                    ("value", _) => collect(inner, path, found),
                    ("decision", "") if inner.get("value").is_some() => {}
                    (key, "") => collect(inner, key, found),
                    (key, path) => collect(inner, &format!("{path}.{key}"), found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| collect(inner, path, found)),
        _ => {}
    }
}

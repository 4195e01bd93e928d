//! The dashboard of Grafana: what it must have, and the expressions in it.
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// The schema of Grafana 11.
const SCHEMA: u64 = 39;
/// What Grafana puts in the place of its own variables, for a check.
const VARIABLES: [(&str, &str); 3] = [
    ("$__rate_interval", "5m"),
    ("$__range", "1h"),
    ("$__interval", "1m"),
];

/// Every expression in the panels of a dashboard.
///
/// # Errors
/// When it is no dashboard of that schema, or a panel is not as it must be.
pub(super) fn expressions(text: &str) -> anyhow::Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(text).context("the dashboard is no JSON")?;
    let schema = dashboard["schemaVersion"].as_u64();
    ensure!(
        schema >= Some(SCHEMA),
        "the dashboard's schemaVersion is below {SCHEMA}"
    );
    let variables = list(&dashboard["templating"]["list"]);
    let is_source = |variable: &&Value| variable["type"] == "datasource";
    ensure!(
        variables.iter().any(|one| is_source(&one)),
        "the dashboard has no variable for its data source"
    );
    let panels = list(&dashboard["panels"]);
    let mut numbers: Vec<u64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    ensure!(
        numbers.len() == panels.len(),
        "two panels of the dashboard have one id, or one has none"
    );
    let mut all = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap_or_default();
        ensure!(!title.is_empty(), "a panel of the dashboard has no title");
        let targets = list(&panel["targets"]);
        ensure!(!targets.is_empty(), "the panel `{title}` shows nothing");
        for target in targets {
            ensure!(
                target["datasource"]["uid"] == "${datasource}",
                "the panel `{title}` has a data source of its own"
            );
            let expression = target["expr"].as_str();
            all.push(
                expression
                    .with_context(|| format!("`{title}` has no expression"))?
                    .to_owned(),
            );
        }
    }
    Ok(all)
}

/// The expressions as a file of rules, which `promtool` can read: JSON is YAML.
pub(super) fn as_rules(expressions: &[String]) -> String {
    let rules: Vec<Value> = expressions
        .iter()
        .enumerate()
        .map(|(number, expression)| {
            let whole = VARIABLES
                .iter()
                .fold(expression.clone(), |text, (name, value)| {
                    text.replace(name, value)
                });
            json!({"record": format!("dashboard:{number}"), "expr": whole})
        })
        .collect();
    json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dashboard() -> Value {
        let source = json!({"type": "prometheus", "uid": "${datasource}"});
        json!({
            "schemaVersion": 39,
            "templating": {"list": [{"type": "datasource", "name": "datasource"}]},
            "panels": [
                {"id": 1, "type": "row", "title": "Now"},
                {"id": 2, "type": "stat", "title": "A", "targets": [{"datasource": source, "expr": "rate(a[$__rate_interval])"}]},
            ]
        })
    }

    #[test]
    fn expressions_become_rules() {
        let found = expressions(&dashboard().to_string()).unwrap();
        assert_eq!(found, ["rate(a[$__rate_interval])"]);
        let rules: Value = serde_json::from_str(&as_rules(&found)).unwrap();
        assert_eq!(rules["groups"][0]["rules"][0]["expr"], "rate(a[5m])");
    }

    fn check(pointer: &str, value: Value, fault: &str) {
        let mut changed = dashboard();
        *changed.pointer_mut(pointer).unwrap() = value;
        let error = expressions(&changed.to_string()).unwrap_err().to_string();
        assert!(error.contains(fault), "{error}");
    }

    #[test]
    fn a_dashboard_that_shows_nothing_is_none() {
        check("/schemaVersion", json!(38), "schemaVersion");
        check("/templating/list", json!([]), "data source");
        check("/panels/1/id", json!(1), "one id");
        check("/panels/1/title", json!(""), "no title");
        check("/panels/1/targets", json!([]), "shows nothing");
        check(
            "/panels/1/targets/0/datasource/uid",
            json!("mine"),
            "of its own",
        );
        check("/panels/1/targets/0/expr", json!(null), "no expression");
        assert!(expressions("{").is_err());
    }
}

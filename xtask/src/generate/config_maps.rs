//! Alerts and dashboard as Kubernetes wants them: each file in a `ConfigMap`.
use std::fs;

use anyhow::Context as _;

use super::Files;
use crate::workspace;

/// The alerts, for a Prometheus that mounts its rules.
pub(super) fn alerts() -> anyhow::Result<Files> {
    let text = read("deploy/alerts/brink.rules.yaml")?;
    let map = config_map("brink-alerts", &[], ("brink.rules.yaml", &text));
    Ok([("brink-alerts.yaml".to_owned(), map.into_bytes())].into())
}

/// The dashboard, with the label that Grafana's side-car looks for.
pub(super) fn dashboards() -> anyhow::Result<Files> {
    let text = read("deploy/dashboards/brink.json")?;
    let label = ["grafana_dashboard: \"1\""];
    let map = config_map("brink-dashboard", &label, ("brink.json", &text));
    Ok([("brink-dashboard.yaml".to_owned(), map.into_bytes())].into())
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(workspace::root().join(path)).with_context(|| format!("reading {path}"))
}

fn config_map(name: &str, labels: &[&str], (file, text): (&str, &str)) -> String {
    let head = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels:\n    app.kubernetes.io/name: brink\n"
    );
    let labels = labels.iter().map(|label| format!("    {label}\n"));
    let lines = text.lines().map(|line| {
        let indent = if line.is_empty() { "" } else { "    " };
        [indent, line, "\n"].concat()
    });
    let data = format!("data:\n  {file}: |\n");
    let parts = [head].into_iter().chain(labels).chain([data]).chain(lines);
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_stands_indented_in_the_map() {
        let map = config_map("a", &["b: \"1\""], ("c.yaml", "d:\n\n  - e\n"));
        let end = "  labels:\n    app.kubernetes.io/name: brink\n    b: \"1\"\ndata:\n  c.yaml: |\n    d:\n\n      - e\n";
        assert!(map.starts_with("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"));
        assert!(map.ends_with(end), "{map}");
    }
}

//! Every name that alerts, dashboard and documentation use is on the page, and every name of the page is used.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context as _;

use super::page::families;

/// The alerts.
pub(super) const RULES: &str = "deploy/alerts/brink.rules.yaml";
/// Their tests.
pub(super) const TESTS: &str = "deploy/alerts/brink.rules.test.yaml";
/// The dashboard.
pub(super) const DASHBOARD: &str = "deploy/dashboards/brink.json";
const REFERENCE: &str = "docs/metrics.md";
const RUNBOOKS: &str = "docs/runbooks";

/// Every file that speaks of metrics.
#[derive(Debug, Default)]
pub(super) struct Sources {
    rules: String,
    tests: String,
    pub(super) dashboard: String,
    reference: String,
    /// Pages by the name of their alert.
    runbooks: BTreeMap<String, String>,
}

impl Sources {
    /// Reads them below the workspace's directory.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let read = |path: &str| {
            fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))
        };
        let mut runbooks = BTreeMap::new();
        for entry in fs::read_dir(root.join(RUNBOOKS)).context("listing the runbooks")? {
            let path = entry.context("listing the runbooks")?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let text = fs::read_to_string(&path);
            let text = text.with_context(|| format!("reading {}", path.display()))?;
            runbooks.insert(name.into_owned(), text);
        }
        Ok(Self {
            rules: read(RULES)?,
            tests: read(TESTS)?,
            dashboard: read(DASHBOARD)?,
            reference: read(REFERENCE)?,
            runbooks,
        })
    }

    /// The names of the alerts.
    pub(super) fn alerts(&self) -> impl Iterator<Item = &str> {
        let lines = self.rules.lines().map(str::trim);
        lines.filter_map(|line| line.strip_prefix("- alert: "))
    }

    /// What does not fit together with a page in the text format, a line each.
    pub(super) fn problems(&self, page: &str) -> Vec<String> {
        let known = sample_names(page);
        let files = [
            (RULES, &self.rules),
            (TESTS, &self.tests),
            (DASHBOARD, &self.dashboard),
            (REFERENCE, &self.reference),
        ];
        let runbooks = self.runbooks.iter();
        let runbooks = runbooks.map(|(name, text)| (name.as_str(), text));
        let unknown = files.into_iter().chain(runbooks).flat_map(|(file, text)| {
            let names = words(text).filter(|word| word.starts_with("brink_"));
            let unknown: BTreeSet<&str> = names.filter(|name| !known.contains(*name)).collect();
            unknown
                .into_iter()
                .map(move |name| format!("{file}: `{name}` is on no page of the agent"))
        });
        unknown
            .chain(self.unused(page))
            .chain(self.unexplained())
            .collect()
    }

    /// Families that the reference does not name, or nobody ever looks at.
    fn unused(&self, page: &str) -> Vec<String> {
        let looked: BTreeSet<&str> = words(&self.rules).chain(words(&self.dashboard)).collect();
        let mut problems = Vec::new();
        for (name, kind) in families(page) {
            if !self.reference.contains(&format!("`{name}`")) {
                problems.push(format!("{REFERENCE}: `{name}` is missing"));
            }
            let samples = samples_of(name, kind);
            if !samples
                .iter()
                .any(|sample| looked.contains(sample.as_str()))
            {
                problems.push(format!(
                    "{DASHBOARD}: `{name}` is in no panel, and no alert looks at it"
                ));
            }
        }
        problems
    }

    /// Alerts without a page or tests, and pages without an alert.
    fn unexplained(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for alert in self.alerts() {
            if !self.runbooks.contains_key(alert) {
                problems.push(format!("{RUNBOOKS}/{alert}.md: the alert has no page"));
            }
            if !self
                .rules
                .contains(&format!("runbook_url: {RUNBOOKS}/{alert}.md"))
            {
                problems.push(format!("{RULES}: `{alert}` does not name its page"));
            }
            let firing = self.tests.split("- eval_time:").any(|test| {
                test.contains(&format!("alertname: {alert}\n")) && test.contains("exp_alerts:")
            });
            if !firing {
                problems.push(format!("{TESTS}: no test lets `{alert}` fire"));
            }
        }
        let is_alert = |name: &str| self.alerts().any(|alert| alert == name);
        let orphans = self.runbooks.keys().filter(|name| !is_alert(name));
        problems
            .extend(orphans.map(|name| format!("{RUNBOOKS}/{name}.md: no alert has that name")));
        problems
    }
}

/// The names of all samples that can stand on a page.
fn sample_names(page: &str) -> BTreeSet<String> {
    let all = families(page).flat_map(|(name, kind)| samples_of(name, kind));
    let heads = families(page).map(|(name, _)| name.to_owned());
    all.chain(heads).collect()
}

fn samples_of(name: &str, kind: &str) -> Vec<String> {
    match kind {
        "histogram" => ["_bucket", "_sum", "_count"]
            .map(|end| [name, end].concat())
            .to_vec(),
        _ => vec![name.to_owned()],
    }
}

/// Everything in a text that could be the name of a metric.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(move |letter| !is_part(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# TYPE brink_a_total counter\n# TYPE brink_b histogram\n";

    fn sources() -> Sources {
        let pages = [("BrinkA".to_owned(), "`brink_a_total`".to_owned())];
        Sources {
            rules:
                "- alert: BrinkA\n expr: brink_a_total > 0\n runbook_url: docs/runbooks/BrinkA.md"
                    .to_owned(),
            tests: "- eval_time: 1m\n alertname: BrinkA\n exp_alerts:\n".to_owned(),
            dashboard: "rate(brink_b_bucket[5m])".to_owned(),
            reference: "`brink_a_total` `brink_b`".to_owned(),
            runbooks: pages.into(),
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Sources), expected: &[&str]) {
        let mut sources = sources();
        change(&mut sources);
        let found = sources.problems(PAGE);
        let fits = found
            .iter()
            .zip(expected)
            .all(|(found, part)| found.contains(part));
        assert!(fits && found.len() == expected.len(), "{found:#?}");
    }

    #[test]
    fn what_fits_together_has_no_problems() {
        check(|_| {}, &[]);
    }

    #[test]
    fn names_that_are_on_no_page_are_found_wherever_they_are() {
        check(
            |all| all.rules.push_str(" brink_c"),
            &["brink.rules.yaml: `brink_c`"],
        );
        check(
            |all| all.tests.push_str(" brink_c"),
            &["brink.rules.test.yaml: `brink_c`"],
        );
        check(
            |all| all.dashboard.push_str(" brink_a"),
            &["brink.json: `brink_a`"],
        );
        check(
            |all| all.reference.push_str(" brink_b_max"),
            &["metrics.md: `brink_b_max`"],
        );
        let more = |all: &mut Sources| {
            let page = all.runbooks.get_mut("BrinkA").unwrap();
            page.push_str(" brink_c");
        };
        check(more, &["BrinkA: `brink_c`"]);
    }

    #[test]
    fn names_that_nobody_uses_are_found() {
        check(
            |all| all.reference.clear(),
            &["`brink_a_total` is missing", "`brink_b` is missing"],
        );
        check(|all| all.dashboard.clear(), &["`brink_b` is in no panel"]);
    }

    #[test]
    fn an_alert_has_a_page_and_a_test() {
        check(
            |all| all.runbooks.clear(),
            &["BrinkA.md: the alert has no page"],
        );
        check(|all| all.tests.clear(), &["no test lets `BrinkA` fire"]);
        let more =
            |all: &mut Sources| drop(all.runbooks.insert("BrinkB".to_owned(), String::new()));
        check(more, &["BrinkB.md: no alert"]);
        let other = |all: &mut Sources| all.rules = all.rules.replace("BrinkA.md", "BrinkB.md");
        check(other, &["does not name its page"]);
    }
}

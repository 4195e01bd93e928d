//! The page of `/metrics` as the agent makes it, in both formats.
use std::{fs, process::Command};

use anyhow::{Context as _, bail};

use crate::test::artifacts;

/// The variable that names the folder where the test below leaves the pages.
const FOLDER: &str = "BRINK_METRICS_PAGES";
/// The agent's test that makes the page from facts in which everything is known.
const TEST: &str = "metrics::tests::the_page_can_be_left_in_a_folder";

/// The page in both formats.
#[derive(Debug)]
pub(super) struct Pages {
    /// In the text format 0.0.4.
    pub(super) text: String,
    /// In `OpenMetrics` 1.0.
    pub(super) open: String,
}

impl Pages {
    /// Has the agent make them.
    pub(super) fn make() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("making a folder for the pages")?;
        let answer = Command::new(artifacts::build_agents_tests()?)
            .args(["--exact", TEST])
            .env(FOLDER, folder.path())
            .output()
            .context("starting the agent's tests")?;
        if !answer.status.success() {
            let said = String::from_utf8_lossy(&answer.stdout).into_owned();
            bail!("the agent's test {TEST} failed:\n{said}");
        }
        let read = |name: &str| {
            let text = fs::read_to_string(folder.path().join(name));
            text.with_context(|| format!("{TEST} has left no page `{name}`; was it renamed?"))
        };
        Ok(Self {
            text: read("text")?,
            open: read("openmetrics")?,
        })
    }

    /// Names and kinds of the families in the text format.
    pub(super) fn families(&self) -> impl Iterator<Item = (&str, &str)> {
        families(&self.text)
    }

    /// The `OpenMetrics` page with a time at each sample, which whoever reads old figures wants.
    pub(super) fn stamped(&self) -> String {
        let lines = self.open.lines().map(|line| {
            let time = if line.starts_with('#') {
                ""
            } else {
                " 1700000000"
            };
            [line, time, "\n"].concat()
        });
        lines.collect()
    }
}

/// Names and kinds of the families of a page in the text format.
pub(super) fn families(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    heads.filter_map(|head| head.split_once(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_gets_a_time_and_nothing_else_does() {
        let pages = Pages {
            text: "# TYPE a_total counter\na_total{b=\"c d\"} 1\n".to_owned(),
            open: "# TYPE a counter\na_total{b=\"c d\"} 1\n# EOF\n".to_owned(),
        };
        let expected = "# TYPE a counter\na_total{b=\"c d\"} 1 1700000000\n# EOF\n";
        assert_eq!(pages.stamped(), expected);
        assert_eq!(
            pages.families().collect::<Vec<_>>(),
            [("a_total", "counter")]
        );
    }
}

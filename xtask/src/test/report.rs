//! The table at the end, the reasons of what was skipped, and the summary lines.
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    libtest::{Outcome, Skip},
    live::TIME_OVER,
};
use crate::Verdict;

/// A suite and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suite {
    name: String,
    outcome: Outcome,
}

impl Suite {
    /// A finished suite; its line is printed at once, so that a long run shows where it is.
    pub(crate) fn told(name: &str, outcome: Outcome) -> Self {
        if !outcome.is_empty() {
            let word = if outcome.failed == 0 { "ok" } else { "FAILED" };
            println!(
                "suite {name} ... {word} ({:.2} s)",
                outcome.elapsed.as_secs_f64()
            );
        }
        Self {
            name: name.to_owned(),
            outcome,
        }
    }
}

/// Every suite that was run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    suites: Vec<Suite>,
}

impl Report {
    pub(crate) fn add(&mut self, suite: Suite) {
        self.suites.push(suite);
    }

    /// Adds everything of a report from elsewhere, each suite named after where it was.
    pub(crate) fn add_from(&mut self, place: &str, other: Self) {
        self.suites
            .extend(other.suites.into_iter().map(|suite| Suite {
                name: format!("{place} {}", suite.name),
                ..suite
            }));
    }

    /// Counts something that should have been tested, and could not be.
    pub(crate) fn add_skipped(&mut self, suite: &str, tests: &[&str], reason: &str) {
        let skip = |test: &&str| Skip {
            test: (*test).to_owned(),
            reason: reason.to_owned(),
        };
        let skipped = tests.iter().map(skip).collect();
        self.add(Suite::told(
            suite,
            Outcome {
                skipped,
                ..Outcome::default()
            },
        ));
    }

    /// What every suite has found, with its name.
    pub(crate) fn named_outcomes(&self) -> impl Iterator<Item = (&str, &Outcome)> {
        self.suites
            .iter()
            .map(|suite| (suite.name.as_str(), &suite.outcome))
    }

    /// Tests that ran and held, that did not hold, and that did not run.
    pub(crate) fn counts(&self) -> [usize; 3] {
        let sum = self.sum();
        [sum.passed, sum.failed, sum.skipped.len()]
    }

    /// Tests that there was no time to begin.
    pub(crate) fn not_begun(&self) -> usize {
        let skips = self.suites.iter().flat_map(|suite| &suite.outcome.skipped);
        skips.filter(|skip| skip.reason == TIME_OVER).count()
    }

    /// Those of them that were begun nowhere else either, by their names.
    pub(crate) fn begun_nowhere(&self) -> BTreeSet<&str> {
        let (mut late, mut begun) = (BTreeSet::new(), BTreeSet::new());
        for Suite { outcome, .. } in &self.suites {
            begun.extend(
                outcome
                    .held
                    .iter()
                    .chain(&outcome.failures)
                    .map(String::as_str),
            );
            for skip in &outcome.skipped {
                let place = if skip.reason == TIME_OVER {
                    &mut late
                } else {
                    &mut begun
                };
                place.insert(skip.test.as_str());
            }
        }
        late.difference(&begun).copied().collect()
    }

    /// Whether every test that ran has held, and there was one to run.
    pub fn verdict(&self) -> Verdict {
        let held = self.suites.iter().all(|suite| suite.outcome.failed == 0);
        Verdict::from_holds(held && self.shown().next().is_some())
    }

    /// Prints the table and, under it, what was skipped and why.
    pub fn print_table(&self) {
        print!("{}", self.table());
    }

    /// Prints each suite's own summary line.
    pub fn print_summaries(&self) {
        for suite in self.shown() {
            println!("\n     suite {}\n{}", suite.name, suite.outcome);
        }
    }

    /// Prints what the tests that failed said, in a few lines each: the whole of it stands far above.
    pub(crate) fn print_failures(&self) {
        for suite in &self.suites {
            for said in &suite.outcome.said {
                println!("\nfailed: {}: {said}", suite.name);
            }
        }
    }

    /// Prints the summary line of all suites together.
    pub(crate) fn print_sum(&self) {
        println!("\n     all suites\n{}", self.sum());
    }

    fn sum(&self) -> Outcome {
        let mut sum = Outcome::default();
        for Suite { outcome, .. } in self.shown() {
            sum.passed += outcome.passed;
            sum.failed += outcome.failed;
            sum.skipped.extend_from_slice(&outcome.skipped);
            sum.elapsed += outcome.elapsed;
        }
        sum
    }

    /// Suites without a test are no news.
    fn shown(&self) -> impl Iterator<Item = &Suite> {
        self.suites.iter().filter(|suite| !suite.outcome.is_empty())
    }

    fn table(&self) -> String {
        let mut rows = vec![["suite", "passed", "failed", "skipped", "time"].map(str::to_owned)];
        rows.extend(self.shown().map(|suite| row(&suite.name, &suite.outcome)));
        rows.push(row("all", &self.sum()));
        let width = rows
            .iter()
            .map(|[name, ..]| name.len())
            .max()
            .unwrap_or_default();
        let line = |[name, passed, failed, skipped, time]: &[String; 5]| {
            format!("{name:width$}  {passed:>6}  {failed:>6}  {skipped:>7}  {time:>8}")
        };
        let mut lines: Vec<String> = rows.iter().map(line).collect();
        for Suite { name, outcome } in self.shown() {
            let skips = outcome.skipped.iter();
            lines.extend(
                skips.map(|skip| format!("skipped: {name}: {}: {}", skip.test, skip.reason)),
            );
            let left_out = outcome.left_out.iter();
            lines.extend(
                left_out.map(|part| format!("left out: {name}: {}: {}", part.test, part.reason)),
            );
            let again = outcome.unsteady.iter();
            lines
                .extend(again.map(|test| format!("unsteady: {name}: {test}: held when run again")));
        }
        format!("\n{}\n", lines.join("\n"))
    }
}

fn row(name: &str, of: &Outcome) -> [String; 5] {
    let [passed, failed, skipped] =
        [of.passed, of.failed, of.skipped.len()].map(|count| count.to_string());
    [
        name.to_owned(),
        passed,
        failed,
        skipped,
        format!("{:.1} s", of.elapsed.as_secs_f64()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str, passed: usize, failed: usize, skipped: &[(&str, &str)]) -> Suite {
        let skip = |(test, reason): &(&str, &str)| Skip {
            test: (*test).to_owned(),
            reason: (*reason).to_owned(),
        };
        let skipped = skipped.iter().map(skip).collect();
        Suite::told(
            name,
            Outcome {
                passed,
                failed,
                skipped,
                ..Outcome::default()
            },
        )
    }

    #[test]
    fn the_table_counts_what_was_skipped_apart() {
        let suites = vec![
            suite("core", 3, 0, &[]),
            suite("nothing", 0, 0, &[]),
            suite("live", 1, 0, &[("a", "needs root")]),
        ];
        let report = Report { suites };
        let expected = "
suite  passed  failed  skipped      time
core        3       0        0     0.0 s
live        1       0        1     0.0 s
all         4       0        1     0.0 s
skipped: live: a: needs root
";
        assert_eq!(report.table(), expected);
        assert_eq!(report.verdict(), Verdict::Passed);
    }

    #[test]
    fn what_held_only_when_run_again_is_named() {
        let mut report = Report::default();
        report.add(Suite::told(
            "live",
            Outcome {
                passed: 2,
                unsteady: vec!["a::b".to_owned()],
                ..Outcome::default()
            },
        ));
        let table = report.table();
        assert!(
            table.contains("unsteady: live: a::b: held when run again"),
            "{table}"
        );
        assert_eq!(report.verdict(), Verdict::Passed);
    }

    #[test]
    fn what_a_test_left_out_of_itself_is_named() {
        let mut report = Report::default();
        report.add(Suite::told(
            "live",
            Outcome {
                passed: 1,
                left_out: vec![Skip {
                    test: "a::b".to_owned(),
                    reason: "Starve: why".to_owned(),
                }],
                ..Outcome::default()
            },
        ));
        let table = report.table();
        assert!(
            table.contains("left out: live: a::b: Starve: why"),
            "{table}"
        );
        assert_eq!(report.counts(), [1, 0, 0]);
    }

    fn check_verdict(suites: Vec<Suite>, expected: Verdict) {
        let report = Report { suites };
        assert_eq!(report.verdict(), expected, "{report:?}");
    }

    #[test]
    fn reports_from_elsewhere_say_where() {
        let mut there = Report::default();
        there.add(suite("live", 2, 1, &[("a", "no BTF")]));
        let mut here = Report::default();
        here.add_from("6.1", there.clone());
        here.add_from("6.12", there);
        here.add_skipped("newest", &["guest"], "no network");
        assert_eq!(here.counts(), [4, 2, 3]);
        let table = here.table();
        for line in [
            "skipped: 6.1 live: a: no BTF",
            "skipped: newest: guest: no network",
        ] {
            assert!(table.contains(line), "{table}");
        }
        let carried: Report = serde_json::from_str(&serde_json::to_string(&here).unwrap()).unwrap();
        assert_eq!(carried, here);
    }

    #[test]
    fn what_was_begun_on_one_of_many_kernels_was_begun() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let mut report = Report::default();
        let late = [
            ("a", TIME_OVER),
            ("b", TIME_OVER),
            ("c", TIME_OVER),
            ("d", TIME_OVER),
        ];
        report.add(suite("6.1", 0, 0, &late));
        report.add(Suite::told(
            "6.12",
            Outcome {
                passed: 1,
                failed: 1,
                held: names(&["a"]),
                failures: names(&["b"]),
                ..Outcome::default()
            },
        ));
        report.add(suite("newest", 0, 0, &[("c", "no BTF"), ("d", TIME_OVER)]));
        assert_eq!(report.begun_nowhere(), BTreeSet::from(["d"]));
    }

    #[test]
    fn a_run_holds_when_there_were_tests_and_none_failed() {
        check_verdict(vec![suite("a", 1, 0, &[])], Verdict::Passed);
        check_verdict(vec![suite("a", 1, 1, &[])], Verdict::Failed);
        check_verdict(vec![suite("a", 0, 0, &[("b", "c")])], Verdict::Passed);
        check_verdict(vec![suite("a", 0, 0, &[])], Verdict::Failed);
    }
}

//! What a libtest binary says, and the line by which a test says that it could not run.
use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// Begins the line `BRINK-SKIP <test>: <reason>`, which a test writes to stderr itself: libtest knows
/// no test that skips itself, counts it as passed, and swallows what is only printed.
pub const SKIP_MARK: &str = "BRINK-SKIP ";

/// Begins a line of the same kind, `BRINK-LEFT-OUT <what, and why>`: the test has held, and a part of it could show nothing.
pub const LEFT_OUT_MARK: &str = "BRINK-LEFT-OUT ";

/// Lines of an excerpt: from one panic on, in all, and characters of each.
const FOLLOWING: usize = 4;
const MOST: usize = 20;
const WIDTH: usize = 300;

/// A test that did not run, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The test's name.
    pub test: String,
    /// Why it did not run.
    pub reason: String,
}

/// The outcome of one suite.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Tests that ran and held.
    pub passed: usize,
    /// Tests that did not hold, crashed or did not end.
    pub failed: usize,
    /// Tests that did not run.
    pub skipped: Vec<Skip>,
    /// The names of those that held, where each ran for itself.
    #[serde(default)]
    pub held: Vec<String>,
    /// The names of those that failed, likewise.
    #[serde(default)]
    pub failures: Vec<String>,
    /// What those that failed said of it, in a few lines each.
    #[serde(default)]
    pub said: Vec<String>,
    /// Tests among the passed that held only when they were run again.
    #[serde(default)]
    pub unsteady: Vec<String>,
    /// What tests among the passed have left out of themselves.
    #[serde(default)]
    pub left_out: Vec<Skip>,
    /// Tests that the filter left out.
    pub filtered: usize,
    /// How long it took.
    pub elapsed: Duration,
}

impl Outcome {
    /// Whether there was anything to run.
    pub fn is_empty(&self) -> bool {
        self.passed + self.failed + self.skipped.len() == 0
    }
}

/// The summary line as libtest writes it, with the skipped tests under `ignored`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            skipped,
            filtered,
            elapsed,
            held: _,
            failures: _,
            said: _,
            unsteady: _,
            left_out: _,
        } = self;
        let word = if *failed == 0 { "ok" } else { "FAILED" };
        write!(
            f,
            "test result: {word}. {passed} passed; {failed} failed; {} ignored; 0 measured; \
             {filtered} filtered out; finished in {:.2}s",
            skipped.len(),
            elapsed.as_secs_f64()
        )
    }
}

/// The lines of a failed test's output that tell most: each panic with what follows it, the two sides of a comparison, and
/// where in the tests it was. What was printed of records and logs stands elsewhere.
pub fn excerpt(output: &str) -> String {
    let mut lines = Vec::new();
    let mut follow = 0;
    for line in output.lines() {
        if line.contains("panicked at") {
            follow = FOLLOWING;
        }
        let begins = |word: &&str| line.trim_start().starts_with(*word);
        if follow > 0 || ["left:", "right:", "at ./"].iter().any(begins) {
            follow = follow.saturating_sub(1);
            lines.push(line.chars().take(WIDTH).collect::<String>());
        }
    }
    lines.truncate(MOST);
    lines.join("\n")
}

/// Adds up what one or more libtest binaries printed; nothing if none of them came to its summary.
pub fn read(output: &str) -> Option<Outcome> {
    let mut outcome = Outcome::default();
    let mut ignored = 0;
    let mut ended = false;
    for line in output.lines() {
        if let Some(summary) = line.strip_prefix("test result: ") {
            let [passed, failed, left_out, filtered] =
                ["passed", "failed", "ignored", "filtered out"].map(|word| count(summary, word));
            outcome.passed += passed?;
            outcome.failed += failed?;
            ignored += left_out?;
            outcome.filtered += filtered?;
            ended = true;
        } else if let Some(skip) = skip(line) {
            outcome.skipped.push(skip);
        }
    }
    ended.then_some(())?;
    // A test that skipped itself counts as passed with libtest.
    let skipped_itself = outcome.skipped.len();
    outcome.passed = outcome.passed.checked_sub(skipped_itself)?;
    outcome
        .skipped
        .extend(output.lines().filter_map(ignored_by_mark));
    (outcome.skipped.len() == skipped_itself + ignored).then_some(outcome)
}

/// The number before `word` in a summary.
fn count(summary: &str, word: &str) -> Option<usize> {
    let (before, _) = summary.split_once(&format!(" {word}"))?;
    before.rsplit(' ').next()?.parse().ok()
}

fn skip(line: &str) -> Option<Skip> {
    // With one thread libtest has begun the line with the test's name.
    let (_, line) = line.split_once(SKIP_MARK)?;
    let (test, reason) = line.split_once(": ")?;
    Some(Skip {
        test: test.to_owned(),
        reason: reason.to_owned(),
    })
}

/// What a test says that it has left out of itself.
pub fn left_out(output: &str) -> impl Iterator<Item = &str> {
    let told = |line| str::split_once(line, LEFT_OUT_MARK);
    output.lines().filter_map(told).map(|(_, what)| what)
}

/// What a test that passed has printed, where libtest was told to show it.
pub fn shown(output: &str) -> impl Iterator<Item = &str> {
    let is_head = |line: &&str| line.starts_with("---- ") && line.ends_with(" stdout ----");
    let after = output.lines().skip_while(move |line| !is_head(line));
    let own = after.skip(1).take_while(|line| *line != "successes:");
    own.filter(|line| !line.is_empty())
}

/// A test marked `#[ignore]`: `test name ... ignored, reason`.
fn ignored_by_mark(line: &str) -> Option<Skip> {
    let (test, rest) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = rest.strip_prefix(", ").unwrap_or("marked as ignored");
    Some(Skip {
        test: test.to_owned(),
        reason: reason.to_owned(),
    })
}

/// The names in the answer to `--list --format terse`.
pub fn names(list: &str) -> Vec<String> {
    list.lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passed, failed, and the skipped with their reasons.
    type Counts<'a> = (usize, usize, &'a [(&'a str, &'a str)]);

    fn check(output: &str, expected: Option<Counts<'_>>) {
        let found = read(output);
        let found = found.as_ref().map(|outcome| {
            let skips = outcome.skipped.iter();
            let skips = skips
                .map(|skip| (skip.test.as_str(), skip.reason.as_str()))
                .collect();
            (outcome.passed, outcome.failed, skips)
        });
        let expected = expected.map(|(passed, failed, skips)| (passed, failed, skips.to_vec()));
        assert_eq!(found, expected, "{output}");
    }

    #[test]
    fn an_excerpt_has_the_panic_and_both_sides_and_no_record() {
        let record = "        order: 7,\n".repeat(300);
        let output = format!(
            "running 1 test\n    thread 'a::b' (7) panicked at live/a.rs:3:5:\n    assertion failed: Record {{\n\
             {record}      left: \"x\"\n     right: \"y\"\n       4: agent::b\n                 at ./live/a.rs:3:9\n"
        );
        let expected = [
            "    thread 'a::b' (7) panicked at live/a.rs:3:5:",
            "    assertion failed: Record {",
            "        order: 7,",
            "        order: 7,",
            "      left: \"x\"",
            "     right: \"y\"",
            "                 at ./live/a.rs:3:9",
        ];
        assert_eq!(excerpt(&output), expected.join("\n"));
        assert_eq!(excerpt("test a::b ... ok"), "");
    }

    const THREE: &str = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; \
                         0 filtered out; finished in 0.00s\n";

    #[test]
    fn summaries_are_added_up() {
        check(THREE, Some((3, 0, &[])));
        check(&THREE.repeat(2), Some((6, 0, &[])));
        let failed = "test a ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; \
                      0 measured; 4 filtered out; finished in 1.50s\n";
        check(failed, Some((2, 1, &[])));
    }

    #[test]
    fn what_skips_itself_has_not_passed() {
        let output = format!("BRINK-SKIP a::b: needs root: not here\n{THREE}");
        check(&output, Some((2, 0, &[("a::b", "needs root: not here")])));
        let one_thread = format!("test a ... BRINK-SKIP a: no tracefs\nok\n{THREE}");
        check(&one_thread, Some((2, 0, &[("a", "no tracefs")])));
    }

    #[test]
    fn what_a_test_leaves_out_of_itself_is_no_skipped_test() {
        let output = format!("test a ... BRINK-LEFT-OUT one: why\nok\nBRINK-LEFT-OUT two\n{THREE}");
        check(&output, Some((3, 0, &[])));
        assert!(left_out(&output).eq(["one: why", "two"]));
    }

    #[test]
    fn what_a_test_has_printed_is_shown_without_what_libtest_adds() {
        let output = format!(
            "running 1 test\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\none: 1\n\ntwo: 2\n\n\nsuccesses:\n    a\n\n{THREE}"
        );
        assert!(shown(&output).eq(["one: 1", "two: 2"]));
        assert_eq!(shown(THREE).count(), 0);
    }

    #[test]
    fn what_is_marked_keeps_its_reason() {
        let output = "test a ... ignored, slow\ntest b ... ignored\ntest result: ok. 1 passed; \
                      0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        check(
            output,
            Some((1, 0, &[("a", "slow"), ("b", "marked as ignored")])),
        );
    }

    #[test]
    fn a_suite_that_does_not_add_up_has_no_outcome() {
        check("test a ... ok\n", None);
        check("test result: ok. three passed\n", None);
        check(
            &format!("BRINK-SKIP a: b\n{}", THREE.replace('3', "0")),
            None,
        );
        check(&THREE.replace("0 ignored", "1 ignored"), None);
    }

    #[test]
    fn the_summary_is_written_as_libtest_writes_it() {
        let outcome = read(THREE).unwrap();
        assert_eq!(format!("{outcome}\n"), THREE);
        let skip = Skip {
            test: "a".to_owned(),
            reason: "b".to_owned(),
        };
        let outcome = Outcome {
            passed: 1,
            failed: 2,
            skipped: vec![skip],
            ..outcome
        };
        let line = "test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; \
                    0 filtered out; finished in 0.00s";
        assert_eq!(outcome.to_string(), line);
        assert_eq!(
            names("a::b: test\nc: bench\n\n1 test, 1 benchmark\n"),
            ["a::b"]
        );
    }
}

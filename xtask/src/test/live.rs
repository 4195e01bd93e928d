//! Tests on the real kernel: one process and one deadline a test, nothing beside it, nothing after it.
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::bail;
use serde::{Deserialize, Serialize};

use super::{
    Args, Report,
    artifacts::{self, Binary},
    containerd, journald, leftovers,
    libtest::{self, Outcome, Skip},
    plain,
    report::Suite,
};
use crate::{
    monitoring::promtool,
    process::{self, Ended},
};

/// The variable that tells a test where the agent's binary is.
const AGENT: &str = "BRINK_BIN";
/// The one that tells it where `promtool` is, or why there is none.
const PROMTOOL: &str = "BRINK_PROMTOOL";
/// The same for the folder of a container runtime's programs.
const CONTAINERD: &str = "BRINK_CONTAINERD";
/// Why a test was not begun after the moment that was given for the last one.
pub(crate) const TIME_OVER: &str = "the time was over";

/// A suite with the names of the tests that are to run, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) binary: Binary,
    pub(crate) names: Vec<String>,
}

/// How tests are run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner<'a> {
    /// The agent's binary.
    pub(crate) agent: &'a Path,
    /// Where `promtool` is, or why there is none.
    pub(crate) promtool: &'a OsStr,
    /// Where a container runtime's programs are, or why there are none.
    pub(crate) containerd: &'a OsStr,
    /// Slow ones too.
    pub(crate) full: bool,
    /// Longest time for one.
    pub(crate) deadline: Duration,
    /// No test is begun later than this.
    pub(crate) until: Option<Instant>,
}

impl Manner<'_> {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Runs every live suite, or says why none can run here.
pub(super) fn run_all(binaries: &[Binary], args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let suites = list_all(binaries, &args.filter)?;
    if suites.iter().all(|suite| suite.names.is_empty()) {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        for suite in suites {
            report.add(skip_all(suite, "needs root; run as root to test it"));
        }
        return Ok(());
    }
    let agent = artifacts::build_agent()?;
    let promtool = promtool::for_tests();
    let containerd = containerd::for_tests(&suites);
    let manner = Manner {
        agent: &agent,
        promtool: &promtool,
        containerd: &containerd,
        full: args.full,
        deadline: deadline(args.deadline, args.full),
        until: None,
    };
    let more = [(journald::VARIABLE, journald::for_tests(&suites))];
    run_telling(&suites, (manner, &more), report)
}

/// Longest time for one test, of so many seconds: tenfold with the slow ones.
pub(crate) fn deadline(seconds: u64, full: bool) -> Duration {
    let times = if full { 10 } else { 1 };
    Duration::from_secs(seconds.saturating_mul(times))
}

/// The tests of each suite whose names contain one of these; all of them without any.
///
/// # Errors
/// When a binary cannot be asked.
pub(crate) fn list_all(binaries: &[Binary], filter: &[String]) -> anyhow::Result<Vec<Listed>> {
    let one = |binary: &Binary| {
        Ok(Listed {
            binary: binary.clone(),
            names: list(binary, filter)?,
        })
    };
    binaries.iter().map(one).collect()
}

/// Runs these tests, where root runs it and the agent is built already.
///
/// # Errors
/// When a test cannot be started, or what it left cannot be removed.
pub(crate) fn run_listed(
    suites: &[Listed],
    manner: Manner<'_>,
    report: &mut Report,
) -> anyhow::Result<()> {
    run_telling(suites, (manner, &[]), report)
}

/// What tests are told besides, by variables.
type More<'a> = &'a [(&'static str, OsString)];

fn run_telling(
    suites: &[Listed],
    manner: (Manner<'_>, More<'_>),
    report: &mut Report,
) -> anyhow::Result<()> {
    // What stays after this was there before us.
    let mut kept = leftovers::sweep()?;
    for suite in suites {
        report.add(run_suite(suite, manner, &mut kept)?);
    }
    Ok(())
}

fn skip_all(suite: Listed, reason: &str) -> Suite {
    let skip = |test| Skip {
        test,
        reason: reason.to_owned(),
    };
    let skipped = suite.names.into_iter().map(skip).collect();
    Suite::told(
        &suite.binary.suite,
        Outcome {
            skipped,
            ..Outcome::default()
        },
    )
}

fn run_suite(
    Listed { binary, names }: &Listed,
    (manner, more): (Manner<'_>, More<'_>),
    kept: &mut Vec<PathBuf>,
) -> anyhow::Result<Suite> {
    let mut outcome = Outcome::default();
    for name in names {
        if manner.is_over() {
            println!("test {name} ... ignored, {TIME_OVER}");
            outcome.skipped.push(Skip {
                test: name.clone(),
                reason: TIME_OVER.to_owned(),
            });
            continue;
        }
        let mut ended = run_one(binary, name, (manner, more), kept)?;
        let mut first_fault = None;
        // Others on the machine may have had it, and a guest has no processor of its own. What fails twice in a row has
        // failed, and where there is no time for a second attempt, what fails once.
        if let Err(fault) = judge(name, &ended)
            && !manner.is_over()
        {
            println!(
                "test {name} ... once more, after {:.2} s: {fault}\n{}",
                ended.elapsed.as_secs_f64(),
                ended.quoted()
            );
            outcome.elapsed += ended.elapsed;
            ended = run_one(binary, name, (manner, more), kept)?;
            if matches!(judge(name, &ended), Ok(None)) {
                outcome.unsteady.push(name.clone());
            }
            first_fault = Some(fault);
        }
        tell(name, &ended, first_fault.as_deref());
        count(&mut outcome, name, &ended, first_fault.as_deref());
    }
    Ok(Suite::told(&binary.suite, outcome))
}

/// One test in a process of its own, with what it left behind.
fn run_one(
    binary: &Binary,
    name: &str,
    (manner, more): (Manner<'_>, More<'_>),
    kept: &mut Vec<PathBuf>,
) -> anyhow::Result<Ended> {
    let mut command = plain::start(binary);
    command
        .env(AGENT, manner.agent)
        .env(PROMTOOL, manner.promtool)
        .env(CONTAINERD, manner.containerd)
        .envs(more.iter().map(|(name, value)| (name, value)))
        .args(["--exact", name, "--test-threads=1"]);
    if manner.full {
        // What the slow ones print is what they are run for.
        command.args(["--include-ignored", "--show-output"]);
    }
    let mut ended = process::run(&mut command, manner.deadline)?;
    let left = leftovers::of_the_dead(kept)?;
    if !left.is_empty() {
        ended
            .left
            .extend(left.iter().map(|group| group.display().to_string()));
        *kept = leftovers::sweep()?;
    }
    Ok(ended)
}

fn list(binary: &Binary, filter: &[String]) -> anyhow::Result<Vec<String>> {
    let mut command = plain::start(binary);
    command.args(["--list", "--format", "terse"]).args(filter);
    let ended = process::run(&mut command, Duration::from_mins(1))?;
    if let Some(fault) = ended.fault() {
        bail!(
            "listing the tests of {}: {fault}\n{}",
            binary.suite,
            ended.output
        );
    }
    Ok(libtest::names(&ended.output))
}

/// Prints the line of one test, and what it said if it failed, or if it was asked to show that.
fn tell(name: &str, ended: &Ended, first_fault: Option<&str>) {
    let seconds = ended.elapsed.as_secs_f64();
    match judge(name, ended) {
        Ok(None) => {
            println!("test {name} ... ok ({seconds:.2} s)");
            for what in libtest::left_out(&ended.output) {
                println!("test {name} ... left out: {what}");
            }
            for line in libtest::shown(&ended.output) {
                println!("    {line}");
            }
        }
        Ok(Some(skip)) => match first_fault {
            None => println!("test {name} ... ignored, {}", skip.reason),
            Some(fault) => println!(
                "test {name} ... FAILED: {fault}, then skipped: {}",
                skip.reason
            ),
        },
        Err(fault) => println!(
            "test {name} ... FAILED ({seconds:.2} s): {fault}\n{}",
            ended.quoted()
        ),
    }
}

/// Counts one test. One that skips only after it has failed has failed: what it needs may be what it broke.
fn count(outcome: &mut Outcome, name: &str, ended: &Ended, first_fault: Option<&str>) {
    outcome.elapsed += ended.elapsed;
    match judge(name, ended) {
        Ok(None) => {
            outcome.passed += 1;
            outcome.held.push(name.to_owned());
            let left_out = libtest::left_out(&ended.output).map(|what| Skip {
                test: name.to_owned(),
                reason: what.to_owned(),
            });
            outcome.left_out.extend(left_out);
        }
        Ok(Some(skip)) => match first_fault {
            None => outcome.skipped.push(skip),
            Some(fault) => {
                let reason = &skip.reason;
                fail(
                    outcome,
                    name,
                    format!("{name}: {fault}, then skipped: {reason}"),
                );
            }
        },
        Err(fault) => {
            let said = libtest::excerpt(&ended.output);
            fail(outcome, name, format!("{name}: {fault}\n{said}"));
        }
    }
}

fn fail(outcome: &mut Outcome, name: &str, said: String) {
    outcome.failed += 1;
    outcome.failures.push(name.to_owned());
    outcome.said.push(said);
}

/// What became of one test: held, skipped, or why it failed.
fn judge(name: &str, ended: &Ended) -> Result<Option<Skip>, String> {
    if let Some(fault) = ended.fault() {
        return Err(fault);
    }
    let Some(mut own) = libtest::read(&ended.output) else {
        return Err("ended without a summary that can be read".to_owned());
    };
    match (own.passed, own.failed, own.skipped.pop()) {
        (1, 0, None) => Ok(None),
        // The helper that skips knows its function, which need not be the test.
        (0, 0, Some(skip)) => Ok(Some(Skip {
            test: name.to_owned(),
            ..skip
        })),
        _ => Err("is not one test with one outcome".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

    use super::*;

    fn ended(output: &str, status: Option<i32>, left: &[&str]) -> Ended {
        Ended {
            status: status.map(|code| ExitStatus::from_raw(code << 8)),
            output: output.to_owned(),
            left: left.iter().map(|each| (*each).to_owned()).collect(),
            elapsed: Duration::from_secs(1),
        }
    }

    fn check(
        output: &str,
        status: Option<i32>,
        left: &[&str],
        expected: Result<Option<&str>, &str>,
    ) {
        let ended = ended(output, status, left);
        match (judge("a::b", &ended), expected) {
            (Ok(skip), Ok(reason)) => assert_eq!(skip.map(|skip| skip.reason).as_deref(), reason),
            (Err(fault), Err(part)) => assert!(fault.contains(part), "{fault}"),
            (found, _) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    const ONE: &str = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; \
                       3 filtered out; finished in 0.00s\n";

    #[test]
    fn a_test_holds_only_when_it_says_so_and_leaves_nothing() {
        check(ONE, Some(0), &[], Ok(None));
        check(ONE, Some(0), &["7 (sleep)"], Err("left behind: 7 (sleep)"));
        check(ONE, Some(101), &[], Err("101"));
        check(ONE, None, &[], Err("deadline"));
        check("", Some(0), &[], Err("without a summary"));
        check(
            &ONE.replace("1 passed", "0 passed"),
            Some(0),
            &[],
            Err("not one test"),
        );
    }

    #[test]
    fn a_test_that_skips_is_skipped() {
        check(
            &format!("BRINK-SKIP x: no BTF\n{ONE}"),
            Some(0),
            &[],
            Ok(Some("no BTF")),
        );
        let marked = ONE
            .replace("1 passed", "0 passed")
            .replace("0 ignored", "1 ignored");
        let marked = format!("test a::b ... ignored, slow\n{marked}");
        check(&marked, Some(0), &[], Ok(Some("slow")));
    }

    #[test]
    fn what_one_that_holds_leaves_out_is_kept() {
        let held = ended(&format!("BRINK-LEFT-OUT Starve: why\n{ONE}"), Some(0), &[]);
        let mut outcome = Outcome::default();
        count(&mut outcome, "a::b", &held, None);
        assert_eq!((outcome.passed, outcome.skipped.len()), (1, 0));
        let expected = Skip {
            test: "a::b".to_owned(),
            reason: "Starve: why".to_owned(),
        };
        assert_eq!(outcome.left_out, [expected]);
    }

    #[test]
    fn one_that_fails_and_then_skips_has_failed_and_says_both() {
        let skips = ended(&format!("BRINK-SKIP x: no BTF\n{ONE}"), Some(0), &[]);
        let mut outcome = Outcome::default();
        count(&mut outcome, "a::b", &skips, None);
        assert_eq!((outcome.failed, outcome.skipped.len()), (0, 1));

        let mut outcome = Outcome::default();
        count(&mut outcome, "a::b", &skips, Some("exit 101"));
        assert_eq!((outcome.failed, outcome.skipped.len()), (1, 0));
        assert_eq!(outcome.failures, ["a::b"]);
        assert_eq!(outcome.said, ["a::b: exit 101, then skipped: no BTF"]);
    }
}

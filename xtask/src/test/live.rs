//! Tests on the real kernel: one process and one deadline a test, nothing beside it, nothing after it.
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::bail;

use super::{
    Args, Report,
    artifacts::{self, Binary},
    leftovers,
    libtest::{self, Outcome, Skip},
    plain,
    report::Suite,
};
use crate::process::{self, Ended};

/// The variable that tells a test where the agent's binary is.
const AGENT: &str = "BRINK_BIN";

/// Runs every live suite, or says why none can run here.
pub(super) fn run_all(binaries: &[Binary], args: &Args, report: &mut Report) -> anyhow::Result<()> {
    let suites = list_all(binaries, args)?;
    if suites.iter().all(|(_, names)| names.is_empty()) {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        for (binary, names) in suites {
            report.add(skip_all(
                binary,
                names,
                "needs root; run as root to test it",
            ));
        }
        return Ok(());
    }
    let agent = artifacts::build_agent()?;
    run_listed(suites, &agent, args, report)
}

/// Runs every live suite where root runs it and the agent is built already.
///
/// # Errors
/// When a test cannot be started, or what it left cannot be removed.
pub(crate) fn run_with(
    agent: &Path,
    binaries: &[Binary],
    args: &Args,
    report: &mut Report,
) -> anyhow::Result<()> {
    run_listed(list_all(binaries, args)?, agent, args, report)
}

/// A suite with the names of the tests that are to run.
type Listed<'a> = (&'a Binary, Vec<String>);

fn list_all<'a>(binaries: &'a [Binary], args: &Args) -> anyhow::Result<Vec<Listed<'a>>> {
    let one = |binary: &'a Binary| Ok((binary, list(binary, args)?));
    binaries.iter().map(one).collect()
}

fn run_listed(
    suites: Vec<Listed<'_>>,
    agent: &Path,
    args: &Args,
    report: &mut Report,
) -> anyhow::Result<()> {
    // What stays after this was there before us.
    let mut kept = leftovers::sweep()?;
    for (binary, names) in suites {
        report.add(run_suite(binary, &names, agent, args, &mut kept)?);
    }
    Ok(())
}

fn skip_all(binary: &Binary, names: Vec<String>, reason: &str) -> Suite {
    let skip = |test| Skip {
        test,
        reason: reason.to_owned(),
    };
    let skipped = names.into_iter().map(skip).collect();
    Suite::told(
        &binary.suite,
        Outcome {
            skipped,
            ..Outcome::default()
        },
    )
}

fn run_suite(
    binary: &Binary,
    names: &[String],
    agent: &Path,
    args: &Args,
    kept: &mut Vec<PathBuf>,
) -> anyhow::Result<Suite> {
    let mut outcome = Outcome::default();
    for name in names {
        let ended = run_one(binary, name, agent, args, kept)?;
        let Err(fault) = judge(name, &ended) else {
            tell(name, &ended);
            count(&mut outcome, name, &ended);
            continue;
        };
        // Others on the machine may have had it, and a guest has no processor of its own. What fails twice in a row has failed.
        println!(
            "test {name} ... once more, after {:.2} s: {fault}\n{}",
            ended.elapsed.as_secs_f64(),
            ended.quoted()
        );
        outcome.elapsed += ended.elapsed;
        let again = run_one(binary, name, agent, args, kept)?;
        tell(name, &again);
        if matches!(judge(name, &again), Ok(None)) {
            outcome.unsteady.push(name.clone());
        }
        count(&mut outcome, name, &again);
    }
    Ok(Suite::told(&binary.suite, outcome))
}

/// One test in a process of its own, with what it left behind.
fn run_one(
    binary: &Binary,
    name: &str,
    agent: &Path,
    args: &Args,
    kept: &mut Vec<PathBuf>,
) -> anyhow::Result<Ended> {
    let mut command = plain::start(binary);
    command
        .env(AGENT, agent)
        .args(["--exact", name, "--test-threads=1"]);
    command.args(args.full.then_some("--include-ignored"));
    let mut ended = process::run(&mut command, deadline(args))?;
    let left = leftovers::of_the_dead(kept)?;
    if !left.is_empty() {
        ended
            .left
            .extend(left.iter().map(|group| group.display().to_string()));
        *kept = leftovers::sweep()?;
    }
    Ok(ended)
}

fn deadline(args: &Args) -> Duration {
    Duration::from_secs(if args.full {
        args.deadline.saturating_mul(10)
    } else {
        args.deadline
    })
}

fn list(binary: &Binary, args: &Args) -> anyhow::Result<Vec<String>> {
    let mut command = plain::start(binary);
    command
        .args(["--list", "--format", "terse"])
        .args(&args.filter);
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

/// Prints the line of one test, and what it said if it failed.
fn tell(name: &str, ended: &Ended) {
    let seconds = ended.elapsed.as_secs_f64();
    match judge(name, ended) {
        Ok(None) => println!("test {name} ... ok ({seconds:.2} s)"),
        Ok(Some(skip)) => println!("test {name} ... ignored, {}", skip.reason),
        Err(fault) => println!(
            "test {name} ... FAILED ({seconds:.2} s): {fault}\n{}",
            ended.quoted()
        ),
    }
}

/// Counts one test.
fn count(outcome: &mut Outcome, name: &str, ended: &Ended) {
    outcome.elapsed += ended.elapsed;
    match judge(name, ended) {
        Ok(None) => outcome.passed += 1,
        Ok(Some(skip)) => outcome.skipped.push(skip),
        Err(_) => outcome.failed += 1,
    }
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

    fn check(
        output: &str,
        status: Option<i32>,
        left: &[&str],
        expected: Result<Option<&str>, &str>,
    ) {
        let ended = Ended {
            status: status.map(|code| ExitStatus::from_raw(code << 8)),
            output: output.to_owned(),
            left: left.iter().map(|each| (*each).to_owned()).collect(),
            elapsed: Duration::from_secs(1),
        };
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
}

//! `cargo xtask ci`: every check of the project, each with its time; `.ci/run` adds only the packages.
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::{
    Verdict, deny, generate,
    test::{self, Report},
    tidy,
    workspace::{self, succeeds},
};

/// Options of `cargo xtask ci`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Also what takes too long for every change: the tests that are marked slow
    #[arg(long)]
    full: bool,
    /// Run only this step (may be given several times)
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
}

/// One check; `Err` is a check that could not be made, and counts as failed.
struct Step {
    name: &'static str,
    run: fn(&Args) -> anyhow::Result<Verdict>,
}

/// The checks in their order: the quick ones first, and the tests apart as the last.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        run: |_| cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "tidy",
        run: |_| tidy::run(&tidy::Args { quiet: true }),
    },
    Step {
        name: "gen",
        run: |_| generate::run(&generate::Args { check: true }),
    },
    Step {
        name: "deny",
        run: |_| deny::run(&deny::Args::default()),
    },
    Step {
        name: "clippy",
        run: |_| clippy(),
    },
];

const TESTS: &str = "test";

/// What became of a step.
struct Done {
    name: &'static str,
    held: bool,
    elapsed: Duration,
}

/// Runs every step, whatever the ones before it said; the tests' summaries come last.
///
/// # Errors
/// When a step is asked for that does not exist, or the tests cannot be built.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let names: Vec<_> = STEPS.iter().map(|step| step.name).chain([TESTS]).collect();
    if let Some(unknown) = args
        .only
        .iter()
        .find(|only| !names.contains(&only.as_str()))
    {
        bail!("no step `{unknown}`; steps: {}", names.join(", "));
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let steps = STEPS.iter().filter(|step| wanted(step.name));
    let mut done: Vec<Done> = steps.map(|step| run_step(step, args)).collect();
    let report = wanted(TESTS)
        .then(|| run_tests(args, &mut done))
        .transpose();
    if let Ok(Some(report)) = &report {
        report.print_table();
    }
    print!("{}", table(&done));
    if let Some(report) = report? {
        report.print_summaries();
    }
    Ok(Verdict::from_holds(done.iter().all(|step| step.held)))
}

fn run_step(step: &Step, args: &Args) -> Done {
    let (verdict, elapsed) = timed(step.name, || (step.run)(args));
    if let Err(error) = &verdict {
        println!("{}: {error:#}", step.name);
    }
    Done {
        name: step.name,
        held: verdict.is_ok_and(Verdict::holds),
        elapsed,
    }
}

fn run_tests(args: &Args, done: &mut Vec<Done>) -> anyhow::Result<Report> {
    let options = test::Args {
        full: args.full,
        ..test::Args::default()
    };
    let (report, elapsed) = timed("cargo xtask test", || test::run_suites(&options));
    let held = report.as_ref().is_ok_and(|report| report.verdict().holds());
    done.push(Done {
        name: TESTS,
        held,
        elapsed,
    });
    report
}

fn timed<T>(name: &str, work: impl FnOnce() -> T) -> (T, Duration) {
    println!("\n=== {name}");
    let began = Instant::now();
    let outcome = work();
    (outcome, began.elapsed())
}

fn table(done: &[Done]) -> String {
    let line = |name: &str, elapsed: Duration, word: &str| {
        let line = format!("{name:8} {:>5.0} s  {word}", elapsed.as_secs_f64());
        line.trim_end().to_owned()
    };
    let word = |held| if held { "ok" } else { "FAILED" };
    let mut lines = vec!["\nstep        time".to_owned()];
    lines.extend(
        done.iter()
            .map(|step| line(step.name, step.elapsed, word(step.held))),
    );
    lines.push(line("all", done.iter().map(|step| step.elapsed).sum(), ""));
    lines.join("\n") + "\n"
}

fn cargo(arguments: &[&str]) -> anyhow::Result<Verdict> {
    Ok(Verdict::from_holds(succeeds(
        workspace::cargo().args(arguments),
    )?))
}

/// The workspace with every feature, and the core as it is without any.
fn clippy() -> anyhow::Result<Verdict> {
    let shared = ["clippy", "--locked", "--all-targets"];
    let members = ["--features", "brink-tests/live", "--", "-D", "warnings"];
    let core = [
        "--package",
        "brink-core",
        "--no-default-features",
        "--",
        "-D",
        "warnings",
    ];
    let members = cargo(&[shared.as_slice(), &members].concat())?;
    let core = cargo(&[shared.as_slice(), &core].concat())?;
    Ok(Verdict::from_holds(members.holds() && core.holds()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_step_that_failed() {
        let step = |name, held, seconds| Done {
            name,
            held,
            elapsed: Duration::from_secs(seconds),
        };
        let expected = "
step        time
fmt          1 s  ok
clippy      62 s  FAILED
all         63 s
";
        assert_eq!(
            table(&[step("fmt", true, 1), step("clippy", false, 62)]),
            expected
        );
    }
}

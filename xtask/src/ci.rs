//! `cargo xtask ci`: every check of the project, each with its time; `.ci/run` adds only the packages.
use std::{
    env,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{bail, ensure};

use crate::{
    Verdict,
    bench::{self, Told},
    cluster, deny, ebpf, fuzz, generate, monitoring,
    test::{
        self, Report,
        artifacts::{self, FEATURES},
    },
    tidy, toolchain, vm,
    workspace::{self, succeeds},
};

/// Options of `cargo xtask ci`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Also what takes too long for every change: libFuzzer, the tests that are marked slow, all tests in guests with cgroup v2,
    /// and the full form of benchmarks and comparison
    #[arg(long)]
    full: bool,
    /// Run only this step (may be given several times)
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
}

/// One check; `Err` is a check that could not be made, and counts as failed.
struct Step {
    name: &'static str,
    run: fn(Turn) -> anyhow::Result<Finding>,
}

/// What a step is told.
#[derive(Debug, Clone, Copy)]
struct Turn {
    form: Form,
    /// What the steps of [`GUESTS`] before it took.
    in_guests: Duration,
}

/// How much of itself a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// What every change is held to.
    Short,
    Full,
}

/// What a step has found.
enum Finding {
    Verdict(Verdict),
    /// The same of a part, and what was left out.
    Partly(Verdict, String),
    /// The check cannot be made on this machine, and why.
    Skipped(String),
}

impl Finding {
    /// The same, with what else was left out.
    fn with(self, more: Option<String>) -> Self {
        match (self, more) {
            (Self::Partly(verdict, rest), Some(more)) => {
                Self::Partly(verdict, format!("{rest}; {more}"))
            }
            (other, _) => other,
        }
    }
}

/// The checks in their order, the quick ones first; the tests follow.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        run: |_| cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "tidy",
        run: |_| tidy::run(&tidy::Args { quiet: true }).map(Finding::Verdict),
    },
    Step {
        name: "gen",
        run: |_| generate::run(&generate::Args { check: true }).map(Finding::Verdict),
    },
    Step {
        name: "deny",
        run: |_| deny::check_rules().map(Finding::Verdict),
    },
    Step {
        name: "advisories",
        run: |_| advisories(),
    },
    Step {
        name: "clippy",
        run: |_| cargo(&clippy(&["--features", FEATURES])),
    },
    Step {
        name: "clippy-least",
        run: |_| cargo(&clippy(&["--package", "brink", "--no-default-features"])),
    },
    Step {
        name: "clippy-core",
        run: |_| cargo(&clippy(&["--package", "brink-core"])),
    },
    Step {
        name: "clippy-ebpf",
        run: |_| clippy_ebpf(),
    },
    Step {
        name: "ebpf",
        run: |_| {
            ebpf::run(&ebpf::Args {
                check: true,
                ..ebpf::Args::default()
            })
            .map(Finding::Verdict)
        },
    },
    Step {
        name: "monitoring",
        run: |_| watching(),
    },
    Step {
        name: "fuzz",
        run: |turn| fuzzed(turn.form),
    },
    Step {
        name: "bench",
        run: |turn| bench::check(turn.form == Form::Full).map(|told| held(&told)),
    },
    Step {
        name: VM,
        run: guests,
    },
    Step {
        name: PEERS,
        run: peers,
    },
];

/// The steps whose tests and comparisons run in guests, and what they may take together in the short form. The comparison gets what
/// the other has left of it, but never less than it needs: a run that is not begun would fail it.
const GUESTS: [&str; 2] = [VM, PEERS];
const VM: &str = "vm";
const PEERS: &str = "peers";
const IN_GUESTS: Duration = Duration::from_mins(8);
const LEAST_OF_PEERS: Duration = Duration::from_mins(4);

/// The steps after all others: the tests, and in the time that is left those on a cluster.
const TESTS: &str = "test";
const CLUSTER: &str = "cluster";
/// Of the short form, from its begin, which `.ci/run` tells in seconds since 1970: no test on a cluster is begun later, and one may take minutes.
const LIMIT: Duration = Duration::from_mins(42);
const BEGAN: &str = "BRINK_CI_BEGAN";

/// Runs every step, whatever the ones before it said; the table and the sum of the tests come last.
///
/// # Errors
/// When a step is asked for that does not exist.
pub fn run(args: &Args) -> anyhow::Result<Verdict> {
    let until = Instant::now() + LIMIT.saturating_sub(since_begin());
    let names: Vec<&str> = STEPS
        .iter()
        .map(|step| step.name)
        .chain([TESTS, CLUSTER])
        .collect();
    let mut only = args.only.iter().map(String::as_str);
    if let Some(unknown) = only.find(|only| !names.contains(only)) {
        bail!("no step `{unknown}`; steps: {}", names.join(", "));
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let steps = STEPS.iter().filter(|step| wanted(step.name));
    let form = if args.full { Form::Full } else { Form::Short };
    let mut done: Vec<Done> = Vec::new();
    let mut ahead = None;
    for step in steps {
        let in_guests = in_guests(&done);
        // The short form's one guest keeps one processor busy, by a clock that counts instructions: the other builds.
        if step.name == PEERS && form == Form::Short && wanted(TESTS) {
            ahead = Some(artifacts::build_ahead()?);
        }
        done.push(timed(step.name, || (step.run)(Turn { form, in_guests })));
    }
    let mut report = None;
    if wanted(TESTS) {
        let options = test::Args {
            full: args.full,
            ..test::Args::default()
        };
        done.push(timed(TESTS, || {
            drop(ahead);
            let report = report.insert(test::run_suites(&options)?);
            report.print_table();
            Ok(Finding::Verdict(report.verdict()))
        }));
    }
    if wanted(CLUSTER) {
        let until = (form == Form::Short).then_some(until);
        done.push(timed(CLUSTER, || on_a_cluster(until, &mut report)));
    }
    report.iter().for_each(Report::print_summaries);
    report.iter().for_each(Report::print_failures);
    print!("{}", table(&done));
    report.iter().for_each(Report::print_sum);
    Ok(Verdict::from_holds(done.iter().all(|step| !step.failed)))
}

/// What became of a step.
struct Done {
    name: &'static str,
    failed: bool,
    /// `ok`, `FAILED`, or why it was skipped or could not be made.
    word: String,
    elapsed: Duration,
}

fn timed(name: &'static str, step: impl FnOnce() -> anyhow::Result<Finding>) -> Done {
    println!("\n=== {name}");
    let began = Instant::now();
    let (failed, word) = match step() {
        Ok(Finding::Verdict(Verdict::Passed)) => (false, "ok".to_owned()),
        Ok(Finding::Verdict(Verdict::Failed)) => (true, "FAILED".to_owned()),
        Ok(Finding::Partly(verdict, rest)) => {
            let word = if verdict.holds() { "ok" } else { "FAILED" };
            (!verdict.holds(), format!("{word}, {rest}"))
        }
        Ok(Finding::Skipped(reason)) => (false, format!("skipped: {reason}")),
        Err(error) => (true, format!("FAILED: {error:#}")),
    };
    Done {
        name,
        failed,
        word,
        elapsed: began.elapsed(),
    }
}

fn table(done: &[Done]) -> String {
    let width = done
        .iter()
        .map(|step| step.name.len())
        .max()
        .unwrap_or_default()
        .max(4);
    let line = |name: &str, elapsed: Duration, word: &str| {
        let line = format!("{name:width$}  {:>5.0} s  {word}", elapsed.as_secs_f64());
        line.trim_end().to_owned()
    };
    let mut lines = vec![format!("\n{:width$}     time", "step")];
    lines.extend(
        done.iter()
            .map(|step| line(step.name, step.elapsed, &step.word)),
    );
    lines.push(line("all", done.iter().map(|step| step.elapsed).sum(), ""));
    let is_run = |name: &str| done.iter().any(|step| step.name == name);
    if GUESTS.iter().all(|name| is_run(name)) {
        let (spent, most) = (in_guests(done).as_secs_f64(), IN_GUESTS.as_secs());
        let names = GUESTS.join(" + ");
        lines.push(format!(
            "of these {names}: {spent:.0} s, in the short form to be {most} s at the most"
        ));
    }
    lines.join("\n") + "\n"
}

/// What the steps with guests took.
fn in_guests(done: &[Done]) -> Duration {
    let with = done.iter().filter(|step| GUESTS.contains(&step.name));
    with.map(|step| step.elapsed).sum()
}

/// What is left of their time for the comparison, in whole minutes.
fn left_for_peers(spent: Duration) -> u64 {
    let left = IN_GUESTS.saturating_sub(spent).max(LEAST_OF_PEERS);
    left.as_secs() / 60
}

fn cargo(arguments: &[&str]) -> anyhow::Result<Finding> {
    let holds = succeeds(workspace::cargo().args(arguments))?;
    Ok(Finding::Verdict(Verdict::from_holds(holds)))
}

fn clippy<'a>(what: &[&'a str]) -> Vec<&'a str> {
    [
        &["clippy", "--locked", "--all-targets"],
        what,
        &["--", "-D", "warnings"],
    ]
    .concat()
}

/// The kernel programs for the target they are made for, which needs `core` compiled anew.
fn clippy_ebpf() -> anyhow::Result<Finding> {
    toolchain::ensure_rust_src()?;
    let mut cargo = workspace::cargo();
    cargo.args([
        "clippy",
        "--locked",
        "--package",
        "brink-ebpf",
        "--target",
        "bpfel-unknown-none",
    ]);
    // `build-std` is asked of a stable compiler, and build scripts look at how: in the common folder what they say would change with
    // it, and everything that is built for tests be built anew.
    cargo.args(["-Z", "build-std=core", "--target-dir"]);
    cargo.arg(ebpf::target_folder()?);
    cargo.args(["--", "-D", "warnings"]);
    let holds = succeeds(cargo.env("RUSTC_BOOTSTRAP", "1"))?;
    Ok(Finding::Verdict(Verdict::from_holds(holds)))
}

fn advisories() -> anyhow::Result<Finding> {
    Ok(match deny::unreachable() {
        Some(reason) => Finding::Skipped(reason),
        None => Finding::Verdict(deny::check_advisories()?),
    })
}

/// Names are checked everywhere, the rest only where `promtool` can be had.
fn watching() -> anyhow::Result<Finding> {
    let found = monitoring::check()?;
    Ok(match found.skipped {
        Some(reason) if found.verdict.holds() => {
            Finding::Skipped(format!("promtool: {reason}; the names are in order"))
        }
        _ => Finding::Verdict(found.verdict),
    })
}

/// What is read from outside, under libFuzzer. The tests run the same entry points on every change, without it.
fn fuzzed(form: Form) -> anyhow::Result<Finding> {
    if form == Form::Short {
        return Ok(Finding::Skipped("with --full alone".to_owned()));
    }
    Ok(match fuzz::check()? {
        Err(reason) => Finding::Skipped(reason),
        Ok(verdict) => Finding::Verdict(verdict),
    })
}

/// Other people's kernels. Without the archive and with an empty cache there are none, and that is told.
fn guests(Turn { form, .. }: Turn) -> anyhow::Result<Finding> {
    let report = vm::run_guests(&vm::Args {
        short: form == Form::Short,
        full: form == Form::Full,
        ..vm::Args::default()
    })?;
    report.print_table();
    let [passed, failed, _] = report.counts();
    // The time begins when everything is built: whoever shows nothing in it would never show anything.
    ensure!(
        passed + failed > 0 || report.not_begun() == 0,
        "no guest has begun a test in its time"
    );
    let late = vm::begun_nowhere(&report);
    Ok(finding(&report, "no guest could be made").with(late))
}

/// What a report of tests says, with how many of them there was no time for; `nothing` is what it means if none has run.
fn finding(report: &Report, nothing: &str) -> Finding {
    let [passed, failed, _] = report.counts();
    if passed + failed == 0 {
        return Finding::Skipped(format!("{nothing}; the reasons stand above"));
    }
    match report.not_begun() {
        0 => Finding::Verdict(report.verdict()),
        late => {
            let rest = format!(
                "{} of {} tests; there was no time for the others",
                passed + failed,
                passed + failed + late
            );
            Finding::Partly(report.verdict(), rest)
        }
    }
}

/// What tests say of which the time decides how many there are: how many of all that were meant have begun and had what they need.
fn of_all(report: &Report) -> Finding {
    let [passed, failed, skipped] = report.counts();
    let (ran, all) = (passed + failed, passed + failed + skipped);
    let late = match report.not_begun() {
        0 => String::new(),
        late => format!("; there was no time for {late}"),
    };
    let told = format!("{ran} of {all} tests ran{late}");
    if ran == 0 {
        Finding::Skipped(format!("{told}; the reasons stand above"))
    } else {
        Finding::Partly(report.verdict(), told)
    }
}

/// What benchmarks say that have missed no figure.
fn held(told: &Told) -> Finding {
    let skipped = told.skipped.join("; ");
    match (told.ran, told.skipped.len()) {
        (0, _) => Finding::Skipped(format!("no benchmark can run here: {skipped}")),
        (_, 0) => Finding::Verdict(Verdict::Passed),
        (ran, more) => {
            let rest = format!("{ran} of {} benchmarks; skipped: {skipped}", ran + more);
            Finding::Partly(Verdict::Passed, rest)
        }
    }
}

/// Brink beside others, in guests. What they are made of can be missing as above.
fn peers(Turn { form, in_guests }: Turn) -> anyhow::Result<Finding> {
    if let Err(error) = vm::fetch_peers() {
        return Ok(Finding::Skipped(format!("{error:#}")));
    }
    let minutes = (form == Form::Short).then(|| left_for_peers(in_guests));
    bench::check_peers(form == Form::Full, minutes).map(|told| held(&told))
}

/// How long ago whoever called us began, if that is told.
fn since_begin() -> Duration {
    let began = env::var(BEGAN).ok().and_then(|text| text.parse().ok());
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    began.map_or(Duration::ZERO, |began| {
        now.saturating_sub(Duration::from_secs(began))
    })
}

/// Brink in a real Kubernetes, its tests added to the others'.
fn on_a_cluster(until: Option<Instant>, all: &mut Option<Report>) -> anyhow::Result<Finding> {
    Ok(match cluster::check(until)? {
        Err(reason) => Finding::Skipped(format!("no test on it has begun: {reason}")),
        Ok(report) => {
            report.print_table();
            let finding = of_all(&report);
            all.get_or_insert_default().add_from(CLUSTER, report);
            finding
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{libtest::Outcome, live::TIME_OVER, report::Suite};

    #[test]
    fn what_was_begun_nowhere_is_said_beside_what_was_left_out() {
        let late = || Some("begun on no kernel: a".to_owned());
        let partly = Finding::Partly(Verdict::Passed, "2 of 3".to_owned());
        let done = timed("vm", || Ok(partly.with(late())));
        assert_eq!(done.word, "ok, 2 of 3; begun on no kernel: a");
        let partly = Finding::Partly(Verdict::Failed, "2 of 3".to_owned());
        let done = timed("vm", || Ok(partly.with(None)));
        assert_eq!(done.word, "FAILED, 2 of 3");
    }

    #[test]
    fn the_table_names_what_failed_and_what_was_skipped() {
        let steps = [
            timed("fmt", || Ok(Finding::Verdict(Verdict::Passed))),
            timed("clippy", || Ok(Finding::Verdict(Verdict::Failed))),
            timed("vm", || {
                Ok(Finding::Partly(Verdict::Passed, "2 of 3".to_owned()))
            }),
            timed("advisories", || {
                Ok(Finding::Skipped("no network".to_owned()))
            }),
            timed("test", || bail!("does not build")),
        ];
        let expected = "
step           time
fmt             0 s  ok
clippy          0 s  FAILED
vm              0 s  ok, 2 of 3
advisories      0 s  skipped: no network
test            0 s  FAILED: does not build
all             0 s
";
        assert_eq!(table(&steps), expected);
        assert!(!table(&steps).contains("of these"));
        let failed: Vec<bool> = steps.iter().map(|step| step.failed).collect();
        assert_eq!(failed, [false, true, false, false, true]);
    }

    #[test]
    fn a_cluster_says_how_many_of_its_tests_ran() {
        let word = |report: &Report| timed(CLUSTER, || Ok(of_all(report))).word;
        let mut report = Report::default();
        report.add_skipped("cluster", &["a"], TIME_OVER);
        report.add_skipped("cluster", &["b", "c"], "no image");
        let none = "skipped: 0 of 3 tests ran; there was no time for 1; the reasons stand above";
        assert_eq!(word(&report), none);
        report.add(Suite::told(
            "cluster",
            Outcome {
                passed: 4,
                ..Outcome::default()
            },
        ));
        assert_eq!(
            word(&report),
            "ok, 4 of 7 tests ran; there was no time for 1"
        );
    }

    #[test]
    fn the_comparison_gets_what_the_guests_have_left() {
        let seconds = Duration::from_secs;
        let found = [0, 100, 248, 299, 420, 9_000].map(|spent| left_for_peers(seconds(spent)));
        assert_eq!(found, [8, 6, 4, 4, 4, 4]);
        let step = |name| timed(name, || Ok(Finding::Verdict(Verdict::Passed)));
        let mut done = [step("fmt"), step(VM), step(PEERS)];
        for (step, spent) in done.iter_mut().zip([50, 248, 144]) {
            step.elapsed = seconds(spent);
        }
        assert_eq!(in_guests(&done), seconds(392));
        let told = "\nall      442 s\nof these vm + peers: 392 s, in the short form to be 480 s at the most\n";
        assert!(table(&done).ends_with(told), "{}", table(&done));
    }
}

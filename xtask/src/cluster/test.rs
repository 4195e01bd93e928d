//! `cargo xtask cluster test`: the tests that need a cluster, on the one that runs or on one for them alone.
use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{node, preflight, supply, up};
use crate::{
    Verdict, image, process,
    test::{
        Report,
        artifacts::{self, Binary},
        live::{self, Listed, Manner, TIME_OVER},
    },
    vm::static_build,
    workspace::{self, succeeds},
};

/// The target with these tests.
const TARGET: &str = "cluster";
/// Our own program, also after a build of the tests has put another one in its place.
const OWN: &str = "/proc/self/exe";
/// The part of them that runs the agent's image.
const WITH_IMAGE: &str = "daemonset::";
/// How the names of tests begin that every change is held to, in the order they are run: what Brink does comes before what it
/// stands on. Of those with the image the one that shows most: all of them take minutes.
const SHORT: [&str; 14] = [
    "told::",
    "evict::",
    "soft::",
    "limits::",
    "wishes::",
    "statics::",
    "replaced::",
    "lives::",
    "agent::",
    "beside::",
    "daemonset::every_variant",
    "daemonset::the_agent_of_a_pod",
    "storm::a_short_storm",
    "a_pod_",
];
/// What all of the short form may take, with the building of a cluster that is not in the cache and without that of the tests, which
/// other steps have made.
const BUDGET: Duration = Duration::from_mins(12);
/// What it takes from there on with the agent's image, where the guests' programs have been built before.
const WITH_ALL: Duration = Duration::from_mins(11);
/// What it takes to build a cluster that is not in the cache, and to start one and remove it.
const BUILDING: Duration = Duration::from_mins(6);
const STARTING: Duration = Duration::from_mins(1);
/// Building ends long before.
const FOREVER: Duration = Duration::from_hours(1);
/// The variable that leads to a cluster of somebody else's.
const KUBECONFIG: &str = "BRINK_KUBECONFIG";

/// Longest time for one test, in seconds.
const DEADLINE: u64 = 300;
const SHORT_DEADLINE: u64 = 120;

/// Options of `cargo xtask cluster test`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Args {
    /// Run only tests whose name contains this (may be given several times)
    #[arg(long, value_name = "PART")]
    filter: Vec<String>,
    /// Also run the tests that are marked slow (`#[ignore = "…"]`)
    #[arg(long)]
    full: bool,
    /// Leave a cluster that was started for the tests as it is afterwards
    #[arg(long)]
    keep: bool,
    /// Longest time for one test, in seconds (tenfold with --full)
    #[arg(long, value_name = "SECONDS", default_value_t = DEADLINE, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    deadline: u64,
}

/// Runs them.
pub(super) fn run(args: &Args, folder: &Path) -> anyhow::Result<Verdict> {
    let is_given = is_given();
    let is_ours = !is_given && !up::is_up(folder)?;
    // First, so that a cluster is there no longer than it is of use.
    let programs = Programs::build()?;
    let suites = live::list_all(&programs.tests, &args.filter)?;
    let mut names = suites.iter().flat_map(|suite| &suite.names);
    let wants_image = !is_given && names.any(|name| name.starts_with(WITH_IMAGE));
    let image = wants_image.then(Image::make).transpose()?;
    if is_ours && !own(&["cluster", "up"])? {
        // What was started is of no use to anybody but who looks for the reason.
        if !args.keep {
            own(&["cluster", "down"])?;
        }
        bail!("without a cluster there is nothing to test on; the reason stands above");
    }
    let image = image.as_ref().map(|image| (image, folder));
    let found = programs.run(&suites, image, (args.full, args.deadline, None));
    if is_ours && !args.keep {
        down()?;
    }
    let report = found?;
    report.print_table();
    report.print_summaries();
    Ok(report.verdict())
}

/// Whether the tests are to run on a cluster of somebody else's.
fn is_given() -> bool {
    env::var_os(KUBECONFIG).is_some_and(|file| !file.is_empty())
}

/// What every change is held to, on a cluster that is made for it: the tests that begin before `until`, or all of them. `Err` within
/// says why there can be none here.
///
/// # Errors
/// When the tests cannot be built or run, or the cluster cannot be started or removed.
pub(super) fn check(
    until: Option<Instant>,
    folder: &Path,
) -> anyhow::Result<Result<Report, String>> {
    let began = Instant::now();
    if let Err(reason) = can_begin(until) {
        return Ok(Err(reason));
    }
    let spent = began.elapsed();
    let programs = Programs::of_all()?;
    // That may have taken its time.
    if let Err(reason) = has_time(until, STARTING) {
        return Ok(Err(reason));
    }
    let end = Instant::now() + BUDGET.saturating_sub(spent);
    let is_full = until.is_none();
    let mut suites = live::list_all(&programs.tests, &[])?;
    if !is_full {
        for suite in &mut suites {
            shorten(&mut suite.names);
        }
    }
    let image = image_in_time(until.map(|until| until.min(end)))?;
    // Tests before these may have made us the reaper of orphans, and as such of the cluster.
    process::leave_orphans()?;
    if !own(&["cluster", "up"])? {
        down()?;
        if let Err(reason) = has_time(until, STARTING) {
            return Ok(Err(format!("the cluster could not be started; {reason}")));
        }
        println!("the cluster could not be started: once more");
        if !own(&["cluster", "up"])? {
            down()?;
            bail!("the cluster could not be started, twice; the reason stands above");
        }
    }
    let deadline = if is_full { DEADLINE } else { SHORT_DEADLINE };
    let image = image.as_ref().map(|image| (image, folder));
    let found = programs.run(&suites, image, (is_full, deadline, until));
    down()?;
    found.map(Ok)
}

pub(super) fn down() -> anyhow::Result<()> {
    if !own(&["cluster", "down"])? {
        bail!("the cluster of the tests could not be removed; the reason stands above");
    }
    Ok(())
}

/// Whether there is time for a cluster, and it can be had.
fn can_begin(until: Option<Instant>) -> Result<(), String> {
    let tell = |error: anyhow::Error| format!("{error:#}");
    if is_given() {
        return Err(format!(
            "{KUBECONFIG} leads to another cluster: `cargo xtask cluster test` runs them there"
        ));
    }
    preflight::check().map_err(tell)?;
    let is_built = supply::is_there().map_err(tell)?;
    has_time(until, if is_built { STARTING } else { BUILDING })?;
    if !is_built {
        build(until.map(|until| until.saturating_duration_since(Instant::now())))?;
    }
    has_time(until, STARTING)
}

/// Whether so much time is left.
fn has_time(until: Option<Instant>, time: Duration) -> Result<(), String> {
    match until {
        Some(until) if Instant::now() + time > until => Err(TIME_OVER.to_owned()),
        _ => Ok(()),
    }
}

/// Builds what a cluster is made of into the cache, for no longer than this.
fn build(longest: Option<Duration>) -> Result<(), String> {
    let mut command = Command::new(OWN);
    command.args(["cluster", "build"]);
    let ended = process::run(&mut command, longest.unwrap_or(FOREVER));
    let ended = ended.map_err(|error| format!("{error:#}"))?;
    match ended.fault() {
        None => Ok(()),
        Some(_) if ended.status.is_none() => Err(format!("building it took too long; {TIME_OVER}")),
        Some(fault) => {
            print!("{}", ended.quoted());
            Err(format!(
                "it cannot be built: {fault}; the reason stands above"
            ))
        }
    }
}

/// Keeps the tests of the short form, in its order.
fn shorten(names: &mut Vec<String>) {
    let place = |name: &String| SHORT.iter().position(|begin| name.starts_with(begin));
    names.retain(|name| place(name).is_some());
    names.sort_by_key(place);
}

/// The agent's image; none where the tests would not be done in time with it, and those of it are skipped.
fn image_in_time(until: Option<Instant>) -> anyhow::Result<Option<Image>> {
    if let Err(reason) = has_time(until, WITH_ALL) {
        println!("the agent's image is not built: {reason}");
        return Ok(None);
    }
    Image::make().map(Some)
}

/// The agent's image as an archive, which goes with this.
struct Image(tempfile::TempDir);

impl Image {
    /// Makes it from a static program that is built as for guests: in a fraction of a release's time.
    fn make() -> anyhow::Result<Self> {
        let program = static_build::build_for_pods(&workspace::metadata()?)?;
        let image = Self(tempfile::tempdir().context("a folder for the image")?);
        image::write(&program, &image::default_name(), &image.archive())?;
        Ok(image)
    }

    fn archive(&self) -> PathBuf {
        self.0.path().join("brink.tar")
    }

    /// Gives it to our own node. On a cluster of somebody else's it has to be there already.
    fn give(&self, folder: &Path) -> anyhow::Result<()> {
        node::load(folder, &self.archive())
    }
}

/// Ourselves with other words, as a process of its own: what it starts is then nobody's child here, and no test's leftover.
pub(super) fn own(words: &[&str]) -> anyhow::Result<bool> {
    succeeds(Command::new(OWN).args(words))
}

/// What the tests are made of.
struct Programs {
    tests: Vec<Binary>,
    agent: PathBuf,
}

impl Programs {
    /// Out of the build of all tests, where that has been made already: alone the same crates would be compiled with other features.
    fn of_all() -> anyhow::Result<Self> {
        let mut tests = artifacts::build(&workspace::metadata()?.packages)?;
        tests.retain(|binary| binary.suite.split(' ').next_back() == Some(TARGET));
        Ok(Self {
            tests,
            agent: artifacts::build_agent()?,
        })
    }

    fn build() -> anyhow::Result<Self> {
        let packages = workspace::metadata()?.packages;
        let mut cargo = workspace::cargo();
        cargo.args(["test", "--no-run", "--locked", "--package", "brink-tests"]);
        cargo.args(["--features", "brink-tests/live", "--test", TARGET]);
        let built = artifacts::build_with(&mut cargo, &packages).context("building the tests")?;
        Ok(Self {
            tests: built.tests,
            agent: artifacts::build_agent()?,
        })
    }

    /// Runs these, after the node of the cluster in a folder has got the image, if there is one.
    fn run(
        &self,
        suites: &[Listed],
        image: Option<(&Image, &Path)>,
        (full, deadline, until): (bool, u64, Option<Instant>),
    ) -> anyhow::Result<Report> {
        if let Some((image, folder)) = image {
            image.give(folder)?;
        }
        process::adopt_orphans()?;
        let manner = Manner {
            promtool: OsStr::new("tests on a cluster ask no promtool"),
            containerd: OsStr::new("a cluster has a containerd of its own"),
            agent: &self.agent,
            full,
            deadline: live::deadline(deadline, full),
            until,
        };
        let mut report = Report::default();
        live::run_listed(suites, manner, &mut report)?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_begins_with_what_brink_does_and_has_one_test_with_the_image() {
        let names = [
            "a_pod_runs",
            "agent::knows",
            "daemonset::the_agent_of_a_pod_evicts",
            "daemonset::the_base_runs",
            "evict::dies",
            "storm::a_storm",
            "told::once",
        ];
        let mut names: Vec<String> = names.map(str::to_owned).into();
        shorten(&mut names);
        assert_eq!(
            names,
            [
                "told::once",
                "evict::dies",
                "agent::knows",
                "daemonset::the_agent_of_a_pod_evicts",
                "a_pod_runs"
            ]
        );
    }

    #[test]
    fn every_name_of_the_short_form_leads_to_a_test() {
        for begin in SHORT {
            let (module, name) = begin.split_once("::").unwrap_or(("main", begin));
            let path = workspace::root().join(format!("tests/live/cluster/{module}.rs"));
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains(&format!("#[test]\nfn {name}")), "{begin}");
        }
    }

    #[test]
    fn without_time_there_is_no_image() {
        let soon = Instant::now() + STARTING;
        assert!(image_in_time(Some(soon)).unwrap().is_none());
    }

    #[test]
    fn without_time_there_is_a_reason_and_no_cluster() {
        let reason = can_begin(Some(Instant::now())).unwrap_err();
        let is_told =
            reason == TIME_OVER || reason.starts_with("a cluster cannot run on this machine");
        assert!(is_told, "{reason}");
    }
}

//! What guests have found, kept test by test: a run of some of the tests renews those and leaves the others as they were.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{
    boot::{Boot, ByBoot},
    choice,
    job::{Answer, Cgroup, Program},
    known::{Known, Outcome},
    series::Series,
    verdict::Fault,
};
use crate::{
    test::{
        Report,
        libtest::Skip,
        live::{Listed, TIME_OVER},
    },
    when::When,
};

/// Where it is kept, from the workspace's directory: one file a kernel.
const FOLDER: &str = "docs/kernels";

/// What is known of one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Found {
    pub(super) series: Series,
    /// Release of the kernel.
    pub(super) kernel: String,
    /// Version of the control groups.
    pub(super) cgroup: Cgroup,
    /// Which guests had nothing to tell when they were booted last, and why: they hung or died.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) faults: BTreeMap<String, String>,
    /// Every test that has run, by its suite and its name.
    pub(super) tests: BTreeMap<String, Known>,
    /// What those that held have left out of themselves when they ran last, by the same names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) left_out: BTreeMap<String, Vec<String>>,
    /// Those that could run there and never have, by the same names; as of the latest publication.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) never_run: Vec<String>,
    /// By which kernel objects the results of a commit are; empty where there were several, as after changes of no commit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) objects: BTreeMap<String, String>,
    pub(super) programs: Vec<Program>,
}

/// How a test stands on a kernel, in the order in which tests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Nothing is known of it, or it has failed.
    Open,
    /// It is known to hold, or to have nothing to do, by other kernel objects than those of now, or by ones that are not known.
    Stale,
    /// The same by those of now.
    Current,
}

/// What the guests of one kernel have found, those that lacked something too.
pub(super) type Finding<'a> = (Series, ByBoot<Option<Result<&'a Answer, &'a Fault>>>);

impl Found {
    /// Nothing yet.
    fn of(series: Series, kernel: &str, cgroup: Cgroup) -> Self {
        Self {
            series,
            kernel: kernel.to_owned(),
            cgroup,
            faults: BTreeMap::new(),
            tests: BTreeMap::new(),
            left_out: BTreeMap::new(),
            never_run: Vec::new(),
            objects: BTreeMap::new(),
            programs: Vec::new(),
        }
    }

    /// What is known with what was found now. Of another release than before nothing is known but this; of a guest without an
    /// answer no more than that, beside what others have found.
    fn with(
        before: Option<Self>,
        (series, guests): &Finding<'_>,
        cgroup: Cgroup,
        when: &When,
    ) -> Self {
        let told = guests.iter().map(|(boot, found)| (boot, *found));
        let answers = told.filter_map(|(boot, found)| Some((boot, found?.ok()?)));
        let answers: Vec<(Boot, &Answer)> = answers.collect();
        let kernel = answers.first().map(|(_, answer)| &answer.kernel);
        let name = kernel.map_or_else(|| series.to_string(), Clone::clone);
        let mut found = before.unwrap_or_else(|| Self::of(*series, &name, cgroup));
        if kernel.is_some_and(|kernel| found.kernel != *kernel) {
            // Which release a guest was of that died is not known.
            let faults = found.faults;
            found = Self {
                faults,
                ..Self::of(*series, &name, cgroup)
            };
        }
        for (boot, answer) in answers {
            found.faults.remove(&boot.before("guest"));
            found.take(boot, &answer.report, when);
            if boot == Boot::Whole {
                found.programs.clone_from(&answer.programs);
            }
        }
        for (boot, guest) in guests.iter() {
            if let Some(Err(fault)) = guest {
                found.faults.insert(boot.before("guest"), first_line(fault));
            }
        }
        found
    }

    /// What a report says takes the place of what was known; what it had no time for stays, and so does that a test was
    /// unsteady or has failed: it has held only when it was run again, and a skip says nothing of it.
    fn take(&mut self, boot: Boot, report: &Report, when: &When) {
        let has_failed =
            |known: &Known| matches!(known.outcome, Outcome::Unsteady | Outcome::Failed);
        let known = self.tests.iter().filter(|(_, known)| has_failed(known));
        let before: BTreeSet<String> = known.map(|(key, _)| key.clone()).collect();
        let mut know = |suite: &str, test: &str, outcome: Outcome, left_out: Vec<String>| {
            let (key, when) = (key(boot, suite, test), when.clone());
            if left_out.is_empty() {
                self.left_out.remove(&key);
            } else {
                self.left_out.insert(key.clone(), left_out);
            }
            self.tests.insert(key, Known { outcome, when });
        };
        for (suite, of) in report.named_outcomes() {
            for test in &of.held {
                let is_unsteady =
                    of.unsteady.contains(test) || before.contains(&key(boot, suite, test));
                let outcome = if is_unsteady {
                    Outcome::Unsteady
                } else {
                    Outcome::Passed
                };
                let parts = of.left_out.iter().filter(|part| part.test == *test);
                let parts = parts.map(|part| part.reason.clone());
                know(suite, test, outcome, parts.collect());
            }
            for test in &of.failures {
                know(suite, test, Outcome::Failed, Vec::new());
            }
            let says_something = |skip: &&Skip| {
                skip.reason != TIME_OVER && !before.contains(&key(boot, suite, &skip.test))
            };
            for skip in of.skipped.iter().filter(says_something) {
                let outcome = Outcome::Skipped(skip.reason.clone());
                know(suite, &skip.test, outcome, Vec::new());
            }
        }
    }

    /// Forgets tests that there are no more: those of listed packages that are not listed. Tells those of which nothing is known.
    fn compare(&mut self, listed: &[Listed]) {
        let mut places: BTreeSet<String> = BTreeSet::new();
        let mut keys: BTreeSet<String> = BTreeSet::new();
        for suite in listed {
            let own = &suite.binary.suite;
            let package = own.split(' ').next().unwrap_or(own);
            places.extend(Boot::ALL.map(|boot| boot.before(package)));
            let names = suite.names.iter();
            keys.extend(names.map(|name| key(Boot::of_test(name), own, name)));
        }
        let is_ours = |key: &str| {
            let mut places = places.iter();
            places.any(|place| {
                let rest = key.strip_prefix(place.as_str());
                rest.is_some_and(|rest| rest.starts_with(' '))
            })
        };
        self.tests
            .retain(|key, _| keys.contains(key) || !is_ours(key));
        self.left_out
            .retain(|key, _| keys.contains(key) || !is_ours(key));
        keys.retain(|key| !self.tests.contains_key(key));
        self.never_run = keys.into_iter().collect();
    }

    /// Keeps by which kernel objects the results of a commit are, as long as there are any.
    fn keep_objects(&mut self, when: &When, objects: &str) {
        if let Some(commit) = &when.commit {
            let known = self.objects.entry(commit.clone());
            let known = known.or_insert_with(|| objects.to_owned());
            if *known != objects {
                known.clear();
            }
        }
        let commits = self.tests.values();
        let commits = commits.filter_map(|known| known.when.commit.as_deref());
        let commits: BTreeSet<&str> = commits.collect();
        self.objects
            .retain(|commit, _| commits.contains(commit.as_str()));
    }

    /// How a test stands where these kernel objects are those of now.
    fn standing(&self, key: &str, objects: &str) -> Standing {
        let known = self.tests.get(key);
        let Some(known) = known.filter(|known| known.outcome != Outcome::Failed) else {
            return Standing::Open;
        };
        let commit = known.when.commit.as_ref();
        match commit.and_then(|commit| self.objects.get(commit)) {
            Some(by) if by == objects => Standing::Current,
            _ => Standing::Stale,
        }
    }

    /// Tests that have passed, that held when they were run again, that have failed, and that were skipped.
    pub(super) fn counts(&self) -> [usize; 4] {
        let mut counts = [0; 4];
        for known in self.tests.values() {
            let place = match known.outcome {
                Outcome::Passed => 0,
                Outcome::Unsteady => 1,
                Outcome::Failed => 2,
                Outcome::Skipped(_) => 3,
            };
            if let Some(count) = counts.get_mut(place) {
                *count += 1;
            }
        }
        counts
    }
}

/// What a fault quotes may have several lines.
fn first_line(fault: &Fault) -> String {
    fault
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn key(boot: Boot, suite: &str, test: &str) -> String {
    format!("{} {test}", boot.before(suite))
}

/// Keeps what was found, by these kernel objects, beside what is known already; of every kernel it is compared with the tests that
/// there are.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn keep(
    root: &Path,
    (cgroup, when, objects): (Cgroup, &When, &str),
    findings: &[Finding<'_>],
    listed: &[Listed],
) -> anyhow::Result<()> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut all = read(root)?;
    for finding in findings {
        // On a kernel without that hierarchy there is nothing to find.
        if matches!(finding.1.of(Boot::Whole), Some(Ok(answer)) if answer.skipped.is_some()) {
            continue;
        }
        let is_same = |found: &Found| (found.series, found.cgroup) == (finding.0, cgroup);
        let before = all
            .iter()
            .position(is_same)
            .map(|place| all.swap_remove(place));
        let mut found = Found::with(before, finding, cgroup, when);
        found.keep_objects(when, objects);
        all.push(found);
    }
    for mut found in all {
        found.compare(listed);
        let version = serde_json::to_value(found.cgroup)?;
        let version = version.as_str().unwrap_or_default();
        let path = folder.join(format!("{}-{version}.json", found.series));
        let text = serde_json::to_string_pretty(&found)? + "\n";
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// What is kept, in the order of the tables.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn read(root: &Path) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    // The folder is made when something is kept.
    for entry in fs::read_dir(root.join(FOLDER)).into_iter().flatten() {
        let path = entry.with_context(|| format!("listing {FOLDER}"))?.path();
        let context = || format!("reading {}", path.display());
        let text = fs::read_to_string(&path).with_context(context)?;
        found.push(serde_json::from_str::<Found>(&text).with_context(context)?);
    }
    found.sort_by_key(|found| (found.series, found.cgroup == Cgroup::V1));
    Ok(found)
}

/// Keeps of the tests those that are not known to hold, or to have nothing to do, on each of these kernels by these kernel objects: first
/// those of which that is not known at all, then those of which it is known by others. All, if there are none. A suite may be in there
/// twice.
pub(super) fn missing(
    all: &[Found],
    (wanted, cgroup, objects): (&[Series], Cgroup, &str),
    tests: ByBoot<Vec<Listed>>,
) -> ByBoot<Vec<Listed>> {
    let known = |series: Series| {
        let mut all = all.iter();
        all.find(|found| found.series == series && found.cgroup == cgroup)
    };
    // Where kernels differ the one that knows least decides.
    let standing = |boot: Boot, suite: &str, name: &str| {
        let key = key(boot, suite, name);
        let on = |series: &Series| {
            known(*series).map_or(Standing::Open, |found| found.standing(&key, objects))
        };
        wanted.iter().map(on).min().unwrap_or(Standing::Current)
    };
    let missing = ByBoot::new(|boot| {
        let at = |place: Standing| {
            let is_there = |suite: &str, name: &str| standing(boot, suite, name) == place;
            choice::kept(tests.of(boot), is_there)
        };
        [Standing::Open, Standing::Stale].map(at).concat()
    });
    let is_any = missing.iter().any(|(_, tests)| !tests.is_empty());
    if is_any { missing } else { tests }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;

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
    /// Why the latest guest has nothing to tell: it hung or died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fault: Option<String>,
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

/// What the guests of one kernel have found, those that lacked something too.
pub(super) type Finding<'a> = (Series, ByBoot<Option<Result<&'a Answer, &'a Fault>>>);

impl Found {
    /// Nothing yet.
    fn of(series: Series, kernel: &str, cgroup: Cgroup) -> Self {
        Self {
            series,
            kernel: kernel.to_owned(),
            cgroup,
            fault: None,
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
        let before = before.filter(|found| kernel.is_none_or(|kernel| found.kernel == *kernel));
        let name = kernel.map_or_else(|| series.to_string(), Clone::clone);
        let mut found = before.unwrap_or_else(|| Self::of(*series, &name, cgroup));
        found.fault = None;
        for (boot, answer) in answers {
            found.take(boot, &answer.report, when);
            if boot == Boot::Whole {
                found.programs.clone_from(&answer.programs);
            }
        }
        for (boot, guest) in guests.iter() {
            if let Some(Err(fault)) = guest {
                let guest = boot.before("guest");
                found.fault = Some(format!("{guest} {}", first_line(fault)));
            }
        }
        found
    }

    /// What a report says takes the place of what was known; what it had no time for stays, and so does that a test was
    /// unsteady.
    fn take(&mut self, boot: Boot, report: &Report, when: &When) {
        let was_unsteady = |known: &Known| known.outcome == Outcome::Unsteady;
        let known = self.tests.iter().filter(|(_, known)| was_unsteady(known));
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
            for skip in of.skipped.iter().filter(|skip| skip.reason != TIME_OVER) {
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

/// Keeps of the tests those that are not known to hold, or to have nothing to do, on each of these kernels; all, if there are none.
pub(super) fn missing(
    all: &[Found],
    (wanted, cgroup): (&[Series], Cgroup),
    tests: ByBoot<Vec<Listed>>,
) -> ByBoot<Vec<Listed>> {
    let known = |series: Series| {
        let mut all = all.iter();
        all.find(|found| found.series == series && found.cgroup == cgroup)
    };
    let is_missing = |boot: Boot, suite: &str, name: &str| {
        let key = key(boot, suite, name);
        let mut wanted = wanted.iter();
        let is_known = |found: &Found| {
            let outcome = found.tests.get(&key).map(|known| &known.outcome);
            outcome.is_some_and(|outcome| *outcome != Outcome::Failed)
        };
        wanted.any(|series| !known(*series).is_some_and(is_known))
    };
    let missing = ByBoot::new(|boot| {
        choice::kept(tests.of(boot), |suite, name| is_missing(boot, suite, name))
    });
    let is_any = missing.iter().any(|(_, tests)| !tests.is_empty());
    if is_any { missing } else { tests }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{
        artifacts::Binary,
        libtest::{Outcome as Ran, Skip},
        report::Suite,
    };

    fn on(day: &str) -> When {
        When {
            day: day.to_owned(),
            commit: Some("3dc94a75".to_owned()),
        }
    }

    fn answer(kernel: &str, outcome: Ran) -> Answer {
        let mut report = Report::default();
        report.add(Suite::told("live", outcome));
        Answer {
            nonce: String::new(),
            kernel: kernel.to_owned(),
            skipped: None,
            report,
            programs: Vec::new(),
        }
    }

    fn ran(held: &[&str], failed: &[&str], skipped: &[(&str, &str)]) -> Ran {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let skip = |(test, reason): &(&str, &str)| Skip {
            test: (*test).to_owned(),
            reason: (*reason).to_owned(),
        };
        Ran {
            passed: held.len(),
            failed: failed.len(),
            held: owned(held),
            failures: owned(failed),
            skipped: skipped.iter().map(skip).collect(),
            ..Ran::default()
        }
    }

    fn listed(suite: &str, names: &[&str]) -> Vec<Listed> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let binary = Binary {
            suite: suite.to_owned(),
            executable: "/live".into(),
            folder: "/".into(),
            live: true,
        };
        Vec::from([Listed { binary, names }])
    }

    fn guests<'a>(
        whole: Option<Result<&'a Answer, &'a Fault>>,
        bare: Option<Result<&'a Answer, &'a Fault>>,
    ) -> ByBoot<Option<Result<&'a Answer, &'a Fault>>> {
        ByBoot::new(|boot| match boot {
            Boot::Whole => whole,
            Boot::Bare => bare,
            Boot::NoPsi => None,
        })
    }

    #[test]
    fn a_run_of_some_renews_those_and_leaves_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let keep = |whole: Result<&Answer, &Fault>, day: &str| {
            let finding = (Series::V6_1, guests(Some(whole), None));
            let listed = listed("live", &["a", "b", "c", "d", "e"]);
            let when = on(day);
            let of = (Cgroup::V2, &when, "52aa855f");
            keep(root, of, &[finding], &listed).unwrap();
            read(root).unwrap().remove(0)
        };
        let first = answer(
            "6.1.1",
            ran(&["a", "b"], &["c"], &[("d", "no zram"), ("e", TIME_OVER)]),
        );
        let found = keep(Ok(&first), "2026-01-01");
        assert_eq!(found.counts(), [2, 0, 1, 1]);
        let second = answer("6.1.1", ran(&["c", "e"], &[], &[("a", TIME_OVER)]));
        let found = keep(Ok(&second), "2026-01-02");
        assert_eq!(found.counts(), [4, 0, 0, 1]);
        let told = ["live a", "live c", "live d"].map(|test| found.tests[test].to_string());
        assert_eq!(
            told,
            [
                "passed 2026-01-01@3dc94a75",
                "passed 2026-01-02@3dc94a75",
                "skipped 2026-01-01@3dc94a75 no zram"
            ]
        );

        let died = Fault::Died("panic\nand more".to_owned());
        let found = keep(Err(&died), "2026-01-03");
        assert_eq!(
            (found.counts(), found.kernel.as_str()),
            ([4, 0, 0, 1], "6.1.1")
        );
        assert_eq!(
            found.fault.as_deref(),
            Some("guest died without a verdict: panic")
        );
        let other = answer("6.1.2", ran(&["a"], &[], &[]));
        let found = keep(Ok(&other), "2026-01-04");
        assert_eq!(
            (found.counts(), found.fault),
            ([1, 0, 0, 0], None),
            "another release"
        );
    }

    #[test]
    fn a_bare_kernel_alone_is_kept_too_and_a_test_that_is_gone_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let keep = |whole, bare, names: &[&str]| {
            let finding = (Series::V6_1, guests(whole, bare));
            let when = on("2026-01-01");
            let of = (Cgroup::V2, &when, "52aa855f");
            keep(root, of, &[finding], &listed("live", names)).unwrap();
            let found = read(root).unwrap().remove(0);
            let known: Vec<String> = found.tests.into_keys().collect();
            (known, found.never_run)
        };
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        let bare = answer("6.1.1", ran(&["bare::a", "bare::b"], &[], &[]));
        let found = keep(None, Some(Ok(&bare)), &["bare::a", "bare::b", "c"]);
        let known = names(&["bare live bare::a", "bare live bare::b"]);
        assert_eq!(found, (known, names(&["live c"])));
        let whole = answer("6.1.1", ran(&["a", "b"], &[], &[]));
        let found = keep(Some(Ok(&whole)), None, &["bare::a", "a", "no_psi::d"]);
        let known = names(&["bare live bare::a", "live a"]);
        assert_eq!(found, (known, names(&["no-psi live no_psi::d"])));
    }

    /// A run of one kernel, or of some tests, compares all that is kept with the tests that there are.
    #[test]
    fn a_test_or_a_suite_that_is_gone_is_forgotten_on_every_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let report = answer("6.1.1", ran(&["a", "b"], &[], &[]));
        let when = on("2026-01-01");
        let keep = |series: Series, listed: &[Listed]| {
            let finding = (series, guests(Some(Ok(&report)), None));
            keep(root, (Cgroup::V2, &when, "52aa855f"), &[finding], listed).unwrap();
            let kept = read(root).unwrap().into_iter();
            let keys = kept.map(|found| found.tests.into_keys().collect::<Vec<String>>());
            keys.collect::<Vec<_>>()
        };
        let found = keep(Series::V6_1, &listed("live", &["a", "b"]));
        assert_eq!(found, [["live a", "live b"]]);
        let found = keep(Series::V6_12, &listed("live", &["b"]));
        assert_eq!(found, [["live b"], ["live b"]]);
        let found = keep(Series::V6_12, &listed("live other", &["a"]));
        assert_eq!(found, [[""; 0]; 2], "another suite of the same package");
        let found = keep(Series::V6_12, &listed("elsewhere", &["a"]));
        let expected: [&[&str]; 2] = [&[], &["live a", "live b"]];
        assert_eq!(found, expected, "that package's tests are nobody's here");
    }

    #[test]
    fn by_which_kernel_objects_a_result_is_stays_as_long_as_the_result() {
        let mut found = Found::of(Series::V6_1, "6.1.1", Cgroup::V2);
        let mut keep = |names: &[&str], commit: &str, objects: &str| {
            let when = When {
                commit: Some(commit.to_owned()),
                ..on("2026-01-01")
            };
            let report = answer("6.1.1", ran(names, &[], &[])).report;
            found.take(Boot::Whole, &report, &when);
            found.keep_objects(&when, objects);
            let kept = found.objects.iter();
            let kept = kept.map(|(commit, objects)| format!("{commit}: {objects}"));
            kept.collect::<Vec<_>>()
        };
        assert_eq!(keep(&["a", "b"], "one", "1111"), ["one: 1111"]);
        assert_eq!(keep(&["b"], "two+", "2222"), ["one: 1111", "two+: 2222"]);
        assert_eq!(keep(&["b"], "two+", "3333"), ["one: 1111", "two+: "]);
        assert_eq!(keep(&["a", "b"], "four", "3333"), ["four: 3333"]);
    }

    #[test]
    fn what_a_test_left_out_of_itself_is_kept_until_it_runs_again() {
        let mut found = Found::of(Series::V6_1, "6.1.1", Cgroup::V2);
        let mut take = |ran: Ran, day: &str| {
            found.take(Boot::Whole, &answer("6.1.1", ran).report, &on(day));
            found.left_out.clone()
        };
        let part = |test: &str, reason: &str| Skip {
            test: test.to_owned(),
            reason: reason.to_owned(),
        };
        let in_part = Ran {
            left_out: Vec::from([part("a", "no births"), part("a", "no burst")]),
            ..ran(&["a", "b"], &[], &[])
        };
        let expected = ["no births", "no burst"].map(str::to_owned).to_vec();
        let expected = BTreeMap::from([("live a".to_owned(), expected)]);
        assert_eq!(take(in_part, "2026-01-01"), expected);
        let later = ran(&["b"], &[], &[("a", TIME_OVER)]);
        assert_eq!(take(later, "2026-01-02"), expected, "it was not begun");
        let whole = ran(&["a"], &[], &[]);
        assert!(take(whole, "2026-01-03").is_empty());
        found.compare(&listed("live", &["b"]));
        assert_eq!(found.tests.len(), 1);
    }

    #[test]
    fn the_tests_that_are_not_known_come_first_and_then_all_again() {
        let report = answer("6.1.1", ran(&["a"], &["b"], &[]));
        let bare = answer("6.1.1", ran(&["x"], &[], &[]));
        let finding = (Series::V6_1, guests(Some(Ok(&report)), Some(Ok(&bare))));
        let known = Found::with(None, &finding, Cgroup::V2, &on("2026-01-01"));
        let check = |series: &[Series], names: &[&str], expected: [&[&str]; 2]| {
            let all = ByBoot::new(|boot| match boot {
                Boot::Whole => listed("live", names),
                Boot::Bare => listed("live", &["x"]),
                Boot::NoPsi => Vec::new(),
            });
            let found = missing(std::slice::from_ref(&known), (series, Cgroup::V2), all);
            let names = |boot: Boot| -> Vec<&str> {
                let names = found.of(boot).iter().flat_map(|suite| &suite.names);
                names.map(String::as_str).collect()
            };
            assert_eq!([names(Boot::Whole), names(Boot::Bare)], expected);
        };
        check(&[Series::V6_1], &["a", "b"], [&["b"], &[]]);
        check(&[Series::V6_1], &["a"], [&["a"], &["x"]]);
        check(
            &[Series::V6_1, Series::V6_12],
            &["a", "b"],
            [&["a", "b"], &["x"]],
        );
    }
}

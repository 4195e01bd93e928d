//! What is kept of guests, and which tests are run again.
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
    assert_eq!(
        found.counts(),
        [3, 1, 0, 1],
        "what has failed held when run again"
    );
    let told = ["live a", "live c", "live d"].map(|test| found.tests[test].to_string());
    assert_eq!(
        told,
        [
            "passed 2026-01-01@3dc94a75",
            "unsteady 2026-01-02@3dc94a75",
            "skipped 2026-01-01@3dc94a75 no zram"
        ]
    );

    let skipped = answer("6.1.1", ran(&[], &[], &[("c", "no zram")]));
    let found = keep(Ok(&skipped), "2026-01-03");
    assert_eq!(found.counts(), [3, 1, 0, 1], "a skip takes nothing back");

    let died = Fault::Died("panic\nand more".to_owned());
    let found = keep(Err(&died), "2026-01-03");
    assert_eq!(
        (found.counts(), found.kernel.as_str()),
        ([3, 1, 0, 1], "6.1.1")
    );
    let told = |found: &Found| -> Vec<String> {
        let faults = found.faults.iter();
        faults
            .map(|(guest, why)| format!("{guest} {why}"))
            .collect()
    };
    assert_eq!(told(&found), ["guest died without a verdict: panic"]);
    let other = answer("6.1.2", ran(&["a"], &[], &[]));
    let found = keep(Ok(&other), "2026-01-04");
    assert_eq!(
        (found.counts(), told(&found)),
        ([1, 0, 0, 0], Vec::new()),
        "another release"
    );
}

/// What became of a guest is no news of one that was booted otherwise.
#[test]
fn that_a_guest_died_is_kept_until_one_that_was_booted_alike_has_answered() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let keep = |whole, bare| {
        let finding = (Series::V6_1, guests(whole, bare));
        let when = on("2026-01-01");
        let of = (Cgroup::V2, &when, "52aa855f");
        keep(root, of, &[finding], &listed("live", &["a", "bare::b"])).unwrap();
        let faults = read(root).unwrap().remove(0).faults;
        faults.into_keys().collect::<Vec<String>>()
    };
    let (whole, bare) = (
        answer("6.1.1", ran(&["a"], &[], &[])),
        answer("6.1.1", ran(&["bare::b"], &[], &[])),
    );
    let died = Fault::Died("panic".to_owned());
    assert_eq!(keep(Some(Err(&died)), Some(Ok(&bare))), ["guest"]);
    assert_eq!(keep(None, Some(Err(&died))), ["bare guest", "guest"]);
    assert_eq!(keep(None, Some(Ok(&bare))), ["guest"]);
    assert_eq!(keep(Some(Ok(&whole)), None), [""; 0]);
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
    let names =
        |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
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
    let when = on("2026-01-01");
    let mut known = Found::with(None, &finding, Cgroup::V2, &when);
    known.keep_objects(&when, "1111");
    let check = |series: &[Series], names: &[&str], expected: [&[&str]; 2]| {
        let all = ByBoot::new(|boot| match boot {
            Boot::Whole => listed("live", names),
            Boot::Bare => listed("live", &["x"]),
            Boot::NoPsi => Vec::new(),
        });
        let of = (series, Cgroup::V2, "1111");
        let found = missing(std::slice::from_ref(&known), of, all);
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

#[test]
fn results_by_other_kernel_objects_are_renewed_behind_what_is_not_known() {
    let mut found = Found::of(Series::V6_1, "6.1.1", Cgroup::V2);
    let mut take = |ran: Ran, commit: Option<&str>, objects: &str| {
        let when = When {
            commit: commit.map(str::to_owned),
            ..on("2026-01-01")
        };
        found.take(Boot::Whole, &answer("6.1.1", ran).report, &when);
        found.keep_objects(&when, objects);
        found.clone()
    };
    let check = |found: &Found, objects: &str, expected: &[&str]| {
        let tests = listed("live", &["a", "b", "c", "d", "e"]);
        let tests = ByBoot::new(|boot| match boot {
            Boot::Whole => tests.clone(),
            Boot::Bare | Boot::NoPsi => Vec::new(),
        });
        let series = [Series::V6_1];
        let of = (&series[..], Cgroup::V2, objects);
        let missing = missing(std::slice::from_ref(found), of, tests);
        let suites = missing.of(Boot::Whole).iter();
        let names: Vec<&str> = suites
            .flat_map(|suite| suite.names.iter().map(String::as_str))
            .collect();
        assert_eq!(names, expected);
    };
    take(ran(&["a"], &[], &[("d", "no zram")]), None, "1111");
    take(ran(&["b"], &[], &[]), Some("one"), "1111");
    let known = take(ran(&["c"], &["e"], &[]), Some("two"), "2222");
    check(&known, "2222", &["e", "a", "b", "d"]);
    check(&known, "1111", &["e", "a", "c", "d"]);
    check(&known, "3333", &["e", "a", "b", "c", "d"]);
    assert_eq!(
        known.tests.len(),
        5,
        "what is known stays until it is renewed"
    );
    let renewed = take(ran(&["a", "b", "d", "e"], &[], &[]), Some("two"), "2222");
    check(&renewed, "2222", &["a", "b", "c", "d", "e"]);
}

//! Which live tests run in a guest. They are listed on the host: a name that is nobody's fails before anything boots.
use anyhow::ensure;

use super::boot::{Boot, ByBoot};
use crate::test::live::Listed;

/// The tests of the short form, those that show most. Each kernel begins at another place of the list, and each commit at others.
/// Who holds memory back by hand for minutes where processors are emulated is left to the long one.
const SHORT: [&str; 23] = [
    "every_program_runs_here",
    "the_kernel_sampler_is_the_top_rung",
    "a_clock_that_is_set_changes_no_decision",
    "the_leaker_dies_and_the_record_explains_it",
    "a_kill_by_the_kernel_is_seen_and_its_memory_is_waited_for",
    "a_node_and_its_workloads_have_the_numbers_of_their_files",
    "every_process_of_the_victim_dies_wherever_it_is_below",
    "nothing_stays_of_an_agent_that_was_killed",
    "free_zram_holds_an_eviction_until_it_is_gone",
    "an_oom_of_the_node_is_told_as_that",
    "being_slowed_down_above_memory_high_is_told_as_no_kill",
    "full_swap_holds_nothing",
    "a_tree_that_forks_goes_whole_by_a_hard_eviction",
    "a_score_that_the_kernels_killer_spares_saves_nobody_from_ours",
    "the_limit_on_tasks_of_a_cgroup_is_told_by_the_fork_that_crosses_it",
    "without_a_type_description_of_the_kernel_it_polls",
    "a_group_that_is_taken_whole_is_told_as_that",
    "the_programs_are_tried_and_gone_again",
    "what_kills_are_lost_is_counted",
    "a_tree_that_forks_and_will_not_listen_goes_whole_by_a_soft_eviction",
    "without_programs_and_real_time_it_stands_on_the_lowest_rung",
    "nobody_with_the_right_to_kill_protects_from_files",
    "a_guard_that_was_starved_acts_as_soon_as_it_runs",
];

/// Chooses from everything there is: the short form's own, or what has one of these parts in its name; all without any. What is
/// about a kernel that lacks something is for the guest that lacks it.
///
/// # Errors
/// When a part or a name of the short form is in no test's name.
pub(super) fn choose(
    all: &[Listed],
    short: bool,
    parts: &[String],
) -> anyhow::Result<ByBoot<Vec<Listed>>> {
    for part in parts {
        let mut names = all.iter().flat_map(|suite| &suite.names);
        ensure!(
            names.any(|name| name.contains(part.as_str())),
            "no live test has `{part}` in its name"
        );
    }
    let is_wanted = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part));
    let mut few = short.then(|| short_tests(all, &SHORT)).transpose()?;
    Ok(ByBoot::new(|boot| {
        let few = few.take_if(|_| boot == Boot::Whole);
        let of_boot = |_: &str, name: &str| is_wanted(name) && Boot::of_test(name) == boot;
        few.unwrap_or_else(|| kept(all, of_boot))
    }))
}

/// The suites that have such tests, by the names of suite and test, with those alone.
pub(super) fn kept(all: &[Listed], is_wanted: impl Fn(&str, &str) -> bool) -> Vec<Listed> {
    let one = |suite: &Listed| Listed {
        binary: suite.binary.clone(),
        names: {
            let own = &suite.binary.suite;
            let names = suite.names.iter().filter(|name| is_wanted(own, name));
            names.cloned().collect()
        },
    };
    let suites = all.iter().map(one);
    suites.filter(|suite| !suite.names.is_empty()).collect()
}

/// The same tests, from that one on and around to the one before it. A suite may be in there twice.
pub(super) fn from_on(tests: &[Listed], first: usize) -> Vec<Listed> {
    let of = |suite: &Listed, names: &[String]| Listed {
        binary: suite.binary.clone(),
        names: names.to_vec(),
    };
    let (mut later, mut earlier) = (Vec::new(), Vec::new());
    let mut before = 0;
    for suite in tests {
        let cut = first.saturating_sub(before).min(suite.names.len());
        let (left, right) = suite.names.split_at(cut);
        earlier.push(of(suite, left));
        later.push(of(suite, right));
        before += suite.names.len();
    }
    let all = later.into_iter().chain(earlier);
    all.filter(|suite| !suite.names.is_empty()).collect()
}

/// The tests of these names, whatever modules they are in, in this order as far as suites stay together.
fn short_tests(all: &[Listed], wanted: &[&str]) -> anyhow::Result<Vec<Listed>> {
    let place = |name: &str| {
        let own = name.rsplit("::").next().unwrap_or(name);
        wanted.iter().position(|wanted| *wanted == own)
    };
    let mut suites = kept(all, |_, name| place(name).is_some());
    for suite in &mut suites {
        suite.names.sort_by_key(|name| place(name));
    }
    suites.sort_by_key(|suite| suite.names.first().and_then(|name| place(name)));
    for (at, name) in wanted.iter().enumerate() {
        let mut names = suites.iter().flat_map(|suite| &suite.names);
        ensure!(
            names.any(|found| place(found) == Some(at)),
            "no live test is named `{name}`, which the short form wants"
        );
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::artifacts::Binary;

    fn suite(name: &str, names: &[&str]) -> Listed {
        Listed {
            binary: Binary {
                suite: name.to_owned(),
                executable: format!("/{name}").into(),
                folder: "/".into(),
                live: true,
            },
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn all() -> [Listed; 2] {
        [
            suite(
                "agent",
                &[
                    "a::one",
                    "a::one_more",
                    "bare::two",
                    "b::three",
                    "no_psi::two",
                ],
            ),
            suite("probe", &["four"]),
        ]
    }

    #[test]
    fn the_short_form_takes_whole_names_and_those_first_that_show_most() {
        let found = short_tests(&all(), &["four", "three", "one"]).unwrap();
        let expected = [
            suite("probe", &["four"]),
            suite("agent", &["b::three", "a::one"]),
        ];
        assert_eq!(found, expected);
        let error = short_tests(&all(), &["four", "on"]).unwrap_err();
        assert!(error.to_string().contains("`on`"), "{error}");
    }

    #[test]
    fn the_short_form_has_all_of_the_guests_that_lack_something() {
        let [bare, no_psi] = ["bare::two", "no_psi::two"];
        let names = [&["a::one", bare, no_psi], &SHORT[..]].concat();
        let found = choose(&[suite("agent", &names)], true, &[]).unwrap();
        for (boot, expected) in [
            (Boot::Whole, &SHORT[..]),
            (Boot::Bare, &[bare]),
            (Boot::NoPsi, &[no_psi]),
        ] {
            assert_eq!(*found.of(boot), [suite("agent", expected)], "{boot:?}");
        }
    }

    #[test]
    fn what_is_left_out_at_the_begin_comes_at_the_end() {
        let tests = [suite("agent", &["a", "b", "c"]), suite("probe", &["d"])];
        let check = |first: usize, expected: &[Listed]| {
            assert_eq!(from_on(&tests, first), expected, "{first}");
        };
        check(0, &tests);
        let around = [
            suite("agent", &["b", "c"]),
            suite("probe", &["d"]),
            suite("agent", &["a"]),
        ];
        check(1, &around);
        check(
            3,
            &[suite("probe", &["d"]), suite("agent", &["a", "b", "c"])],
        );
        check(9, &tests);
        assert!(from_on(&[], 1).is_empty());
    }

    fn check(parts: &[&str], whole: &[Listed], bare: &[Listed], no_psi: &[Listed]) {
        let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        let found = choose(&all(), false, &parts).unwrap();
        for (boot, expected) in [
            (Boot::Whole, whole),
            (Boot::Bare, bare),
            (Boot::NoPsi, no_psi),
        ] {
            assert_eq!(found.of(boot), expected, "{boot:?}");
        }
    }

    #[test]
    fn a_filter_chooses_by_parts_and_one_that_chooses_nothing_is_a_mistake() {
        let bare = [suite("agent", &["bare::two"])];
        let agent = suite("agent", &["a::one", "a::one_more", "b::three"]);
        let no_psi = [suite("agent", &["no_psi::two"])];
        check(&[], &[agent, suite("probe", &["four"])], &bare, &no_psi);
        check(&["two"], &[], &bare, &no_psi);
        let one = suite("agent", &["a::one", "a::one_more"]);
        check(&["one"], &[one], &[], &[]);
        let parts = ["one".to_owned(), "onne".to_owned()];
        let error = choose(&all(), false, &parts).unwrap_err();
        assert!(error.to_string().contains("`onne`"), "{error}");
    }
}

//! What is claimed of every kernel, and the tests that show it there: the second table of docs/kernels.md.
use std::fmt::Write as _;

use super::{kept::Found, known::Outcome};

/// What must hold, and the names of the tests that show it, without the modules that they are in.
type Claim = (&'static str, &'static [&'static str]);

const CLAIMS: &[Claim] = &[
    (
        "every kernel program is loaded and attached",
        &["every_program_runs_here"],
    ),
    (
        "`brink demo`: an eviction at a safe place, from end to end",
        &["demo"],
    ),
    (
        "the kernel's numbers are those of its files",
        &[
            "numbers_are_those_of_the_files",
            "a_node_and_its_workloads_have_the_numbers_of_their_files",
            "processes_of_a_cgroup_are_those_of_its_file",
            "usage_is_that_of_the_file_and_none_of_who_is_not_asked_for",
            "limits_are_those_of_the_files",
        ],
    ),
    (
        "what a full ring loses is counted",
        &[
            "what_evidence_is_lost_is_counted",
            "what_signals_are_lost_is_counted",
            "what_kills_are_lost_is_counted",
            "traces_that_nobody_read_in_time_are_overwritten_and_the_others_are_whole",
        ],
    ),
    (
        "OOM of a cgroup",
        &[
            "a_cgroup_at_its_limit_is_told_as_that",
            "a_cgroup_at_its_own_limit_is_one_incident_that_agrees_with_the_kernel",
        ],
    ),
    (
        "OOM of a whole group",
        &[
            "a_group_that_is_taken_whole_is_told_as_that",
            "a_group_that_is_killed_whole_is_one_incident",
        ],
    ),
    (
        "OOM of the node",
        &[
            "the_node_out_of_memory_is_told_from_a_cgroup_at_its_limit",
            "an_oom_of_the_node_is_told_as_that",
            "the_node_out_of_memory_is_one_incident_for_no_cgroups_limit",
        ],
    ),
    (
        "throttled above `memory.high`: no kill",
        &[
            "being_slowed_down_is_no_kill",
            "being_slowed_down_above_memory_high_is_told_as_no_kill",
            "being_slowed_down_above_memory_high_is_no_incident_until_somebody_kills",
        ],
    ),
    (
        "a tree of cgroups that forks goes whole: hard",
        &[
            "a_fork_storm_dies_whole_by_group_kill",
            "a_tree_that_forks_goes_whole_by_a_hard_eviction",
        ],
    ),
    (
        "the same: soft",
        &["a_tree_that_forks_and_will_not_listen_goes_whole_by_a_soft_eviction"],
    ),
    (
        "swap: free, full, and what it is worth",
        &[
            "free_swap_holds_an_eviction_until_it_is_gone",
            "full_swap_holds_nothing",
            "swap_counts_as_headroom_and_zram_by_half",
        ],
    ),
    (
        "swap in zram: free and full",
        &[
            "free_zram_holds_an_eviction_until_it_is_gone",
            "full_zram_holds_nothing",
        ],
    ),
    (
        "a negative `oom_score_adj` saves nobody",
        &["a_score_that_the_kernels_killer_spares_saves_nobody_from_ours"],
    ),
    (
        "after kill -9 a crossing is acted on at once (the quickest of nine starts within 500 ms, all within 5 s: emulated)",
        &["a_crossing_that_still_holds_is_acted_on_at_once_after_a_kill_of_the_agent"],
    ),
    (
        "nobody is killed twice for one cause",
        &[
            "nobody_is_killed_twice_for_one_cause",
            "nobody_is_killed_twice_for_one_cause_after_a_soft_order",
        ],
    ),
    (
        "no program, link or cgroup stays",
        &[
            "nothing_stays_of_an_agent_that_was_killed",
            "nothing_stays_in_the_kernel",
        ],
    ),
    (
        "rung: the kernel's sampler",
        &["the_kernel_sampler_is_the_top_rung"],
    ),
    (
        "rung: sampler off",
        &["without_programs_the_guard_polls_under_real_time"],
    ),
    (
        "rung: no type description",
        &["without_a_type_description_of_the_kernel_it_polls"],
    ),
    (
        "rung: no tracefs",
        &["without_tracefs_it_is_blind_to_the_kernels_killer_alone"],
    ),
    (
        "rung: not root",
        &[
            "without_the_right_to_load_programs_it_polls",
            "nobody_with_the_right_to_kill_protects_from_files",
        ],
    ),
    (
        "rung: no real-time right",
        &[
            "without_the_right_to_real_time_the_sampler_still_serves",
            "without_real_time_it_polls_at_nice_minus_20",
            "without_programs_and_real_time_it_stands_on_the_lowest_rung",
        ],
    ),
    (
        "booted without pressure information",
        &["a_kernel_without_pressure_information_is_protected_from_the_top_rung"],
    ),
    (
        "booted without the memory controller",
        &[
            "without_the_memory_controller_no_agent_pretends_to_protect",
            "the_doctor_names_what_the_kernel_was_booted_without",
        ],
    ),
    (
        "soak: bombs, cgroups that come and go (5 a second at the least), a starved guard",
        &[
            "bomb_after_bomb_ends_as_a_whole",
            "a_bomb_and_a_leak_beside_processes_that_come_and_go",
            "a_thousand_cgroups_a_second_hide_neither_a_leak_nor_a_new_workload",
            "a_guard_that_was_starved_acts_as_soon_as_it_runs",
        ],
    ),
    (
        "soak: a stopped agent",
        &[
            "what_was_crossed_during_a_stop_is_acted_on_at_once",
            "what_was_over_before_the_end_of_a_stop_kills_nobody",
            "what_found_no_room_during_a_stop_is_counted_and_looked_for",
            "a_grace_does_not_run_on_over_a_break_during_a_stop",
        ],
    ),
    (
        "soak: full disks",
        &[
            "a_full_disk_keeps_nobody_alive_and_is_told",
            "an_agent_without_room_for_its_ledger_says_so_and_does_not_start",
        ],
    ),
    (
        "soak: waves, a clock that is set, some of everything mixed",
        &[
            "waves_around_a_soft_threshold_kill_nobody_and_do_not_flap",
            "a_clock_that_is_set_changes_no_decision",
            "a_mix_of_everything_in_one_agent",
        ],
    ),
];

/// What is said where nothing is known.
const UNKNOWN: &str = "not run";
/// The same of a test that held only when it was run again, and of one that held and has left something out of itself.
const AGAIN: &str = "held when run again";
const IN_PART: &str = "held in part";

/// One row a claim, one column a kernel.
pub(super) fn table(all: &[Found]) -> String {
    let headings: Vec<String> = all.iter().map(Found::heading).collect();
    let mut text = format!("| what | {} |\n", headings.join(" | "));
    // Writing to a `String` cannot fail, here and below.
    let _written = writeln!(text, "|---|{}", "---|".repeat(all.len()));
    for (what, tests) in CLAIMS {
        let cells: Vec<String> = all.iter().map(|found| cell(found, tests)).collect();
        let _written = writeln!(text, "| {what} | {} |", cells.join(" | "));
    }
    text
}

/// What became of the tests: as many as passed of all, and what the others came to.
fn cell(found: &Found, tests: &[&str]) -> String {
    let mut others = Vec::new();
    let mut passed = 0;
    for test in tests {
        let other = match outcome(found, test) {
            Some((Outcome::Passed, false)) => {
                passed += 1;
                continue;
            }
            Some((Outcome::Passed, true)) => IN_PART,
            Some((Outcome::Unsteady, _)) => AGAIN,
            Some((Outcome::Failed, _)) => "failed",
            Some((Outcome::Skipped(_), _)) => "skipped",
            None => UNKNOWN,
        };
        others.push(other);
    }
    match (passed, &others[..]) {
        (_, []) => format!("passed {passed}"),
        (0, others) => others.join(", "),
        (_, others) => format!("passed {passed}, {}", others.join(", ")),
    }
}

/// What became of a test, in whatever module it is, and whether it has left something out of itself.
fn outcome<'a>(found: &'a Found, test: &str) -> Option<(&'a Outcome, bool)> {
    let is_it = |key: &str| key.rsplit([' ', ':']).next() == Some(test);
    let (key, known) = found.tests.iter().find(|(key, _)| is_it(key))?;
    Some((&known.outcome, found.left_out.contains_key(key)))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;
    use crate::{
        vm::{job::Cgroup, kept},
        workspace,
    };

    #[test]
    fn a_cell_counts_what_passed_and_names_what_did_not() {
        let text = r#"{"series": "6.1", "kernel": "6.1.1", "cgroup": "v2", "programs": [], "tests": {
            "live a::one": "passed 2026-01-01", "live two": "failed 2026-01-01",
            "bare live c::three": "skipped 2026-01-01 no zram", "live c::four": "unsteady 2026-01-01",
            "live five": "passed 2026-01-01"}, "left_out": {"live five": ["births during a kill"]}}"#;
        let found: Found = serde_json::from_str(text).unwrap();
        for (tests, expected) in [
            (&["one"][..], "passed 1"),
            (&["one", "three"], "passed 1, skipped"),
            (&["two", "four"], "failed, held when run again"),
            (&["one", "five"], "passed 1, held in part"),
            (&["ne"], UNKNOWN),
        ] {
            assert_eq!(cell(&found, tests), expected, "{tests:?}");
        }
    }

    /// What a test that holds comes to.
    const WHOLE: &str = "passed 1";
    /// The tests that cgroup v1 has nothing to hold for, each with the reason that it gives.
    const LACKING_ON_V1: [(&str, &str); 6] = [
        (
            "a_group_that_is_taken_whole_is_told_as_that",
            "cgroup v1 has no memory.oom.group",
        ),
        (
            "a_group_that_is_killed_whole_is_one_incident",
            "cgroup v1 never kills a group whole",
        ),
        (
            "being_slowed_down_is_no_kill",
            "cgroup v1 has neither memory.high nor memory.oom.group",
        ),
        (
            "being_slowed_down_above_memory_high_is_told_as_no_kill",
            "cgroup v1 has no memory.high",
        ),
        (
            "being_slowed_down_above_memory_high_is_no_incident_until_somebody_kills",
            "cgroup v1 has no memory.high",
        ),
        (
            "a_fork_storm_dies_whole_by_group_kill",
            "no v2 tree, or the controllers cannot be had",
        ),
    ];
    fn claimed() -> impl Iterator<Item = &'static str> {
        CLAIMS.iter().flat_map(|(_, tests)| tests.iter().copied())
    }

    /// What is kept of the kernels with this version of the control groups, which are these. None of their guests has died when it
    /// was booted last.
    fn kept_of(cgroup: Cgroup, series: &[&str]) -> Vec<Found> {
        let mut kept = kept::read(workspace::root()).unwrap();
        kept.retain(|found| found.cgroup == cgroup);
        let names: Vec<String> = kept.iter().map(|found| found.series.to_string()).collect();
        assert_eq!(names, series);
        for found in &kept {
            assert!(
                found.faults.is_empty(),
                "{}: {:?}",
                found.heading(),
                found.faults
            );
        }
        kept
    }

    /// A kill takes less than a fork, so whether anybody is born during one is chance. A run without a birth shows that nobody lives after
    /// it, and holds in part.
    const BY_CHANCE: [&str; 2] = [
        "a_tree_that_forks_goes_whole_by_a_hard_eviction",
        "a_tree_that_forks_and_will_not_listen_goes_whole_by_a_soft_eviction",
    ];
    /// Emulated processors have no time for all of these, and each tells how much it was.
    const BY_TIME: [&str; 2] = [
        "a_thousand_cgroups_a_second_hide_neither_a_leak_nor_a_new_workload",
        "a_mix_of_everything_in_one_agent",
    ];

    /// A claim that did not hold on a kernel is none, nor is one that held on each but in part, or when it was run again.
    #[test]
    fn everything_claimed_held_on_every_kernel() {
        let kept = kept_of(Cgroup::V2, &["6.1", "6.12", "newest"]);
        for found in &kept {
            let held = |test: &str| [WHOLE, AGAIN, IN_PART].contains(&&*cell(found, &[test]));
            let open: Vec<&str> = claimed().filter(|test| !held(test)).collect();
            assert!(open.is_empty(), "{}: {open:#?}", found.heading());
        }
        let is_plain = |test: &str| kept.iter().any(|found| cell(found, &[test]) == WHOLE);
        let is_asked = |test: &&str| !BY_CHANCE.contains(test) && !BY_TIME.contains(test);
        let never = claimed().filter(is_asked).filter(|test| !is_plain(test));
        let never: Vec<&str> = never.collect();
        assert!(never.is_empty(), "plainly held on no kernel: {never:#?}");
    }

    /// The same on cgroup v1, but for what that has not, which is told one by one.
    #[test]
    fn everything_claimed_held_on_cgroup_v1_too() {
        let kept = kept_of(Cgroup::V1, &["6.1"]);
        let lacking = BTreeMap::from(LACKING_ON_V1);
        let of = |found: &Found, test: &str| match outcome(found, test) {
            None => UNKNOWN.to_owned(),
            Some((Outcome::Skipped(reason), _)) => reason.clone(),
            Some(_) => cell(found, &[test]),
        };
        for found in &kept {
            for test in claimed() {
                let told = of(found, test);
                let is_expected = match lacking.get(test) {
                    Some(reason) => told == *reason,
                    None => [WHOLE, AGAIN, IN_PART].contains(&&*told),
                };
                assert!(is_expected, "{}: {test}: {told}", found.heading());
            }
        }
        let nobodys: Vec<_> = lacking
            .keys()
            .filter(|name| !claimed().any(|test| test == **name))
            .collect();
        assert!(nobodys.is_empty(), "{nobodys:?}");
    }

    /// A test that was renamed shows nothing any more, whatever is kept of it.
    #[test]
    fn everything_claimed_has_its_test() {
        let live = workspace::root().join("tests/live");
        let files = workspace::files_below(&live).unwrap();
        let sources = files.iter().map(|file| fs::read_to_string(file).unwrap());
        let sources: Vec<String> = sources.collect();
        let is_there = |test: &str| {
            let head = format!("fn {test}(");
            sources.iter().any(|source| source.contains(&head))
        };
        // The demonstration is a command of the agent.
        let gone = claimed().filter(|test| *test != "demo" && !is_there(test));
        let gone: Vec<_> = gone.collect();
        assert!(gone.is_empty(), "{gone:?}");
        for test in BY_CHANCE.iter().chain(&BY_TIME) {
            assert!(claimed().any(|claimed| claimed == *test), "{test}");
        }
    }
}

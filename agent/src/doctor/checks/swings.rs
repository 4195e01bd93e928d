//! Whether a soft threshold is met and left again and again, and which transition period would calm its condition.

use brink_core::base::Span;
use brink_core::node::swing::{HABIT, Swings};
use brink_core::node::threshold::Threshold;

use super::{count, some};
use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;

/// Thresholds that are told; the rest is counted.
const MOST: usize = 5;

const SUBJECT: Subject = Subject("memory.swings", "soft thresholds that swing");

/// None without a soft threshold, and without a journal that could tell.
pub(super) fn check(facts: &Facts) -> Option<Check> {
    let crossings = facts.crossings.as_ref()?;
    let policy = &facts.config.policy;
    if policy.thresholds().iter().all(Threshold::is_hard) {
        return None;
    }
    let crossings = match crossings {
        Ok(crossings) => crossings,
        Err(why) => return Some(SUBJECT.unknown(why.clone())),
    };
    let transition = policy.settings.pressure_transition;
    let all = crossings.soft.iter().map(|((signal, grace), changes)| {
        let swings = Swings::of(changes.iter().copied(), transition);
        (
            format!("{signal} (grace {})", Span::from_secs(*grace)),
            swings,
        )
    });
    let habits: Vec<(String, Swings)> = all.filter(|(_, swings)| swings.times >= HABIT).collect();
    if habits.is_empty() {
        return Some(SUBJECT.ok("none in the last six hours"));
    }
    let words: Vec<String> = habits.iter().map(in_words).collect();
    let cut = if crossings.is_cut {
        " (of the beginning of that time, as there are too many events)"
    } else {
        ""
    };
    let found = format!(
        "in the last six hours{cut} {}; the transition period is {transition}",
        some(&words, MOST)
    );
    let flips = habits.iter().filter(|(_, swings)| swings.flips >= HABIT);
    let calming = flips.filter_map(|(_, swings)| swings.calming()).max();
    Some(match calming {
        None => SUBJECT.note(found).follows(
            "the load stays near the threshold; the condition outlives the calms, so nothing that goes by it comes and goes",
        ),
        Some(calming) => SUBJECT
            .warning(found)
            .follows(
                "the node's condition comes and goes with it: pods are scheduled here while it is calm, and bring it back",
            )
            .next(format!("evictionPressureTransitionPeriod: {calming} outlives each of these calms"))
            .next("or a threshold that is further from the usual load"),
    })
}

fn in_words((name, swings): &(String, Swings)) -> String {
    let longest = swings.longest.unwrap_or_default();
    format!(
        "{name} was met again after {}, of at most {longest}, and its condition had gone in {}",
        count(swings.times, "calm"),
        swings.flips
    )
}

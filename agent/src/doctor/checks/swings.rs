//! Whether a soft threshold is met and left again and again, and which transition period would calm its condition.

use brink_core::node::threshold::Threshold;

use crate::doctor::check::{Check, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::rules::swings::{OTHERWISE, swinging};

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
    let Some(swinging) = swinging(crossings, transition, |_| true) else {
        return Some(SUBJECT.ok("none in the last six hours"));
    };
    let (found, follows) = (swinging.found.clone(), swinging.follows());
    Some(match swinging.next() {
        None => SUBJECT.note(found).follows(follows),
        Some(next) => SUBJECT
            .warning(found)
            .follows(follows)
            .next(next)
            .next(OTHERWISE),
    })
}

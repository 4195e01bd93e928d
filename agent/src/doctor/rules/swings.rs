//! Whether soft thresholds are met and left again and again, and which transition period would calm their condition.

use brink_core::base::Span;
use brink_core::node::swing::{HABIT, Swings};

use crate::doctor::checks::{count, some};
use crate::doctor::facts::crossings::Crossings;

/// Thresholds that are told; the rest is counted.
const MOST: usize = 5;

/// What there is to do beside another transition period.
pub(crate) const OTHERWISE: &str = "or a threshold that is further from the usual load";

/// Soft thresholds that swing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Swinging {
    /// Which, and how often.
    pub(crate) found: String,
    /// The transition period that would have outlived every calm; none where the one in force did.
    calming: Option<Span>,
}

/// Looks for them among those whose signals are meant; none where none swings as a habit.
pub(crate) fn swinging(
    crossings: &Crossings,
    transition: Span,
    is_meant: impl Fn(&str) -> bool,
) -> Option<Swinging> {
    let soft = crossings.soft.iter();
    let meant = soft.filter(|((signal, _), _)| is_meant(signal));
    let all = meant.map(|((signal, grace), changes)| {
        let swings = Swings::of(changes.iter().copied(), transition);
        let name = format!("{signal} (grace {})", Span::from_secs(*grace));
        (name, swings)
    });
    let habits: Vec<(String, Swings)> = all.filter(|(_, swings)| swings.times >= HABIT).collect();
    if habits.is_empty() {
        return None;
    }
    let words: Vec<String> = habits.iter().map(in_words).collect();
    let cut = if crossings.is_cut {
        " (of the beginning of that time, as there are too many events)"
    } else {
        ""
    };
    let flips = habits.iter().filter(|(_, swings)| swings.flips >= HABIT);
    Some(Swinging {
        found: format!(
            "in the last six hours{cut} {}; the transition period is {transition}",
            some(&words, MOST)
        ),
        calming: flips.filter_map(|(_, swings)| swings.calming()).max(),
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

impl Swinging {
    /// What follows from it.
    pub(crate) const fn follows(&self) -> &'static str {
        match self.calming {
            None => {
                "the load stays near the threshold; the condition outlives the calms, so nothing that goes by it comes and goes"
            }
            Some(_) => {
                "the node's condition comes and goes with it: pods are scheduled here while it is calm, and bring it back"
            }
        }
    }

    /// The setting that would calm the condition; none where it is calm.
    pub(crate) fn next(&self) -> Option<String> {
        let calming = self.calming?;
        Some(format!(
            "evictionPressureTransitionPeriod: {calming} outlives each of these calms"
        ))
    }

    /// The same in one.
    pub(crate) fn sentence(&self) -> String {
        let (found, follows) = (&self.found, self.follows());
        let next = self.next().map_or_else(String::new, |next| {
            format!(" What calms it: {next}, {OTHERWISE}.")
        });
        format!("A soft threshold swings: {found}; {follows}.{next}")
    }
}

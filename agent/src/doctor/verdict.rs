//! The verdict: on which rung an agent would stand here, why no higher, and in which mode.

use brink_core::base::Reason;
use brink_core::node::safety::Mode;
use brink_host::probe::{Family, calibrate};

use super::check::tidied;
use super::facts::Facts;
use super::facts::trials::{Agreement, Load};
use crate::config::RunMode;
use crate::ledger::Rung;
use crate::runtime::stop_button::Pressed;

/// What follows from everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What would carry the signals.
    pub rung: Rung,
    /// How the guard thread would be scheduled; unknown where it was not tried.
    pub scheduling: Option<String>,
    /// Why it would stand no higher, one sentence each.
    pub reasons: Vec<String>,
    /// What would become of orders.
    pub mode: Mode,
}

impl Verdict {
    /// From facts alone: checks judge, and the verdict does not hang on their words.
    pub fn of(facts: &Facts) -> Self {
        let sampler = sampler(facts);
        let realtime = realtime(facts);
        let rung = Rung::of(sampler.is_ok(), realtime.is_ok());
        let reasons = [sampler.as_ref().err(), realtime.as_ref().err()];
        let reasons = reasons
            .into_iter()
            .flatten()
            .map(|why| tidied(why))
            .collect();
        let scheduling = match (&realtime, &facts.trials.nice) {
            (Ok(scheduling), _) => Some(scheduling.clone()),
            (Err(_), Ok(nice)) => Some(format!("nice {}", nice.value)),
            (Err(_), Err(_)) => None,
        };
        Self {
            rung,
            scheduling,
            reasons,
            mode: mode(facts),
        }
    }
}

/// Whether the sampler would serve, or why not: what the guard goes by.
fn sampler(facts: &Facts) -> Result<(), String> {
    let programs = match &facts.trials.programs {
        Load::Done(programs) => programs,
        Load::Failed(why) | Load::NotTried(why) => return Err(format!("no sampler: {why}")),
    };
    if let Some((name, why)) = programs.absent(Family::Sampler).next() {
        return Err(format!("no sampler: {name}: {why}"));
    }
    match &programs.agreement {
        Ok(reading) if agrees(facts, reading) => Ok(()),
        Ok(_) => Err(
            "no sampler: its numbers and the files' differ by more than the tolerance".to_owned(),
        ),
        Err(why) => Err(format!("no sampler: {why}")),
    }
}

/// Whether the guard would believe the sampler.
pub(super) fn agrees(facts: &Facts, reading: &Agreement) -> bool {
    let Agreement {
        before,
        sampler,
        after,
    } = reading;
    calibrate::compare(before, sampler, after, tolerance(facts)) == calibrate::Verdict::Agrees
}

/// How the guard would be scheduled in real time, or why it would not be.
fn realtime(facts: &Facts) -> Result<String, String> {
    let settings = facts.config.realtime;
    let Some(priority) = settings.priority else {
        return Err("no real time: switched off in the configuration".to_owned());
    };
    let tried = match &facts.trials.fifo {
        Ok(tried) => tried,
        Err(why) => return Err(format!("no real time: {why}")),
    };
    let moved = settings.move_guard_to_root_cpu_group && tried.after_move == Some(Ok(()));
    match &tried.refused {
        Some(refusal) if !moved => Err(format!("no real time: {refusal}")),
        _ => Ok(format!("SCHED_FIFO {priority}")),
    }
}

/// What would become of the orders of an agent that starts now.
fn mode(facts: &Facts) -> Mode {
    let rules = [
        (facts.config.mode == RunMode::Observe, Reason::Observing),
        (matches!(facts.state.enforcer, Ok(Some(_))), Reason::Standby),
        (
            matches!(facts.state.button, Ok(Pressed::Forever | Pressed::For(_))),
            Reason::Paused,
        ),
    ];
    let first = rules.into_iter().find(|(holds, _)| *holds);
    first.map_or(Mode::Enforcing, |(_, reason)| Mode::Observing(reason))
}

/// How far the sampler and the files may be apart, bytes.
pub(super) fn tolerance(facts: &Facts) -> u64 {
    let figures = facts.memory.figures.as_ref().ok();
    let capacity = figures
        .and_then(|(figures, _)| figures.memory)
        .map_or(0, |seen| seen.capacity);
    let thresholds = facts.config.policy.thresholds().iter();
    let memory = thresholds.filter(|threshold| threshold.signal.is_memory());
    let amounts =
        memory.filter_map(|threshold| u64::try_from(threshold.quantity(capacity).value()).ok());
    let smallest = amounts.filter(|amount| *amount > 0).min();
    calibrate::tolerance(u64::try_from(capacity).unwrap_or(0), smallest)
}

//! Other killers that are active: both would act on one shortage, and the one with the higher threshold acts first.

use brink_core::node::signal::Signal;
use brink_host::process::RivalKind;

use super::watermarks::hard;
use crate::doctor::check::{Check, State, Step, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::killers::{Killer, Limit, Whole};
use crate::record::text::unsigned;

const TITLE: &str = "other killers";

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    const SUBJECT: Subject = Subject("killers", TITLE);
    let killers = match &facts.killers.rivals {
        Ok(killers) => killers,
        Err(why) => return Vec::from([SUBJECT.unknown(why.clone())]),
    };
    if killers.is_empty() {
        let found = "none of earlyoom, nohang, systemd-oomd, oomd, bustd, lmkd runs";
        return Vec::from([SUBJECT.ok(found)]);
    }
    killers.iter().map(|killer| judge(facts, killer)).collect()
}

fn judge(facts: &Facts, killer: &Killer) -> Check {
    let name = killer.rival.kind.program();
    let found = format!("{name} runs (pid {})", killer.rival.pid);
    let check = if killer.is_dry {
        SUBJECT_OF_ONE.note(format!("{found}, and only says what it would do"))
    } else if killer.rival.is_contained == Some(true) {
        SUBJECT_OF_ONE
            .note(format!("{found} in a container"))
            .follows("it probably minds only its container")
    } else if killer.rival.kind == RivalKind::SystemdOomd {
        systemd(found)
    } else {
        by_threshold(facts, killer, found)
    };
    Check {
        id: format!("killers.{name}"),
        ..check
    }
}

const SUBJECT_OF_ONE: Subject = Subject("killers", TITLE);

fn systemd(found: String) -> Check {
    SUBJECT_OF_ONE
        .note(found)
        .follows(
            "it kills in units with ManagedOOMSwap=kill or ManagedOOMMemoryPressure=kill: after 30 s of pressure, or when \
             swap is nearly full, so usually after Brink; both may act on one shortage",
        )
        .run("see which units it minds", "oomctl")
        .next("leave it the units that are no workloads of Brink's")
}

fn by_threshold(facts: &Facts, killer: &Killer, found: String) -> Check {
    let name = killer.rival.kind.program();
    let stop = Step::with_command(
        "run one of them only",
        format!("sudo systemctl disable --now {name}"),
    );
    let Some(theirs) = bytes_of(facts, killer.limit) else {
        return SUBJECT_OF_ONE
            .warning(found)
            .follows("when it acts is not known; both may act on one shortage, and it knows nothing of pods")
            .step(stop);
    };
    let found = format!(
        "{found} and acts when less than {} is available",
        unsigned(theirs)
    );
    let ours = [Signal::MemoryAvailable, Signal::MemoryHeadroom]
        .into_iter()
        .filter_map(|signal| hard(facts, signal))
        .max();
    let (state, follows) = match ours {
        None => {
            let alone = "Brink has no hard memory threshold here, so it alone acts";
            (State::Warning, alone.to_owned())
        }
        Some(ours) if theirs >= ours => {
            let first = format!(
                "its threshold is higher than Brink's {}: it shoots first, by rules that know no pods, and Brink hardly ever \
                 acts",
                unsigned(ours)
            );
            (State::Warning, first)
        }
        Some(ours) => {
            let second = format!(
                "Brink's threshold of {} is higher, so it acts first; the other may shoot once more while the victim's \
                 memory comes back",
                unsigned(ours)
            );
            (State::Note, second)
        }
    };
    let trouble = SUBJECT_OF_ONE.trouble(state, found);
    trouble.follows(follows).step(stop)
}

/// What the limit comes to now, bytes of `MemAvailable`.
fn bytes_of(facts: &Facts, limit: Limit) -> Option<u64> {
    let (share, of) = match limit {
        Limit::Bytes(bytes) => return Some(bytes),
        Limit::Share { share, of } => (share, of),
        Limit::Other => return None,
    };
    let info = facts.memory.meminfo.as_ref().ok()?;
    let whole = match of {
        Whole::Total => info.total,
        Whole::ForUsers => info.available?.saturating_add(info.anon),
    };
    Some(whole / 10_000 * u64::from(share))
}

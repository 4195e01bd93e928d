//! Whether the kernel's own killer takes containers in the order that Kubernetes promises.

use brink_host::capabilities::Capability;

use super::{count, some};
use crate::config::{OomScores, RunMode};
use crate::doctor::advice::obtain;
use crate::doctor::check::{Check, Step, Subject};
use crate::doctor::facts::Facts;
use crate::doctor::facts::oom_scores::{Audit, Differing};
use crate::oom_scores::Runner;

/// Containers that are told; the rest is counted.
const MOST: usize = 5;

const SUBJECT: Subject = Subject("workloads.oom-scores", "oom_score_adj of containers");

/// None where nobody is to look.
pub(super) fn check(facts: &Facts) -> Option<Check> {
    let scores = facts.config.workloads.oom_scores;
    if scores == OomScores::Off {
        return None;
    }
    Some(match &facts.workloads.oom_scores {
        Ok(audit) => judged(facts, audit),
        Err(why) => SUBJECT.unknown(why.clone()),
    })
}

fn judged(facts: &Facts, audit: &Audit) -> Check {
    let all = match audit.looked_at {
        0 => return SUBJECT.ok("no container to look at"),
        looked_at => count(looked_at, "container"),
    };
    if audit.differing.is_empty() {
        return match audit.unread.as_slice() {
            [] => SUBJECT.ok(format!("{all} as a kubelet sets it")),
            unread => SUBJECT.unknown(some(unread, MOST)),
        };
    }
    let words: Vec<String> = audit.differing.iter().map(in_words).collect();
    let found = format!("{} of {all} differ: {}", words.len(), some(&words, MOST));
    let found = match audit.unread.as_slice() {
        [] => found,
        unread => format!("{found}; {}", some(unread, MOST)),
    };
    let trouble = SUBJECT.warning(found).follows(
        "the kernel's OOM killer takes them in another order than Kubernetes promises, BestEffort first and Guaranteed last",
    );
    let by = |runner: fn(Runner) -> bool| audit.differing.iter().any(|one| runner(one.runner));
    let of_kubelet = by(|runner| runner == Runner::Kubelet).then(|| {
        Step::words(
            "a kubelet has it set as a container starts: see what the runtime makes of it (restrict_oom_score_adj of containerd, a \
             runtime without CAP_SYS_RESOURCE), and whether the program sets its own; a value that only aged, as after a resize, \
             comes with the next start of the container",
        )
    });
    match of_kubelet {
        Some(step) if !by(|runner| runner != Runner::Kubelet) => trouble.step(step),
        of_kubelet => {
            let (first, more) = standalone(facts, audit);
            trouble.steps(of_kubelet, first).steps(more)
        }
    }
}

/// What to do about those that no kubelet runs: one thing, and maybe more.
fn standalone(facts: &Facts, audit: &Audit) -> (Step, Vec<Step>) {
    let sets = facts.config.workloads.oom_scores == OomScores::Set;
    let first = Step::words(match (sets, facts.config.mode) {
        (false, _) => {
            "workloads: {oomScoreAdj: set} lets an agent that enforces set it; or OOMScoreAdjust= in the unit"
        }
        (true, RunMode::Observe) => {
            "an agent in mode enforce sets it; in mode observe nothing is changed"
        }
        (true, RunMode::Enforce) => "an agent that runs sets it within a minute or so",
    });
    let lowers = |one: &Differing| one.runner != Runner::Kubelet && one.expected < one.value;
    let held = facts.process.capabilities.as_ref();
    let may_lower = held.is_ok_and(|held| held.effective.has(Capability::SYS_RESOURCE));
    if !sets || may_lower || !audit.differing.iter().any(lowers) {
        return (first, Vec::new());
    }
    let refused =
        "lowering it below what it was set to before is refused without CAP_SYS_RESOURCE:";
    let (ways, last) = obtain(&facts.process, &[Capability::SYS_RESOURCE]);
    let mut more = Vec::from([Step::words(refused)]);
    more.extend(ways);
    more.push(last);
    (first, more)
}

fn in_words(one: &Differing) -> String {
    let Differing {
        name,
        value,
        expected,
        others,
        ..
    } = one;
    let has = format!("{name} has {value} and should have {expected}");
    match others {
        0 => has,
        others => format!(
            "{has} ({} of its others {} another value)",
            others,
            if *others == 1 { "has" } else { "have" }
        ),
    }
}

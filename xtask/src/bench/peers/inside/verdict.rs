//! What is told of a run, from what the judge saw of it.
use brink_host::probe::abi::truth::Crossing;

use super::bystanders::Bystanders;
use crate::bench::{
    measure::units::between,
    peers::{
        contender::{Contender, Signal},
        judge::{Shot, answered, crossed},
        wire::{Found, Seen},
    },
};

/// What the judge saw.
pub(super) struct Evidence<'a> {
    /// When the load began.
    pub(super) began: u64,
    /// Of each signal, in the order of [`Signal::ALL`].
    pub(super) crossings: [Crossing; Signal::ALL.len()],
    /// Who was signalled since then, in order.
    pub(super) shots: &'a [Shot],
    pub(super) bystanders: &'a Bystanders,
}

/// Fills in what follows from it.
pub(super) fn judge(contender: Contender, evidence: &Evidence<'_>, found: &mut Found) {
    for (signal, seen) in Signal::ALL.into_iter().zip(&evidence.crossings) {
        let seen = Seen {
            crossed: crossed(seen).map(|at| between(evidence.began, at)),
            overshoot: seen.overshoot,
        };
        found.signals.insert(signal.word().to_owned(), seen);
    }
    let theirs = |shot: &&Shot| !shot.by_kernel && contender != Contender::Nothing;
    let first = evidence.shots.iter().find(theirs);
    let own = &evidence.crossings[contender.signal().place()];
    let crossing = answered(own, first.map(|shot| shot.at));
    found.crossed = crossing.is_some();
    found.overshoot = crossing.map(|_| own.overshoot);
    let reference = crossing.unwrap_or(evidence.began);
    let after = |shot: &Shot| between(reference, shot.at);
    found.signalled = first.map(after);
    let mut kills = evidence.shots.iter().filter(|shot| shot.is_kill);
    found.killed = kills.clone().find(theirs).map(after);
    found.oom = kills.find(|shot| shot.by_kernel).map(after);
    let back = own.latest_back_ns.max(own.back_ns);
    found.freed = first
        .filter(|shot| own.latest_back_ns > shot.at)
        .map(|shot| between(shot.at, back));
    count_victims(evidence, theirs, found);
}

/// Right is whoever came with the load: nobody else is born while it runs.
fn count_victims(evidence: &Evidence<'_>, theirs: impl Fn(&&Shot) -> bool, found: &mut Found) {
    let stranger = |shot: &Shot| evidence.bystanders.name(shot.target);
    let mut targets: Vec<i32> = Vec::new();
    for shot in evidence.shots.iter().filter(&theirs) {
        if targets.contains(&shot.target) {
            continue;
        }
        targets.push(shot.target);
        match stranger(shot) {
            None => found.right += 1,
            Some(name) => {
                found.wrong += 1;
                found.notes.push(format!("wrong: a process of {name}"));
            }
        }
    }
    let first = evidence.shots.iter().find(theirs);
    found.right_first = first.map(|shot| stranger(shot).is_none());
    let of_kernel = evidence.shots.iter().filter(|shot| shot.by_kernel);
    found.oom_bystanders = of_kernel.filter(|shot| stranger(shot).is_some()).count();
}

/// Whether a run can be judged: somebody acted, rightly or not; or its load came to the limit by one of three figures, which are
/// the tool's own signal, headroom and `MemAvailable`; or a quiet one did what it is there for.
pub(super) fn has_shown(found: &Found, shots: &[Shot]) -> bool {
    let has_come = if found.quiet {
        found.has_worked()
    } else {
        found.crossed || found.is_short()
    };
    has_come || !shots.is_empty()
}

#[cfg(test)]
mod tests {
    use brink_host::probe::abi::Plain as _;

    use super::*;
    use crate::bench::peers::{wire::Run, workload::Workload};

    const BEGAN: u64 = 1_000_000_000;

    /// A run in which a signal crossed so many nanoseconds after the start.
    fn judged(contender: Contender, crossing: Option<(Signal, u64)>, shots: &[Shot]) -> Found {
        let mut crossings = [Crossing::ZERO; Signal::ALL.len()];
        if let Some((signal, at)) = crossing {
            crossings[signal.place()] = Crossing {
                crossed_ns: BEGAN + at,
                latest_ns: BEGAN + at,
                overshoot: 4096,
                ..Crossing::ZERO
            };
        }
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join("7");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("cgroup"), "0::/pods/database\n").unwrap();
        std::fs::write(folder.join("comm"), "brink-hog\n").unwrap();
        let evidence = Evidence {
            began: BEGAN,
            crossings,
            shots,
            bystanders: &Bystanders::read(proc.path()).unwrap(),
        };
        let mut found = Found::of(&Run {
            number: 0,
            contender,
            workload: Workload::Anon(2),
            seed: 0,
        });
        judge(contender, &evidence, &mut found);
        found
    }

    fn shot(after: u64, target: i32) -> Shot {
        Shot {
            at: BEGAN + after,
            target,
            by_kernel: false,
            is_kill: true,
        }
    }

    #[test]
    fn a_tool_that_answers_its_own_signal_is_judged_whatever_the_others_say() {
        let own = Some((Signal::Share, 500));
        let shots = [shot(700, 8)];
        let found = judged(Contender::Earlyoom, own, &shots);
        assert!(has_shown(&found, &shots));
        assert_eq!((found.signalled, found.overshoot), (Some(200), Some(4096)));
        assert!(!found.is_premature() && !found.is_unseen());
        let nobody = judged(Contender::Earlyoom, own, &[]);
        assert!(
            has_shown(&nobody, &[]) && nobody.is_lost(),
            "it has crossed"
        );
    }

    #[test]
    fn a_kill_before_any_limit_is_judged_too() {
        let shots = [shot(700, 8)];
        let found = judged(Contender::Brink, None, &shots);
        assert!(has_shown(&found, &shots));
        assert!(found.is_premature() && found.is_unseen());
        let short = judged(Contender::Brink, Some((Signal::Estimate, 100)), &shots);
        assert!(!short.is_premature() && short.is_unseen());
    }

    #[test]
    fn a_load_that_came_to_no_limit_and_harmed_nobody_shows_nothing() {
        assert!(!has_shown(&judged(Contender::Brink, None, &[]), &[]));
        let others = judged(Contender::Brink, Some((Signal::PodsUsage, 100)), &[]);
        assert!(!has_shown(&others, &[]), "no figure of memory that is left");
    }

    #[test]
    fn a_quiet_load_that_did_nothing_shows_nothing() {
        let quiet = |workload: Workload, taken| Found {
            quiet: true,
            crossed: true,
            workload: workload.word(),
            taken,
            ..Found::default()
        };
        let shown = |workload, taken| has_shown(&quiet(workload, taken), &[]);
        assert!(shown(Workload::Idle, None), "there was nothing to take");
        for (workload, least) in [(Workload::Near, 100), (Workload::Names, 25)] {
            assert!(shown(workload, Some([100, least])), "{workload:?}");
            assert!(!shown(workload, Some([100, least - 1])), "{workload:?}");
        }
        assert!(!shown(Workload::Near, Some([0, 0])), "no room for it");
        let acted = has_shown(&quiet(Workload::Near, Some([100, 0])), &[shot(700, 8)]);
        assert!(acted, "somebody killed it before");
    }

    #[test]
    fn whoever_was_there_before_is_a_wrong_victim() {
        let own = Some((Signal::Headroom, 500));
        let wrong_first = judged(Contender::Brink, own, &[shot(600, 7), shot(650, 8)]);
        assert_eq!((wrong_first.right, wrong_first.wrong), (1, 1));
        assert_eq!(wrong_first.right_first, Some(false));
        assert_eq!(wrong_first.notes, ["wrong: a process of database"]);
        let twice = judged(Contender::Brink, own, &[shot(600, 8), shot(650, 8)]);
        assert_eq!((twice.right, twice.wrong), (1, 0));
        assert_eq!(twice.right_first, Some(true));
        let by_kernel = Shot {
            by_kernel: true,
            ..shot(600, 7)
        };
        let oom = judged(Contender::Nothing, own, &[by_kernel]);
        assert_eq!((oom.oom, oom.oom_bystanders), (Some(100), 1));
        assert_eq!((oom.wrong, oom.right_first), (0, None));
    }
}

//! The figures that must be reached by the runs.
use super::{
    contender::Contender,
    report::{Host, Report, delays},
    tables,
    wire::{Found, Run},
    workload::Workload,
};
use crate::bench::{
    registry::{Limit, Must},
    stats,
};

/// The figures that must be reached, of all that was run. Only those of which something was planned; one of these that has no
/// value is missed.
pub(super) fn of(report: &Report) -> Vec<Limit> {
    let mut limits = guest_limits(report);
    limits.extend(report.host.as_ref().map_or_else(Vec::new, host_limits));
    limits
}

/// Whether any figure would be held of such runs in guests: all of them are Brink's, alone or beside a peer's.
pub(super) fn is_any_planned(plan: &[Run]) -> bool {
    plan.iter().any(|run| run.contender == Contender::Brink)
}

fn guest_limits(report: &Report) -> Vec<Limit> {
    let plan = report.guests.plan.iter();
    let planned: Vec<&Run> = plan
        .filter(|run| run.contender == Contender::Brink)
        .collect();
    let quiet = planned.iter().filter(|run| run.workload.is_quiet()).count();
    let mut limits = Vec::new();
    if !planned.is_empty() {
        let own = report.guests.runs.iter();
        let judged = own.filter(|run| run.contender == Contender::Brink.word());
        let judged = judged.filter(|run| !run.shows_nothing()).count();
        limits.push(limit(
            "guests: planned runs of Brink that were judged",
            "%",
            Must::AtLeast(100.0),
            Some(percent(judged, planned.len())),
        ));
    }
    if quiet < planned.len() {
        limits.extend(loud_limits(report));
    }
    if quiet > 0 {
        limits.push(quiet_limit(report));
    }
    let is_peer = |peer: &Contender| {
        !matches!(peer, Contender::Brink | Contender::Nothing) && is_compared(report, *peer)
    };
    let peers = Contender::ALL.into_iter().filter(is_peer);
    // One that was to run and of which nothing was judged has no ratio, and misses its figure.
    limits.extend(peers.map(|peer| peer_limit(report, peer)));
    limits
}

/// Of Brink's runs under loads that have to be answered.
fn loud_limits(report: &Report) -> [Limit; 3] {
    let runs: Vec<&Found> = report.loud(Contender::Brink).collect();
    let of_all = |count: usize| (!runs.is_empty()).then(|| percent(count, runs.len()));
    let lost = runs.iter().filter(|run| run.is_lost()).count();
    let right = runs
        .iter()
        .filter(|run| run.right_first == Some(true) && run.wrong + run.oom_victims == 0)
        .count();
    let premature = runs.iter().filter(|run| run.is_premature()).count();
    [
        limit(
            "guests: runs in which the kernel came first",
            "%",
            Must::AtMost(0.0),
            of_all(lost),
        ),
        limit(
            "guests: runs in which the right pod went and nobody else",
            "%",
            Must::AtLeast(100.0),
            of_all(right),
        ),
        limit(
            "guests: runs in which Brink acted without a reason by any figure",
            "%",
            Must::AtMost(0.0),
            of_all(premature),
        ),
    ]
}

/// Of its runs under loads that nobody may answer.
fn quiet_limit(report: &Report) -> Limit {
    let runs: Vec<&Found> = report.quiet(Contender::Brink).collect();
    let disturbed = runs.iter().filter(|run| run.is_disturbed()).count();
    limit(
        "guests: quiet runs with a kill, or a lock-up",
        "%",
        Must::AtMost(0.0),
        (!runs.is_empty()).then(|| percent(disturbed, runs.len())),
    )
}

/// Whether Brink and a peer were to answer a load that is the same.
fn is_compared(report: &Report, peer: Contender) -> bool {
    let is_both = |load: Workload| {
        let both = [Contender::Brink, peer];
        !load.is_quiet() && both.iter().all(|each| report.planned(*each, load) > 0)
    };
    Workload::FULL.into_iter().any(is_both)
}

/// How Brink's slowest answer to a load stands to a peer's: the p99 of both, which is the worst of fewer than a hundred.
struct Ratio {
    value: f64,
    load: Workload,
    /// Runs of Brink, and of the peer without those that it lost.
    runs: [usize; 2],
}

/// Load by load, of those that both were judged under. 0 where the peer lost every run of the load; its lost runs are left out,
/// which favours it: they took for ever.
fn ratios(report: &Report, peer: Contender) -> Vec<Ratio> {
    let of = |contender, workload: Workload| {
        let runs: Vec<&Found> = report
            .loud(contender)
            .filter(|run| run.workload == workload.word())
            .collect();
        delays(&runs)
    };
    let ratio = |load| {
        let owns = of(Contender::Brink, load);
        let own = stats::quantile(&owns, 99)?;
        let mut theirs = of(peer, load);
        let all = theirs.len();
        theirs.retain(|delay| delay.is_finite());
        let value = match stats::quantile(&theirs, 99) {
            Some(theirs) => own / theirs,
            None => (all > 0 && own.is_finite()).then_some(0.0)?,
        };
        let runs = [owns.len(), theirs.len()];
        Some(Ratio { value, load, runs })
    };
    Workload::FULL.into_iter().filter_map(ratio).collect()
}

/// The largest of the ratios to a peer, with the load it is of and how many loads were compared; unknown if none was. Of a peer that
/// lost every run of every load it would be 0 whatever Brink did, and is nothing.
fn peer_limit(report: &Report, peer: Contender) -> Limit {
    let ratios = ratios(report, peer);
    let is_loud = |load: &&Workload| !load.is_quiet() && report.planned(peer, **load) > 0;
    let planned = Workload::FULL.iter().filter(is_loud).count();
    let compared = match ratios.len() {
        n if n == planned => format!("{n} loads"),
        n => format!("{n} of {planned} loads"),
    };
    let is_all_lost = !ratios.is_empty() && ratios.iter().all(|ratio| ratio.runs[1] == 0);
    if is_all_lost {
        let peer = peer.word();
        let name = format!(
            "guests: slowest answer of Brink by that of {peer}, largest of {compared}: all lost by {peer}"
        );
        return limit(&name, "", Must::Uncompared(1.0), None);
    }
    let worst = ratios
        .into_iter()
        .max_by(|one, other| one.value.total_cmp(&other.value));
    let which = worst.as_ref().map_or_else(String::new, |worst| {
        let [own, theirs] = worst.runs;
        let theirs = match theirs {
            0 => "all lost".to_owned(),
            n => tables::tail_of(n),
        };
        let (load, own) = (worst.load.word(), tables::tail_of(own));
        format!(": {load}, {own} by {theirs}")
    });
    let name = format!(
        "guests: slowest answer of Brink by that of {}, largest of {compared}{which}",
        peer.word()
    );
    limit(&name, "", Must::AtMost(1.0), worst.map(|worst| worst.value))
}

fn host_limits(host: &Host) -> Vec<Limit> {
    let own = host.median(Contender::Brink);
    let ratio = |peer| host.median(peer).zip(own).map(|(theirs, own)| theirs / own);
    let name = |peer: &str| format!("host: crossing to signal, p50 of {peer} by that of Brink");
    let tail_of = |contender| tables::tail_of(host.of(contender).count());
    let (brink, earlyoom) = (Contender::Brink, Contender::Earlyoom);
    let tails = host.tail(brink).zip(host.tail(earlyoom));
    let planned: usize = host.planned.values().sum();
    let runs = host.of(Contender::Brink).count();
    let wrong = host.of(Contender::Brink).filter(|run| run.wrong).count();
    vec![
        limit(
            "host: planned runs that were judged",
            "%",
            Must::AtLeast(100.0),
            (planned > 0).then(|| percent(host.trials.len(), planned)),
        ),
        limit(
            "host: runs in which Brink took a workload that it was told to spare, or acted before the load",
            "%",
            Must::AtMost(0.0),
            (runs > 0).then(|| percent(wrong, runs)),
        ),
        limit(
            &name("earlyoom"),
            "",
            Must::AtLeast(20.0),
            ratio(Contender::Earlyoom),
        ),
        limit(
            &name("the kubelet's model"),
            "",
            Must::AtLeast(500.0),
            ratio(Contender::Kubelet),
        ),
        limit(
            &format!(
                "host: slowest answer of Brink by that of earlyoom, {} by {}",
                tail_of(brink),
                tail_of(earlyoom)
            ),
            "",
            Must::AtMost(1.0),
            tails.map(|(own, theirs)| own / theirs),
        ),
    ]
}

fn limit(name: &str, unit: &str, must: Must, measured: Option<f64>) -> Limit {
    Limit {
        name: name.to_owned(),
        unit: unit.to_owned(),
        must,
        measured,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of runs")]
fn percent(count: usize, all: usize) -> f64 {
    100.0 * count as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::super::{
        plan::Form,
        report::tests::{host, report, run, trial},
    };
    use super::*;

    const ANON: Workload = Workload::Anon(100);
    const BOMB: Workload = Workload::ForkBomb;

    fn check(runs: Vec<Found>, missed: &[&str]) {
        let limits = of(&report(runs));
        let found: Vec<&str> = limits
            .iter()
            .filter(|limit| limit.is_missed())
            .map(|limit| limit.name.as_str())
            .collect();
        assert_eq!(found, missed);
    }

    #[test]
    fn what_must_be_reached_is_missed_by_one_run() {
        let good = || run(Contender::Brink, ANON, Some(1_000_000));
        let calm = || run(Contender::Brink, Workload::Near, None);
        check(vec![good(), calm()], &[]);
        let late = Found {
            oom: Some(500),
            ..good()
        };
        check(
            vec![late, calm()],
            &["guests: runs in which the kernel came first"],
        );
        let after_us = Found {
            oom: Some(2_000_000),
            oom_victims: 1,
            ..good()
        };
        for wrong in [Found { wrong: 1, ..good() }, after_us] {
            check(
                vec![wrong, calm()],
                &["guests: runs in which the right pod went and nobody else"],
            );
        }
        let early = Found {
            crossed: false,
            ..good()
        };
        check(
            vec![good(), early, calm()],
            &["guests: runs in which Brink acted without a reason by any figure"],
        );
        for disturbed in [
            Found { right: 1, ..calm() },
            Found {
                oom_victims: 1,
                ..calm()
            },
            Found {
                lock_up: Some("the guest".to_owned()),
                ..calm()
            },
        ] {
            check(
                vec![good(), disturbed],
                &["guests: quiet runs with a kill, or a lock-up"],
            );
        }
        let faster = run(Contender::Earlyoom, ANON, Some(900_000));
        check(
            vec![good(), calm(), faster],
            &[
                "guests: slowest answer of Brink by that of earlyoom, largest of 1 loads: 4K pages, 100 %, worst of 1 by worst \
                 of 1",
            ],
        );
    }

    #[test]
    fn a_run_of_the_machine_that_is_missing_or_goes_wrong_misses_a_figure() {
        let missed = |wrong: bool, planned: usize| -> Vec<String> {
            let ms = |count: i64| Some(count * 1_000_000);
            let mut host = host(vec![
                trial(Contender::Brink, ms(1), wrong),
                trial(Contender::Earlyoom, ms(30), true),
                trial(Contender::Kubelet, ms(5_000), false),
            ]);
            host.planned
                .insert(Contender::Earlyoom.word().to_owned(), planned);
            let missed = host_limits(&host).into_iter().filter(Limit::is_missed);
            missed.map(|limit| limit.name).collect()
        };
        assert_eq!(missed(false, 1), [""; 0]);
        assert_eq!(missed(false, 2), ["host: planned runs that were judged"]);
        assert_eq!(
            missed(true, 1),
            [
                "host: runs in which Brink took a workload that it was told to spare, or acted before the load"
            ]
        );
    }

    #[test]
    fn a_comparison_that_shrinks_misses_a_figure() {
        const JUDGED: &str = "guests: planned runs of Brink that were judged";
        const PEER: &str =
            "guests: slowest answer of Brink by that of earlyoom, largest of 0 of 1 loads";
        let good = || run(Contender::Brink, ANON, Some(1_000_000));
        let calm = || run(Contender::Brink, Workload::Near, None);
        let peer = || run(Contender::Earlyoom, ANON, Some(50_000_000));
        let missed = |left: usize, failed: &[usize]| -> Vec<String> {
            let mut report = report(vec![good(), calm(), peer(), good()]);
            report.guests.runs.truncate(left);
            report
                .guests
                .runs
                .retain(|run| !failed.contains(&run.number));
            let why = |&number: &usize| (number, "why".to_owned());
            report.guests.failed = failed.iter().map(why).collect();
            let missed = of(&report).into_iter().filter(Limit::is_missed);
            missed.map(|limit| limit.name).collect()
        };
        assert_eq!(missed(4, &[]), [""; 0]);
        assert_eq!(missed(3, &[]), [JUDGED], "the time was over");
        assert_eq!(
            missed(4, &[1]),
            [JUDGED, "guests: quiet runs with a kill, or a lock-up"]
        );
        assert_eq!(missed(4, &[2]), [PEER], "nothing of the peer");
        assert_eq!(missed(2, &[]), [JUDGED, PEER]);
    }

    #[test]
    fn a_figure_is_held_where_something_of_it_was_planned_and_is_missed_without_a_value() {
        const JUDGED: &str = "guests: planned runs of Brink that were judged";
        const LOUD: [&str; 3] = [
            "guests: runs in which the kernel came first",
            "guests: runs in which the right pod went and nobody else",
            "guests: runs in which Brink acted without a reason by any figure",
        ];
        const QUIET: &str = "guests: quiet runs with a kill, or a lock-up";
        const PEER: &str =
            "guests: slowest answer of Brink by that of earlyoom, largest of 0 of 1 loads";
        let held = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            let plan = Form::whole(false).named(&words).unwrap().plan(1);
            let is_any = is_any_planned(&plan);
            let mut report = report(Vec::new());
            report.guests.planned = plan.len();
            report.guests.plan = plan;
            let limits = of(&report);
            assert_eq!(is_any, !limits.is_empty(), "{words:?}");
            assert!(limits.iter().all(Limit::is_missed), "{limits:?}");
            limits.into_iter().map(|limit| limit.name).collect()
        };
        let loud = [&[JUDGED][..], &LOUD].concat();
        let compared = [&loud[..], &[PEER]].concat();
        assert_eq!(held(&["earlyoom"]), [""; 0], "nothing of Brink");
        assert_eq!(held(&["alone", "idle"]), [""; 0], "nothing at all");
        assert_eq!(held(&["brink", "bomb"]), loud);
        assert_eq!(held(&["brink", "earlyoom", "bomb"]), compared);
        assert_eq!(held(&["idle"]), [JUDGED, QUIET], "nothing to answer");
    }

    #[test]
    fn a_peer_is_compared_load_by_load_over_the_runs_it_did_not_lose() {
        let ratio = |runs: Vec<Found>| peer_limit(&report(runs), Contender::Earlyoom).measured;
        let own = |load, signalled| run(Contender::Brink, load, signalled);
        let peer = |load, signalled| run(Contender::Earlyoom, load, signalled);
        let ms = |count: i64| Some(count * 1_000_000);
        let both = || vec![own(ANON, ms(1)), own(BOMB, ms(4))];
        let with = |more: Vec<Found>| ratio([both(), more].concat());

        assert_eq!(with(vec![]), None, "nothing to compare with");
        assert_eq!(with(vec![peer(ANON, ms(10)), peer(BOMB, ms(8))]), Some(0.5));
        assert_eq!(with(vec![peer(ANON, ms(10)), peer(ANON, None)]), Some(0.1));
        let some_lost = vec![peer(ANON, ms(10)), peer(BOMB, None)];
        assert_eq!(with(some_lost), Some(0.1), "all of one load were lost");
        let lost = vec![own(ANON, None), peer(ANON, ms(10))];
        assert_eq!(ratio(lost), Some(f64::INFINITY), "we lost one");
    }

    #[test]
    fn beside_a_peer_that_lost_everything_there_is_nothing_to_compare() {
        let own = run(Contender::Brink, ANON, Some(1_000_000));
        let calm = run(Contender::Brink, Workload::Near, None);
        let lost = |load| run(Contender::Kubelet, load, None);
        let runs = vec![own, calm, lost(ANON), lost(ANON)];
        check(runs.clone(), &[]);
        let limit = peer_limit(&report(runs), Contender::Kubelet);
        assert_eq!((limit.is_reached(), limit.measured), (false, None));
        assert!(
            limit.name.ends_with(": all lost by kubelet (model)"),
            "{limit:?}"
        );
    }

    #[test]
    fn the_name_of_a_ratio_says_of_how_many_runs_it_is() {
        let own = |load| run(Contender::Brink, load, Some(1_000_000));
        let peer = |load, signalled| run(Contender::Earlyoom, load, signalled);
        let name = |runs: Vec<Found>| peer_limit(&report(runs), Contender::Earlyoom).name;
        let many = [vec![own(ANON); 100], vec![peer(ANON, Some(2_000_000)); 3]].concat();
        assert!(name(many).ends_with("of 1 loads: 4K pages, 100 %, p99 by worst of 3"));
        let lost = vec![own(ANON), peer(ANON, None), peer(BOMB, None)];
        assert!(name(lost).ends_with("of 1 of 2 loads: all lost by earlyoom"));
    }
}

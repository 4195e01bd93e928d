//! The figures that must be reached by the runs.
use super::{
    contender::Contender,
    report::{Host, Report, delays, host_median},
    wire::Found,
    workload::Workload,
};
use crate::bench::{
    registry::{Limit, Must},
    stats,
};

/// The figures that must be reached, of all that was run.
pub(super) fn of(report: &Report) -> Vec<Limit> {
    let mut limits = match report.guests.planned {
        0 => Vec::new(),
        _ => guest_limits(report),
    };
    limits.extend(report.host.as_ref().map_or_else(Vec::new, host_limits));
    limits
}

fn guest_limits(report: &Report) -> Vec<Limit> {
    let runs: Vec<&Found> = report.loud(Contender::Brink).collect();
    let of_all = |count: usize| (!runs.is_empty()).then(|| percent(count, runs.len()));
    let lost = runs.iter().filter(|run| run.is_lost()).count();
    let right = runs
        .iter()
        .filter(|run| run.right_first == Some(true) && run.wrong == 0)
        .count();
    let quiet: Vec<&Found> = report.quiet(Contender::Brink).collect();
    let killed = quiet.iter().filter(|run| run.right + run.wrong > 0).count();
    let killed = (!quiet.is_empty()).then(|| percent(killed, quiet.len()));
    let mut limits = vec![
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
            "guests: quiet runs with a kill",
            "%",
            Must::AtMost(0.0),
            killed,
        ),
    ];
    for peer in Contender::ALL {
        let is_peer = !matches!(peer, Contender::Brink | Contender::Nothing);
        if is_peer && report.loud(peer).next().is_some() {
            let name = format!(
                "guests: p99 of Brink by that of {}, in the load where it is worst",
                peer.word()
            );
            let ratio = worst_ratio(report, peer);
            limits.push(limit(&name, "", Must::AtMost(1.0), ratio));
        }
    }
    limits
}

/// The p99 from the crossing to the signal by that of `peer`, in the load where it is largest; 0 where the peer lost every
/// run. Its lost runs are left out, which favours it: they took for ever.
fn worst_ratio(report: &Report, peer: Contender) -> Option<f64> {
    let of = |contender, workload: Workload| {
        let runs: Vec<&Found> = report
            .loud(contender)
            .filter(|run| run.workload == workload.word())
            .collect();
        delays(&runs)
    };
    let ratio = |workload| {
        let own = stats::quantile(&of(Contender::Brink, workload), 99)?;
        let mut theirs = of(peer, workload);
        let all = theirs.len();
        theirs.retain(|delay| delay.is_finite());
        match stats::quantile(&theirs, 99) {
            Some(theirs) => Some(own / theirs),
            None => (all > 0 && own.is_finite()).then_some(0.0),
        }
    };
    Workload::FULL
        .into_iter()
        .filter_map(ratio)
        .reduce(f64::max)
}

fn host_limits(host: &Host) -> Vec<Limit> {
    let own = host_median(host, Contender::Brink);
    let ratio = |peer| {
        host_median(host, peer)
            .zip(own)
            .map(|(theirs, own)| theirs / own)
    };
    let name = |peer: &str| format!("host: crossing to signal, p50 of {peer} by that of Brink");
    vec![
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
    use super::super::report::tests::{report, run};
    use super::*;

    const ANON: Workload = Workload::Anon(100);
    const BOMB: Workload = Workload::ForkBomb;

    fn check(runs: Vec<Found>, missed: &[&str]) {
        let limits = of(&report(runs));
        let found: Vec<&str> = limits
            .iter()
            .filter(|limit| !limit.is_reached())
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
        let wrong = Found { wrong: 1, ..good() };
        check(
            vec![wrong, calm()],
            &["guests: runs in which the right pod went and nobody else"],
        );
        let nervous = Found { right: 1, ..calm() };
        check(vec![good(), nervous], &["guests: quiet runs with a kill"]);
        let faster = run(Contender::Earlyoom, ANON, Some(900_000));
        check(
            vec![good(), calm(), faster],
            &["guests: p99 of Brink by that of earlyoom, in the load where it is worst"],
        );
    }

    #[test]
    fn a_peer_is_compared_load_by_load_over_the_runs_it_did_not_lose() {
        let ratio = |runs: Vec<Found>| worst_ratio(&report(runs), Contender::Earlyoom);
        let own = |load, signalled| run(Contender::Brink, load, signalled);
        let peer = |load, signalled| run(Contender::Earlyoom, load, signalled);
        let ms = |count: i64| Some(count * 1_000_000);
        let both = || vec![own(ANON, ms(1)), own(BOMB, ms(4))];
        let with = |more: Vec<Found>| ratio([both(), more].concat());

        assert_eq!(with(vec![]), None, "nothing to compare with");
        assert_eq!(with(vec![peer(ANON, ms(10)), peer(BOMB, ms(8))]), Some(0.5));
        assert_eq!(with(vec![peer(ANON, ms(10)), peer(ANON, None)]), Some(0.1));
        assert_eq!(with(vec![peer(BOMB, None)]), Some(0.0), "all were lost");
        let lost = vec![own(ANON, None), peer(ANON, ms(10))];
        assert_eq!(ratio(lost), Some(f64::INFINITY), "we lost one");
    }
}

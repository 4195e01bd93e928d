//! The figures that a fleet is held to.
use super::report::{EVENT, Part, Phase, Report, STATUS, WATCHES, count, whole};
use crate::bench::registry::{Limit, Must};

/// Watches that others open or end meanwhile, at the most.
const OTHERS: f64 = 5.0;
/// How long after the server's return the last agent is there again: the longest wait is 30 s, and one machine serves them all.
const BACK: f64 = 45.0;

impl Report {
    /// What it is held to.
    pub fn limits(&self) -> Vec<Limit> {
        let limit = |name: &str, unit: &str, most: f64, measured: Option<f64>| Limit {
            name: name.to_owned(),
            unit: unit.to_owned(),
            must: Must::AtMost(most),
            measured,
        };
        let agents = count(self.setting.agents);
        let missing = |part: Part| {
            let phase = self.phase(part)?;
            let each = phase.watches.map(|open| (agents - open).abs());
            Some(each[0].max(each[1]))
        };
        let others = |phase: &Phase| whole(phase.all() - phase.asked_of(&WATCHES));
        let worst = |values: &[f64]| values.iter().copied().reduce(f64::max);
        let mut limits = vec![
            limit(
                "requests at rest, but for watches",
                "",
                0.0,
                self.phase(Part::Rest).map(others),
            ),
            limit(
                "evictions that are not told",
                "",
                0.0,
                Some(count(self.books.lost)),
            ),
            limit(
                "evictions that are told twice",
                "",
                0.0,
                Some(count(self.books.twice)),
            ),
            limit(
                "told of pods that nobody evicted",
                "",
                0.0,
                Some(count(self.books.strange)),
            ),
        ];
        let taken = self.taken_an_eviction();
        for (kind, taken) in [STATUS, EVENT].into_iter().zip(taken) {
            let name = format!("{kind} that were taken, an eviction");
            limits.push(limit(&name, "", 1.0, Some(taken)));
        }
        for (part, words) in [
            (Part::Start, "after the start"),
            (Part::Rest, "after the rest"),
            (Part::Storm, "after the storm"),
            (Part::Outage, "after the outage"),
        ] {
            if part != Part::Outage || self.setting.away.is_some() {
                let name = format!("watches too few or too many, of pods or of nodes, {words}");
                limits.push(limit(&name, "", OTHERS, missing(part)));
            }
        }
        if self.setting.away.is_some() {
            let reached = self
                .phase(Part::Outage)
                .and_then(|phase| worst(&phase.reached));
            let name = "from the server's return to the last agent that is there again";
            limits.push(limit(name, "s", BACK, reached));
        }
        limits.push(limit(
            "nodes that still bear a condition when all have stopped",
            "",
            0.0,
            Some(count(self.left_conditions)),
        ));
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::{super::report::tests::report, *};

    fn missed(report: &Report) -> Vec<String> {
        let limits = report.limits().into_iter();
        limits
            .filter(|limit| !limit.is_reached())
            .map(|limit| limit.name)
            .collect()
    }

    fn check(change: impl FnOnce(&mut Report), expected: &str) {
        let mut report = report();
        change(&mut report);
        let missed = missed(&report);
        assert!(
            missed.len() == 1 && missed[0].contains(expected),
            "{missed:?}"
        );
    }

    #[test]
    fn whatever_goes_wrong_misses_its_figure() {
        assert_eq!(missed(&report()), Vec::<String>::new());
        check(|report| report.books.lost = 1, "not told");
        check(|report| report.books.twice = 1, "told twice");
        check(|report| report.books.strange = 1, "nobody evicted");
        check(|report| report.left_conditions = 1, "bear a condition");
        check(
            |report| report.phases[3].watches[1] = 4.0,
            "after the outage",
        );
        check(
            |report| report.phases[3].reached.push(46.0),
            "server's return",
        );
        let listed = |report: &mut Report| {
            report.phases[1].asked.insert("LIST pods".to_owned(), 1);
        };
        check(listed, "at rest");
        let again = |report: &mut Report| {
            let codes = report.phases[2].answered.get_mut("POST events");
            codes.unwrap().insert(201, 4);
        };
        check(again, "POST events");
        let mut without_rest = report();
        without_rest.phases.remove(1);
        assert_eq!(
            missed(&without_rest).len(),
            2,
            "what is not known is missed"
        );
    }
}

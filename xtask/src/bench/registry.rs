//! What a benchmark is and what it gives: cells of raw values, and figures to be reached.
use serde::{Deserialize, Serialize};

use super::stats;

/// One benchmark.
pub struct Benchmark {
    /// Its name: on the command line, and of the file with its raw values.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// Measures. Leaves nothing behind, ends by itself, and stays within bounds of its own.
    pub run: fn(&Settings) -> anyhow::Result<Measured>,
    /// Holds what was measured to the figures, from its cells alone: so those of published values can be made again.
    pub hold: fn(&mut Outcome, &Settings),
}

/// What a benchmark is told.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Few runs instead of enough for the tail.
    pub short: bool,
    /// Seed of everything that is random.
    pub seed: u64,
}

impl Settings {
    /// The number of runs: `short` of them or `full`.
    pub fn runs(&self, short: usize, full: usize) -> usize {
        if self.short { short } else { full }
    }

    /// A figure to be reached. The short form runs beside whatever else a machine does, and is held to one that noise
    /// does not miss and a broken thing does; the full form is held to the figure itself.
    pub fn figure(&self, short: f64, full: f64) -> f64 {
        if self.short { short } else { full }
    }

    /// A figure of time, three times as large in the short form.
    pub fn time(&self, figure: f64) -> f64 {
        self.figure(3.0 * figure, figure)
    }
}

/// What a benchmark gives.
#[derive(Debug)]
pub enum Measured {
    /// It ran.
    Ran(Outcome),
    /// It cannot run on this machine.
    Skipped {
        /// Why, and what it would need.
        reason: String,
    },
}

/// What a benchmark found out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures that must be reached.
    pub limits: Vec<Limit>,
    /// What has to be known to judge the values, a sentence each.
    pub notes: Vec<String>,
    /// The raw values.
    pub cells: Vec<Cell>,
}

impl Measured {
    /// The figures that are missed; what was skipped has missed none.
    pub fn missed(&self) -> impl Iterator<Item = &Limit> {
        let limits = match self {
            Self::Ran(outcome) => outcome.limits.as_slice(),
            Self::Skipped { .. } => &[],
        };
        limits.iter().filter(|limit| limit.is_missed())
    }
}

impl Outcome {
    /// Adds a cell.
    pub fn add(&mut self, case: &str, what: &str, unit: &str, values: Vec<f64>) {
        self.cells.push(Cell {
            case: case.to_owned(),
            what: what.to_owned(),
            unit: unit.to_owned(),
            n: values.len(),
            values,
        });
    }

    /// The values of a cell; none if there is no such cell.
    pub fn values(&self, case: &str, what: &str) -> &[f64] {
        let found = self
            .cells
            .iter()
            .find(|cell| cell.case == case && cell.what == what);
        found.map_or(&[], |cell| &cell.values)
    }

    /// The median must not be above the figure.
    pub fn limit_median(&mut self, case: &str, what: &str, most: f64) {
        let measured = stats::quantile(self.values(case, what), 50);
        self.limit(&format!("{what}, {case}: p50"), most, measured, case, what);
    }

    /// Not more than one in a hundred may be above the figure.
    pub fn limit_tail(&mut self, case: &str, what: &str, most: f64) {
        let values = self.values(case, what);
        let allowed = stats::allowed_above(values.len());
        let measured = stats::tail(values);
        let name = match values.len() {
            100.. => format!("{what}, {case}: p99"),
            n => format!("{what}, {case}: p99 ({allowed} of {n} may be above)"),
        };
        self.limit(&name, most, measured, case, what);
    }

    /// All values together must not be more than the figure.
    pub fn limit_sum(&mut self, case: &str, what: &str, most: f64) {
        let values = self.values(case, what);
        let sum = (!values.is_empty()).then(|| values.iter().sum());
        self.limit(&format!("{what}, {case}"), most, sum, case, what);
    }

    /// The median must not be below the figure.
    pub fn least_median(&mut self, case: &str, what: &str, least: f64) {
        let measured = stats::quantile(self.values(case, what), 50);
        self.limit(&format!("{what}, {case}"), least, measured, case, what);
        if let Some(limit) = self.limits.last_mut() {
            limit.must = Must::AtLeast(least);
        }
    }

    fn limit(&mut self, name: &str, most: f64, measured: Option<f64>, case: &str, what: &str) {
        let cell = self
            .cells
            .iter()
            .find(|cell| cell.case == case && cell.what == what);
        self.limits.push(Limit {
            name: name.to_owned(),
            unit: cell.map_or_else(String::new, |cell| cell.unit.clone()),
            must: Must::AtMost(most),
            measured,
        });
    }

    /// A figure that is no quantile of a cell.
    pub fn limit_value(&mut self, name: &str, unit: &str, most: f64, measured: Option<f64>) {
        self.limits.push(Limit {
            name: name.to_owned(),
            unit: unit.to_owned(),
            must: Must::AtMost(most),
            measured,
        });
    }
}

/// All values of one thing under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Under which condition, as `machine, idle, 4K`.
    pub case: String,
    /// What, as `crossing to SIGKILL`.
    pub what: String,
    /// Unit of the values, as `ms`.
    pub unit: String,
    /// How many values.
    pub n: usize,
    /// The values in the order they were measured.
    pub values: Vec<f64>,
}

/// How a measured value stands to its figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Must {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
    /// Not more than this, if there were anything to compare: neither reached nor missed.
    Uncompared(f64),
}

/// A figure that must be reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// What is compared, as `crossing to SIGKILL, idle, 4K: p99`.
    pub name: String,
    /// Unit of both numbers.
    pub unit: String,
    /// The figure.
    pub must: Must,
    /// The value; nothing if it could not be measured, which misses the figure.
    pub measured: Option<f64>,
}

impl Limit {
    /// Whether a busy machine alone may have missed it: a time or a share, and no count of what went wrong.
    pub fn is_disturbed_by_noise(&self) -> bool {
        self.must != Must::AtMost(0.0) && self.measured.is_some()
    }

    /// Whether the figure is reached.
    pub fn is_reached(&self) -> bool {
        match (self.measured, self.must) {
            (Some(measured), Must::AtMost(figure)) => measured <= figure,
            (Some(measured), Must::AtLeast(figure)) => measured >= figure,
            (_, Must::Uncompared(_)) | (None, _) => false,
        }
    }

    /// Whether it is missed: not reached, though there was something to compare.
    pub fn is_missed(&self) -> bool {
        !matches!(self.must, Must::Uncompared(_)) && !self.is_reached()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(must: Must, measured: Option<f64>, expected: bool) {
        let limit = Limit {
            name: "a".to_owned(),
            unit: "ms".to_owned(),
            must,
            measured,
        };
        assert_eq!(limit.is_reached(), expected, "{limit:?}");
        let measured = Measured::Ran(Outcome {
            limits: vec![limit],
            ..Outcome::default()
        });
        assert_eq!(measured.missed().count() == 0, expected);
    }

    #[test]
    fn a_figure_is_reached_or_missed() {
        check(Must::AtMost(2.0), Some(2.0), true);
        check(Must::AtMost(2.0), Some(2.1), false);
        check(Must::AtLeast(2.0), Some(2.0), true);
        check(Must::AtLeast(2.0), Some(1.9), false);
        check(Must::AtMost(2.0), Some(f64::NAN), false);
        check(Must::AtMost(2.0), None, false);
    }

    #[test]
    fn what_had_nothing_to_compare_is_neither_reached_nor_missed() {
        let limit = Limit {
            name: "a".to_owned(),
            unit: String::new(),
            must: Must::Uncompared(1.0),
            measured: None,
        };
        assert!(!limit.is_reached() && !limit.is_missed());
    }

    #[test]
    fn what_is_skipped_has_missed_nothing() {
        let skipped = Measured::Skipped {
            reason: "needs root".to_owned(),
        };
        assert_eq!(skipped.missed().count(), 0);
    }

    #[test]
    fn noise_misses_times_and_never_counts() {
        for (most, measured, expected) in [
            (2.0, Some(2.1), true),
            (0.0, Some(1.0), false),
            (2.0, None, false),
        ] {
            let limit = Limit {
                name: "a".to_owned(),
                unit: "ms".to_owned(),
                must: Must::AtMost(most),
                measured,
            };
            assert_eq!(limit.is_disturbed_by_noise(), expected, "{limit:?}");
        }
    }

    fn outcome(values: Vec<f64>) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.add("idle", "delay", "ms", values);
        outcome.limit_median("idle", "delay", 1.0);
        outcome.limit_tail("idle", "delay", 2.0);
        outcome
    }

    #[test]
    fn limits_are_taken_from_the_cell() {
        let values = (0..200_u32).map(|at| f64::from(at) / 100.0).collect();
        let outcome = outcome(values);
        let found: Vec<_> = outcome.limits.iter().map(Limit::is_reached).collect();
        assert_eq!(found, [true, true]);
        assert_eq!(outcome.limits[1].measured, Some(1.97));
        assert_eq!(outcome.limits[1].unit, "ms");
    }

    #[test]
    fn a_count_of_nothing_is_unknown() {
        let mut outcome = Outcome::default();
        outcome.add("idle", "faults", "", vec![0.0, 1.0, 1.0]);
        outcome.limit_sum("idle", "faults", 2.0);
        outcome.limit_sum("busy", "faults", 2.0);
        let measured: Vec<_> = outcome.limits.iter().map(|limit| limit.measured).collect();
        assert_eq!(measured, [Some(2.0), None]);
    }

    #[test]
    fn few_runs_name_what_they_let_pass() {
        let mut values = vec![0.5; 19];
        values.push(9.0);
        let limits = outcome(values).limits;
        assert_eq!(limits[1].name, "delay, idle: p99 (1 of 20 may be above)");
        assert!(limits[1].is_reached());
    }

    #[test]
    fn a_cell_without_values_misses_its_limits() {
        let limits = outcome(Vec::new()).limits;
        assert!(limits.iter().all(|limit| !limit.is_reached()));
    }
}

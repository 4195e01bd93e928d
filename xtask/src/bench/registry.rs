//! Every benchmark of the project, and what one gives: cells of raw values, and figures to be reached.

/// The benchmarks in the order they run.
pub const BENCHMARKS: &[Benchmark] = &[];

/// One benchmark.
pub struct Benchmark {
    /// Its name: of `--only`, and of the file with its raw values.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// Measures. Leaves nothing behind, ends by itself, and stays within bounds of its own.
    pub run: fn(&Settings) -> anyhow::Result<Measured>,
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
}

/// What a benchmark gives.
#[derive(Debug)]
pub enum Measured {
    /// It ran.
    Ran {
        /// The raw values.
        cells: Vec<Cell>,
        /// The figures that must be reached.
        limits: Vec<Limit>,
    },
    /// It cannot run on this machine.
    Skipped {
        /// Why, and what it would need.
        reason: String,
    },
}

impl Measured {
    /// Whether no figure is missed; what was skipped has missed none.
    pub fn reached(&self) -> bool {
        match self {
            Self::Ran { limits, .. } => limits.iter().all(Limit::is_reached),
            Self::Skipped { .. } => true,
        }
    }
}

/// All values of one thing under one condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// What and under which condition, as `crossing to kill, idle, 4K`.
    pub name: String,
    /// Unit of the values, as `ms`.
    pub unit: &'static str,
    /// The values in the order they were measured.
    pub values: Vec<f64>,
}

/// How a measured value stands to its figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Must {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

/// A figure that must be reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// What is compared, as `p99 of crossing to kill, idle, 4K`.
    pub name: String,
    /// Unit of both numbers.
    pub unit: &'static str,
    /// The figure.
    pub must: Must,
    /// The value; nothing if it could not be measured, which misses the figure.
    pub measured: Option<f64>,
}

impl Limit {
    /// Whether the figure is reached.
    pub fn is_reached(&self) -> bool {
        match (self.measured, self.must) {
            (Some(measured), Must::AtMost(figure)) => measured <= figure,
            (Some(measured), Must::AtLeast(figure)) => measured >= figure,
            (None, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(must: Must, measured: Option<f64>, expected: bool) {
        let limit = Limit {
            name: "a".to_owned(),
            unit: "ms",
            must,
            measured,
        };
        assert_eq!(limit.is_reached(), expected, "{limit:?}");
        let measured = Measured::Ran {
            cells: Vec::new(),
            limits: vec![limit],
        };
        assert_eq!(measured.reached(), expected);
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
    fn what_is_skipped_has_missed_nothing() {
        assert!(
            Measured::Skipped {
                reason: "needs root".to_owned()
            }
            .reached()
        );
    }
}

//! Figures of many runs: what they come to, and whether they reach what they must.

use std::fmt;

/// Values by size.
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(self.0.len() / 2)
    }

    /// What 99 of a hundred reach; of fewer than a hundred that is the worst.
    pub(crate) fn of_99(&self) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.at(last - self.0.len() / 100)
    }

    pub(crate) fn worst(&self) -> f64 {
        self.at(self.0.len().saturating_sub(1))
    }

    /// Without any value it is none, and reaches nothing.
    fn at(&self, place: usize) -> f64 {
        self.0.get(place).copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = self.at(0);
        let worst = self.worst();
        write!(
            out,
            "n={} p50 {:.2} ms, best {least:.2} ms, worst {worst:.2} ms",
            self.0.len(),
            self.median()
        )
    }
}

/// Tells each figure with the most that it may be and whether it is reached, and then holds all of them to that.
pub(crate) fn hold(figures: &[(&str, f64, f64)]) {
    let mut missed = Vec::new();
    for (figure, value, most) in figures {
        let told = format!("{figure}: {value:.2}, at most {most}");
        if value <= most {
            println!("{told}: reached");
        } else {
            println!("{told}: **missed**");
            missed.push(told);
        }
    }
    assert!(missed.is_empty(), "missed: {missed:#?}");
}

/// So many of a hundred.
#[expect(clippy::cast_precision_loss, reason = "some hundreds")]
pub(crate) fn share(some: usize, all: usize) -> f64 {
    some as f64 * 100.0 / all as f64
}

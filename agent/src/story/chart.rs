//! A small chart for a terminal: an amount over time, filled, in eighths of a character or in plain ASCII.

use crate::record::text::{bytes, unsigned};

/// One value, so many milliseconds before the end of the chart.
pub type Point = (u32, u64);

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'a> {
    /// The values, in any order.
    pub points: &'a [Point],
    /// A line that is drawn across, if it is not far above all values.
    pub limit: Option<u64>,
    /// Columns of the whole.
    pub width: usize,
    /// Whether there are only ASCII characters.
    pub is_ascii: bool,
}

const ROWS: usize = 8;
/// Columns left of the drawing.
const MARGIN: usize = 10;
/// A limit higher than so many times the highest value would leave nothing to be seen.
const FAR: u64 = 4;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

impl Chart<'_> {
    /// The lines of the drawing; none where there is nothing to draw.
    pub fn lines(&self) -> Vec<String> {
        let span = self.points.iter().map(|(before, _)| *before).max();
        let Some(span) = span.filter(|span| *span > 0) else {
            return Vec::new();
        };
        let columns = self.columns(span);
        let highest = columns.iter().copied().max().unwrap_or(0).max(1);
        let limit = self
            .limit
            .filter(|limit| *limit <= highest.saturating_mul(FAR));
        let top = limit.map_or(highest, |limit| limit.max(highest));
        let mut lines: Vec<String> = (0..ROWS)
            .map(|row| self.row(&columns, (top, limit), row))
            .collect();
        lines.push(foot(columns.len(), span));
        lines
    }

    /// The highest value of each column; where none was taken, that of the column before.
    fn columns(&self, span: u32) -> Vec<u64> {
        let count = self.width.saturating_sub(MARGIN + 2).clamp(10, 100);
        let mut columns: Vec<Option<u64>> = vec![None; count];
        for &(before, value) in self.points {
            let past = u64::from(span - before.min(span));
            let place = past * (count as u64 - 1) / u64::from(span);
            if let Some(column) = columns.get_mut(usize::try_from(place).unwrap_or(0)) {
                *column = Some(column.map_or(value, |known| known.max(value)));
            }
        }
        let mut last = columns.iter().flatten().next().copied().unwrap_or(0);
        let filled = columns.into_iter().map(|column| {
            last = column.unwrap_or(last);
            last
        });
        filled.collect()
    }

    fn row(&self, columns: &[u64], (top, limit): (u64, Option<u64>), row: usize) -> String {
        let parts = (ROWS * 8) as u64;
        let level = |value: u64| u128::from(value) * u128::from(parts) / u128::from(top);
        let floor = ((ROWS - 1 - row) * 8) as u128;
        let is_limit = limit.is_some_and(|limit| {
            let at = level(limit).saturating_sub(1);
            at >= floor && at < floor + 8
        });
        let cell = |value: &u64| {
            let eighths = level(*value).saturating_sub(floor).min(8);
            match (self.is_ascii, eighths, is_limit) {
                (_, 0, true) => '-',
                (true, 0..=3, false) => ' ',
                (true, ..) => '#',
                (false, eighths, _) => EIGHTHS[usize::try_from(eighths).unwrap_or(8)],
            }
        };
        let label = match (row, is_limit, limit) {
            (_, true, Some(limit)) => unsigned(limit),
            (0, ..) => unsigned(top),
            _ => String::new(),
        };
        let wall = if self.is_ascii { '|' } else { '│' };
        let drawn: String = columns.iter().map(cell).collect();
        format!("{label:>MARGIN$} {wall}{}", drawn.trim_end())
    }
}

/// Where the drawing begins and ends.
fn foot(columns: usize, span: u32) -> String {
    let begin = format!("-{:.0} s", f64::from(span) / 1000.0);
    let end = "the incident";
    let room = columns.saturating_sub(begin.chars().count());
    format!("{:>MARGIN$}  {begin}{end:>room$}", bytes(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(points: &[Point], limit: Option<u64>, is_ascii: bool) -> Vec<String> {
        let chart = Chart {
            points,
            limit,
            width: 32,
            is_ascii,
        };
        chart.lines()
    }

    #[test]
    fn a_growth_to_the_limit_is_seen() {
        let points: Vec<Point> = (0..=20)
            .map(|at| (20_000 - at * 1000, u64::from(at) << 20))
            .collect();
        let drawn = lines(&points, Some(20 << 20), true);
        assert!(
            drawn[0].starts_with("    20.0Mi |") && drawn[0].ends_with('#'),
            "{drawn:#?}"
        );
        let heights: Vec<usize> = drawn[..ROWS]
            .iter()
            .map(|line| line.matches('#').count())
            .collect();
        assert!(heights.is_sorted() && heights[ROWS - 1] >= 18, "{drawn:#?}");
        assert!(lines(&points, None, false)[0].ends_with('█'));
    }

    #[test]
    fn nothing_is_drawn_of_nothing_and_a_far_limit_is_left_out() {
        assert!(lines(&[], None, true).is_empty());
        assert!(lines(&[(0, 7)], None, true).is_empty());
        let low = lines(&[(1000, 10), (0, 10)], Some(1 << 40), true);
        assert!(low[0].contains("10B") && low[0].contains('#'), "{low:#?}");
    }

    proptest! {
        #[test]
        fn a_chart_fits_its_width(points in prop::collection::vec((0..70_000_u32, 0..1_u64 << 49), 0..50), limit in prop::option::of(0..1_u64 << 49), width in 30..150_usize, is_ascii in any::<bool>()) {
            for line in (Chart { points: &points, limit, width, is_ascii }).lines() {
                prop_assert!(line.chars().count() <= width, "{line:?}");
                prop_assert!(!is_ascii || line.is_ascii());
            }
        }
    }
}

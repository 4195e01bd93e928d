//! Tables in Markdown that are read as well in a terminal.
use super::{
    registry::{Cell, Limit, Measured, Must},
    stats::Summary,
};

/// A table with its columns aligned; numbers belong in all columns but the first.
pub fn markdown<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let align = |(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        };
        let cells: Vec<_> = cells
            .into_iter()
            .zip(widths)
            .enumerate()
            .map(align)
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = |(column, width)| match column {
        0 => "-".repeat(width + 2),
        _ => "-".repeat(width + 1) + ":",
    };
    let rule: Vec<_> = widths.into_iter().enumerate().map(rule).collect();
    let rows: String = rows
        .iter()
        .map(|row| line(row.each_ref().map(String::as_str)))
        .collect();
    format!("{}|{}|\n{rows}", line(head), rule.join("|"))
}

/// One row a cell, with its quantiles.
pub fn of_cells<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> String {
    let rows: Vec<_> = cells.into_iter().map(cell_row).collect();
    let head = ["case", "what", "unit", "n", "p50", "p90", "p99", "max"];
    markdown(head, &rows)
}

fn cell_row(cell: &Cell) -> [String; 8] {
    let summary = Summary::of(&cell.values);
    let number = |of: fn(&Summary) -> f64| {
        summary
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), |summary| figure(of(summary)))
    };
    [
        cell.case.clone(),
        cell.what.clone(),
        cell.unit.clone(),
        cell.n.to_string(),
        number(|summary| summary.p50),
        number(|summary| summary.p90),
        number(|summary| summary.p99),
        number(|summary| summary.max),
    ]
}

/// One row a figure that must be reached, and one for each benchmark that could not run.
pub fn of_limits(measured: &[(&str, Measured)]) -> String {
    let mut rows = Vec::new();
    for (name, measured) in measured {
        match measured {
            Measured::Ran(outcome) => rows.extend(outcome.limits.iter().map(limit_row)),
            Measured::Skipped { reason } => {
                let row = [
                    format!("{name}: skipped: {reason}"),
                    String::new(),
                    String::new(),
                ];
                let [first, second, third] = row;
                rows.push([first, second, third, "skipped".to_owned()]);
            }
        }
    }
    markdown(LIMIT_HEAD, &rows)
}

/// The head of a table of figures.
pub const LIMIT_HEAD: [&str; 4] = ["must reach", "figure", "measured", "verdict"];

/// The row of one figure.
pub fn limit_row(limit: &Limit) -> [String; 4] {
    let must = match limit.must {
        Must::AtMost(most) | Must::Uncompared(most) => {
            format!("≤ {} {}", figure(most), limit.unit)
        }
        Must::AtLeast(least) => format!("≥ {} {}", figure(least), limit.unit),
    };
    let measured = limit.measured.map_or_else(
        || "unknown".to_owned(),
        |measured| format!("{} {}", figure(measured), limit.unit),
    );
    let verdict = match (limit.is_reached(), limit.is_missed()) {
        (true, _) => "reached",
        (_, true) => "MISSED",
        _ => "nothing to compare",
    };
    [limit.name.clone(), must, measured, verdict.to_owned()]
}

/// One figure as a sentence's part.
pub fn of_limit(limit: &Limit) -> String {
    let [name, must, measured, _verdict] = limit_row(limit).map(|cell| cell.trim().to_owned());
    format!("{name} is {measured} instead of {must}")
}

/// Three significant digits, and never fewer than the whole number has.
pub fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::registry::Outcome;
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.0123, "0.0123"),
            (0.5, "0.500"),
            (1.234, "1.23"),
            (-12.34, "-12.3"),
            (99.99, "100.0"),
            (1_234_567.8, "1234568"),
        ] {
            assert_eq!(figure(value), expected);
        }
    }

    #[test]
    fn cells_show_their_quantiles() {
        let mut outcome = Outcome::default();
        outcome.add("idle", "delay", "ms", vec![1.0, 2.0, 3.0]);
        outcome.add("lost", "delay", "ms", vec![]);
        let expected = "\
| case |  what | unit | n |     p50 |     p90 |     p99 |     max |
|------|------:|-----:|--:|--------:|--------:|--------:|--------:|
| idle | delay |   ms | 3 |    2.00 |    3.00 |    3.00 |    3.00 |
| lost | delay |   ms | 0 | unknown | unknown | unknown | unknown |
";
        assert_eq!(of_cells(&outcome.cells), expected);
    }

    #[test]
    fn limits_show_what_was_missed_and_what_was_skipped() {
        let limit = |name: &str, must, measured| Limit {
            name: name.to_owned(),
            unit: "ms".to_owned(),
            must,
            measured,
        };
        let limits = vec![
            limit("p50", Must::AtMost(0.5), Some(0.21)),
            limit("p99", Must::AtMost(2.0), None),
            limit("ratio", Must::Uncompared(1.0), None),
        ];
        let ran = Measured::Ran(Outcome {
            limits,
            ..Outcome::default()
        });
        let skipped = Measured::Skipped {
            reason: "needs root".to_owned(),
        };
        let expected = "\
| must reach                 |     figure | measured |            verdict |
|----------------------------|-----------:|---------:|-------------------:|
| p50                        | ≤ 0.500 ms | 0.210 ms |            reached |
| p99                        |  ≤ 2.00 ms |  unknown |             MISSED |
| ratio                      |  ≤ 1.00 ms |  unknown | nothing to compare |
| storm: skipped: needs root |            |          |            skipped |
";
        let Measured::Ran(outcome) = &ran else {
            unreachable!("made above");
        };
        assert_eq!(
            of_limit(&outcome.limits[1]),
            "p99 is unknown instead of ≤ 2.00 ms"
        );
        assert_eq!(
            of_limits(&[("crossing", ran), ("storm", skipped)]),
            expected
        );
    }
}

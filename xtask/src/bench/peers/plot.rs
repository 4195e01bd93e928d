//! Plots as SVG that follow a reader's light or dark colours, made of text, so that they need nothing and can be diffed.
use std::fmt::Write as _;

use super::{
    contender::Contender,
    report::{Report, delays},
    wire::Found,
};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 110.0;
const ROW: f64 = 34.0;
const TOP: f64 = 62.0;
/// The axis of delays: from a tenth of a millisecond to ten seconds.
const DECADES: [(f64, &str); 6] = [
    (0.1, "0.1 ms"),
    (1.0, "1 ms"),
    (10.0, "10 ms"),
    (100.0, "100 ms"),
    (1_000.0, "1 s"),
    (10_000.0, "10 s"),
];
const STYLE: &str = "<style>\
text{font:13px system-ui,sans-serif;fill:#1f2328}\
.title{font-weight:600;font-size:15px}.small{font-size:12px;fill:#59636e}\
.grid{stroke:#d1d9e0}.dot{fill:#0969da;fill-opacity:.55}.own{fill:#1a7f37;fill-opacity:.75}\
.lost{stroke:#cf222e;stroke-width:2}.median{stroke:#1f2328;stroke-width:2}\
.kept{fill:#0969da}.bad{fill:#cf222e}\
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}.grid{stroke:#3d444d}\
.dot{fill:#4493f8}.own{fill:#3fb950}.lost{stroke:#f85149}.median{stroke:#f0f6fc}.kept{fill:#4493f8}.bad{fill:#f85149}}\
</style>";

/// Every run's delay on one line a tool; what was lost stands beside it.
pub(super) fn of_delays(report: &Report) -> String {
    let mut contenders = report.tools();
    contenders.retain(|each| *each != Contender::Nothing);
    let bottom = row_at(contenders.len());
    let mut svg = open(
        "From the limit crossed to the first signal",
        "one dot a run, all loads; × the kernel's OOM killer or a lock-up came first; | median of the others",
        bottom + 30.0,
    );
    for (value, name) in DECADES {
        let x = place(value);
        let _ = writeln!(
            svg,
            r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{bottom}"/><text class="small" x="{x:.1}" y="{:.1}" text-anchor="middle">{name}</text>"#,
            bottom + 18.0
        );
    }
    for (at, contender) in contenders.into_iter().enumerate() {
        let runs: Vec<&Found> = report.loud(contender).collect();
        let y = row_at(at) + ROW / 2.0;
        label(&mut svg, y, contender);
        line_of(&mut svg, y, contender, &delays(&runs));
    }
    svg + "</svg>\n"
}

fn line_of(svg: &mut String, y: f64, contender: Contender, delays: &[f64]) {
    let class = if contender == Contender::Brink {
        "own"
    } else {
        "dot"
    };
    let mut kept: Vec<f64> = delays
        .iter()
        .copied()
        .filter(|delay| delay.is_finite())
        .collect();
    kept.sort_by(f64::total_cmp);
    for (at, delay) in kept.iter().enumerate() {
        // Side by side, so that equal ones do not hide each other.
        let off = [0.0, -6.0, 6.0, -3.0, 3.0][at % 5];
        let _ = writeln!(
            svg,
            r#"<circle class="{class}" cx="{:.1}" cy="{:.1}" r="3.5"/>"#,
            place(*delay),
            y + off
        );
    }
    if let Some(median) = kept.get(kept.len().saturating_sub(1) / 2) {
        let x = place(*median);
        let _ = writeln!(
            svg,
            r#"<line class="median" x1="{x:.1}" y1="{:.1}" x2="{x:.1}" y2="{:.1}"/>"#,
            y - 12.0,
            y + 12.0
        );
    }
    let lost = delays.len() - kept.len();
    if lost > 0 {
        let x = WIDTH - RIGHT + 16.0;
        let _ = writeln!(
            svg,
            r#"<path class="lost" d="M{:.1} {:.1}l10 10m0 -10l-10 10"/><text x="{:.1}" y="{:.1}">{lost} of {}</text>"#,
            x,
            y - 5.0,
            x + 18.0,
            y + 4.5,
            delays.len()
        );
    }
}

/// The share of runs that was lost, a bar a tool.
pub(super) fn of_losses(report: &Report) -> String {
    let tools = report.tools();
    let mut svg = open(
        "Runs in which the kernel's OOM killer or a lock-up came first",
        "of all runs under loads that grow until somebody acts; runs in which nobody acted are counted",
        row_at(tools.len()) + 12.0,
    );
    let full = WIDTH - LEFT - RIGHT;
    for (at, contender) in tools.into_iter().enumerate() {
        let runs: Vec<&Found> = report.loud(contender).collect();
        let lost = runs.iter().filter(|run| run.is_lost()).count();
        let share = ratio(lost, runs.len());
        let y = row_at(at) + ROW / 2.0;
        label(&mut svg, y, contender);
        let _ = writeln!(
            svg,
            r#"<rect class="grid" fill="none" x="{LEFT}" y="{:.1}" width="{full:.1}" height="16"/><rect class="bad" x="{LEFT}" y="{:.1}" width="{:.1}" height="16"/><text x="{:.1}" y="{:.1}">{:.0} %, {lost} of {}</text>"#,
            y - 8.0,
            y - 8.0,
            full * share,
            WIDTH - RIGHT + 8.0,
            y + 4.5,
            100.0 * share,
            runs.len()
        );
    }
    svg + "</svg>\n"
}

fn label(svg: &mut String, y: f64, contender: Contender) {
    let _ = writeln!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
        LEFT - 12.0,
        y + 4.5,
        contender.word()
    );
}

fn open(title: &str, what: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n\
         {STYLE}\n<text class=\"title\" x=\"12\" y=\"24\">{title}</text>\n<text class=\"small\" x=\"12\" y=\"44\">{what}</text>\n"
    )
}

#[expect(clippy::cast_precision_loss, reason = "a few rows")]
fn row_at(row: usize) -> f64 {
    TOP + ROW * row as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts of runs")]
fn ratio(count: usize, all: usize) -> f64 {
    count as f64 / all.max(1) as f64
}

/// Where a delay is on the axis.
fn place(millis: f64) -> f64 {
    let [(least, _), .., (most, _)] = DECADES;
    let part = (millis.max(least) / least).log10() / (most / least).log10();
    LEFT + part.min(1.04) * (WIDTH - LEFT - RIGHT)
}

#[cfg(test)]
mod tests {
    use super::super::{
        report::tests::{report, run},
        workload::Workload,
    };
    use super::*;

    #[test]
    fn a_share_has_no_digits_that_nobody_measured() {
        let good = run(Contender::Brink, Workload::Anon(100), Some(1_000_000));
        let lost = run(Contender::Brink, Workload::Anon(100), None);
        let idle = run(Contender::Nohang, Workload::Idle, None);
        let svg = of_losses(&report(
            [vec![good; 39], vec![lost; 2], vec![idle]].concat(),
        ));
        assert!(svg.contains(">5 %, 2 of 41</text>"), "{svg}");
        assert!(svg.contains(">0 %, 0 of 0</text>"), "{svg}");
        assert!(!svg.contains(Contender::Oomd.word()), "{svg}");
    }

    #[test]
    fn delays_have_their_place() {
        assert!((place(0.1) - LEFT).abs() < 1e-9 && (place(0.01) - LEFT).abs() < 1e-9);
        assert!((place(10_000.0) - (WIDTH - RIGHT)).abs() < 1e-6);
        assert!(place(1.0) < place(10.0) && place(1e9) < WIDTH - RIGHT + 30.0);
    }
}

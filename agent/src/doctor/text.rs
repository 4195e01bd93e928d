//! The report as a page for a terminal: what is wrong first, what is well in one line each, the verdict last.

use std::fmt::{self, Write as _};

use super::check::{Check, State};
use super::report::Report;
use crate::record::text::unsigned;
use crate::terminal::{Paint, painted, plain, wrapped};

/// The report for a terminal of a width, in colour or not.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The report.
    pub report: &'a Report,
    /// Columns.
    pub width: usize,
    /// Whether the terminal shows colours.
    pub colour: bool,
    /// Whether to say what was found where all is well.
    pub all: bool,
}

/// Columns that a page takes at least, and at most: longer lines are hard to read.
const NARROWEST: usize = 60;
const WIDEST: usize = 110;
/// What stands before the text of a problem: `  found    `.
const INDENT: usize = 11;

impl fmt::Display for Page<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heading(out)?;
        for state in State::ALL {
            let mut checks = self
                .report
                .checks
                .iter()
                .filter(|check| check.state == state)
                .peekable();
            if checks.peek().is_none() {
                continue;
            }
            match state {
                State::Ok => {
                    out.write_char('\n')?;
                    if self.all {
                        checks.try_for_each(|check| self.line(out, check))?;
                    } else {
                        self.areas(out, checks)?;
                    }
                }
                _ => checks.try_for_each(|check| {
                    out.write_char('\n')?;
                    self.problem(out, check)
                })?,
            }
        }
        self.verdict(out)
    }
}

impl Page<'_> {
    fn heading(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.report.machine;
        let mut words = vec![
            machine
                .host
                .clone()
                .unwrap_or_else(|| "this machine".to_owned()),
        ];
        words.extend(
            machine
                .kernel
                .as_ref()
                .map(|release| format!("Linux {release}")),
        );
        words.push(machine.architecture.to_owned());
        words.extend(machine.memory_bytes.map(unsigned));
        let text = format!("brink {} on {}", self.report.version, words.join(", "));
        self.paragraph(out, "", &text, Some(Paint::Strong))
    }

    /// What is not well: every part of it, and commands on lines of their own.
    fn problem(&self, out: &mut fmt::Formatter<'_>, check: &Check) -> fmt::Result {
        let state = painted(
            &check.state.word().to_uppercase(),
            paint(check.state),
            self.colour,
        );
        let id = painted(&plain(&check.id), Paint::Strong, self.colour);
        writeln!(out, "{state} {id}: {}", check.title)?;
        let whole = std::slice::from_ref(&check.found);
        let parts = match check.parts.as_slice() {
            [] => whole,
            parts => parts,
        };
        for (part, label) in parts.iter().zip(labels("found")) {
            self.labelled(out, label, part)?;
        }
        if let Some(follows) = &check.follows {
            self.labelled(out, "follows", follows)?;
        }
        for (step, label) in check.next.iter().zip(labels("do")) {
            self.labelled(out, label, &step.text)?;
            if let Some(command) = &step.command {
                writeln!(out, "{:INDENT$}$ {}", "", plain(command))?;
            }
        }
        Ok(())
    }

    fn labelled(&self, out: &mut fmt::Formatter<'_>, label: &str, text: &str) -> fmt::Result {
        let label = format!("  {label:<width$}", width = INDENT - 2);
        self.paragraph(out, &label, text, None)
    }

    /// What is well, in one line where it fits.
    fn line(&self, out: &mut fmt::Formatter<'_>, check: &Check) -> fmt::Result {
        const WIDTH: usize = 24;
        let id = format!("ok {:<WIDTH$} ", plain(&check.id));
        self.paragraph(out, &id, &check.found, None)
    }

    /// What is well, by name only: an area a line.
    fn areas<'a>(
        &self,
        out: &mut fmt::Formatter<'_>,
        checks: impl Iterator<Item = &'a Check>,
    ) -> fmt::Result {
        const WIDTH: usize = 12;
        let mut areas: Vec<(&str, Vec<&str>)> = Vec::new();
        for check in checks {
            let (area, subject) = check.id.split_once('.').unwrap_or((&check.id, "none"));
            match areas.iter_mut().find(|(known, _)| *known == area) {
                Some((_, subjects)) => subjects.push(subject),
                None => areas.push((area, Vec::from([subject]))),
            }
        }
        for (area, subjects) in areas {
            let label = format!("ok {:<WIDTH$} ", plain(area));
            self.paragraph(out, &label, &subjects.join(", "), None)?;
        }
        let hint = "what was found of each is said with --all";
        self.paragraph(out, &format!("{:15} ", ""), hint, Some(Paint::Faint))
    }

    fn verdict(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.report;
        out.write_char('\n')?;
        for reason in &report.rung_reasons {
            self.paragraph(out, "- ", reason, None)?;
        }
        let scheduling = report.scheduling.as_ref();
        let scheduling = scheduling.map_or_else(String::new, |words| format!(" ({words})"));
        let mode = match (report.mode, report.configured_mode) {
            ("enforcing", _) | ("observing", "observe") => report.mode.to_owned(),
            (reason, configured) => {
                format!("observing ({reason}, though configured to {configured})")
            }
        };
        let counts = report.counts;
        let plural = if counts.warning == 1 { "" } else { "s" };
        let unknown = match counts.unknown {
            0 => String::new(),
            some => format!(", {some} unknown"),
        };
        let counts = format!(
            "{} failed, {} warning{plural}{unknown}",
            counts.failed, counts.warning
        );
        let text = format!("rung {}{scheduling}, {mode}; {counts}", report.rung);
        let colour = if report.has_failed() {
            Paint::Error
        } else if report.counts.warning > 0 {
            Paint::Warning
        } else {
            Paint::Strong
        };
        self.paragraph(out, "verdict: ", &text, Some(colour))
    }

    /// Text behind a label, broken between words; further lines begin under the first one's text. Nothing the machine
    /// says reaches the terminal but through here and [`plain`].
    fn paragraph(
        &self,
        out: &mut fmt::Formatter<'_>,
        label: &str,
        text: &str,
        colour: Option<Paint>,
    ) -> fmt::Result {
        let indent = label.chars().count();
        let width = self
            .width
            .clamp(NARROWEST, WIDEST)
            .saturating_sub(indent)
            .max(20);
        let show = |line: &str| match colour {
            Some(colour) => painted(line, colour, self.colour),
            None => line.to_owned(),
        };
        let mut start = label.to_owned();
        for line in wrapped(&plain(text), width) {
            writeln!(out, "{start}{}", show(&line))?;
            start = " ".repeat(indent);
        }
        Ok(())
    }
}

/// The label of the first of several, and none of all others.
fn labels(first: &'static str) -> impl Iterator<Item = &'static str> {
    std::iter::once(first).chain(std::iter::repeat(""))
}

const fn paint(state: State) -> Paint {
    match state {
        State::Failed => Paint::Error,
        State::Warning | State::Unknown => Paint::Warning,
        State::Note | State::Ok => Paint::Strong,
    }
}
